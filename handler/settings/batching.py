"""`batching` of model-settings.json: its own names, Triton's and TensorFlow Serving's."""

from collections.abc import Mapping
from typing import Any, Final

from core.operations import Batching
from handler.settings.checked import Wrong, an_object, number

ROWS: Final = 32
"""The most rows of a batch if no setting says another number; as KServe's batcher."""
MOST_ROWS: Final = 8192
"""The statistics have an entry for each number of rows."""
SECONDS: Final = 0.005
MOST_SECONDS: Final = 1.0
MOST_PREFERRED: Final = 64
DELAYS: Final = {"max_delay_ms": 1e3, "max_queue_delay_microseconds": 1e6, "batch_timeout_micros": 1e6}
"""The names of the longest wait, each with its units in a second."""
PREFERRED: Final = ("preferred", "preferred_batch_size")
ELSEWHERE: Final = (
    *("preserve_ordering", "priority_levels", "default_priority_level", "default_queue_policy"),
    *("priority_queue_policy", "num_batch_threads", "max_enqueued_batches"),
)
"""Keys of the other servers that are ignored: lanes and limits are those of all requests here."""


def parse(members: Mapping[str, Any], rows: int) -> Batching:
    """Reads "batching", or Triton's "dynamic_batching". `rows`: the model's max_batch_size, 0 if not given.

    Raises Wrong.
    """
    given = [key for key in ("batching", "dynamic_batching") if members.get(key) is not None]
    key = given[0]
    if len(given) > 1:
        raise Wrong(given[1], members[given[1]], f"no such key beside {key}: both mean the same")
    said = an_object(members[key], key, "max_batch_size", *DELAYS, *PREFERRED, *ELSEWHERE)
    most = _whole(said.get("max_batch_size", min(rows, MOST_ROWS) or ROWS), f"{key}.max_batch_size")
    return Batching(most, _seconds(said, key), _preferred(said, key, most))


def _only(said: Mapping[str, Any], key: str, names: tuple[str, ...]) -> str | None:
    """Returns which of the names, which mean the same, is given. Raises Wrong for more than one."""
    given = [name for name in names if name in said]
    if len(given) > 1:
        raise Wrong(f"{key}.{given[1]}", said[given[1]], f"no such key beside {given[0]}: both mean the same")
    return given[0] if given else None


def _plain(value: Any) -> Any:
    """Returns the number of TensorFlow Serving's {"value": number}."""
    return value["value"] if isinstance(value, dict) and value.keys() == {"value"} else value


def _whole(value: Any, path: str, most: int = MOST_ROWS) -> int:
    value = _plain(value)
    if number(value, path, 1) > most:
        raise Wrong(path, value, f"a whole number from 1 to {most}")
    return int(value)


def _seconds(said: Mapping[str, Any], key: str) -> float:
    name = _only(said, key, tuple(DELAYS))
    if name is None:
        return SECONDS
    value, units = _plain(said[name]), DELAYS[name]
    if type(value) not in (int, float) or not 0 <= value <= MOST_SECONDS * units:
        raise Wrong(f"{key}.{name}", value, f"a number from 0 to {MOST_SECONDS * units:.0f}")
    return float(value) / units


def _preferred(said: Mapping[str, Any], key: str, most: int) -> tuple[int, ...]:
    name = _only(said, key, PREFERRED)
    if name is None:
        return ()
    path, sizes = f"{key}.{name}", said[name]
    if not isinstance(sizes, list) or len(sizes) > MOST_PREFERRED:
        raise Wrong(path, sizes, f"an array of at most {MOST_PREFERRED} sizes")
    return tuple(sorted({_whole(size, f"{path}[{index}]", most) for index, size in enumerate(sizes)}))

"""The key "warmup" of model-settings.json: requests that a version answers before it is ready.

    "warmup": [{"random": true, "count": 2, "shapes": {"x": [8, 4]}}, {"file": "warmup.json"}]

`random`: random tensors in the shapes that the model declares, with 1 for an open dimension, or in `shapes`. `file`: a
JSON request beside the model, as in the body of /v2/models/NAME/infer. `count`: the number of times; default 1. All
counts together are at most 1,000. One request has at most 256 MiB, and all of them 4 GiB.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from core.records import NamedTuple
from handler.settings.checked import Wrong, a_shape, an_object, is_below, number

MOST: Final = 1000
"""The most requests, counted over all members."""


class WarmUp(NamedTuple):
    """A warm-up request. `file` None: random tensors."""

    file: str | None = None
    times: int = 1
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})


def parse(value: Any) -> tuple[WarmUp, ...]:
    """Parses the key's value. Raises Wrong."""
    if not isinstance(value, list):
        raise Wrong("warmup", value, "an array of requests")
    requests = tuple(_request(member, f"warmup[{index}]") for index, member in enumerate(value[: MOST + 1]))
    if (total := sum(request.times for request in requests)) > MOST:
        raise Wrong("warmup", f"{total} requests", f"at most {MOST}, counted over all members")
    return requests


def _request(value: Any, path: str) -> WarmUp:
    members = an_object(value, path, "random", "file", "count", "shapes")
    file = members.get("file")
    if (members.get("random") is True) == (file is not None):
        raise Wrong(path, value, 'either "random": true or a "file"')
    if file is not None and not is_below(file):
        raise Wrong(f"{path}.file", file, "a path in the version's folder")
    count = number(members.get("count", 1), f"{path}.count", 1)
    if count > MOST:
        raise Wrong(f"{path}.count", count, f"at most {MOST}")
    return WarmUp(file, count, _shapes(members.get("shapes", {}), f"{path}.shapes"))


def _shapes(value: Any, path: str) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for name, shape in an_object(value, path).items():
        shapes[name] = a_shape(shape, f"{path}.{name}", least=0)
    return shapes

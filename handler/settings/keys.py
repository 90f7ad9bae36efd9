"""Unused keys of model-settings.json: mistyped ones are named, those of other servers are not."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

from core.errors import nearest, shown
from core.records import NamedTuple

MLSERVER: Final = frozenset(
    ("versions", "parameters", "parallel_workers", "warm_workers", "max_batch_time", "cache_enabled", "$schema")
)
"""The keys of MLServer's model-settings.json without a meaning here, and that of JSON Schema."""
TRITON: Final = frozenset((
    "backend", "runtime", "input", "output", "batch_input", "batch_output", "optimization",
    "sequence_batching", "ensemble_scheduling", "instance_group", "default_model_filename", "cc_model_filenames",
    "metric_tags", "model_warmup", "model_operations", "model_transaction_policy", "model_repository_agents",
    "response_cache", "model_metrics",
))  # fmt: skip
"""The fields of Triton's ModelConfig without a meaning here."""
TENSOR: Final = frozenset(("name", "datatype", "shape", "reshape", "format", "parameters", "tags"))
"""The keys of a tensor. MLServer has the last two."""
TENSORS: Final = {"inputs": TENSOR, "outputs": TENSOR | {"labels"}}
"""By the list of tensors, the keys of each of them."""
POLICIES: Final = {"latest": {"num_versions"}, "specific": {"versions"}}
"""By the version policy, the keys of its options."""
MOST_NAMED: Final = 8
LONGEST: Final = 64
"""The most characters of a key that are shown."""


def note(members: Mapping[str, Any], own: Collection[str]) -> str:
    """Returns which keys are unknown, each with the nearest known one, "" without any. `own`: the known keys."""
    found = list(_unknown(members, own))
    if not found:
        return ""
    named = ", ".join(each.text() for each in found[:MOST_NAMED])
    more = f" and {len(found) - MOST_NAMED} more" if len(found) > MOST_NAMED else ""
    return f"model-settings.json has the unknown {'key' if len(found) == 1 else 'keys'} {named}{more}"


class UnknownKey(NamedTuple):
    """An unknown key of an object. `place`: the object, as the key's prefix. `known`: the keys that it can have."""

    key: str
    known: Collection[str]
    place: str

    def text(self) -> str:
        """Returns the key with the nearest known one. To find that takes 0.1 ms and more."""
        plain = {_plain(key): key for key in self.known}
        near = nearest(_plain(self.key), plain)
        return shown(self.place + self.key, LONGEST) + (f" (did you mean {plain[near]!r}?)" if near else "")


def _unknown(members: Mapping[str, Any], own: Collection[str]) -> Iterator[UnknownKey]:
    yield from _odd(members.keys() - MLSERVER - TRITON, own, "")
    policy = members.get("version_policy")
    for kind, options in policy.items() if isinstance(policy, dict) else ():
        yield from _odd(options or (), POLICIES.get(kind, ()), f"version_policy.{kind}.")
    for role, known in TENSORS.items():
        for index, tensor in enumerate(members.get(role) or ()):
            yield from _odd(tensor, known, f"{role}[{index}].")


def _odd(keys: Collection[str], known: Collection[str], place: str) -> Iterator[UnknownKey]:
    return (UnknownKey(key, known, place) for key in sorted(set(keys) - set(known)))


def _plain(key: str) -> str:
    """Returns a key without what spellings differ in: versionPolicy and version-policy are version_policy."""
    return key.lower().replace("_", "").replace("-", "")

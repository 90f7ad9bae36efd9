"""The keys of model-settings.json that route requests to versions: the policy, the labels, the canary."""

import re
from collections.abc import Collection
from typing import Any, Final

from core.records import NamedTuple
from handler.settings.checked import Wrong, an_object, number

VERSION: Final = re.compile(r"[1-8][0-9]{18}|[0-9]{1,18}")
"""Matches the name of a version's folder. Its number fits into 64 bits: nanoseconds since 1970 have 19 digits."""
LARGEST: Final = 9 * 10**18 - 1
"""The highest number of a version."""
ROUNDING: Final = 1e-9


class VersionPolicy(NamedTuple):
    """The versions that are served: the `latest` n, all (None), or these `specific` ones."""

    latest: int | None = 1
    specific: tuple[int, ...] = ()

    def choose(self, versions: list[int]) -> list[int]:
        if self.specific:
            return [version for version in versions if version in self.specific]
        return versions if self.latest is None else versions[-self.latest :]


def free(taken: Collection[int]) -> int:
    """Returns the number after the highest of those taken; the highest free one if that is not a version's number.

    >>> free(()), free((1, 3)), free((8999999999999999999,))
    (1, 4, 8999999999999999998)
    """
    number = max(taken, default=0) + 1
    while number > LARGEST or number in taken:
        number = min(number, LARGEST + 1) - 1
    return number


def version_policy(value: Any) -> VersionPolicy:
    if value is None:
        return VersionPolicy()
    policy = an_object(value, "version_policy")
    if len(policy) != 1 or next(iter(policy)) not in ("latest", "all", "specific"):
        raise Wrong("version_policy", policy, "exactly one of latest, all, specific")
    kind, options = next(iter(policy.items()))
    options = an_object(options, f"version_policy.{kind}")
    if kind == "all":
        return VersionPolicy(latest=None)
    if kind == "latest":
        return VersionPolicy(latest=number(options.get("num_versions", 1), "version_policy.latest.num_versions", 1))
    versions = options.get("versions")
    if not isinstance(versions, list) or not versions:
        raise Wrong("version_policy.specific.versions", versions, "an array of at least one version")
    return VersionPolicy(
        specific=tuple(number(v, f"version_policy.specific.versions[{i}]", 0) for i, v in enumerate(versions))
    )


def canary(value: Any) -> dict[int, float]:
    members = {} if value is None else an_object(value, "canary")
    shares = {}
    for version, share in members.items():
        if not VERSION.fullmatch(version):
            raise Wrong("canary", version, "a version's number as key, below 9 * 10**18")
        if type(share) not in (int, float) or not 0 <= share <= 1:
            raise Wrong(f"canary.{version}", share, "a share from 0 to 1")
        shares[int(version)] = float(share)
    if sum(shares.values()) > 1 + ROUNDING:
        raise Wrong("canary", members, "shares that add up to 1 at most")
    return shares


def version_labels(value: Any) -> dict[str, int]:
    """Returns the labels' versions. Whether a version exists is checked when a request uses its label."""
    members = {} if value is None else an_object(value, "version_labels")
    return {label: number(version, f"version_labels.{label}", 0) for label, version in members.items()}

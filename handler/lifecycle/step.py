"""One step of a rollout: the versions that have to load before a model moves to what was found."""

from core.errors import ServingError, StillLoading
from core.records import NamedTuple
from handler.lifecycle.models import ListedModel
from handler.lifecycle.versions import ServedVersion
from handler.stores import Gone


class Step(NamedTuple):
    """Versions to load before `after` takes the place of `base`. `spared`: what serves, and stays in memory meanwhile.

    `optional`: canaries among the versions, whose failure changes nothing; they come last.
    """

    base: ListedModel
    after: ListedModel
    versions: tuple[ServedVersion, ...]
    spared: tuple[ServedVersion, ...]
    optional: tuple[ServedVersion, ...]

    def allows(self, error: ServingError, version: ServedVersion) -> bool:
        """Decides whether the step goes on after a version's error. A load out of time goes on with a later request."""
        return version in self.optional and not isinstance(error, StillLoading)

    def keeps(self, error: ServingError, version: ServedVersion) -> bool:
        """Decides whether the old version of that number continues to serve after this error."""
        before = self.base.versions.get(version.version.number)
        is_replaced = before is not None and before is not version and before.serves
        is_other = version is not self.after.stable and version not in self.optional
        return is_replaced and is_other and not isinstance(error, Gone | StillLoading)


def step_to(base: ListedModel, after: ListedModel, versions: list[ServedVersion]) -> Step:
    """Returns the step from one entry of a model to a later one. `versions`: those to load."""
    canaries = tuple(version for version in after.canaries if version is not after.stable)
    serving = tuple(version for version in base.versions.values() if version.loaded is not None)
    ordered = dict.fromkeys([*(version for version in versions if version not in canaries), *canaries])
    return Step(base, after, tuple(ordered), serving if after is not base else (), canaries)

"""The models that one loaded pipeline calls, held in memory."""

from collections.abc import Callable, Mapping

from core.operations import ModelRef
from handler.lifecycle.catalog import Catalog
from handler.lifecycle.models import stable
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import ServedVersion

Wanted = tuple[str, int | None]
"""A model's name, and the version that a pipeline asks for; None: the one that serves."""


class HeldParts:
    """Implements handler.backends.PipelineParts. Each model counts as in use for as long as this object lives.

    `owner`: the pipeline's version. `versions`: of the models. `note`: called with each of these objects. `seen`:
    the catalog's references as of the last look.
    """

    __slots__ = ("__weakref__", "_catalog", "_note", "held", "owner", "seen", "versions")

    def __init__(
        self,
        owner: ServedVersion,
        catalog: Catalog,
        versions: Mapping[Wanted, ServedVersion],
        held: dict[Wanted, Loaded],
        note: "Callable[[HeldParts], None]",
    ) -> None:
        """`held`: each with a use of its own, which `hold` began."""
        self.held = held
        self.owner = owner
        self.versions = versions
        self._catalog = catalog
        self.seen: object = None
        self._note = note
        note(self)

    def renewed(self) -> "HeldParts | None":
        """Returns the versions that serve now; None if nothing has changed since the last call."""
        ready = self._catalog.ready
        if ready is self.seen:
            return None
        self.seen = ready
        versions = dict(self.versions)
        for wanted in versions:
            target = ready.get(ref_of(wanted))
            if target is not None and stable(target).loaded is not None:
                versions[wanted] = stable(target)
        if all(version.loaded in (None, self.held[wanted]) for wanted, version in versions.items()):
            return None
        found = {wanted: hold(version) or self.held[wanted].again() for wanted, version in versions.items()}
        newer = HeldParts(self.owner, self._catalog, versions, found, self._note)
        newer.seen = ready
        return newer

    def release(self) -> None:
        """Ends the uses. No gate is opened: the collector may call this in the midst of anything.

        Loads that wait for memory look by themselves soon.
        """
        while self.held:
            self.held.popitem()[1].uses.pop()

    def __del__(self) -> None:
        self.release()


def ref_of(wanted: Wanted) -> ModelRef:
    name, number = wanted
    return ModelRef(name, None if number is None else str(number))


def hold(version: ServedVersion) -> Loaded | None:
    """Begins a use by a pipeline, which does not count as the model's last use. None if the model is not in memory."""
    loaded = version.loaded
    if loaded is None:
        return None
    loaded.again()
    if version.loaded is not loaded:  # evicted meanwhile, see ServedVersion.use
        loaded.__exit__()
        return None
    return loaded

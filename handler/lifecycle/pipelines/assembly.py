"""Brings the models of a pipeline's steps into memory, before the pipeline itself is loaded.

The threads that load models never wait for one another here: a pipeline loads what it needs in threads of its own.
Pipelines that need memory take turns. Otherwise each of two could hold what the other one waits for. A turn ends after
a while: a load waits for memory no longer than ROOM_SECONDS, and one that takes longer may never end.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from core.deadline import Deadline
from core.errors import (
    Fault,
    ModelNotFound,
    ModelNotLoadable,
    ModelUnavailable,
    ServingError,
    VersionNotFound,
    located,
    shown,
)
from core.operations import ModelRef
from core.records import NamedTuple
from handler import backends
from handler.backends import Source
from handler.lifecycle.catalog import Catalog
from handler.lifecycle.models import stable
from handler.lifecycle.pipelines.parts import HeldParts, Wanted, hold, ref_of
from handler.lifecycle.repository import Repository
from handler.lifecycle.room.budget import ROOM_SECONDS
from handler.lifecycle.single_flight import Load
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import ServedVersion
from handler.stores.progress import Progress, unless_done

if TYPE_CHECKING:
    import threading

LOADERS: Final = 4
"""The most models of one pipeline that are loaded at the same time."""
TRIES: Final = 3


Obtain = Callable[[ModelRef, Load, Sequence[ServedVersion]], None]
"""Loads what a reference means. The versions stay in memory meanwhile."""


class CallPlace(NamedTuple):
    """Where a pipeline calls a model. `step`: names the step; `model`: its key, with the model."""

    step: str
    model: str

    def of(self, error: ServingError) -> ServingError:
        """Returns the error of that model as one of the pipeline, which is there."""
        if isinstance(error, ModelNotFound | VersionNotFound):
            cure = "; its version_policy has to name the version" if isinstance(error, VersionNotFound) else ""
            return ModelNotLoadable(f"{self.model}; expected a model of this repository: {error.message}{cure}")
        return located(error, self.step)


def _said(wanted: Wanted) -> str:
    name, number = wanted
    return shown(name) if number is None else f"{shown(name)} version {number}"


class Assembly:
    """`obtain`: loads a model. `note`: called with the parts of each pipeline. `turn`: None if memory has no limit."""

    def __init__(
        self,
        repository: Repository,
        catalog: Catalog,
        obtain: Obtain,
        note: Callable[[HeldParts], None],
        turn: "threading.Lock | None",
    ) -> None:
        self._repository = repository
        self._catalog = catalog
        self._obtain = obtain
        self._note = note
        self._turn = turn

    def parts(
        self, owner: ServedVersion, source: Source, progress: Progress, spared: Sequence[ServedVersion]
    ) -> HeldParts:
        """Returns the models of a pipeline, all of them in memory. `spared`: versions that are not evicted for them.

        Raises ServingError with the name of the step whose model cannot be had.
        """
        from handler.backends.pipeline.model import place_of, said_of  # noqa: PLC0415 - for pipelines only

        said = said_of(source)
        versions: dict[Wanted, ServedVersion] = {}
        places: dict[Wanted, CallPlace] = {}
        for step in said.steps:
            for call in step.calls:
                if call.function is not None:
                    continue
                wanted = call.model, call.version
                if wanted not in versions:
                    step_of = f"step {shown(step.name)} of model {shown(source.name)}"
                    places[wanted] = CallPlace(
                        step_of, f"{place_of(said, source)}: {call.path}.model is {_said(wanted)}"
                    )
                    versions[wanted] = self._resolved(wanted, places[wanted], progress.deadline)
        spared = (*spared, *versions.values())
        with self._in_turn(versions.values(), progress):
            return self._held(owner, places, versions, spared, progress)

    def _resolved(self, wanted: Wanted, place: CallPlace, deadline: Deadline) -> ServedVersion:
        """Raises ModelNotLoadable for a model that is not there, or that is a pipeline itself."""
        try:
            version = stable(self._catalog.resolve(ref_of(wanted), deadline))
            said = self._repository.settings(version.listing, version.version, deadline)
        except ServingError as error:
            raise place.of(error) from error
        if backends.is_pipeline(version.version.paths, said):
            raise ModelNotLoadable(f"{place.model}, a pipeline; expected a model that is not a pipeline")
        return version

    @contextmanager
    def _in_turn(self, versions: Iterable[ServedVersion], progress: Progress) -> Iterator[None]:
        """Waits for the pipeline that is being loaded, if both may need memory."""
        if self._turn is None or all(version.loaded is not None for version in versions):
            yield
            return
        deadline = progress.deadline
        progress.waits_for = "another pipeline's load"
        if not self._turn.acquire(timeout=-1 if deadline.is_never else max(0.0, deadline.left)):
            raise progress.unanswered()
        progress.waits_for = "the models of its steps"
        turn = progress.turn(self._turn.release)
        try:
            with unless_done(ROOM_SECONDS, turn.end):
                yield
        finally:
            progress.waits_for = ""
            turn.end()

    def _held(
        self,
        owner: ServedVersion,
        places: dict[Wanted, CallPlace],
        versions: dict[Wanted, ServedVersion],
        spared: Sequence[ServedVersion],
        progress: Progress,
    ) -> HeldParts:
        """Loads side by side what is not in memory."""
        parts = HeldParts(owner, self._catalog, versions, {}, self._note)

        def bring(wanted: Wanted) -> ServingError | None:
            try:
                versions[wanted], parts.held[wanted] = self._brought_in(wanted, spared, progress.deadline)
            except ServingError as error:
                return places[wanted].of(error)
            return None

        absent = [wanted for wanted, version in versions.items() if version.loaded is None]
        there = [wanted for wanted in versions if wanted not in absent]
        failures = list(map(bring, there))
        if len(absent) > 1:
            with ThreadPoolExecutor(min(LOADERS, len(absent)), "dragoman-steps") as loaders:
                failures += loaders.map(bring, absent)
        else:
            failures += map(bring, absent)
        if found := [failure for failure in failures if failure is not None]:
            parts.release()  # the error's traceback holds this frame
            # What another try does not cure comes first.
            raise min(found, key=lambda failure: failure.fault is Fault.UNAVAILABLE)
        loads = (versions[wanted].progress for wanted in absent)
        progress.before_ns = max((load.load_ns for load in loads if load is not None), default=0)
        return parts

    def _brought_in(
        self, wanted: Wanted, spared: Sequence[ServedVersion], deadline: Deadline
    ) -> tuple[ServedVersion, Loaded]:
        """Returns a version in memory, with a use of its model. Raises ServingError."""
        ref = ref_of(wanted)
        for _ in range(TRIES):
            version = stable(self._catalog.resolve(ref, deadline))
            if version.loaded is None:
                self._obtain(ref, Load(ref.name, deadline), spared)
                version = stable(self._catalog.resolve(ref, deadline))
            if (loaded := hold(version)) is not None:
                return version, loaded
        raise ModelUnavailable(f"model {ref.name!r} was unloaded while it was loaded: try again", retry_after=1)

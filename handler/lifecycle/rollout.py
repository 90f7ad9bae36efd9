"""Moves a model to the repository's present versions: lists them, loads them beside the old ones, and switches at once.

Either everything of a model that serves moves to what was found, or nothing does: a version that does not load leaves
the old ones serving, and the index shows the reason. There are two exceptions: without a canary the stable version
takes its share, and an older version that serves keeps its old files if its new ones do not load.

One thing at a time is done for each model (see single_flight), and `load` is the turn that it is done in. Other threads
may look at the repository meanwhile.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial

from core.deadline import NEVER, Deadline
from core.errors import (
    ModelNotFound,
    ModelNotLoadable,
    ServingError,
    StillLoading,
    UnknownLabel,
    VersionNotFound,
)
from core.operations import ModelRef
from core.ports import Context
from handler.lifecycle.backoff import LONGEST_PAUSE, reason
from handler.lifecycle.catalog import Catalog
from handler.lifecycle.models import CanarySplit, Target, stable
from handler.lifecycle.preload import Preloaded
from handler.lifecycle.repository import MOVES
from handler.lifecycle.single_flight import Here, Load, Pending, SingleFlight
from handler.lifecycle.step import Step, step_to
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import LoadVersion, ServedVersion
from handler.stores import Gone

log = logging.getLogger(__name__)


class Rollout:
    """`load`: loads one version (see loading). `poll`: seconds between two looks at a model's files."""

    def __init__(self, catalog: Catalog, load: LoadVersion, preloaded: Preloaded, poll: float) -> None:
        self._catalog = catalog
        self._load = load
        self._preloaded = preloaded
        self._poll = poll

    def find(self, ref: ModelRef, load: Load) -> None:
        """Finds the model that a dashed reference means; its loads take turns under its own name."""
        target = self._catalog.resolve(ref, load.deadline)
        self._catalog.publish(target.name, ref, target)

    def obtain(
        self,
        ref: ModelRef,
        drawn: float,
        load: Load,
        moves: int = MOVES,
        spared: Sequence[ServedVersion] = (),
    ) -> None:
        """Loads what the reference means. Raises ServingError if that fails. `moves`: see `_has_moved`.

        `spared`: versions that stay in memory meanwhile. A pipeline calls this outside of the model's turn: the
        version's own lock lets one thread load, and the catalog's lets one entry follow another.
        """
        target = self._catalog.resolve(ref, load.deadline)
        if time.monotonic() >= stable(target).due:
            self.renew(stable(target).name, load, load.deadline)
            target = self._catalog.resolve(ref, load.deadline)
        version = target.pick(drawn) if isinstance(target, CanarySplit) else target
        known = self._catalog.models.get(version.name)
        try:
            self._tried(ref, version, load, spared)
        except StillLoading:
            raise
        except ServingError as error:
            if isinstance(error, Gone) and moves and self._has_moved(ref, version, error, load):
                self.obtain(ref, drawn, load, moves - 1, spared)
                return
            if version is stable(target):
                raise  # otherwise the canary is failing now, and the next round picks the stable version
        if self._catalog.models.get(version.name) is not known:  # another request has looked meanwhile
            target = self._catalog.resolve(ref, load.deadline)
        if version not in self._catalog.model(version.name, load.deadline).versions.values():
            self._move(version, load)
            target = self._catalog.resolve(ref, load.deadline)
        self._publish(version.name, ref, target)

    def obtain_again(self, ref: ModelRef, drawn: float, load: Load) -> None:
        """Loads a version that serves. Requests of other references wait for the same load.

        If the reference has lost its meaning, they do not get that error: the next try of each finds its own.
        """
        try:
            self.obtain(ref, drawn, load)
        except (ModelNotFound, UnknownLabel, VersionNotFound):
            self._catalog.withdraw(ref)

    def _tried(self, ref: ModelRef, version: ServedVersion, load: Load, spared: Sequence[ServedVersion]) -> None:
        """Loads a version. Drops a reference that a client has made up: there may be any number of them."""
        try:
            self._bring(version, load, spared=spared)
        except StillLoading:
            raise
        except ServingError:
            if ref.dashed or not version.serves:
                self._catalog.withdraw(ref)
            raise

    def _has_moved(self, ref: ModelRef, version: ServedVersion, gone: Gone, load: Load) -> bool:
        """Decides whether another version answers by now: a push may remove an old one between a look and a load.

        Raises ModelNotLoadable if the model's settings hide what there is now.
        """
        if version.listing.partial:  # without a look, a client can have invented the version
            self._catalog.discard(version, gone)
            return False
        try:
            self._catalog.look_afresh(version.name, load.deadline)
            return stable(self._catalog.resolve(ref, load.deadline)) is not version
        except ModelNotLoadable as error:
            raise error from gone
        except ServingError:
            return False

    def _bring(
        self,
        version: ServedVersion,
        load: Load,
        deadline: Deadline | None = None,
        spared: Sequence[ServedVersion] = (),
        *,
        skips_pause: bool = False,
    ) -> None:
        if version.loaded is None:
            load.version = version
        version.obtain(self._load, deadline or load.deadline, skips_pause=skips_pause, spared=spared)

    def renew(self, name: str, load: Load, deadline: Deadline) -> None:
        """Looks at the repository again, and moves a model that serves. A failure postpones the next look."""
        try:
            self._look(name, deadline)
        except ServingError as error:
            self._stay(name, error, LONGEST_PAUSE)
            return
        try:
            self._advance(name, load, deadline)
        except StillLoading as error:  # the next request continues it
            self._stay(name, error, 0.0)
        except ServingError as error:
            self._stay(name, error, LONGEST_PAUSE if error.retry_after is None else error.retry_after)

    def renew_with(
        self,
        flights: Here | SingleFlight,
        loaded: Loaded,
        versions: Sequence[ServedVersion],
        deadline: Deadline,
        context: Context,
    ) -> None:
        """Looks for newer versions of the models of these versions, while the loaded one could answer at once.

        Ends the use of `loaded`: the request begins another one, perhaps of a newer version.
        """
        with loaded:
            if isinstance(flights, Here):
                took = sum(version.progress.load_ns / 1e9 for version in versions if version.progress is not None)
                for version in versions:
                    work = partial(self.renew, version.name, deadline=deadline._replace(beside=took))
                    flights.run(None, version.name, work, context, final=False)
                return
            for version in versions:
                version.look_again(time.monotonic() + self._poll)  # requests that come meanwhile do not look
                with suppress(Pending, RuntimeError):  # RuntimeError: the server is ending
                    work = partial(self.renew, version.name, deadline=NEVER)
                    flights.run(("renew", version.name), version.name, work, context, final=False)

    def _move(self, version: ServedVersion, load: Load) -> None:
        """Moves to what a look found with this version, which was not known before. Raises ServingError."""
        try:
            self._advance(version.name, load)
        except ServingError:
            if version not in self._catalog.model(version.name, load.deadline).versions.values():
                raise  # otherwise others did not load, and their old files serve

    def _advance(self, name: str, load: Load, deadline: Deadline | None = None) -> None:
        """Moves to the versions that a look found, if all of them load. Raises ServingError."""
        deadline = deadline or load.deadline
        moves = MOVES
        while (step := self._step(name, deadline)) is not None:
            try:
                self._take(step, load, deadline, skips_pause=False)
            except Gone:
                if not moves:
                    raise
                moves -= 1
                self._catalog.look_afresh(name, deadline)
                if self._step(name, deadline) == step:
                    raise

    def _take(self, step: Step, load: Load, deadline: Deadline, *, skips_pause: bool) -> bool:
        """Loads a step's versions and switches to them. Returns False if there is something newer by now.

        Raises ServingError if one does not load, also after a switch to the others.
        """
        failures: dict[int, ServingError] = {}
        for version in step.versions:
            try:
                self._bring(version, load, deadline, step.spared, skips_pause=skips_pause)
            except ServingError as error:
                if step.keeps(error, version):
                    failures[version.version.number] = error
                elif not step.allows(error, version):
                    raise
        moved = self._finish(step, failures)
        self._publish(step.base.listing.name)
        if moved and failures:
            raise next(iter(failures.values()))
        return moved

    def _publish(self, name: str, ref: ModelRef | None = None, target: Target | None = None) -> None:
        if self._catalog.publish(name, ref, target):
            self._preloaded.unloaded.discard(name)

    def load(self, name: str, load: Load) -> None:
        for left in reversed(range(MOVES)):
            self._look(name, load.deadline)
            try:
                while not self._take(self._everything(name, load.deadline), load, load.deadline, skips_pause=True):
                    pass
            except Gone:
                if not left:
                    raise
            else:
                return

    def unload(self, name: str) -> None:
        for version in self._catalog.give_up(name).all_versions:
            version.unload()
        self._preloaded.unloaded.add(name)
        self._catalog.forget_aliases(name)
        self._publish(name)

    def _look(self, name: str, deadline: Deadline) -> None:
        """Lists the model again. Raises ServingError."""
        self._catalog.look(name, deadline)
        self._catalog.put_off(name, time.monotonic() + self._poll)

    def _stay(self, name: str, error: ServingError, pause: float) -> None:
        """Lets the model serve what is loaded, and postpones the next look by that many seconds."""
        log.warning("model %s serves what is loaded%s", name, reason(error))
        self._catalog.put_off(name, time.monotonic() + min(self._poll, pause))

    def _step(self, name: str, deadline: Deadline) -> Step | None:
        """Returns the versions to load before the model moves to those of a look; None if it found nothing new."""
        base = self._catalog.model(name, deadline)
        if base.coming is None:
            return None
        kept = base.coming.regular if self._preloaded.keeps(name) else ()
        return step_to(base, base.coming, [*base.successors(base.coming), *kept])

    def _everything(self, name: str, deadline: Deadline) -> Step:
        """Returns all versions that the repository now has for the model."""
        base = self._catalog.model(name, deadline)
        after = base.coming or base
        return step_to(base, after, list(after.versions.values()))

    def _finish(self, step: Step, kept: Iterable[int]) -> bool:
        """Switches to the loaded versions. Returns False if a look has found newer ones meanwhile."""
        base, after = step.base, step.after
        name = base.listing.name
        moved = self._catalog.take_over(base, after, kept)
        if moved:
            self._catalog.publish(name)
            now = self._catalog.model(name, NEVER).versions
            if now != base.versions:
                log.info("model %s serves %s", name, ", ".join(map(str, now)))
        staying = self._catalog.residents()
        for version in base.all_versions:
            if version not in staying:
                version.replace()
        return moved

"""What the repository is known to hold, and which version of it a client means.

`ready` holds the references that can be answered at once. It is replaced as a whole, never changed, so that requests
read it without a lock.
"""

import itertools
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from core.deadline import NEVER, Deadline
from core.errors import InvalidInput, ModelNotFound, ServingError, UnknownLabel, VersionNotFound, shown
from core.operations import IndexEntry, ModelRef, State, Statistics, StatusResult
from handler.lifecycle.models import CanarySplit, ListedModel, Target
from handler.lifecycle.repository import VERSION, Repository
from handler.lifecycle.versions import ServedVersion

MOST_NAMED: Final = 16


class Catalog:
    """`models`: those that have been looked at, by name. `ready`: what serves, by reference.

    `default_model`: the model of GRPS requests that name none. `poll`: seconds from a look until the next is due.
    """

    def __init__(self, repository: Repository, default_model: str, poll: float = float("inf")) -> None:
        self._repository = repository
        self._default_model = default_model
        self._poll = poll
        self._lock = threading.Lock()
        self._looks = itertools.count()
        self._published: dict[str, ListedModel] = {}
        self.models: dict[str, ListedModel] = {}
        self.ready: dict[ModelRef, Target] = {}

    # -- what is known ------------------------------------------------------------------------------------------------

    def known(self) -> Sequence[ServedVersion]:
        """Returns the versions that this process has looked at so far. Does not ask the repository."""
        return [version for _, model in sorted(self.models.items()) for version in model.versions.values()]

    def statistics(self, ref: ModelRef | None, deadline: Deadline) -> Sequence[Statistics]:
        if ref is None:
            return [version.statistics() for version in self.known()]
        if ref.version is not None:
            return [self.version(ref, deadline).statistics()]
        return [version.statistics() for version in self.model(ref.name, deadline).versions.values()]

    def load_seconds(self, name: str, number: str) -> float | None:
        model = self.models.get(name)
        version = None if model is None else model.find(number)
        return version.load_seconds if version is not None and version.load_seconds else None

    def residents(self) -> Sequence[ServedVersion]:
        """Returns the versions that may be in memory: those that serve, and those that are coming."""
        return [version for model in list(self.models.values()) for version in model.slots]

    def names(self, deadline: Deadline) -> Sequence[str]:
        return sorted({*self._repository.models(deadline), *self.loaded()})

    def loaded(self) -> set[str]:
        """Returns the names of the models that have a version in memory."""
        return {version.name for version in self.residents() if version.loaded is not None}

    def index(self, deadline: Deadline) -> Sequence[IndexEntry]:
        """Returns every version of every model. Looks again at models that are not in memory."""
        loaded = self.loaded()
        names = self.names(deadline)
        return [entry for name in names for entry in self._overview(name, deadline, is_loaded=name in loaded)]

    def _overview(self, name: str, deadline: Deadline, *, is_loaded: bool) -> Iterator[IndexEntry]:
        try:
            model = self.model(name, deadline) if is_loaded else self.look(name, deadline)
        except ServingError as error:
            yield IndexEntry(name, "", State.UNAVAILABLE, error.message)
            return
        yield from (self.models.get(name) or model).overview()

    def status(self, ref: ModelRef, deadline: Deadline) -> StatusResult:
        """Raises UnknownLabel."""
        try:
            wanted = self.version(ref, deadline)
            model = self.model(ref.name, deadline)
        except ModelNotFound:
            return StatusResult(())
        except VersionNotFound as error:
            return StatusResult((), missing=error.version)
        except UnknownLabel:
            raise
        except ServingError as error:  # the store does not answer, or the settings are wrong
            failed = IndexEntry(ref.name, ref.version or "0", State.UNAVAILABLE, error.message, error.fault)
            return StatusResult((failed,))
        every = ref.version is None and ref.label is None
        entries = tuple(model.overview()) if every else (wanted.entry,)
        return StatusResult(entries, wanted.loaded is not None, v1_dialect=model.said.v1_dialect)

    # -- looking at the repository ------------------------------------------------------------------------------------

    def model(self, name: str, deadline: Deadline, wanted: int | None = None) -> ListedModel:
        return self.models.get(name) or self.look(name, deadline, wanted)

    def look(self, name: str, deadline: Deadline, wanted: int | None = None) -> ListedModel:
        """Lists a model again. What is found is the model at once where it does not serve yet, else its `coming`."""
        number = next(self._looks)
        try:
            listing = self._repository.look(name, wanted, deadline)
        except ServingError as error:
            self._miss(name, number, error)
            raise
        with self._lock:
            known = self.models.get(name)
            if known is not None and known.look > number and not listing.partial:
                return known.coming or known  # a look that began later has seen what is newer
            found = ListedModel.of(listing, known, number, time.monotonic() + self._poll)
            if known is None or not known.serves:
                self.models[name] = found
            else:
                coming = None if found.is_like(known) else found
                self.models[name] = known._replace(look=number, coming=coming, trouble="")
        return found

    def take_over(self, base: ListedModel, after: ListedModel) -> bool:
        """Puts `after`, which is loaded, in the place of `base`. Returns False if either is out of date by now.

        `after` is `base` itself if nothing was coming.
        """
        name = base.listing.name
        with self._lock:
            known = self.models.get(name)
            if known is None or known.versions != base.versions:
                return False
            found = known.coming or known
            if not found.is_like(after):
                return False
            self.models[name] = found
        return True

    def give_up(self, name: str) -> ListedModel:
        """Drops the versions that were coming, and lets the next request look again. Returns the model as it was."""
        model = self.model(name, NEVER)
        with self._lock:
            model = self.models.get(name, model)
            self.models[name] = model._replace(coming=None)
        self.put_off(name, float("-inf"))
        return model

    def put_off(self, name: str, until: float) -> None:
        """Sets when the repository is due to be looked at again, on time.monotonic()."""
        model = self.models.get(name)
        for version in model.versions.values() if model is not None else ():
            version.look_again(until)

    def _miss(self, name: str, number: int, error: ServingError) -> None:
        """Keeps what is loaded, with the reason for the index. Drops a model that has left the repository."""
        with self._lock:
            model = self.models.get(name)
            if model is None or model.look > number:
                return
            if isinstance(error, ModelNotFound) and all(each.loaded is None for each in model.versions.values()):
                del self.models[name]
            else:
                self.models[name] = model._replace(trouble=error.message)

    # -- what a reference means ---------------------------------------------------------------------------------------

    def version(self, ref: ModelRef, deadline: Deadline) -> ServedVersion:
        """Returns the version that a request may get and that is not a canary. Raises as `resolve` does."""
        return stable(self.resolve(ref, deadline))

    def resolve(self, ref: ModelRef, deadline: Deadline) -> Target:
        """Raises ModelNotFound, VersionNotFound, UnknownLabel, and what listing a model raises."""
        if ref.dashed:
            return self._selected(ref.name or self._default(deadline), deadline)
        number = ref.version if ref.version is not None and VERSION.fullmatch(ref.version) else None
        model = self.model(ref.name, deadline, None if number is None else int(number))
        if ref.label is not None:
            return self._labelled(model, ref.label, deadline)
        if ref.version is None or (ref.version == "0" and ref.zero_is_newest and 0 not in model.versions):
            return model.target
        if number is None or str(int(number)) != number:
            text = f"model {ref.name!r} has no version {shown(ref.version)}: versions are numbers"
            raise VersionNotFound(text, ref.version)
        # A version that is not known may have been published since.
        version = model.find(number) or self.look(ref.name, deadline, int(number)).find(number)
        if version is None:
            served = ", ".join(map(str, self.model(ref.name, deadline).versions))
            raise VersionNotFound(f"model {ref.name!r} has no version {ref.version}; it serves {served}", ref.version)
        return version

    def _selected(self, selector: str, deadline: Deadline) -> Target:
        """Resolves GRPS's name-version, where a name may hold dashes, too; else a name."""
        name, _, version = selector.rpartition("-")
        try:
            if name and VERSION.fullmatch(version):
                return self.resolve(ModelRef(name, str(int(version))), deadline)
        except ModelNotFound:
            pass  # the dash may be part of the name
        except VersionNotFound:
            if selector not in self._repository.models(deadline):
                raise
        return self.resolve(ModelRef(selector), deadline)

    def _default(self, deadline: Deadline) -> str:
        if self._default_model:
            return self._default_model
        names = self._repository.models(deadline)
        if len(names) != 1:
            known = ", ".join(names[:MOST_NAMED]) or "none"
            raise InvalidInput(
                f"no model is named, and none is the default; known are: {known} (DRAGOMAN_DEFAULT_MODEL)"
            )
        return names[0]

    def _labelled(self, model: ListedModel, label: str, deadline: Deadline) -> Target:
        number = model.said.version_labels.get(label)
        if number is None:
            raise UnknownLabel(f"Unrecognized servable version label: {label[:256]}")
        return self.resolve(ModelRef(model.listing.name, str(number)), deadline)

    # -- what can be answered at once ---------------------------------------------------------------------------------

    def publish(self, name: str, ref: ModelRef | None = None, target: Target | None = None) -> bool:
        """Makes what serves of a model findable, in one assignment, with `ref` as an alias of `target`.

        Aliases are dropped when the model's versions or settings change. They are few: a version has 18 digits at
        most. Returns whether the model serves.
        """
        with self._lock:
            model, before = self.models.get(name), self._published.get(name)
            if model is None or before is None or not model.is_like(before):
                ready = {known: other for known, other in self.ready.items() if other.name != name}
            else:
                ready = dict(self.ready)
            if model is not None:
                self._published[name] = model
                ready |= model.served()
            if ref is not None and target is not None:
                ready[ref] = target
            self.ready = ready
        return model is not None and model.serves

    def withdraw(self, ref: ModelRef) -> None:
        """Drops an alias that has come to mean nothing."""
        with self._lock:
            self.ready = {known: target for known, target in self.ready.items() if known != ref}

    def forget_aliases(self, name: str) -> None:
        """Lets the next `publish` drop the model's aliases."""
        with self._lock, suppress(KeyError):
            del self._published[name]


def stable(target: Target) -> ServedVersion:
    """Returns the version of a target that is not a canary."""
    return target.stable if isinstance(target, CanarySplit) else target

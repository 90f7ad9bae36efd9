"""Knows the repository's models, and the version that a client's reference means.

`ready` holds the references that can be answered at once. It is replaced as a whole, never changed, so that requests
read it without a lock.
"""

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from core.deadline import NEVER, Deadline
from core.errors import InvalidInput, ModelNotFound, ServingError, UnknownLabel, VersionNotFound, some
from core.operations import IndexEntry, ModelRef, State, StatusResult
from core.statistics import Statistics
from handler.lifecycle.inventory.looks import PAUSE
from handler.lifecycle.inventory.refusals import no_version
from handler.lifecycle.models import ListedModel, Target, stable
from handler.lifecycle.repository import VERSION, Repository
from handler.lifecycle.versions import ServedVersion
from handler.stores import File


class Catalog:
    """`models`: known ones, by name. `ready`: versions that serve, by reference.

    `default_model`: the model of GRPS requests that name none. `poll`: seconds from a look until the next is due.
    """

    def __init__(self, repository: Repository, default_model: str, poll: float = float("inf")) -> None:
        self._repository = repository
        self._default_model = default_model
        self._poll = poll
        self._lock = threading.Lock()
        self._looks = itertools.count()
        self._looked: dict[str, float] = {}  # when a version that was not known was last looked for, by model
        self._published: dict[str, ListedModel] = {}
        self.models: dict[str, ListedModel] = {}
        self.ready: dict[ModelRef, Target] = {}

    # -- what is known ------------------------------------------------------------------------------------------------

    def known(self) -> Sequence[ServedVersion]:
        """Returns the versions that this process knows so far. Does not ask the repository."""
        return [version for _, model in sorted(self.models.items()) for version in model.versions.values()]

    def statistics(self, ref: ModelRef | None, deadline: Deadline) -> Sequence[Statistics]:
        if ref is not None and ref.version is not None:
            return [self.version(ref, deadline).statistics()]
        versions = self.known() if ref is None else self.model(ref.name, deadline).versions.values()
        return [version.statistics() for version in versions]

    def residents(self) -> Sequence[ServedVersion]:
        """Returns the versions that can be in memory: those that serve, and those that are coming."""
        return [version for model in list(self.models.values()) for version in model.all_versions]

    def is_listed(self, ref: ModelRef) -> bool:
        """Decides whether it is known, without a look, which version the reference means."""
        model = self.models.get(ref.name)
        if model is None or ref.dashed:
            return False
        number = model.said.version_labels.get(ref.label) if ref.label is not None else ref.version
        found = (model, model.coming) if model.coming is not None else (model,)
        return number is None or ref.zero_is_newest or any(each.find(str(number)) is not None for each in found)

    def names(self, deadline: Deadline) -> Sequence[str]:
        return sorted({*self._repository.models(deadline), *self.loaded()})

    def loaded(self) -> set[str]:
        """Returns the names of the models that have a version in memory."""
        return {version.name for version in self.residents() if version.loaded is not None}

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
        return StatusResult(entries, wanted.state is State.READY, v1_dialect=model.said.v1_dialect)

    # -- looking at the repository ------------------------------------------------------------------------------------

    def model(self, name: str, deadline: Deadline, wanted: int | None = None) -> ListedModel:
        """Returns a model. One that is not known is listed if the repository has its name (see Inventory)."""
        known = self.models.get(name)
        if known is not None:
            return known
        self._repository.require(name, wanted, deadline)
        try:
            return self.look(name, deadline, wanted)
        except ServingError as error:
            self._repository.inventory.missed(name, wanted, error)
            raise

    def look(
        self, name: str, deadline: Deadline, wanted: int | None = None, files: Sequence[File] | None = None
    ) -> ListedModel:
        """Lists a model again. The result becomes the model at once if it does not serve yet, else its `coming`.

        `files`: the model's, if a look has just found them.
        """
        number = next(self._looks)
        try:
            more = () if files is None else (files,)
            listing = self._repository.look(name, wanted, deadline, *more)
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

    def look_afresh(self, name: str, deadline: Deadline) -> ListedModel:
        """Lists a model again, after a look that is known to be out of date."""
        self._repository.inventory.forget()
        return self.look(name, deadline)

    def take_over(self, base: ListedModel, after: ListedModel, kept: Iterable[int] = ()) -> bool:
        """Puts `after`, which is loaded, in the place of `base`. Returns False if either is out of date by now.

        `after` is `base` itself if nothing was coming. `kept`: versions that go on as they were in `base`.
        """
        name = base.listing.name
        with self._lock:
            known = self.models.get(name)
            if known is None or known.versions != base.versions:
                return False
            found = known.coming or known
            if not found.is_like(after):
                return False
            old = {number: base.versions[number] for number in kept}
            self.models[name] = found._replace(versions=found.versions | old, coming=found) if old else found
        return True

    def give_up(self, name: str) -> ListedModel:
        """Drops the versions that were coming, and lets the next request look again. Returns the model unchanged."""
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
        """Keeps the loaded versions, with the reason for the index. Drops a model that the repository has lost."""
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
            target = self._selected(ref.name or self._default(deadline), deadline)
            return target if ref.version is None else self.resolve(ModelRef(target.name, ref.version), deadline)
        wanted = wanted_of(ref)
        model = self.model(ref.name, deadline, wanted)
        if ref.label is not None:
            return self._labelled(model, ref.label, deadline)
        if ref.version is None or (ref.version == "0" and ref.zero_is_newest and 0 not in model.versions):
            return model.target
        if wanted is None or str(wanted) != ref.version:
            raise no_version(ref.name, ref.version, "versions are numbers below 9 * 10**18, without leading zeros")
        version = model.find(ref.version) or self._newer(model, wanted, deadline).find(ref.version)
        if version is None:
            served = [str(number) for number in self.model(ref.name, deadline).versions]
            raise no_version(ref.name, ref.version, f"it serves {some(served)}")
        return version

    def _newer(self, model: ListedModel, wanted: int, deadline: Deadline) -> ListedModel:
        """Looks for an unknown version: it may be a new one, but clients can invent any number."""
        name, inventory = model.listing.name, self._repository.inventory
        if model.coming is not None and wanted in model.coming.versions:
            return model.coming
        looked = time.monotonic() - self._looked.get(name, float("-inf")) < PAUSE
        if inventory.is_local or ((model.listing.partial or not looked) and inventory.may_look(name, wanted)):
            self._looked[name] = time.monotonic()
            return self.look(name, deadline, wanted)
        if model.listing.partial:
            raise inventory.untried(name, wanted)
        return model

    def _selected(self, selector: str, deadline: Deadline) -> Target:
        """Resolves GRPS's name-version, where a name may hold dashes, too; else a name."""
        name, _, version = selector.rpartition("-")
        try:
            if name and VERSION.fullmatch(version):
                return self.resolve(ModelRef(name, version), deadline)
        except ModelNotFound:
            pass  # the dash can be part of the name
        except VersionNotFound:
            if selector not in self._repository.models(deadline):
                raise
        return self.resolve(ModelRef(selector), deadline)

    def _default(self, deadline: Deadline) -> str:
        if self._default_model:
            return self._default_model
        names = self._repository.models(deadline)
        if len(names) != 1:
            raise unnamed(f"{some(names)} (DRAGOMAN_DEFAULT_MODEL)")
        return names[0]

    def _labelled(self, model: ListedModel, label: str, deadline: Deadline) -> Target:
        number = model.said.version_labels.get(label)
        if number is None:
            raise UnknownLabel(f"Unrecognized servable version label: {label[:256]}")
        return self.resolve(ModelRef(model.listing.name, str(number)), deadline)

    # -- what can be answered at once ---------------------------------------------------------------------------------

    def discard(self, version: ServedVersion, error: ServingError) -> None:
        """Forgets a model that a request has made up where listing is not permitted: its one version did not load."""
        name = version.name
        self._repository.inventory.missed(name, version.version.number, error)
        with self._lock:
            model = self.models.get(name)
            if model is not None and not any(version.serves or version.loaded for version in model.all_versions):
                del self.models[name]
                self._published.pop(name, None)
                self._looked.pop(name, None)

    def publish(self, name: str, ref: ModelRef | None = None, target: Target | None = None) -> bool:
        """Makes what serves of a model findable, in one assignment, with `ref` as an alias of `target`.

        Aliases are dropped when the model's versions or settings change. They are few: a version has 19 digits at
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
        """Drops an alias that no longer has a meaning."""
        with self._lock:
            self.ready = {known: target for known, target in self.ready.items() if known != ref}

    def forget_aliases(self, name: str) -> None:
        """Lets the next `publish` drop the model's aliases."""
        with self._lock, suppress(KeyError):
            del self._published[name]


def unnamed(names: str) -> InvalidInput:
    """Returns the refusal of a request that does not name a model, if none is the default. `names`: of all models."""
    return InvalidInput(f"the request does not name a model, and no model is the default; the models are: {names}")


def wanted_of(ref: ModelRef) -> int | None:
    """Returns the number of the version that a reference names, None if it names none."""
    return int(ref.version) if ref.version is not None and VERSION.fullmatch(ref.version) else None

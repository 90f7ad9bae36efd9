"""Looks at the store for the repository's content. All requests share a look, and there is at most one a second.

A client can make up any number of names. None of them costs the store a request: one look at all names decides. A name
that a look has found needs no other look. A small bucket (a thousand keys) is one listing, which has every file. The
names of a larger one are listed by themselves, with a delimiter. A directory is asked for each name: that is cheap.

Where the names cannot be listed, each unknown name takes a request. An allowance bounds how many there are.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from core.deadline import NEVER, Deadline
from core.errors import ModelNotFound, ModelUnavailable, ServingError, StillLoading, copied
from core.records import NamedTuple
from handler.lifecycle.inventory.bounds import Allowance, Remembered
from handler.lifecycle.inventory.refusals import absent
from handler.stores import File, Forbidden, Store
from handler.stores.progress import Progress

PAUSE: Final = 1.0
"""Seconds from the end of a look to the next one. A look that takes longer is followed by as long a pause."""
FEW: Final = 128
"""Files of a directory up to which each request may scan it."""
KEYS: Final = "the store accepts the keys"
LATE: Final = "the store answers in time"
QUIET: Final = 10.0
"""Seconds after a wrong guess for which names are looked up together."""
Files = Mapping[str, Sequence[File] | None]
"""A model's files by its name; None for a model that has too many to be listed with the others."""


class Depth(IntEnum):
    """How much a look finds. Each depth finds what those before it do."""

    ANSWER = 1
    NAMES = 2
    FILES = 3


class Seen(NamedTuple):
    """The result of a look. `due`: when the next one may begin. `denied`: listing is not permitted."""

    depth: Depth
    began: float
    due: float
    names: tuple[str, ...] = ()
    files: Files = MappingProxyType({})
    error: ServingError | None = None
    denied: bool = False


class Inventory:
    """`direct`: the first name that is not known is looked up by itself, which takes the fewest requests (Lambda).

    `is_local`: a scan costs no request, and its results are shared only if it is a large one.
    """

    def __init__(self, store: Store, *, direct: bool = False) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._seen: dict[Depth, Seen] = {}
        self._known: frozenset[str] = frozenset()
        self._missing = Remembered(PAUSE)
        self._trials = Remembered(QUIET)
        self._allowance = Allowance()
        self._is_large = False
        self._direct = direct
        self._guess_due = float("-inf")
        self._has: Callable[[str], bool] | None = getattr(store, "has", None)
        self.is_local = self._has is not None

    # -- all models ---------------------------------------------------------------------------------------------------

    def check(self, deadline: Deadline) -> None:
        """Raises ServingError if the store does not answer, or if what it sends cannot be kept on this machine.

        Further calls do not wait for a store right after it has not answered.
        """
        if (late := self._missing.get(LATE)) is not None:
            raise copied(late)
        try:
            self._asked(Depth.ANSWER, deadline)
        except StillLoading as error:
            self._missing.put(LATE, error)
            raise
        getattr(self._store, "check_cache", lambda: None)()  # a directory's files are used in place

    def confirm(self, deadline: Deadline) -> None:
        """Raises ServingError if listing is denied, and nothing shows that the store accepts the keys."""
        seen = self._latest(Depth.ANSWER)
        if seen is None or not seen.denied or getattr(self._store, "accepts", True):
            return
        if (doubt := self._missing.get(KEYS)) is not None:
            raise copied(doubt)
        try:
            self._store.confirm(progress_of(deadline))  # type: ignore[attr-defined] # a store with `accepts` has it
        except ServingError as error:
            self._missing.put(KEYS, error)
            raise

    def names(self, deadline: Deadline) -> Sequence[str]:
        """Returns the names of all models, sorted. Raises ServingError."""
        return self._asked(Depth.NAMES, deadline).names

    def files(self, deadline: Deadline) -> Files:
        """Returns all models with their files. Raises ServingError."""
        return self._asked(Depth.FILES, deadline).files

    def files_of(self, name: str) -> Sequence[File] | None:
        """Returns a model's files if a look has just found them."""
        seen = self._fresh(Depth.FILES)
        return None if seen is None else seen.files.get(name)

    def forget(self) -> None:
        """Lets the next request look again."""
        self._seen = {}
        self._missing.clear()
        self._guess_due = float("-inf")

    # -- one name -----------------------------------------------------------------------------------------------------

    def admits(self, name: str, wanted: int | None) -> bool | None:
        """Decides, without a request, whether a model can be listed; None if that takes a look at all names."""
        if self._has is not None:
            return self._has(name)
        if self._why_missing(name, wanted) is not None:
            return False
        if name in self._known or self._trials.get((name, wanted)):
            return True
        seen = self._fresh(Depth.NAMES)
        return None if seen is None or seen.error is not None else False

    def require(self, name: str, wanted: int | None, deadline: Deadline) -> None:
        """Raises ModelNotFound, or the error of a recent look, unless the model can be listed by itself."""
        admitted = self.admits(name, wanted)
        if admitted is None and self._direct and time.monotonic() >= self._guess_due:
            return
        if admitted is None:
            seen = self._look(Depth.NAMES, deadline)
            admitted = name in self._known or (seen.error is not None and self._try(name, wanted, seen.error))
        if not admitted:
            raise self.refusal(name, wanted)

    def refusal(self, name: str, wanted: int | None) -> ServingError:
        """Returns the error of a name that is not admitted."""
        why = self._why_missing(name, wanted)
        return copied(why) if why is not None else absent(name)

    def found(self, name: str) -> None:
        """Notes that the repository has this model."""
        if not self.is_local and name not in self._known:
            self._known |= {name}

    def missed(self, name: str, wanted: int | None, error: ServingError) -> None:
        """Remembers for a while why a model, or the version that was wanted, could not be listed."""
        if self.is_local or isinstance(error, StillLoading):
            return
        self._guess_due = time.monotonic() + QUIET
        self._missing.put((name, wanted if isinstance(error, ModelUnavailable) else None), error)
        if isinstance(error, ModelNotFound):
            self._known -= {name}

    def may_look(self, name: str, wanted: int | None) -> bool:
        """Decides whether the store can be asked for an unknown version now."""
        if self.is_local or self.files_of(name) is not None:
            return True
        return self._why_missing(name, wanted) is None and self._allowance.take()

    def untried(self, name: str, wanted: int) -> ServingError:
        """Returns the error of a version that would need one more question to the store than is permitted now."""
        why = self._why_missing(name, wanted)
        busy = ModelUnavailable(f"too many unknown versions of model {name!r} are asked for", retry_after=PAUSE)
        return busy if why is None else copied(why, PAUSE)

    def _why_missing(self, name: str, wanted: int | None) -> ServingError | None:
        error: ServingError | None = self._missing.get((name, None))
        if wanted is not None and (error is None or isinstance(error, ModelUnavailable)):
            error = self._missing.get((name, wanted))
        return error

    def _try(self, name: str, wanted: int | None, error: ServingError) -> bool:
        """Admits a name that cannot be found among others. Raises `error` if too many were tried."""
        if not self._allowance.take():
            raise copied(error, PAUSE)
        self._trials.put((name, wanted), value=True)
        return True

    # -- looks --------------------------------------------------------------------------------------------------------

    def _latest(self, depth: Depth) -> Seen | None:
        """Returns the latest look that found this much."""
        found = [seen for seen in list(self._seen.values()) if seen.depth >= depth]
        return max(found, key=lambda seen: seen.began, default=None)

    def _fresh(self, depth: Depth) -> Seen | None:
        seen = self._latest(depth)
        return seen if seen is not None and time.monotonic() < seen.due else None

    def _asked(self, depth: Depth, deadline: Deadline) -> Seen:
        seen = self._look(depth, deadline)
        if seen.error is not None and not (depth is Depth.ANSWER and seen.denied):
            raise copied(seen.error)
        return seen

    def _look(self, depth: Depth, deadline: Deadline) -> Seen:
        """Returns a fresh look, or makes one. A request that waits for another one's look shares it."""
        if (seen := self._fresh(depth)) is not None:
            return seen
        came = time.monotonic()
        if not self._lock_within(deadline):
            raise Progress(deadline).unanswered()
        try:
            seen = self._fresh(depth) or self._latest(depth)
            if seen is None or (seen.began <= came and time.monotonic() >= seen.due):
                seen = self._made(depth, deadline)
        finally:
            self._lock.release()
        return seen

    def _lock_within(self, deadline: Deadline) -> bool:
        if deadline.is_never:
            return self._lock.acquire()
        return self._lock.acquire(timeout=max(0.0, deadline.left))

    def _made(self, depth: Depth, deadline: Deadline) -> Seen:
        began = time.monotonic()
        try:
            seen = self._answer(depth, began, progress_of(deadline))
        except StillLoading:  # another request can have more time
            raise
        except Forbidden as forbidden:
            text = str(forbidden) or "listing the repository is not permitted"
            error = None if depth is Depth.ANSWER else ModelUnavailable(text)
            seen = Seen(depth, began, 0.0, error=error, denied=True)
        except ServingError as error:
            seen = Seen(depth, began, 0.0, error=copied(error))
        now = time.monotonic()
        seen = seen._replace(due=now + self._pause(seen, now - began))
        if seen.depth >= Depth.NAMES and seen.error is None:
            self._known = frozenset(seen.names)
        self._seen = {**self._seen, seen.depth: seen}
        return seen

    def _pause(self, seen: Seen, seconds: float) -> float:
        is_cheap = self.is_local and len(seen.names) <= FEW
        return 0.0 if is_cheap else max(PAUSE, seconds)

    def _answer(self, depth: Depth, began: float, progress: Progress | None) -> Seen:
        """Asks the store. Raises Forbidden, ServingError."""
        glance = None if self._is_large or depth is Depth.FILES else getattr(self._store, "glance", None)
        if glance is not None:
            files = glance(progress)
            if files is not None:
                return Seen(Depth.FILES, began, 0.0, tuple(sorted(files)), files)
            self._is_large = True
            if depth is Depth.ANSWER:
                return Seen(depth, began, 0.0)
        if depth is Depth.ANSWER:
            self._store.check(progress)
            return Seen(depth, began, 0.0)
        if depth is Depth.NAMES:
            return Seen(depth, began, 0.0, tuple(self._store.models(progress)))
        files = self._everything(progress)
        return Seen(depth, began, 0.0, tuple(sorted(files)), files)

    def _everything(self, progress: Progress | None) -> Files:
        everything = getattr(self._store, "everything", None)
        if everything is None:  # another package's store
            return {name: self._store.files(name, progress) for name in self._store.models(progress)}
        files: Files = everything(progress)
        return files


def progress_of(deadline: Deadline) -> Progress | None:
    """Returns the progress of a request to the store."""
    return None if deadline is NEVER else Progress(deadline)

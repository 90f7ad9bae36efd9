"""A load, from top to bottom: settings, runtime, files, room in memory, the runtime's own load, warm-up."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from core.deadline import NEVER
from core.errors import ServingError, StillLoading
from core.ports import Model
from core.records import NamedTuple
from handler import backends
from handler.backends import Loader, Source
from handler.lifecycle.attempts import attempt
from handler.lifecycle.pipelines.steps import Steps
from handler.lifecycle.repository import MARKERS, Repository, Version
from handler.lifecycle.room.budget import Budget, Claim, Footprint
from handler.lifecycle.room.disk import Disk
from handler.lifecycle.traffic.loads import LOADS
from handler.lifecycle.usage import Loaded, MemoryGate
from handler.lifecycle.versions import ServedVersion
from handler.settings import Settings
from handler.settings.model import ModelSettings
from handler.stores import DiskShort, Folder, Gone, private
from handler.stores.progress import OTHERS, Progress, Turn, unless_done

log = logging.getLogger(__name__)
COPIES: Final = 2
"""Copies of its file that ONNX Runtime holds at the peak of a load: the parsed file, and the tensors made of it."""
WEIGHTS: Final = (".onnx", ".onnx.data", ".onnx_data")
"""The ends of the names of ONNX models, and of the usual names of their weights' files."""
SESSION: Final = 8_000_000
"""Bytes that a session takes beside them, and a little more."""
AT_ONCE: Final = 4
"""Models fetched and loaded at the same time; each waits mostly for the network. Those that wait for memory, or for the
models of a pipeline's steps, do not count: what fits would wait for them. Nor do those that take long in a runtime."""
LONG_SECONDS: Final = 5.0
"""A load that takes longer in its runtime lets others go on beside it: a model's code may never return. Until then it
does not share the processor and the memory with more loads, which would not end earlier together."""
TOKENIZERS: Final = (4, 20)
"""The bytes that a tokenizer takes for each of its file, for good and while it is read: of pairs 4 and 12, of words 14
and 15, of a unigram model 19 and 20."""


class LoadTask(NamedTuple):
    """What one load has to do, and with what. `spared`: versions that are not evicted for it.

    `slot`: its part in AT_ONCE, which may end before it.
    """

    version: ServedVersion
    progress: Progress
    spared: Sequence[ServedVersion]
    slot: Turn


class Loading:
    """`budget`: None where no limit of memory is kept. `steps`: brings what pipelines call."""

    def __init__(
        self, repository: Repository, settings: Settings, disk: Disk, budget: Budget | None, steps: Steps
    ) -> None:
        self._repository = repository
        self._settings = settings
        self._disk = disk
        self._budget = budget
        self._is_told = False
        self._steps = steps
        self._gate = MemoryGate() if budget is None else budget.gate
        self._free = threading.Semaphore(AT_ONCE)

    def load(self, version: ServedVersion, progress: Progress, spared: Sequence[ServedVersion]) -> Loaded:
        """Returns the model in memory. `spared`: versions that are not evicted for it. Raises ServingError.

        Implements handler.lifecycle.versions.LoadVersion: the version itself keeps its state.
        """
        with self._in_turn(version, progress) as slot:
            begun = time.monotonic()
            try:
                loaded = self._fetched(LoadTask(version, progress, spared, slot))
            except Exception as error:
                LOADS.stopped(progress.fetched, failed=not isinstance(error, StillLoading))
                raise
        LOADS.succeeded(time.monotonic() - begun, progress.fetched)
        return loaded

    @contextmanager
    def _in_turn(self, version: ServedVersion, progress: Progress) -> Iterator[Turn]:
        """Waits until fewer than AT_ONCE models are being loaded."""
        if not self._free.acquire(blocking=False):
            progress.waits_for = OTHERS
            log.info("model %s version %s waits for %s", version.name, version.version.number, OTHERS)
            self._free.acquire()
            progress.waits_for = ""
        slot = progress.turn(self._free.release)
        try:
            yield slot
        finally:
            slot.end()

    def _fetched(self, task: LoadTask) -> Loaded:
        """Returns the model in memory, after its files were fetched."""
        version, progress, spared, _ = task
        listing, files = version.listing, version.version
        said = self._repository.settings(listing, files, progress.deadline)
        loader = backends.choose(version.name, files.paths, said)
        if self._budget is not None and not backends.is_pipeline(files.paths, said):
            backends.prepare(files.paths)  # a runtime's own memory does not count as the first model's
            self._budget.check(Claim(version, footprint(files), spared))  # before files are fetched for nothing
        folder = self._files(task)
        before = _stamp(folder, files)
        try:
            loaded = self._loaded(task, folder, loader)
        except (ServingError, OSError) as error:
            if isinstance(error, StillLoading):
                raise
            if before is not None and not _is_replaced(before, _stamp(folder, files)):
                self._repository.doubt(folder)
                raise
            raise _gone(version) from error
        after = _stamp(folder, files)
        if before is not None and after is not None and _is_replaced(before, after):
            raise _gone(version)
        return loaded  # also if a file has gone: code may remove its own

    def _files(self, task: LoadTask) -> Folder:
        """Returns the fetched files, for which idle models are evicted if the disk has no room."""
        version, progress, spared, _ = task
        while True:
            try:
                return self._repository.fetch(version.listing, version.version, progress)
            except DiskShort as short:
                if not self._disk.free(short.missing, version, spared):
                    raise

    def _loaded(self, task: LoadTask, folder: Folder, loader: Loader) -> Loaded:
        """Returns the model of a folder in memory. `loader`: of the listed files. Raises ServingError, OSError."""
        version, progress, spared, slot = task
        listing, files = version.listing, version.version
        # A push can have replaced all of it since it was listed.
        said = self._repository.settings(listing, files, progress.deadline, folder)
        names = set(os.listdir(folder.path))  # noqa: PTH208 - names, and no paths to take them from
        # Without a marker the settings choose, and those that were read before the fetch were not verified.
        if not MARKERS & names or MARKERS & names != MARKERS & files.paths:
            loader = backends.choose(version.name, names, said)
        own = self._heeded(said)._replace(grpc_outputs=said.grpc_outputs or self._settings.grpc_outputs)
        source = Source(version.name, str(files.number), folder.path, own, later=self._later)
        if said.note:
            log.warning("model %s version %s: %s", version.name, files.number, said.note)
        if backends.is_pipeline(names, said):
            slot.end()
            parts = self._steps.parts(version, source, progress, spared)
            try:
                start = partial(self._start, loader, source._replace(parts=parts))
                make = partial(self._made, version, start, folder, progress, said.note)
                return self._pipeline(make, version, source, progress, (*spared, *parts.versions.values()))
            except BaseException:
                parts.release()  # the error's traceback holds this frame
                raise
        make = partial(self._made, version, partial(self._start, loader, source), folder, progress, said.note)
        if self._budget is None:
            return make()
        slot.end()
        claim = Claim(version, footprint(files, folder.path), spared)
        return self._budget.spend(claim, make, progress)

    def _later(self, work: Callable[[], None], size: int) -> None:
        """Does the rest of a load in a thread of its own, for which nothing is evicted. See Source.later.

        Not for one of several workers: what they have mapped is in memory once, and what each would add is not.
        """
        if self._settings.workers > 1:
            log.info("a model keeps its first session, whose weights all workers share")
            return
        threading.Thread(target=self._added, args=(work, size), name="dragoman-load-rest", daemon=True).start()

    def _added(self, work: Callable[[], None], size: int) -> None:
        if self._budget is None:
            work()
        elif not self._budget.add(work, size):
            log.info("a model keeps its first session: memory has no room for %d bytes more", size)

    def _pipeline(
        self,
        make: Callable[[], Loaded],
        version: ServedVersion,
        source: Source,
        progress: Progress,
        spared: Sequence[ServedVersion],
    ) -> Loaded:
        """Returns a pipeline in memory. Beside that of its parts, only a tokenizer takes any."""
        from handler.backends.pipeline.model import prepared  # noqa: PLC0415 - for pipelines only

        size = prepared(source)
        if not size or self._budget is None:
            return make()
        least, peak = (factor * size for factor in TOKENIZERS)
        return self._budget.spend(Claim(version, Footprint(peak, least), spared), make, progress)

    def _heeded(self, said: ModelSettings) -> ModelSettings:
        """Returns the settings that have an effect on this platform."""
        if said.batching is None or self._settings.platform != "lambda":
            return said
        if not self._is_told:
            self._is_told = True
            log.info("batching in model-settings.json does nothing on Lambda, where requests come one by one")
        return said._replace(batching=None)

    def _made(
        self, version: ServedVersion, start: Callable[[], Model], folder: Folder, progress: Progress, note: str
    ) -> Loaded:
        """Does the runtime's part of a load: measures it, and leaves a trace for a process that dies in the middle."""
        with ExitStack() as stack:
            if progress.deadline is not NEVER:
                files = version.version
                size = sum(file.size or 0 for file in files.files)
                cache = private.own(self._settings.cache, self._settings.platform)
                stack.enter_context(attempt(cache, version.name, files, size, progress.deadline))
            else:
                stack.enter_context(unless_done(LONG_SECONDS, partial(_give_way, version, progress)))
            stack.enter_context(progress.in_runtime())
            loaded = Loaded(start(), folder, self._gate, version.traffic, version.pace)
            loaded.note = note
            return loaded

    def _start(self, loader: Loader, source: Source) -> Model:
        """Loads the model, and sends it the requests that its settings ask for before the first client's."""
        model = loader(source, self._settings)
        if source.settings.warmup:
            from handler.lifecycle import warming  # noqa: PLC0415 - for models that ask for it

            limit = self._settings.timeout if source.settings.timeout is None else source.settings.timeout
            warming.warm(model, source.settings.warmup, source.folder, limit)
        return model


def _give_way(version: ServedVersion, progress: Progress) -> None:
    """Lets others load beside a load that takes long."""
    number, seconds = version.version.number, LONG_SECONDS
    log.warning("model %s version %s has been loading in its runtime for %g s", version.name, number, seconds)
    progress.give_way()


class Stamp(NamedTuple):
    """Which folder a version has, and the size and time of each of its files."""

    folder: tuple[int, int]
    files: Sequence[tuple[int, int]]


def _stamp(folder: Folder, version: Version) -> Stamp | None:
    """Returns the stamp of a version's folder, None if a file is not there: a directory's files are used in place."""
    try:
        own = folder.path.stat()
        found = [(folder.path / file.path.partition("/")[2]).stat() for file in version.files]
    except OSError:
        return None
    return Stamp((own.st_dev, own.st_ino), [(each.st_size, each.st_mtime_ns) for each in found])


def _is_replaced(before: Stamp, after: Stamp | None) -> bool:
    """Decides whether a load can have read files of two versions.

    A mounted bucket may number a folder anew at any time, and a model may write into its own files.
    """
    return after is None or (before.folder != after.folder and before.files != after.files)


def _gone(version: ServedVersion) -> Gone:
    return Gone(f"version {version.version.number} of model {version.name!r} was removed or replaced during its load")


def footprint(version: Version, folder: Path | None = None) -> Footprint:
    """Returns the bytes that a load will take at its peak, and at least for good, before it was ever measured.

    Python code may not even read its files, so they do not count for good. `folder`: where the files are, for sizes
    that the store did not report.
    """
    least = peak = 0
    for file in version.files:
        path, size = file.path.partition("/")[2], file.size
        if size is None:
            size = 0 if folder is None else (folder / path).stat().st_size
        is_onnx = path.endswith(WEIGHTS)
        least += size if is_onnx else 0
        peak += COPIES * size + SESSION if is_onnx else size
    return Footprint(peak, least)

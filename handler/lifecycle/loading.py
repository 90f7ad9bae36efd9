"""A load, from top to bottom: settings, runtime, files, room in memory, the runtime's own load, warm-up."""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Final

from core.deadline import NEVER
from core.ports import Model
from handler import backends
from handler.backends import Loader, Source
from handler.lifecycle.attempts import attempt
from handler.lifecycle.budget import Budget, Claim, Footprint
from handler.lifecycle.repository import MARKERS, Repository, Version
from handler.lifecycle.usage import Gate, Loaded
from handler.lifecycle.versions import ServedVersion
from handler.settings import Settings
from handler.stores import Folder
from handler.stores.progress import Progress

COPIES: Final = 2
"""Copies of its file that ONNX Runtime holds at the peak of a load: the parsed file, and the tensors made of it."""
SESSION: Final = 8_000_000
"""Bytes that a session takes beside them, and a little more."""


class Loading:
    """`budget`: None where no limit of memory is kept."""

    def __init__(self, repository: Repository, settings: Settings, budget: Budget | None) -> None:
        self._repository = repository
        self._settings = settings
        self._budget = budget
        self._gate = Gate() if budget is None else budget.gate

    def load(self, version: ServedVersion, progress: Progress, spared: Sequence[ServedVersion]) -> Loaded:
        """Returns the model in memory. `spared`: versions that are not evicted for it. Raises ServingError.

        Implements handler.lifecycle.versions.LoadVersion: the version itself keeps its state.
        """
        listing, files = version.listing, version.version
        said = self._repository.settings(listing, files, progress.deadline)
        loader = backends.choose(version.name, files.paths, said)
        if self._budget is not None:
            backends.prepare(files.paths)  # a runtime's own memory does not count as the first model's
            self._budget.check(Claim(version, footprint(files), spared))  # before files are fetched for nothing
        folder = self._repository.fetch(listing, files, progress)
        # A push may have replaced all of it since it was listed.
        said = self._repository.settings(listing, files, progress.deadline, folder)
        names = set(os.listdir(folder.path))  # noqa: PTH208 - names, and no paths to take them from
        if MARKERS & names != MARKERS & files.paths:
            loader = backends.choose(version.name, names, said)
        source = Source(version.name, str(files.number), folder.path, said)
        make = partial(self._made, version, partial(self._start, loader, source), folder, progress)
        if self._budget is None:
            return make()
        claim = Claim(version, footprint(files, folder.path), spared)
        return self._budget.spend(claim, make, progress)

    def _made(self, version: ServedVersion, start: Callable[[], Model], folder: Folder, progress: Progress) -> Loaded:
        """The runtime's part of a load: measured, and traced for a process that dies in the middle of it."""
        with ExitStack() as stack:
            if progress.deadline is not NEVER:
                files = version.version
                size = sum(file.size or 0 for file in files.files)
                stack.enter_context(attempt(self._settings.cache, version.name, files, size, progress.deadline))
            stack.enter_context(progress.in_runtime())
            return Loaded(start(), folder, self._gate, version.traffic, version.pace)

    def _start(self, loader: Loader, source: Source) -> Model:
        """Loads the model, and sends it the requests that its settings ask for before the first client's."""
        model = loader(source, self._settings)
        if source.settings.warmup:
            from handler.lifecycle import warming  # noqa: PLC0415 - for models that ask for it

            warming.warm(model, source.settings.warmup, source.folder)
        return model


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
        is_onnx = path.endswith(".onnx")
        least += size if is_onnx else 0
        peak += COPIES * size + SESSION if is_onnx else size
    return Footprint(peak, least)

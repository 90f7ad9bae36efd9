"""From a version's files to a model in memory: settings, runtime, fetch, room, load, warm-up."""

from pathlib import Path
from typing import Final

from handler import backends
from handler.attempts import attempt
from handler.backends import Source
from handler.budget import Budget
from handler.phases import Phases
from handler.repository import MARKERS, Repository, Version
from handler.settings import Settings
from handler.slots import Loaded, Slot

COPIES: Final = 2
"""Of its file, that ONNX Runtime holds at the peak of a load: the file as parsed, and the tensors made of it."""
SESSION: Final = 8_000_000
"""Bytes that it takes beside them, and a little more."""


class Loading:
    def __init__(self, repository: Repository, settings: Settings, budget: Budget) -> None:
        self._repository = repository
        self._settings = settings
        self._budget = budget

    def load(self, slot: Slot, phases: Phases) -> Loaded:
        """Raises StillLoading, other ServingErrors; the slot's state is its caller's business."""
        listing, version = slot.listing, slot.version
        said = self._repository.settings(listing, version)
        load = backends.choose(slot.name, version.paths, said)
        if self._budget.limit is not None:
            backends.prepare(version.paths)  # a runtime's own memory is not the first model's
            self._budget.check(slot, _sizes(version)[0])  # before files are fetched for nothing
        folder = self._repository.fetch(listing, version, phases.progress)
        # All of it may have been replaced since it was listed.
        said, names = self._repository.settings(listing, version, folder), {path.name for path in folder.path.iterdir()}
        if MARKERS & names != MARKERS & version.paths:
            load = backends.choose(slot.name, names, said)
        source = Source(slot.name, str(version.number), folder.path, said)
        size = sum(file.size or 0 for file in version.files)

        def made() -> Loaded:
            model = load(source, self._settings)
            if said.warmup:
                from handler import warming  # noqa: PLC0415 - for models that ask for it

                warming.warm(model, said.warmup, folder.path)
            return Loaded(slot, model, folder, self._budget.gate)

        def loaded() -> Loaded:
            with attempt(self._settings.cache, slot.name, version, size, phases.patience):
                return phases.run(made)

        return self._budget.spend(slot, *_sizes(version, folder.path), loaded, phases.patience)


def _sizes(version: Version, folder: Path | None = None) -> tuple[int, int]:
    """Bytes that a version's files will take in memory at least, and at the peak of the load, before it is measured.

    What python code makes of its files nobody knows: it may not even read them. `folder`: where they are, to look there
    for what the store did not tell.
    """
    least = peak = 0
    for file in version.files:
        path, size = file.path.partition("/")[2], file.size
        if size is None:
            size = 0 if folder is None else (folder / path).stat().st_size
        is_onnx = path.endswith(".onnx")
        least += size if is_onnx else 0
        peak += COPIES * size + SESSION if is_onnx else size
    return least, peak

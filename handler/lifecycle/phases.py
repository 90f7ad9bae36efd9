"""How far the load of one version is: its files fetched first, then loaded by its runtime."""

import time
from collections.abc import Callable
from typing import TypeVar

from core.errors import StillLoading
from handler.deadlines import Patience
from handler.stores.progress import Progress

T = TypeVar("T")


class Phases:
    """One thread goes through them, any other may look."""

    __slots__ = ("_begun", "_ended", "_model", "patience", "progress")

    def __init__(self, model: str, patience: Patience | None = None) -> None:
        self.patience = patience
        self.progress = Progress(None if patience is None else patience.slice)
        self._model = model
        self._begun = 0
        self._ended = 0

    def run(self, load: Callable[[], T]) -> T:
        """The runtime's part."""
        self._begun, self._ended = time.perf_counter_ns(), 0
        try:
            return load()
        finally:
            self._ended = time.perf_counter_ns()

    @property
    def load_ns(self) -> int:
        """Nanoseconds that the runtime took, or has taken so far."""
        return (self._ended or time.perf_counter_ns()) - self._begun if self._begun else 0

    def unfinished(self) -> StillLoading:
        """What is told to a request that can wait no longer."""
        if self._begun:
            seconds = self.load_ns / 1e9
            text = f"model {self._model!r} has been loading in its runtime for {seconds:.0f} s: try again"
            return StillLoading(text, retry_after=1)
        return self.progress.out_of_time(self._model)

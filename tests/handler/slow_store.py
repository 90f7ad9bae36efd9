"""A stand-in for a slow store: each fetch gets a limited number of bytes, and no time passes."""

from typing import Any

import pytest

from handler.stores.directory import DirectoryStore

MB = 10**6


def install(patch: pytest.MonkeyPatch, total: int, each: int) -> list[Any]:
    """Gives every folder `total` MB, of which one fetch with a deadline gets `each`; returns their progresses."""
    asked: list[Any] = []
    fetch = DirectoryStore.fetch

    def slow(self: Any, model: str, version: str, files: Any, progress: Any) -> Any:
        done = asked[-1].done if asked else 0
        asked.append(progress)
        progress.total, progress.done = total * MB, done
        if progress.deadline.is_never:
            progress.done = progress.total
        progress.add(min(each * MB, progress.total - progress.done))
        if progress.done < progress.total:
            raise progress.out_of_time(model)
        return fetch(self, model, version, files, progress)

    patch.setattr(DirectoryStore, "fetch", slow)
    return asked

"""A stand-in for a store from which files come slowly: it gives so many bytes to each fetch, and no time passes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from handler.stores.directory import DirectoryStore

if TYPE_CHECKING:
    import pytest

MB = 10**6


def install(patch: pytest.MonkeyPatch, total: int, each: int) -> list[Any]:
    """Let every folder have `total` MB, of which one fetch with a deadline gives `each`; returns their progresses."""
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

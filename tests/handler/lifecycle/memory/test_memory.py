"""handler.lifecycle.memory: the kernel and the allocator as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handler.lifecycle import memory

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_kernel_tells_what_is_resident_and_what_it_was_at_most() -> None:
    """A block of 64 MB counts while it is there, and in the peak afterwards."""
    before = memory.resident()
    assert before is not None
    memory.reset_peak()
    with memory.separate_blocks():
        block = bytearray(b"x") * (64 * 2**20)
    during = memory.resident()
    assert during is not None
    assert during - before > 60 * 2**20
    del block
    memory.trim()
    after = memory.resident()
    assert after is not None
    assert during - after > 60 * 2**20
    assert memory.peak() - before > 60 * 2**20


def test_where_the_kernel_or_the_allocator_is_another_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is measured, and nothing is freed early."""
    for name in ("STATM", "STATUS", "CLEAR_REFS"):
        monkeypatch.setattr(memory, name, tmp_path / "gone" / name)
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    memory.reset_peak()
    memory.trim()
    memory.keep_large_blocks()
    with memory.separate_blocks():
        assert memory.resident() is None
    assert memory.peak() == 0

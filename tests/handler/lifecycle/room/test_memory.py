"""handler.lifecycle.room.memory is tested on the real kernel and allocator."""

from pathlib import Path

import pytest

from handler.lifecycle.room import memory


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


def test_memory_goes_back_when_a_burst_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes back once, when the process has grown and does little; not while requests arrive."""
    now = 10 * memory.WORTH_RETURNING
    monkeypatch.setattr(memory, "resident", lambda: now)
    burst = memory.Burst()
    assert burst.look(1.0, now) is False  # busy
    assert burst.look(1.01, now) is True
    assert burst.look(1.02, now) is False
    assert burst.look(1.03, now - 5) is False
    assert burst.look(1.04, now + memory.WORTH_RETURNING - 6) is False
    assert burst.look(1.5, now + memory.WORTH_RETURNING) is False
    assert burst.look(1.51, now + memory.WORTH_RETURNING) is True


def test_one_thread_watches_the_memory() -> None:
    """The rule holds however many applications a process makes."""
    first = memory.give_back_when_idle()
    assert first is memory.give_back_when_idle()
    assert first.daemon
    assert first.is_alive()


def test_where_the_kernel_or_the_allocator_is_another_nothing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is not measured then, and not freed early."""
    for name in ("STATM", "STATUS", "CLEAR_REFS"):
        monkeypatch.setattr(memory, name, tmp_path / "gone" / name)
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    memory.reset_peak()
    memory.trim()
    memory.keep_large_blocks()
    with memory.separate_blocks():
        assert memory.resident() is None
    assert memory.peak() == 0

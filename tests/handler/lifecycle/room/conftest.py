"""Fixtures for tests of the memory limit."""

from pathlib import Path

import pytest

from handler import backends
from handler.lifecycle.room import budget, memory
from tests.handler.lifecycle.room.machine import MB, Machine, add_mb


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Stands in for the kernel and for ONNX Runtime."""
    made = Machine()
    monkeypatch.setattr(memory, "resident", lambda: made.used * MB)
    monkeypatch.setattr(memory, "peak", lambda: made.most * MB)
    monkeypatch.setattr(memory, "reset_peak", lambda: setattr(made, "most", made.used))
    monkeypatch.setattr(backends, "choose", lambda *_: made.load)
    monkeypatch.setattr(budget, "ROOM_SECONDS", 0.2)
    monkeypatch.setattr(budget, "LOOK_SECONDS", 0.01)
    return made


@pytest.fixture
def five(tmp_path: Path, machine: Machine) -> Path:
    """A repository with the models a to e of 30 MB each."""
    for name in "abcde":
        add_mb(tmp_path, name)
        machine.sizes[name] = 30
    return tmp_path

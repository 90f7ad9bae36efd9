"""The commands run in this process, so that a library, which can take 10 s, is imported once.

A few tests start the child as users do.
"""

from collections.abc import Callable
from typing import Any

import pytest

from handler.cli import main
from handler.commands.convert import process, work

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a command as a user types it. Returns the exit code, the output and the errors."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = main([str(each) for each in arguments])
        return (code, *capsys.readouterr())

    return command


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Converts without a child."""

    def converted(job: work.LibraryJob, _: process.ChildLimits, say: Callable[[str], None]) -> dict[str, Any]:
        return work.convert(job, say)

    monkeypatch.setattr(process, "converted", converted)

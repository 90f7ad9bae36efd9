"""The commands that are printed to be tried work where they are printed."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from handler.commands.called import called


def test_a_command_is_short_only_where_a_shell_finds_this_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Another installation of the same name is not this one."""
    other, own = tmp_path / "dragoman", Path(sys.executable).parent
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    monkeypatch.setenv("PATH", str(own))
    assert called() == "dragoman"
    monkeypatch.setenv("PATH", os.pathsep.join((str(tmp_path), str(own))))
    words = shlex.split(called())
    assert words[1:] == ["-m", "dragoman"]
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.startswith("dragoman ")

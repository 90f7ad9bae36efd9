import os
import signal
import subprocess
from io import BytesIO
from pathlib import Path

import pytest

from handler.commands import children


def test_a_module_of_the_current_folder_does_not_come_before_ours(tmp_path: Path) -> None:
    (tmp_path / "handler.py").write_text("raise SystemExit(3)\n")
    (tmp_path / "core.py").write_text("raise SystemExit(3)\n")
    environ = children.environment(os.environ, str(tmp_path))
    subprocess.run(children.command("handler.cli", "--help"), env=environ, cwd=tmp_path, check=True)


def test_a_path_of_the_caller_stays() -> None:
    found = children.environment({"PYTHONPATH": "/theirs", "HOME": "/home"}, "/last")
    assert found == {"PYTHONPATH": os.pathsep.join((str(children.ROOT), "/theirs", "/last")), "HOME": "/home"}
    assert children.environment({"PYTHONPATH": ""})["PYTHONPATH"] == str(children.ROOT)


@pytest.mark.parametrize(("code", "words"), [(3, "exit code 3"), (-signal.SIGSEGV, "SIGSEGV")])
def test_an_end_by_a_signal_has_its_name(code: int, words: str) -> None:
    assert children.end_of(code) == words


def test_the_last_line_that_has_text_is_shown_up_to_a_length() -> None:
    assert children.last_line(BytesIO(b"x" * 5000 + b"\n KeyError: 'a' \n\n  \n")) == "KeyError: 'a'"
    assert children.last_line(BytesIO(b"\xff" * 5000)) == "\N{REPLACEMENT CHARACTER}" * children.SHOWN
    assert children.last_line(BytesIO(b"")) == ""

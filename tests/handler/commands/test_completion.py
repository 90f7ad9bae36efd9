"""`dragoman completion`: what the shells themselves make of it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from handler import cli
from handler.settings import SETTINGS
from tests.support.server import ROOT

ASK = {
    "bash": """
compopt() { echo FILES; }
source "$0"
COMP_WORDS=(dragoman "$@") COMP_CWORD=$#
_dragoman_completion dragoman
printf "%s\\n" "${COMPREPLY[@]}"
""",
    "zsh": """
compdef() {}
_path_files() { print FILES }
_describe() { print -l -- ${completions_with_descriptions%%:*} }
compadd() { print -l -- $completions }
source $0
words=(dragoman "$@") CURRENT=$(($# + 1))
_dragoman_completion
""",
    "fish": """
source $argv[1]
function __fish_complete_path; echo FILES; end
complete -C "dragoman $(string join ' ' -- $argv[2..])" | string split -f 1 \\t
""",
}
"""What a shell does when the Tab key is pressed. Only a terminal has zsh's own functions."""


@pytest.mark.parametrize(("words", "expected"), [
    (("inf",), ["infer"]),
    (("--ver",), ["--version"]),
    (("",), [*cli.COMMANDS]),
    (("serve", "--po"), ["--port"]),
    (("serve", "--auth", ""), ["none", "keys", "jwt", "both"]),
    (("serve", "--log-level", "W"), ["WARNING"]),
    (("serve", "--no-si"), ["--no-site"]),
    (("serve", "--model_"), []),
    (("infer", "--protocol", "v2"), ["v2", "v2-binary"]),
    (("keys", "n"), ["new"]),
    (("keys", "new", "--ri"), ["--rights"]),
    (("completion", ""), ["bash", "zsh", "fish"]),
    (("push", "--version", ""), []),
    (("push", ""), [""]),  # files
    (("serve", "--config", ""), [""]),
])  # fmt: skip
def test_a_line_is_completed(
    words: tuple[str, ...], expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With commands, flags, the values of a flag, and files."""
    assert [value for _, value in asked(words, monkeypatch, capsys)] == expected


def asked(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> list[list[str]]:
    """Returns what bash gets, as kinds and values."""
    monkeypatch.setenv("_DRAGOMAN_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", "\n".join(("dragoman", *words)))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    with pytest.raises(SystemExit, match="0"):
        cli.main([])
    return [line.split(",") for line in capsys.readouterr().out.splitlines() if line]


def test_every_setting_is_completed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Also those that only --help-all shows."""
    found = {value for _, value in asked(("serve", "--"), monkeypatch, capsys)}
    assert {f"--{setting.field.replace('_', '-')}" for setting in SETTINGS} <= found


@pytest.mark.parametrize("shell", [*filter(shutil.which, ASK)])
def test_a_shell_runs_the_script(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It asks the command, and takes words and files from its answer."""
    (tmp_path / "dragoman").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m dragoman "$@"\n')
    (tmp_path / "dragoman").chmod(0o755)
    assert cli.main(["completion", shell]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    environ = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}
    for words, expected in (
        (("inf",), "infer"),
        (("infer", "--protocol", "v2"), "v2 v2-binary"),
        (("push", ""), "FILES"),
    ):
        command = (shell, "-c", ASK[shell], tmp_path / "script", *words)
        done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.stdout.split(), done.stderr) == (expected.split(), "")


def test_completion_imports_nothing_heavy() -> None:
    """Every press of the Tab key waits for it."""
    script = "import sys; from handler import cli\ntry: cli.main([])\nfinally: print(*sys.modules, file=sys.stderr)"
    environ = os.environ | {"_DRAGOMAN_COMPLETE": "bash_complete", "COMP_WORDS": "dragoman", "COMP_CWORD": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    assert "plain,convert" in done.stdout
    assert not {"argparse", "asyncio", "difflib", "importlib.metadata", "numpy", "rich"} & set(done.stderr.split())

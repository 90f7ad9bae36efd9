"""`dragoman completion`: what the shells themselves make of it."""

import re
import subprocess
from pathlib import Path

import pytest

from handler import cli
from handler.settings import SETTINGS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert cli.main(["completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("words", "expected"), [
    (("inf",), ["infer"]),
    (("--ver",), ["--version"]),
    (("serve", "--po"), ["--port"]),
    (("serve", "--auth", ""), ["none", "keys", "jwt", "both"]),
    (("serve", "--log-level", "W"), ["WARNING"]),
    (("serve", "--no-si"), ["--no-site"]),
    (("infer", "--protocol", "v2"), ["v2", "v2-binary"]),
    (("keys", "n"), ["new"]),
    (("keys", "new", "--ri"), ["--rights"]),
    (("completion", ""), ["bash", "zsh", "fish", "-h", "--help"]),
    (("push", "--version", ""), []),
    (("nothing", ""), []),
])  # fmt: skip
def test_bash_completes(
    words: tuple[str, ...], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands, flags, and the values of a flag; for others bash completes files."""
    file = tmp_path / "dragoman"
    file.write_text(script("bash", capsys))
    ask = 'source "$0"; COMP_WORDS=(dragoman "$@"); COMP_CWORD=$#; _dragoman; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", ask, file, *words], capture_output=True, text=True, check=True)  # noqa: S607 - the machine's
    assert done.stderr == ""
    assert done.stdout.split() == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_setting_is_in_the_script(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In each shell's own form, with quotes that end."""
    text = script(shell, capsys)
    for name in cli.COMMANDS:
        assert re.search(rf"\b{name}\b", text)
    for setting in SETTINGS:
        flag = setting.field.replace("_", "-")
        assert (f"-l {flag} " if shell == "fish" else f"--{flag}") in text
    assert "%%" not in text
    assert re.sub(r"\\.", "", text).count("'") % 2 == 0

"""The README: its commands are run and answer what it says, its tables are those of the code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from core.dialects import DIALECTS
from tests.conformance.server import serve

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"<!-- tested -->\n```console\n(.*?)```", README, re.DOTALL)
PYTHON = re.findall(r"<!-- tested -->\n```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """The sample models, on a port of the tests' own."""
    with serve(tmp_path / "log", REPOSITORY=str(ROOT / "models")) as server:
        yield server.port


def curl(command: str) -> str:
    """What curl would print; it need not be installed to run the tests."""
    words = shlex.split(command)
    assert words[:2] == ["curl", "-s"]
    options = dict(zip(words[2:-1:2], words[3:-1:2], strict=True))
    assert set(options) <= {"-d", "-X"}
    body = options.get("-d")
    request = urllib.request.Request(  # noqa: S310 - of the README, on loopback
        words[-1], None if body is None else body.encode(), method=options.get("-X") or ("POST" if body else "GET")
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
            return str(answer.read().decode())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.read().decode()


def test_the_console_examples_print_what_they_show(port: int) -> None:
    """Command by command, in the order of the page."""
    assert CONSOLE
    for block in CONSOLE:
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
            assert curl(command.replace(":8080", f":{port}")) == shown.rstrip("\n")


@pytest.mark.parametrize(("program", "printed"), PYTHON, ids=["tritonclient", "tritonclient-json", "kserve"])
def test_the_python_examples_print_what_they_show(port: int, program: str, printed: str) -> None:
    """As a user would run them."""
    script = program.replace(":8080", f":{port}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout == printed


def test_every_route_stands_in_the_table_and_no_other() -> None:
    """[brackets] are optional parts."""
    rows = re.findall(r"^\| (GET|POST) \| `(.*?)` \|", README, re.MULTILINE)
    listed = {
        (method, path)
        for method, written in rows
        for path in (re.sub(r"\[.*?\]", "", written), re.sub(r"[\[\]]", "", written))
    }
    assert listed == {(route.method, route.pattern) for dialect in DIALECTS for route in dialect.routes}


def test_the_files_that_the_readme_names_are_there() -> None:
    """Folders and files in backquotes."""
    for name in ("models/", "template.yaml", "events/", "benchmarks/", "events/rest-v1-infer-json.json"):
        assert name in README
        assert (ROOT / name).exists()

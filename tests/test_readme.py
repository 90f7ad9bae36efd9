"""The README's commands are run and answer what it says, and its tables are those of the code."""

import math
import re
import shlex
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.dialects import DIALECTS
from tests.support.server import Server, serve, serve_rpc

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
CONSOLE = re.findall(r"<!-- tested((?: \w+=\S+)*) -->\n```console\n(.*?)```", README, re.DOTALL)
PYTHON = re.findall(r"<!-- tested(?: grpc)? -->\n```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """A server of the sample models, on a separate port."""
    with serve(tmp_path / "log", REPOSITORY=str(ROOT / "models")) as server:
        yield server.port


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the sample models over HTTP and gRPC, for programs that leave nothing behind."""
    with serve_rpc(tmp_path_factory.mktemp("server") / "log", REPOSITORY=str(ROOT / "models")) as running:
        yield running


def curl(command: str) -> str:
    """Returns what curl would print; it need not be installed to run the tests."""
    words = shlex.split(command)
    assert words[:2] == ["curl", "-s"]
    options = dict(zip(words[2:-1:2], words[3:-1:2], strict=True))
    assert set(options) <= {"-d", "-X", "-H"}
    body = options.get("-d")
    request = urllib.request.Request(  # noqa: S310 - of the README, on loopback
        words[-1], None if body is None else body.encode(), method=options.get("-X") or ("POST" if body else "GET")
    )
    if "-H" in options:
        request.add_header(*options["-H"].split(": "))
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - the same
            return str(answer.read().decode())
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.read().decode()


def alike(printed: str, shown: str) -> bool:
    """Returns whether the texts are equal; the last digits of a model's floats are the processor's own."""
    found, expected = ([float(x) for x in NUMBER.findall(text)] for text in (printed, shown))
    same = NUMBER.sub("#", printed) == NUMBER.sub("#", shown)
    return same and all(math.isclose(*pair, rel_tol=1e-5, abs_tol=1e-6) for pair in zip(found, expected, strict=True))


def check(block: str, port: int) -> None:
    """Checks that each command of a block prints the answer that stands below it."""
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE):
        printed = curl(command.replace(":8080", f":{port}"))
        assert alike(printed, shown.rstrip("\n")), printed


def test_the_console_examples_print_what_they_show(port: int) -> None:
    """They run command by command, in the order of the page, on a server without any setting."""
    blocks = [block for settings, block in CONSOLE if not settings]
    assert blocks
    for block in blocks:
        check(block, port)


@pytest.mark.parametrize(("settings", "block"), [pair for pair in CONSOLE if pair[0]], ids=["spec-example"])
def test_the_console_examples_with_settings_print_the_same(settings: str, block: str, tmp_path: Path) -> None:
    """Each runs on a separate server, once it is ready."""
    variables = dict(setting.split("=") for setting in settings.split())
    with serve(tmp_path / "log", REPOSITORY=str(ROOT / "models"), **variables) as server:
        deadline = time.monotonic() + 60
        while '"ready":true' not in curl(f"curl -s http://127.0.0.1:{server.port}/v2/health/ready"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        check(block, server.port)


@pytest.mark.parametrize(
    ("program", "printed"),
    PYTHON,
    ids=["tritonclient", "tritonclient-json", "tritonclient-grpc", "kserve", "kserve-v1"],
)
def test_the_python_examples_print_what_they_show(program: str, printed: str, server: Server) -> None:
    """They run as a user would run them."""
    script = program.replace(":8080", f":{server.port}").replace(":9000", f":{server.rpc_port}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert alike(done.stdout, printed), done.stdout


def test_every_route_stands_in_the_table_and_no_other() -> None:
    """[brackets] are optional parts, ; between them alternatives."""
    rows = re.findall(r"^\| (GET|POST|GET, POST) \| `(.*?)` \|", README, re.MULTILINE)
    listed = set()
    for methods, written in rows:
        before, _, rest = written.partition("[")
        optional, _, after = rest.partition("]")
        patterns = [f"{before}{part}{after}" for part in ("", *optional.split(";"))]
        listed |= {(method, pattern) for method in methods.split(", ") for pattern in patterns}
    assert listed == {(route.method, route.pattern) for dialect in DIALECTS for route in dialect.routes}


def test_the_files_that_the_readme_names_are_there() -> None:
    """They are folders and files in backquotes."""
    for name in ("models/", "template.yaml", "events/", "benchmarks/", "events/rest-v1-infer-json.json"):
        assert name in README
        assert (ROOT / name).exists()

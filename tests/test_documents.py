"""The commands of README and docs are run and print what stands there, links lead somewhere, tables are the code's."""

import math
import re
import shlex
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.dialects import DIALECTS
from tests.support import links, reference
from tests.support.server import Server, serve, serve_rpc

ROOT = Path(__file__).parents[1]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
LONGEST_README = 200
CONSOLE = {
    name: found
    for name, page in PAGES.items()
    if (found := re.findall(r"<!-- tested((?: \w+=\S+)*) -->\n```console\n(.*?)```", page, re.DOTALL))
}
PYTHON = [
    pytest.param(program, printed, id=f"{name}-{index}")
    for name, page in PAGES.items()
    for index, (program, printed) in enumerate(
        re.findall(r"<!-- tested(?: grpc)? -->\n```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    )
]
SET_UP = [
    pytest.param(settings, block, id=name) for name, blocks in CONSOLE.items() for settings, block in blocks if settings
]
COMMANDS = re.compile(r"(^<!-- [^\n]*-->\n)?^```(?:console|python|js|bash|sh)\n", re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)#:\s]*)(?:#([^)\s]*))?\)")
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


@pytest.mark.parametrize("name", CONSOLE)
def test_the_console_examples_print_what_they_show(name: str, port: int) -> None:
    """They run command by command, in the order of the page, on a server without any setting."""
    for settings, block in CONSOLE[name]:
        if not settings:
            check(block, port)


@pytest.mark.parametrize(("settings", "block"), SET_UP)
def test_the_console_examples_with_settings_print_the_same(settings: str, block: str, tmp_path: Path) -> None:
    """Each runs on a separate server, once it is ready."""
    variables = dict(setting.split("=") for setting in settings.split())
    with serve(tmp_path / "log", REPOSITORY=str(ROOT / "models"), **variables) as server:
        deadline = time.monotonic() + 60
        while '"ready":true' not in curl(f"curl -s http://127.0.0.1:{server.port}/v2/health/ready"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        check(block, server.port)


def check_program(program: str, printed: str, server: Server) -> None:
    """Runs a program of a page as a user would run it, with the server's ports, and compares what it prints."""
    script = program.replace(":8080", f":{server.port}").replace(":9000", f":{server.rpc_port}")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    assert alike(done.stdout, printed), done.stdout


@pytest.mark.parametrize(("program", "printed"), PYTHON)
def test_the_python_examples_print_what_they_show(program: str, printed: str, server: Server) -> None:
    """They run as a user would run them."""
    check_program(program, printed, server)


@pytest.mark.parametrize("name", PAGES)
def test_commands_are_run_or_say_why_not(name: str) -> None:
    """Each block of commands or code has a mark: `tested`, or `not run` with the reason and the closest test."""
    marks = COMMANDS.findall(PAGES[name])
    assert [mark for mark in marks if not re.match("<!-- (?:tested|not run: .*tests/)", mark)] == []
    named = re.findall(r"tests/[\w/.]+\w", " ".join(marks))
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
    """Each relative link is a file, and its anchor a heading there."""
    for target, anchor in LINK.findall(PAGES[name]):
        path = (ROOT / name).parent / target if target else ROOT / name
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text(encoding="utf-8")), f"{target}#{anchor}"


def test_links_out_are_secure_known_and_written_one_way(server: Server) -> None:
    """`make check-links` asks for each of them. It needs a network, so no test does."""
    assert len(links.written()) > 5
    assert links.faults(links.written()) == []
    said = links.faults(["http://github.com/a/b", "https://github.com/a/b/", "https://gihtub.com/a"])
    assert [each.partition(": ")[2][:9] for each in said] == ["write htt", "also writ", "the host "]
    url = f"http://127.0.0.1:{server.port}/v2"
    assert (links.broken(url), links.broken(f"{url}/no")) == ("", f"{url}/no: 404")


def anchors(page: str) -> set[str]:
    """Returns the anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_every_page_is_reached_from_the_readme() -> None:
    """By links from page to page."""
    reached, new = {"README.md"}, ["README.md"]
    while new:
        name = new.pop()
        for target, _ in LINK.findall(PAGES[name]):
            path = str(((ROOT / name).parent / target).resolve().relative_to(ROOT)) if target else name
            if path in PAGES and path not in reached:
                reached.add(path)
                new.append(path)
    assert reached == set(PAGES)


def test_the_readme_is_short() -> None:
    """It is the product's face; what it links to has the rest."""
    assert len(PAGES["README.md"].splitlines()) <= LONGEST_README


def test_the_errors_of_the_troubleshooting_page_are_the_codes() -> None:
    """Each quoted part of a text stands in a module."""
    cells = re.findall(r"^\| (`.*?`) \|", PAGES["docs/troubleshooting.md"], re.MULTILINE)
    parts = [part for cell in cells for part in re.findall(r"`(.*?)`", cell)]
    sources = [path.read_text(encoding="utf-8") for top in ("core", "handler") for path in (ROOT / top).rglob("*.py")]
    assert parts
    assert [part for part in parts if not any(part in text for text in sources)] == []


def test_the_pages_that_messages_name_exist() -> None:
    """Commands, logs and errors name these pages."""
    files = [path for top in ("core", "handler") for path in (ROOT / top).rglob("*") if path.suffix != ".pyc"]
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in files if path.is_file()]
    named = {page for text in texts for page in re.findall(r"docs/[\w/-]+\.md", text)}
    assert named
    assert {page for page in named if not (ROOT / page).exists()} == set()


def test_every_extra_stands_in_the_table_and_no_other() -> None:
    """pyproject.toml has them."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extras = tomllib.load(file)["project"]["optional-dependencies"]
    cells = re.findall(r"^\| (`.*?) \|", PAGES["docs/install.md"], re.MULTILINE)
    assert {extra for cell in cells for extra in re.findall(r"`(.*?)`", cell)} == extras.keys()


@pytest.mark.parametrize("name", reference.PAGES)
def test_the_tables_of_settings_and_routes_are_the_codes(name: str) -> None:
    """`make reference` writes them."""
    assert PAGES[f"docs/{name}"] == reference.renewed(name)


def test_every_route_stands_in_a_row() -> None:
    """Rows of several routes lose none: [brackets] are optional parts, ; between them alternatives."""
    rows = re.findall(r"^\| (GET|POST|GET, POST) \| `(.*?)` \|", reference.routes(), re.MULTILINE)
    listed = set()
    for methods, written in rows:
        before, _, rest = written.partition("[")
        optional, _, after = rest.partition("]")
        patterns = [f"{before}{part}{after}" for part in ("", *optional.split(";"))]
        listed |= {(method, pattern) for method in methods.split(", ") for pattern in patterns}
    assert listed == {(route.method, route.pattern) for dialect in DIALECTS for route in dialect.routes}

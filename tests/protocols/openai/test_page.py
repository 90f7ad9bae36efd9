"""The commands of docs/text.md print what stands there."""

import re
from collections.abc import Iterator

import pytest

from tests.support import texts
from tests.support.server import ROOT, Server, serve_rpc
from tests.test_documents import check, check_program

PAGE = (ROOT / "docs" / "text.md").read_text(encoding="utf-8")
MARK = r"<!-- tested by tests/protocols/openai/test_page.py -->\n"
CONSOLE = re.findall(MARK + r"```console\n(.*?)```", PAGE, re.DOTALL)
PYTHON = re.findall(MARK + r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the page's models."""
    root = texts.build(tmp_path_factory.mktemp("texts"))
    with serve_rpc(root.with_name("log"), REPOSITORY=str(root)) as running:
        yield running


@pytest.mark.parametrize("block", CONSOLE)
def test_the_commands_print_what_they_show(block: str, server: Server) -> None:
    """One after the other."""
    check(block, server.port)


@pytest.mark.parametrize(("program", "printed"), PYTHON)
def test_the_programs_print_what_they_show(program: str, printed: str, server: Server) -> None:
    """As a user would run them."""
    check_program(program, printed, server)


def test_every_block_of_the_page_is_run() -> None:
    """But for those that say why not."""
    assert (len(CONSOLE), len(PYTHON)) == (4, 2)
    assert len(CONSOLE) + len(PYTHON) == PAGE.count("test_page.py -->")

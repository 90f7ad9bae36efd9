"""The rules for every answer, whatever the row: the error object, and a server that continues to answer."""

import json
import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from tests.support.catalogue import row
from tests.support.wire import HEADER_LENGTH, Answer, Wire, json_input

LENGTHS: Final = (pytest.param("", id="short"), pytest.param(" " * 20_000, id="long"))
"""The value of an unknown member: texts this long have other readers than short ones."""
LONG: Final = b" " * 20_000
"""Blank space to put behind a document, in place of a member."""
LONGEST_TEXT: Final = 2000
"""A value is quoted up to 256 characters; a text of some values and words stays below this."""

FOLDERS: Final = "|".join(re.escape(folder.name) for folder in Path("/").iterdir() if folder.is_dir())
"""The folders in which every path of the machine that runs the tests begins."""
INTERNALS: Final = re.compile(
    r"Traceback|File \"|(?<!model)\.py\b|site-packages|pydantic|<class |object at 0x|0x[0-9a-f]{6}"
    rf"|(?<!models/)(?<![\w.])/(?:{FOLDERS})/"  # unless it is a name that the client has given
)


def refusal(answer: Answer, *statuses: int) -> str:
    """Assert that this is an error of the protocol, with one of the statuses if any is given; return its text."""
    assert answer.status >= 400, (answer.status, answer.content[:1000])
    assert answer.headers["content-type"] == "application/json"
    document = answer.json()
    assert list(document) == ["error"], document
    text = document["error"]
    assert isinstance(text, str)
    assert text.strip()
    assert len(text) < LONGEST_TEXT
    assert not INTERNALS.search(text), text
    assert not statuses or answer.status in statuses, (answer.status, text)
    return text


def alive(wire: Wire) -> None:
    """Assert that the server calculates, over this very connection."""
    left, right = np.arange(16, dtype=np.int32), np.full(16, 3, np.int32)
    answer = wire.infer("add_sub", json_input("INPUT0", "INT32", left), json_input("INPUT1", "INT32", right))
    tensors = answer.tensors()
    assert np.array_equal(tensors["OUTPUT0"], left + right)
    assert np.array_equal(tensors["OUTPUT1"], left - right)


class Bad(NamedTuple):
    """A request that is refused. `text`: the refusal, with "..." for any part, or an expression that is found in it."""

    target: str
    body: bytes
    text: str | re.Pattern[str] = "..."
    headers: dict[str, str] = {}  # noqa: RUF012 - never written
    status: int | tuple[int, ...] = 400
    method: str = "POST"

    @property
    def bodies(self) -> tuple[bytes, ...]:
        """Returns the body, and a document also with blank space behind it."""
        plain = self.method == "POST" and not {"Content-Encoding", HEADER_LENGTH} & self.headers.keys()
        return (self.body, self.body + LONG) if plain else (self.body,)


def refused(
    rows: str, target: str, *documents: Any, text: str = "...", status: int | tuple[int, ...] = 400, **headers: str
) -> list[Any]:
    """Returns a case for each document: bytes and texts as they are, None for a GET; the target may name its method."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    method, _, path = target.rpartition(" ")
    found = []
    for document in documents:
        body = document.encode() if isinstance(document, str) else document
        body = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        bad = Bad(path, body, text, named, status, method or ("GET" if document is None else "POST"))
        found.append(row(rows, bad, name=path[:60].replace(" ", "_")))
    return found


def like(text: str | re.Pattern[str]) -> re.Pattern[str]:
    """Returns the expression of a text in which "..." stands for anything."""
    if isinstance(text, re.Pattern):
        return text
    parts = ".*".join(map(re.escape, text.split("...")))
    return re.compile(rf"\A{parts}\Z", re.DOTALL)


def keeps_every_promise(wire: Wire, bad: Bad) -> None:
    """Asserts that the refusal has the protocol's form and status, names the culprit and shows no internals."""
    statuses = (bad.status,) if isinstance(bad.status, int) else bad.status
    for body in bad.bodies:
        text = refusal(wire.call(bad.method, bad.target, body or None, bad.headers), *statuses)
        assert like(bad.text).search(text), (text, body[:200])

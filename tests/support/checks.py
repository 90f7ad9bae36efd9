"""What every answer must satisfy, whatever the row: the error object, and a server that goes on answering."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pytest

from tests.support.wire import json_input

if TYPE_CHECKING:
    from tests.support.wire import Answer, Wire

LENGTHS: Final = (pytest.param("", id="short"), pytest.param(" " * 20_000, id="long"))
"""Of a member that nobody knows: readers of long texts are other code than readers of short ones."""
LONGEST_TEXT: Final = 2000
"""A value is quoted up to 256 characters; a text of some values and words stays below this."""

FOLDERS: Final = "|".join(re.escape(folder.name) for folder in Path("/").iterdir() if folder.is_dir())
"""Where every path of the machine that runs the tests begins."""
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

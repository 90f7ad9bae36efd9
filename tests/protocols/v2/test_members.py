"""Members of a request that are unknown, null, oddly named or given twice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.wire import json_input

if TYPE_CHECKING:
    from tests.support.wire import Wire

LEFT = np.arange(16, dtype=np.int32)
RIGHT = np.full(16, 3, np.int32)
INPUTS = [json_input("INPUT0", "INT32", LEFT), json_input("INPUT1", "INT32", RIGHT)]


@pytest.mark.row("R-120", "R-125")
def test_unknown_members_are_ignored(wire: Wire) -> None:
    """At the top, in inputs and in outputs; kserve's client sends model_name."""
    more = {"unheard_of": {"a": [None, 1.5]}, "model_name": "another"}
    outputs = [{"name": "OUTPUT0", **more}]
    answer = wire.infer("add_sub", *({**item, **more} for item in INPUTS), outputs=outputs, **more)
    assert answer.tensor().tolist() == (LEFT + RIGHT).tolist()
    assert answer.json()["model_name"] == "add_sub"
    assert b"null" not in answer.content


TWICE = {
    "inputs": b'{"inputs": [], "inputs": %s}',
    "id": b'{"id": "first", "inputs": %s, "id": "last"}',
    "outputs": b'{"outputs": [{"name": "OUTPUT1", "name": "OUTPUT0"}], "inputs": %s}',
}


@pytest.mark.parametrize("text", TWICE.values(), ids=list(TWICE))
def test_a_member_given_twice_is_read_alike_in_short_and_long_texts(wire: Wire, text: bytes) -> None:
    """The last one counts, or 400."""
    body = text % json.dumps(INPUTS).encode()
    answers = [wire.post("/v2/models/add_sub/infer", body + blank) for blank in (b"", b" " * 20_000)]
    assert answers[0].body == answers[1].body
    if answers[0].status == 200:
        assert answers[0].tensors()["OUTPUT0"].tolist() == (LEFT + RIGHT).tolist()
        assert answers[0].json().get("id", "last") == "last"
    else:
        refusal(answers[0], 400)


ODD_NAMES = ["", "\0", "a\0b", "inputs\0", "inputs\0x", "id\0", "\n", '"', "\\", "a/b", "🦜", "x" * 3000]


@pytest.mark.row("R-120")
@pytest.mark.parametrize("name", ODD_NAMES, ids=[name[:8].encode().hex() or "empty" for name in ODD_NAMES])
@pytest.mark.parametrize("blank", LENGTHS)
def test_an_unknown_member_may_have_any_name(wire: Wire, name: str, blank: str) -> None:
    """Before the known ones, and in inputs and outputs, too."""
    inputs = [{name: 1, **item} for item in INPUTS]
    request = {name: [1], "inputs": inputs, "outputs": [{name: 1, "name": "OUTPUT0"}], "blank": blank}
    answer = wire.post("/v2/models/add_sub/infer", request)
    assert answer.tensor().tolist() == (LEFT + RIGHT).tolist()
    assert "id" not in answer.json()


NULLS: dict[str, dict[str, Any]] = {
    "id": {"id": None},
    "parameters": {"parameters": None},
    "outputs": {"outputs": None},
    "input_parameters": {"inputs": [{**item, "parameters": None} for item in INPUTS]},
    "output_parameters": {"outputs": [{"name": "OUTPUT0", "parameters": None}, {"name": "OUTPUT1"}]},
    "parameter": {"parameters": {"binary_data_output": None}},
}


@pytest.mark.row("R-121")
@pytest.mark.parametrize("members", NULLS.values(), ids=list(NULLS))
def test_null_is_absence(wire: Wire, members: dict[str, Any]) -> None:
    """Clients made with pydantic send every optional member."""
    answer = wire.post("/v2/models/add_sub/infer", {"inputs": INPUTS, **members})
    assert answer.tensors()["OUTPUT1"].tolist() == (LEFT - RIGHT).tolist()
    assert "id" not in answer.json()

"""Inference with JSON: the envelope, versions, ids, parameters and the choice of outputs."""

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
X = json_input("x", "INT64", np.array([0]))


@pytest.mark.row("R-100", "R-101", "R-109", "R-320")
def test_an_answer_has_the_members_of_the_specification(wire: Wire) -> None:
    """model_name, outputs with name, shape, datatype and flat data, and nothing unknown."""
    answer = wire.infer("fixed", json_input("INPUT0", "FP32", np.ones((2, 3), np.float32), nested=True))
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/json"
    assert "inference-header-content-length" not in answer.headers
    output = {"name": "OUTPUT0", "shape": [2, 3], "datatype": "FP32", "data": [1.0] * 6}
    assert answer.json() == {"model_name": "fixed", "model_version": "1", "outputs": [output]}


IDS = {
    "plain": "42", "non_ascii": "номер-✓-日本-🦜", "long": "i" * 300, "quotes": "\"'\\</script>",
    "control": "a\nb\tc\u0000d\u2028", "empty_looking": " ",
}  # fmt: skip


@pytest.mark.row("R-102")
@pytest.mark.parametrize("own", IDS.values(), ids=list(IDS))
def test_the_id_comes_back(wire: Wire, own: str) -> None:
    """Whatever string it is."""
    assert wire.infer("add_sub", *INPUTS, id=own).json()["id"] == own


@pytest.mark.row("R-102")
def test_the_id_comes_back_with_binary_data(wire: Wire) -> None:
    """It stands in the JSON part of the answer."""
    answer = wire.infer("add_sub", *INPUTS, id="номер", parameters={"binary_data_output": True})
    assert answer.split()[0]["id"] == "номер"


@pytest.mark.row("R-103")
def test_without_an_id_the_answer_has_none(wire: Wire) -> None:
    """Answers without an id are the same each time."""
    answer = wire.infer("add_sub", *INPUTS)
    assert "id" not in answer.json()
    assert wire.infer("add_sub", *INPUTS).body == answer.body


@pytest.mark.row("R-104", "R-106")
@pytest.mark.parametrize("version", [1, 2, 10])
def test_the_version_asked_for_runs(wire: Wire, version: int) -> None:
    """Each adds its own number; model_version is a string."""
    answer = wire.infer("versions", X, version=version)
    assert answer.tensor().tolist() == [version]
    assert answer.json()["model_version"] == str(version)


@pytest.mark.row("R-105")
@pytest.mark.parametrize(("model", "newest"), [("versions", 10), ("versions_latest", 10), ("versions_specific", 2)])
def test_without_a_version_the_largest_number_runs(wire: Wire, model: str, newest: int) -> None:
    """10 is more than 2, and a version that the policy hides does not count."""
    answer = wire.infer(model, X)
    assert answer.tensor().tolist() == [newest]
    assert answer.json()["model_version"] == str(newest)


def test_a_folder_with_leading_zeros_is_its_number(wire: Wire) -> None:
    """0007 is version 7."""
    assert wire.infer("versions_padded", X, version=7).tensor().tolist() == [7]


@pytest.mark.row("R-107")
def test_nested_data_is_read(wire: Wire) -> None:
    """Nested like the shape."""
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    answer = wire.infer("identity_fp32", json_input("INPUT0", "FP32", values, nested=True))
    assert np.array_equal(answer.tensor(), values)


@pytest.mark.row("R-108")
def test_flat_data_is_read(wire: Wire) -> None:
    """Row-major."""
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    answer = wire.infer("identity_fp32", json_input("INPUT0", "FP32", values))
    assert np.array_equal(answer.tensor(), values)


OTHER_NESTING = {
    "transposed": [[1, 2], [3, 4], [5, 6]], "column": [[1], [2], [3], [4], [5], [6]],
    "deeper": [[[1, 2, 3], [4, 5, 6]]], "ragged": [[1, 2], [3, 4, 5, 6]], "half_flat": [1, 2, 3, [4, 5, 6]],
}  # fmt: skip


@pytest.mark.row("R-110")
@pytest.mark.parametrize("data", OTHER_NESTING.values(), ids=list(OTHER_NESTING))
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES"])
def test_data_nested_otherwise_is_right_or_refused(wire: Wire, datatype: str, data: list[Any]) -> None:
    """The count fits: the values in order, or 400."""
    if datatype == "BYTES":
        data = json.loads(json.dumps(data).translate({ord(c): f'"{c}"' for c in "123456"}))
    head = {"name": "INPUT0", "datatype": datatype, "shape": [2, 3], "data": data}
    answer = wire.infer(f"identity_{datatype.lower()}", head)
    if answer.status == 200:
        assert [int(value) for value in answer.tensor().ravel()] == [1, 2, 3, 4, 5, 6]
    else:
        assert "INPUT0" in refusal(answer, 400)


@pytest.mark.row("R-118")
def test_inputs_are_matched_by_name(wire: Wire) -> None:
    """Their order in the request means nothing."""
    assert wire.infer("add_sub", *reversed(INPUTS)).tensors()["OUTPUT1"].tolist() == (LEFT - RIGHT).tolist()


@pytest.mark.row("R-119")
def test_several_types_travel_together(wire: Wire) -> None:
    """Integers, text and flags of different lengths."""
    answer = wire.infer(
        "three_types",
        json_input("flags", "BOOL", np.array([True, False])),
        json_input("integers", "INT32", np.array([1, 2, 3], np.int32)),
        json_input("text", "BYTES", np.array(["één".encode()], object)),
    )
    found = {name: values.tolist() for name, values in answer.tensors().items()}
    assert found == {"integers_out": [1, 2, 3], "text_out": ["één".encode()], "flags_out": [True, False]}


PARAMETERS = {"text": "a", "number": 1, "fraction": 1.5, "yes": True, "no": False}
PLACES = ["request", "inputs", "outputs"]


def placed(place: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """A request with parameters at one place."""
    if place == "inputs":
        return {"inputs": [{**item, "parameters": parameters} for item in INPUTS]}
    if place == "outputs":
        return {"inputs": INPUTS, "outputs": [{"name": f"OUTPUT{i}", "parameters": parameters} for i in (0, 1)]}
    return {"inputs": INPUTS, "parameters": parameters}


@pytest.mark.row("R-122")
@pytest.mark.parametrize("place", PLACES)
def test_parameters_are_accepted(wire: Wire, place: str) -> None:
    """Strings, numbers and booleans that nobody knows."""
    answer = wire.post("/v2/models/add_sub/infer", placed(place, PARAMETERS))
    assert answer.tensors()["OUTPUT0"].tolist() == (LEFT + RIGHT).tolist()


@pytest.mark.row("R-123")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("kind", ["np", "str", "pd"])
def test_a_content_type_parameter_is_tolerated(wire: Wire, place: str, kind: str) -> None:
    """Clients of MLServer's codecs send it everywhere."""
    answer = wire.post("/v2/models/add_sub/infer", placed(place, {"content_type": kind}))
    assert answer.tensors()["OUTPUT0"].tolist() == (LEFT + RIGHT).tolist()


@pytest.mark.row("R-124")
def test_tritons_parameters_are_tolerated(wire: Wire) -> None:
    """The server has neither sequences nor priorities."""
    parameters = {"sequence_id": 7, "sequence_start": True, "sequence_end": False, "priority": 1, "timeout": 10_000_000}
    assert wire.infer("add_sub", *INPUTS, parameters=parameters).status == 200
    assert wire.infer("add_sub", *INPUTS, parameters={**parameters, "sequence_id": "seven"}).status == 200


@pytest.mark.row("R-122")
def test_parameters_reach_a_python_model(wire: Wire) -> None:
    """They reach it as they were sent."""
    x = json_input("x", "FP32", np.zeros(1, np.float32))
    answer = wire.infer("py_echo_parameters", x, parameters=PARAMETERS)
    assert json.loads(answer.tensors()["parameters"][0]) == PARAMETERS


@pytest.mark.row("R-130")
@pytest.mark.parametrize(("name", "expected"), [("OUTPUT0", LEFT + RIGHT), ("OUTPUT1", LEFT - RIGHT)])
def test_only_the_outputs_asked_for_come(wire: Wire, name: str, expected: Any) -> None:
    """One of two."""
    tensors = wire.infer("add_sub", *INPUTS, outputs=[{"name": name}]).tensors()
    assert list(tensors) == [name]
    assert np.array_equal(tensors[name], expected)


@pytest.mark.row("R-131")
@pytest.mark.parametrize("binary", [False, True])
def test_outputs_come_in_the_order_asked(wire: Wire, *, binary: bool) -> None:
    """The last first."""
    parameters = {"binary_data": binary}
    outputs = [{"name": name, "parameters": parameters} for name in ("OUTPUT1", "OUTPUT0")]
    tensors = wire.infer("add_sub", *INPUTS, outputs=outputs).tensors()
    assert list(tensors) == ["OUTPUT1", "OUTPUT0"]
    assert np.array_equal(tensors["OUTPUT1"], LEFT - RIGHT)


@pytest.mark.row("R-132")
@pytest.mark.parametrize("model", ["three_types"])
def test_without_outputs_all_come_in_the_models_order(wire: Wire, model: str) -> None:
    """The order of the metadata."""
    inputs = [
        json_input("text", "BYTES", np.array([], object)),
        json_input("flags", "BOOL", np.array([], bool)),
        json_input("integers", "INT32", np.array([], np.int32)),
    ]
    names = [output["name"] for output in wire.get(f"/v2/models/{model}").json()["outputs"]]
    assert list(wire.infer(model, *inputs).tensors()) == names == ["integers_out", "text_out", "flags_out"]


@pytest.mark.row("R-133")
def test_no_outputs_means_all(wire: Wire) -> None:
    """An empty list asks for nothing in particular."""
    assert list(wire.infer("add_sub", *INPUTS, outputs=[]).tensors()) == ["OUTPUT0", "OUTPUT1"]


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

"""The tests cover inference with JSON: the envelope, versions, ids, parameters and the choice of outputs."""

import json
from typing import Any

import numpy as np
import pytest

from tests.support.catalogue import row
from tests.support.checks import LENGTHS, refusal
from tests.support.wire import Wire, json_input

LEFT = np.arange(16, dtype=np.int32)
RIGHT = np.full(16, 3, np.int32)
INPUTS = [json_input("INPUT0", "INT32", LEFT), json_input("INPUT1", "INT32", RIGHT)]
SUM, DIFFERENCE = (LEFT + RIGHT).tolist(), (LEFT - RIGHT).tolist()
ADD_SUB = "/v2/models/add_sub/infer"
X = json_input("x", "INT64", np.array([0]))


@pytest.mark.row("R-100", "R-101", "R-109", "R-320")
def test_an_answer_has_the_members_of_the_specification(wire: Wire) -> None:
    """It has model_name, outputs with name, shape, datatype and flat data, and no unknown member."""
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
    """It may be any string."""
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


RUN = [
    *(row("R-104 R-106", "versions", number, number) for number in (1, 2, 10)),
    *(row("R-105", model, None, newest) for model, newest in (
        ("versions", 10), ("versions_latest", 10), ("versions_specific", 2))),
    row("", "versions_padded", 7, 7, name="0007 is 7"),
]  # fmt: skip


@pytest.mark.parametrize(("model", "version", "runs"), RUN)
def test_the_version_asked_for_runs_or_the_largest_number(
    wire: Wire, model: str, version: int | None, runs: int
) -> None:
    """10 is more than 2, a version that the policy hides does not count, and model_version is a string."""
    answer = wire.infer(model, X, **({} if version is None else {"version": version}))
    assert answer.tensor().tolist() == [runs]
    assert answer.json()["model_version"] == str(runs)


@pytest.mark.parametrize("form", [row("R-107", {"nested": True}), row("R-108", {})])
def test_data_nested_like_the_shape_and_flat_data_are_read(wire: Wire, form: Any) -> None:
    """Flat data is row-major."""
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    answer = wire.infer("identity_fp32", json_input("INPUT0", "FP32", values, **form))
    assert np.array_equal(answer.tensor(), values)


OTHER_NESTING = {
    "transposed": [[1, 2], [3, 4], [5, 6]], "column": [[1], [2], [3], [4], [5], [6]],
    "deeper": [[[1, 2, 3], [4, 5, 6]]], "ragged": [[1, 2], [3, 4, 5, 6]], "half_flat": [1, 2, 3, [4, 5, 6]],
}  # fmt: skip


@pytest.mark.row("R-110")
@pytest.mark.parametrize("data", OTHER_NESTING.values(), ids=list(OTHER_NESTING))
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES"])
def test_data_nested_otherwise_is_right_or_refused(wire: Wire, datatype: str, data: list[Any]) -> None:
    """The count fits: the answer has the values in order, or is 400."""
    if datatype == "BYTES":
        data = json.loads(json.dumps(data).translate({ord(c): f'"{c}"' for c in "123456"}))
    head = {"name": "INPUT0", "datatype": datatype, "shape": [2, 3], "data": data}
    answer = wire.infer(f"identity_{datatype.lower()}", head)
    if answer.status == 200:
        assert [int(value) for value in answer.tensor().ravel()] == [1, 2, 3, 4, 5, 6]
    else:
        assert "INPUT0" in refusal(answer, 400)


@pytest.mark.row("R-119")
def test_several_types_travel_together(wire: Wire) -> None:
    """They are integers, text and flags of different lengths."""
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
    """Returns a request with parameters at one place."""
    if place == "inputs":
        return {"inputs": [{**item, "parameters": parameters} for item in INPUTS]}
    if place == "outputs":
        return {"inputs": INPUTS, "outputs": [{"name": f"OUTPUT{i}", "parameters": parameters} for i in (0, 1)]}
    return {"inputs": INPUTS, "parameters": parameters}


TRITONS = {"sequence_start": True, "sequence_end": False, "priority": 1, "timeout": 10_000_000}
UNKNOWN = {"unheard_of": {"a": [None, 1.5]}, "model_name": "another"}
NULLS: dict[str, dict[str, Any]] = {
    "id": {"id": None}, "parameters": {"parameters": None}, "outputs": {"outputs": None},
    "input_parameters": {"inputs": [{**item, "parameters": None} for item in INPUTS]},
    "output_parameters": {"outputs": [{"name": "OUTPUT0", "parameters": None}, {"name": "OUTPUT1"}]},
    "parameter": {"parameters": {"binary_data_output": None}},
}  # fmt: skip
TOLERATED = [
    row("R-118", {"inputs": INPUTS[::-1]}, name="inputs in another order"),
    *(row("R-122", placed(place, PARAMETERS), name=place) for place in PLACES),
    *(row("R-123", placed(place, {"content_type": kind}), name=f"{kind} {place}")
      for place in PLACES for kind in ("np", "str", "pd")),
    *(row("R-124", {"parameters": {**TRITONS, "sequence_id": own}}, name=str(own)) for own in (7, "seven")),
    row("R-133", {"outputs": []}, name="no outputs are all"),
    row("R-120 R-125", {"inputs": [{**item, **UNKNOWN} for item in INPUTS],
                        "outputs": [{"name": f"OUTPUT{i}", **UNKNOWN} for i in (0, 1)], **UNKNOWN}, name="unknown"),
    *(row("R-121", members, name=f"null {name}") for name, members in NULLS.items()),
]  # fmt: skip


@pytest.mark.parametrize("members", TOLERATED)
def test_what_a_request_may_say_without_another_answer(wire: Wire, members: dict[str, Any]) -> None:
    """Inputs match by name; pydantic sends null, MLServer's codecs content types, and kserve's client model_name."""
    answer = wire.post(ADD_SUB, {"inputs": INPUTS, **members})
    assert {name: found.tolist() for name, found in answer.tensors().items()} == {"OUTPUT0": SUM, "OUTPUT1": DIFFERENCE}
    assert answer.json()["model_name"] == "add_sub"
    assert "id" not in answer.json()
    assert b"null" not in answer.content


@pytest.mark.row("R-122")
def test_parameters_reach_a_python_model(wire: Wire) -> None:
    """They reach it as they were sent, without those of the protocol itself."""
    x = json_input("x", "FP32", np.zeros(1, np.float32))
    answer = wire.infer("py_echo_parameters", x, parameters={**PARAMETERS, "binary_data_output": False})
    assert json.loads(answer.tensors()["parameters"][0]) == PARAMETERS


@pytest.mark.parametrize(("names", "more"), [
    row("R-130", ["OUTPUT0"], {}), row("R-130", ["OUTPUT1"], {}), row("R-131", ["OUTPUT1", "OUTPUT0"], {}),
    row("R-131", ["OUTPUT1", "OUTPUT0"], {"parameters": {"binary_data": True}}, name="binary"),
])  # fmt: skip
def test_only_the_outputs_asked_for_come_and_in_their_order(wire: Wire, names: list[str], more: Any) -> None:
    """Each has its own values."""
    outputs = [{"name": name, **more} for name in names]
    tensors = wire.infer("add_sub", *INPUTS, outputs=outputs).tensors()
    expected = {"OUTPUT0": SUM, "OUTPUT1": DIFFERENCE}
    assert [(name, found.tolist()) for name, found in tensors.items()] == [(name, expected[name]) for name in names]


@pytest.mark.row("R-132")
def test_without_outputs_all_come_in_the_models_order(wire: Wire) -> None:
    """The order is that of the metadata."""
    inputs = [
        json_input("text", "BYTES", np.array([], object)),
        json_input("flags", "BOOL", np.array([], bool)),
        json_input("integers", "INT32", np.array([], np.int32)),
    ]
    names = [output["name"] for output in wire.get("/v2/models/three_types").json()["outputs"]]
    assert list(wire.infer("three_types", *inputs).tensors()) == names == ["integers_out", "text_out", "flags_out"]


TWICE = {
    "inputs": b'{"inputs": [], "inputs": %s}',
    "id": b'{"id": "first", "inputs": %s, "id": "last"}',
    "outputs": b'{"outputs": [{"name": "OUTPUT1", "name": "OUTPUT0"}], "inputs": %s}',
}


@pytest.mark.parametrize("text", TWICE.values(), ids=list(TWICE))
def test_a_member_given_twice_is_read_alike_in_short_and_long_texts(wire: Wire, text: bytes) -> None:
    """The last one counts, or the answer is 400."""
    body = text % json.dumps(INPUTS).encode()
    answers = [wire.post(ADD_SUB, body + blank) for blank in (b"", b" " * 20_000)]
    assert answers[0].body == answers[1].body
    if answers[0].status == 200:
        assert answers[0].tensors()["OUTPUT0"].tolist() == SUM
        assert answers[0].json().get("id", "last") == "last"
    else:
        refusal(answers[0], 400)


ODD_NAMES = ["", "\0", "a\0b", "inputs\0", "inputs\0x", "id\0", "\n", '"', "\\", "a/b", "🦜", "x" * 3000]


@pytest.mark.row("R-120")
@pytest.mark.parametrize("name", ODD_NAMES, ids=[name[:8].encode().hex() or "empty" for name in ODD_NAMES])
@pytest.mark.parametrize("blank", LENGTHS)
def test_an_unknown_member_may_have_any_name(wire: Wire, name: str, blank: str) -> None:
    """It may precede the known ones, and be in inputs and outputs."""
    inputs = [{name: 1, **item} for item in INPUTS]
    request = {name: [1], "inputs": inputs, "outputs": [{name: 1, "name": "OUTPUT0"}], "blank": blank}
    answer = wire.post(ADD_SUB, request)
    assert answer.tensor().tolist() == SUM
    assert "id" not in answer.json()

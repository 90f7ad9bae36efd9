"""The binary tensor data extension: parts behind the JSON, both ways, and raw requests without any JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest

from tests.protocols.v2.refused import NOT_UTF8
from tests.protocols.v2.test_values import extremes
from tests.support.checks import alive, refusal
from tests.support.wire import (
    COMPRESS,
    HEADER_LENGTH,
    Answer,
    binary_input,
    from_binary,
    json_input,
    pack,
    same,
    to_binary,
)
from tests.support.zoo.models import DATATYPES, JSON_DATATYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tests.support.wire import Wire

LEFT = np.arange(16, dtype=np.int32)
RIGHT = np.full(16, 3, np.int32)
BINARY_INPUTS = [binary_input("INPUT0", "INT32", LEFT), binary_input("INPUT1", "INT32", RIGHT)]
JSON_INPUTS = [json_input("INPUT0", "INT32", LEFT), json_input("INPUT1", "INT32", RIGHT)]
ALL_BINARY = {"binary_data_output": True}


def is_binary(answer: Any) -> dict[str, bool]:
    """Which outputs came as parts."""
    return {o["name"]: "binary_data_size" in o.get("parameters", {}) for o in answer.split()[0]["outputs"]}


@pytest.mark.row("R-300", "R-320")
def test_binary_inputs_give_a_json_answer_by_default(wire: Wire) -> None:
    """Without a word about outputs the answer is JSON alone."""
    answer = wire.infer_binary("add_sub", *BINARY_INPUTS)
    assert answer.headers["content-type"] == "application/json"
    assert HEADER_LENGTH.lower() not in answer.headers
    assert answer.tensors()["OUTPUT0"].tolist() == (LEFT + RIGHT).tolist()


@pytest.mark.row("R-301", "R-302")
def test_binary_data_output_makes_all_outputs_binary(wire: Wire) -> None:
    """The form of such an answer: octets, the length of the JSON, sizes and no data."""
    answer = wire.infer("add_sub", *JSON_INPUTS, parameters=ALL_BINARY)
    assert answer.headers["content-type"] == "application/octet-stream"
    head, rest = answer.split()
    expected = [LEFT + RIGHT, LEFT - RIGHT]
    assert rest == b"".join(to_binary(array) for array in expected)
    assert head["outputs"] == [
        {"name": f"OUTPUT{i}", "datatype": "INT32", "shape": [16], "parameters": {"binary_data_size": 64}}
        for i in (0, 1)
    ]
    assert head["model_name"] == "add_sub"


@pytest.mark.row("R-303")
def test_binary_data_chooses_output_by_output(wire: Wire) -> None:
    """One binary, one JSON."""
    outputs = [{"name": "OUTPUT0", "parameters": {"binary_data": True}}, {"name": "OUTPUT1"}]
    answer = wire.infer("add_sub", *JSON_INPUTS, outputs=outputs)
    assert is_binary(answer) == {"OUTPUT0": True, "OUTPUT1": False}
    assert answer.tensors()["OUTPUT1"].tolist() == (LEFT - RIGHT).tolist()


@pytest.mark.row("R-304", "R-305")
def test_binary_data_wins_over_binary_data_output(wire: Wire) -> None:
    """False stays JSON; an output that says nothing inherits."""
    outputs = [{"name": "OUTPUT0", "parameters": {"binary_data": False}}, {"name": "OUTPUT1"}]
    answer = wire.infer("add_sub", *JSON_INPUTS, outputs=outputs, parameters=ALL_BINARY)
    assert is_binary(answer) == {"OUTPUT0": False, "OUTPUT1": True}
    assert answer.tensors()["OUTPUT0"].tolist() == (LEFT + RIGHT).tolist()


@pytest.mark.row("R-306")
@pytest.mark.parametrize("first_binary", [False, True])
def test_binary_and_json_inputs_mix(wire: Wire, *, first_binary: bool) -> None:
    """Either order is right."""
    inputs: list[Any] = [BINARY_INPUTS[0], JSON_INPUTS[1]] if first_binary else [JSON_INPUTS[0], BINARY_INPUTS[1]]
    assert wire.infer_binary("add_sub", *inputs).tensors()["OUTPUT1"].tolist() == (LEFT - RIGHT).tolist()


@pytest.mark.row("R-307")
def test_parts_follow_the_order_of_the_inputs(wire: Wire) -> None:
    """The order in the JSON of the request, not that of the model."""
    answer = wire.infer_binary("add_sub", *reversed(BINARY_INPUTS))
    assert answer.tensors()["OUTPUT1"].tolist() == (LEFT - RIGHT).tolist()


@pytest.mark.row("R-308")
@pytest.mark.parametrize("datatype", JSON_DATATYPES)
def test_every_datatype_is_binary_both_ways(wire: Wire, datatype: str) -> None:
    """Little-endian, BOOL one byte each, BYTES with their lengths: to the bit."""
    values = extremes(datatype)
    own = binary_input("INPUT0", datatype, values)
    answer = wire.infer_binary(DATATYPES[datatype].model, own, parameters=ALL_BINARY)
    assert answer.split()[1] == to_binary(values)
    assert same(answer.tensor(), values)


@pytest.mark.row("R-308", "N-01")
@pytest.mark.parametrize(("model", "name"), [("identity_bf16", "INPUT0"), ("py_bf16", "x")])
def test_bf16_is_binary_both_ways(wire: Wire, model: str, name: str) -> None:
    """Two bytes, the upper half of FP32."""
    values = np.array([1.0, -2.5, 3.38e38, 1e-40, 0.0, -0.0, np.inf, np.nan], ml_dtypes.bfloat16)
    answer = wire.infer_binary(model, binary_input(name, "BF16", values), parameters=ALL_BINARY)
    assert answer.split()[1] == values.tobytes()


@pytest.mark.row("R-309")
@pytest.mark.parametrize("datatype", JSON_DATATYPES)
def test_every_datatype_is_binary_in_and_json_out(wire: Wire, datatype: str) -> None:
    """The same values in the other form."""
    values = extremes(datatype)
    answer = wire.infer_binary(DATATYPES[datatype].model, binary_input("INPUT0", datatype, values))
    assert not any(is_binary(answer).values())
    assert same(answer.tensor(), values)


@pytest.mark.row("R-310")
@pytest.mark.parametrize("datatype", ["FP32", "BYTES", "BOOL", "UINT64"])
@pytest.mark.parametrize("shape", [(0,), (2, 0), (0, 3)])
def test_an_empty_tensor_has_a_part_of_no_bytes(wire: Wire, datatype: str, shape: tuple[int, ...]) -> None:
    """binary_data_size 0, in and out."""
    values = np.empty(shape, DATATYPES[datatype].numpy)
    own = binary_input("INPUT0", datatype, values)
    answer = wire.infer_binary(DATATYPES[datatype].model, own, parameters=ALL_BINARY)
    (output,) = answer.split()[0]["outputs"]
    assert output["shape"] == list(shape)
    assert output["parameters"]["binary_data_size"] == 0
    assert "data" not in output


@pytest.mark.row("R-311")
@pytest.mark.parametrize("datatype", ["INT16", "FP64", "BYTES"])
def test_a_scalar_is_binary_both_ways(wire: Wire, datatype: str) -> None:
    """Shape []."""
    scalar: NDArray[Any] = np.array(b"one" if datatype == "BYTES" else 7, DATATYPES[datatype].numpy)
    own = binary_input("INPUT0", datatype, scalar)
    answer = wire.infer_binary(DATATYPES[datatype].model, own, parameters=ALL_BINARY)
    assert same(answer.tensor(), scalar)


@pytest.mark.row("R-326")
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
@pytest.mark.parametrize("with_header", [True, False])
def test_null_data_with_a_size_of_zero_is_empty(wire: Wire, datatype: str, *, with_header: bool) -> None:
    """What kserve's client makes of an empty binary tensor, also without any header for it."""
    parameters = {"binary_data_size": 0}
    head = {"name": "INPUT0", "datatype": datatype, "shape": [0], "data": None, "parameters": parameters}
    send = wire.infer_binary if with_header else wire.infer
    assert send(f"vector_{datatype.lower()}", head).tensor().shape == (0,)


@pytest.mark.row("R-312")
def test_bytes_that_are_no_text_come_back_from_python_models(wire: Wire) -> None:
    """Any bytes survive, binary both ways."""
    every = np.array([bytes(range(256)), b"", b"\0", b"b'x'", *NOT_UTF8.tolist()], object)
    answer = wire.infer_binary("py_raw_bytes", binary_input("data", "BYTES", every), parameters=ALL_BINARY)
    assert same(answer.tensor(), every)


@pytest.mark.row("R-313")
def test_three_binary_tensors_of_three_types(wire: Wire) -> None:
    """Parts of different lengths behind one another."""
    given = {
        "flags": ("BOOL", np.array([True, False, True])),
        "text": ("BYTES", np.array([b"", "日本".encode()], object)),
        "integers": ("INT32", np.array([-1, 2**31 - 1], np.int32)),
    }
    inputs = [binary_input(name, datatype, values) for name, (datatype, values) in given.items()]
    tensors = wire.infer_binary("three_types", *inputs, parameters=ALL_BINARY).tensors()
    assert all(same(tensors[f"{name}_out"], values) for name, (_, values) in given.items())


@pytest.mark.row("R-314")
def test_a_header_as_long_as_the_body_is_json(wire: Wire) -> None:
    """Nothing follows."""
    assert wire.infer_binary("add_sub", *JSON_INPUTS).tensors()["OUTPUT0"].tolist() == (LEFT + RIGHT).tolist()


@pytest.mark.row("R-315")
@pytest.mark.parametrize(
    "content_type", ["", "application/octet-stream", "application/json", "application/x-www-form-urlencoded"]
)
def test_the_content_type_of_a_binary_request_is_not_looked_at(wire: Wire, content_type: str) -> None:
    """None is what tritonclient sends."""
    headers = {"Content-Type": content_type} if content_type else {}
    answer = wire.infer_binary("add_sub", *BINARY_INPUTS, headers=headers)
    assert answer.tensors()["OUTPUT0"].tolist() == (LEFT + RIGHT).tolist()


@pytest.mark.row("R-316")
@pytest.mark.parametrize("change", [str.lower, str.upper])
def test_the_name_of_the_header_has_no_case(wire: Wire, change: Any) -> None:
    """Lower case is what kserve sends."""
    pairs = BINARY_INPUTS
    body, headers = pack({"inputs": [head for head, _ in pairs]}, [part for _, part in pairs])
    answer = wire.post("/v2/models/add_sub/infer", body, {change(name): value for name, value in headers.items()})
    assert answer.tensors()["OUTPUT0"].tolist() == (LEFT + RIGHT).tolist()


@pytest.mark.row("R-317")
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_compressed_binary_request_is_read(wire: Wire, encoding: str) -> None:
    """The header counts the JSON before compression."""
    body, headers = pack({"inputs": [head for head, _ in BINARY_INPUTS]}, [part for _, part in BINARY_INPUTS])
    packed = COMPRESS[encoding](body)
    answer = wire.post("/v2/models/add_sub/infer", packed, {**headers, "Content-Encoding": encoding})
    assert answer.tensors()["OUTPUT0"].tolist() == (LEFT + RIGHT).tolist()


@pytest.mark.row("R-318")
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_binary_answer_is_compressed(wire: Wire, encoding: str) -> None:
    """Its header, too, counts the JSON before compression."""
    n = json_input("n", "INT64", np.array([4000]))
    answer = wire.infer("counts", n, parameters=ALL_BINARY, headers={"Accept-Encoding": encoding})
    assert answer.headers["content-encoding"] == encoding
    assert answer.tensor().tolist() == [list(range(4000))]


@pytest.mark.row("R-319")
def test_four_megabytes_go_both_ways(wire: Wire) -> None:
    """A million FP32, to the bit."""
    values = np.random.default_rng(2).standard_normal((1000, 1000)).astype(np.float32)
    answer = wire.infer_binary("identity_fp32", binary_input("INPUT0", "FP32", values), parameters=ALL_BINARY)
    assert answer.split()[1] == values.tobytes()


@pytest.mark.row("R-324")
def test_a_size_left_out_follows_from_the_shape(wire: Wire) -> None:
    """Binary inputs may give no binary_data_size."""
    heads = [{k: v for k, v in head.items() if k != "parameters"} for head, _ in BINARY_INPUTS]
    body, headers = pack({"inputs": heads}, [part for _, part in BINARY_INPUTS])
    answer = wire.post("/v2/models/add_sub/infer", body, headers)
    assert answer.tensors()["OUTPUT1"].tolist() == (LEFT - RIGHT).tolist()


@pytest.mark.parametrize("byte", [2, 255])
def test_a_boolean_byte_is_right_or_refused(wire: Wire, byte: int) -> None:
    """The extension knows 0 and 1: another byte is true or 400, never a number in the answer."""
    parameters = {"binary_data_size": 2}
    own = {"name": "INPUT0", "datatype": "BOOL", "shape": [2], "parameters": parameters}
    answer = wire.infer_binary("vector_bool", (own, bytes([0, byte])))
    raw = wire.infer_binary("vector_bool", (own, bytes([0, byte])), parameters=ALL_BINARY)
    if answer.status == 200:
        assert json.dumps(answer.json()["outputs"][0]["data"]) == "[false, true]"
        assert raw.split()[1] == b"\0\1"
    else:
        assert "INPUT0" in refusal(answer, 400)
        refusal(raw, 400)
    alive(wire)


def raw(wire: Wire, model: str, body: bytes) -> Answer:
    """A request without JSON."""
    return wire.post(f"/v2/models/{model}/infer", body, {HEADER_LENGTH: "0"})


@pytest.mark.row("R-321")
@pytest.mark.parametrize(
    ("model", "datatype", "values"),
    [
        ("vector_int32", "INT32", LEFT),
        ("fixed", "FP32", np.ones((2, 3), np.float32)),
        ("named_dims", "FP32", np.ones((4, 3), np.float32)),
        ("scalar", "FP32", np.array(2.5, np.float32)),
        ("vector_bool", "BOOL", np.array([True, False])),
    ],
)
def test_a_raw_request_is_the_only_input(wire: Wire, model: str, datatype: str, values: NDArray[Any]) -> None:
    """The shape follows from the metadata and the length; the answer is binary."""
    answer = raw(wire, model, values.tobytes())
    head, rest = answer.split()
    assert answer.headers["content-type"] == "application/octet-stream"
    assert same(from_binary(datatype, head["outputs"][0]["shape"], rest), values)
    assert "id" not in head


@pytest.mark.row("R-322")
@pytest.mark.parametrize("content", [b"hello", b"", "日\0".encode()])
def test_a_raw_request_of_one_text_is_its_bytes(wire: Wire, content: bytes) -> None:
    """BYTES [1]: no length before it, one in the answer."""
    assert same(raw(wire, "one_text", content).tensor(), np.array([content], object))

"""The binary tensor data extension has parts behind the JSON, in both directions, and raw requests without any JSON."""

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tests.protocols.v2.refused import NOT_UTF8
from tests.protocols.v2.test_values import extremes
from tests.support.catalogue import row
from tests.support.checks import alive, refusal
from tests.support.wire import (
    COMPRESS,
    HEADER_LENGTH,
    Answer,
    Wire,
    binary_input,
    from_binary,
    json_input,
    pack,
    same,
    to_binary,
)
from tests.support.zoo.models import DATATYPES, JSON_DATATYPES

LEFT = np.arange(16, dtype=np.int32)
RIGHT = np.full(16, 3, np.int32)
BINARY_INPUTS = [binary_input("INPUT0", "INT32", LEFT), binary_input("INPUT1", "INT32", RIGHT)]
JSON_INPUTS = [json_input("INPUT0", "INT32", LEFT), json_input("INPUT1", "INT32", RIGHT)]
ALL_BINARY = {"binary_data_output": True}
RESULTS = {"OUTPUT0": (LEFT + RIGHT).tolist(), "OUTPUT1": (LEFT - RIGHT).tolist()}


@pytest.mark.row("R-300", "R-320")
def test_binary_inputs_give_a_json_answer_by_default(wire: Wire) -> None:
    """Unless outputs are asked for otherwise, the answer is JSON alone."""
    answer = wire.infer_binary("add_sub", *BINARY_INPUTS)
    assert answer.headers["content-type"] == "application/json"
    assert HEADER_LENGTH.lower() not in answer.headers


@pytest.mark.row("R-301", "R-302")
def test_binary_data_output_makes_all_outputs_binary(wire: Wire) -> None:
    """Such an answer has octets, the length of the JSON, sizes and no data."""
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


@pytest.mark.parametrize(("first", "parameters", "expected"), [
    row("R-303", {"binary_data": True}, {}, [True, False], name="output by output"),
    row("R-304 R-305", {"binary_data": False}, ALL_BINARY, [False, True], name="a silent output inherits"),
])  # fmt: skip
def test_an_output_says_for_itself_whether_it_is_binary(
    wire: Wire, first: dict[str, Any], parameters: dict[str, Any], expected: list[bool]
) -> None:
    """binary_data takes precedence over binary_data_output."""
    outputs = [{"name": "OUTPUT0", "parameters": first}, {"name": "OUTPUT1"}]
    answer = wire.infer("add_sub", *JSON_INPUTS, outputs=outputs, parameters=parameters)
    assert ["binary_data_size" in o.get("parameters", {}) for o in answer.split()[0]["outputs"]] == expected
    assert {name: found.tolist() for name, found in answer.tensors().items()} == RESULTS


@pytest.mark.parametrize("inputs", [
    row("R-306", [BINARY_INPUTS[0], JSON_INPUTS[1]], name="binary and JSON"),
    row("R-306", [JSON_INPUTS[0], BINARY_INPUTS[1]], name="JSON and binary"),
    row("R-307", BINARY_INPUTS[::-1], name="in another order than the model's"),
    row("R-314", JSON_INPUTS, name="a header as long as the body"),
    row("R-324", [({k: v for k, v in head.items() if k != "parameters"}, part) for head, part in BINARY_INPUTS],
        name="sizes follow from the shapes"),
])  # fmt: skip
def test_binary_inputs_are_read(wire: Wire, inputs: list[Any]) -> None:
    """Parts follow the order of the inputs in the JSON."""
    answer = wire.infer_binary("add_sub", *inputs)
    assert {name: found.tolist() for name, found in answer.tensors().items()} == RESULTS


TYPES = ("application/octet-stream", "application/json", "application/x-www-form-urlencoded")


@pytest.mark.parametrize(("packed", "change", "more"), [
    row("R-315", bytes, str, {}, name="without a content type, as tritonclient"),
    *(row("R-315", bytes, str, {"Content-Type": kind}, name=kind) for kind in TYPES),
    row("R-316", bytes, str.lower, {}, name="lower case, as kserve"), row("R-316", bytes, str.upper, {}, name="upper"),
    *(row("R-317", COMPRESS[coding], str, {"Content-Encoding": coding}, name=coding) for coding in ("gzip", "deflate")),
])  # fmt: skip
def test_a_binary_request_is_read_whatever_its_headers(wire: Wire, packed: Any, change: Any, more: Any) -> None:
    """The length in the header counts the JSON before compression."""
    body, headers = pack({"inputs": [head for head, _ in BINARY_INPUTS]}, [part for _, part in BINARY_INPUTS])
    headers = {change(name): value for name, value in headers.items()}
    answer = wire.post("/v2/models/add_sub/infer", packed(body), {**headers, **more})
    assert {name: found.tolist() for name, found in answer.tensors().items()} == RESULTS


BF16S = np.array([1.0, -2.5, 3.38e38, 1e-40, 0.0, -0.0, np.inf, np.nan], ml_dtypes.bfloat16)
EVERY_BYTE = np.array([bytes(range(256)), b"", b"\0", b"b'x'", *NOT_UTF8.tolist()], object)
MILLION = np.random.default_rng(2).standard_normal((1000, 1000)).astype(np.float32)
EMPTY = [(kind, shape) for kind in ("FP32", "BYTES", "BOOL", "UINT64") for shape in ((0,), (2, 0), (0, 3))]


def own(rows: str, datatype: str, values: Any, name: str = "") -> Any:
    """Returns a case of the model of a datatype."""
    array: NDArray[Any] = np.asarray(values, DATATYPES[datatype].numpy)
    return row(rows, DATATYPES[datatype].model, "INPUT0", datatype, array, name=f"{datatype} {name}")


@pytest.mark.parametrize(("model", "name", "datatype", "values"), [
    *(own("R-308", datatype, extremes(datatype)) for datatype in JSON_DATATYPES),
    row("R-308 N-01", "identity_bf16", "INPUT0", "BF16", BF16S), row("R-308 N-01", "py_bf16", "x", "BF16", BF16S),
    *(own("R-310", datatype, np.empty(shape), f"{shape}") for datatype, shape in EMPTY),
    own("R-311", "INT16", 7), own("R-311", "FP64", 7), own("R-311", "BYTES", b"one"),
    row("R-312", "py_raw_bytes", "data", "BYTES", EVERY_BYTE), row("R-319", "identity_fp32", "INPUT0", "FP32", MILLION),
])  # fmt: skip
def test_a_tensor_is_binary_both_ways(wire: Wire, model: str, name: str, datatype: str, values: NDArray[Any]) -> None:
    """It is little-endian; BOOL has one byte, BF16 two, BYTES their lengths. Every shape and size agrees to the bit."""
    answer = wire.infer_binary(model, binary_input(name, datatype, values), parameters=ALL_BINARY)
    head, rest = answer.split()
    (output,) = head["outputs"]
    assert rest == to_binary(values)
    assert (output["shape"], output["parameters"]["binary_data_size"]) == (list(values.shape), len(rest))
    assert "data" not in output


@pytest.mark.row("R-309")
@pytest.mark.parametrize("datatype", JSON_DATATYPES)
def test_every_datatype_is_binary_in_and_json_out(wire: Wire, datatype: str) -> None:
    """The values are the same in the other form."""
    values = extremes(datatype)
    answer = wire.infer_binary(DATATYPES[datatype].model, binary_input("INPUT0", datatype, values))
    assert HEADER_LENGTH.lower() not in answer.headers
    assert same(answer.tensor(), values)


@pytest.mark.row("R-326")
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
@pytest.mark.parametrize("with_header", [True, False])
def test_null_data_with_a_size_of_zero_is_empty(wire: Wire, datatype: str, *, with_header: bool) -> None:
    """Kserve's client sends an empty binary tensor so, also without any header for it."""
    parameters = {"binary_data_size": 0}
    head = {"name": "INPUT0", "datatype": datatype, "shape": [0], "data": None, "parameters": parameters}
    send = wire.infer_binary if with_header else wire.infer
    assert send(f"vector_{datatype.lower()}", head).tensor().shape == (0,)


@pytest.mark.row("R-313")
def test_three_binary_tensors_of_three_types(wire: Wire) -> None:
    """Parts of different lengths follow one another."""
    given = {
        "flags": ("BOOL", np.array([True, False, True])),
        "text": ("BYTES", np.array([b"", "日本".encode()], object)),
        "integers": ("INT32", np.array([-1, 2**31 - 1], np.int32)),
    }
    inputs = [binary_input(name, datatype, values) for name, (datatype, values) in given.items()]
    tensors = wire.infer_binary("three_types", *inputs, parameters=ALL_BINARY).tensors()
    assert all(same(tensors[f"{name}_out"], values) for name, (_, values) in given.items())


@pytest.mark.row("R-318")
@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
def test_a_binary_answer_is_compressed(wire: Wire, encoding: str) -> None:
    """Its header also counts the JSON before compression."""
    n = json_input("n", "INT64", np.array([4000]))
    answer = wire.infer("counts", n, parameters=ALL_BINARY, headers={"Accept-Encoding": encoding})
    assert answer.headers["content-encoding"] == encoding
    assert answer.tensor().tolist() == [list(range(4000))]


@pytest.mark.parametrize("byte", [2, 255])
def test_a_boolean_byte_is_right_or_refused(wire: Wire, byte: int) -> None:
    """The extension defines 0 and 1: another byte is true or 400, never a number in the answer."""
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
    """Returns a request without JSON."""
    return wire.post(f"/v2/models/{model}/infer", body, {HEADER_LENGTH: "0"})


@pytest.mark.row("R-321")
@pytest.mark.parametrize(("model", "datatype", "values"), [
    ("vector_int32", "INT32", LEFT),
    ("fixed", "FP32", np.ones((2, 3), np.float32)),
    ("named_dims", "FP32", np.ones((4, 3), np.float32)),
    ("scalar", "FP32", np.array(2.5, np.float32)),
    ("vector_bool", "BOOL", np.array([True, False])),
])  # fmt: skip
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
    """BYTES [1] has no length before it in the request, and one in the answer."""
    assert same(raw(wire, "one_text", content).tensor(), np.array([content], object))

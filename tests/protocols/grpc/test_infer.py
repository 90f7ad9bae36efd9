"""ModelInfer with raw and typed contents, and its answers."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray

from core.schema import open_inference as oip
from tests.protocols.v2.test_values import extremes, special
from tests.support.catalogue import row
from tests.support.remote import FIELD, SECONDS, Remote, question, raw, tensors, typed, wanted
from tests.support.wire import same
from tests.support.zoo.models import DATATYPES, JSON_DATATYPES, VERSIONS

RAMP = np.arange(16, dtype=np.int32)
X = np.array([0])
FORMS = pytest.mark.parametrize("form", [raw, typed], ids=["raw", "typed"])
NOT_TEXT = np.array([b"\xff\xfe\0", b""], object)


def values_of(datatype: str) -> NDArray[Any]:
    """Returns values of a type that a careless path loses."""
    if datatype == "BF16":
        return np.array([1.0, -2.5, 3e38, np.inf, -0.0], DATATYPES["BF16"].numpy)
    return extremes(datatype)


@pytest.mark.row("G-100", "G-103", "G-104", "G-126")
@FORMS
def test_an_inference_is_answered_in_its_own_form(remote: Remote, form: Callable[..., Any]) -> None:
    """A raw answer has no contents message, which tritonclient would ignore; a typed one has nothing raw."""
    response = remote.infer("add_sub", form("INPUT0", "INT32", RAMP), form("INPUT1", "INT32", RAMP))
    assert (response.model_name, response.model_version) == ("add_sub", "1")
    assert np.array_equal(tensors(response)["OUTPUT0"], 2 * RAMP)
    assert len(response.raw_output_contents) == 2 * (form is raw)
    assert [output.HasField("contents") for output in response.outputs] == [form is typed] * 2
    assert form is raw or list(response.outputs[1].contents.int_contents) == [0] * 16


def own(rows: str, form: Callable[..., Any], datatype: str, values: NDArray[Any], model: str = "") -> Any:
    """Returns a case of the model of a datatype, or of another that returns INPUT0."""
    name = f"{form.__name__} {datatype} {model} {values.shape}"
    return row(rows, form, model or DATATYPES[datatype].model, "INPUT0", "OUTPUT0", datatype, values, name=name)


@pytest.mark.parametrize(("form", "model", "name", "output", "datatype", "values"), [
    *(own("G-101 G-105", raw, datatype, values_of(datatype)) for datatype in DATATYPES),
    *(own("G-102", typed, datatype, extremes(datatype)) for datatype in FIELD),
    *(own("G-112", form, datatype, np.empty(shape, DATATYPES[datatype].numpy)) for form in (raw, typed)
      for shape in ((0,), (0, 3), (2, 0)) for datatype in ("FP32", "INT64", "BYTES", "BOOL")),
    *(own("G-113", form, "FP32", np.array(2.5, np.float32), "scalar") for form in (raw, typed)),
    *(own("G-114", form, datatype, special(datatype)) for form in (raw, typed) for datatype in ("FP32", "FP64")),
    *(row("G-115", form, "py_raw_bytes", "data", "data", "BYTES", NOT_TEXT, name=form.__name__)
      for form in (raw, typed)),
])  # fmt: skip
def test_a_tensor_comes_back_to_the_bit_in_its_own_form(
    remote: Remote, form: Any, model: str, name: str, output: str, datatype: str, values: NDArray[Any]
) -> None:
    """The cases are every datatype, shapes without elements or dimensions, NaN, and bytes that are not text."""
    response = remote.infer(model, form(name, datatype, values))
    assert (response.outputs[0].datatype, list(response.outputs[0].shape)) == (datatype, list(values.shape))
    assert len(response.raw_output_contents) == (form is raw)
    assert datatype not in ("FP16", "BF16") or response.raw_output_contents[0] == values.tobytes()
    assert same(tensors(response)[output], values)


@pytest.mark.row("G-415")
def test_a_typed_request_that_asks_for_it_has_a_raw_answer(remote: Remote) -> None:
    """The parameter is the one of REST."""
    parameters = {"binary_data_output": oip.InferParameter(bool_param=True)}
    inputs = typed("INPUT0", "INT32", RAMP), typed("INPUT1", "INT32", RAMP)
    response = remote.infer("add_sub", *inputs, parameters=parameters)
    assert [len(part) for part in response.raw_output_contents] == [64, 64]


RESERVED = {
    "sequence_id": oip.InferParameter(int64_param=9), "sequence_start": oip.InferParameter(bool_param=True),
    "sequence_end": oip.InferParameter(bool_param=True), "priority": oip.InferParameter(uint64_param=1),
    "timeout": oip.InferParameter(int64_param=10_000_000),
    "triton_enable_empty_final_response": oip.InferParameter(bool_param=True),
}  # fmt: skip
"""Triton's parameters: sequences, priorities, time limits."""


@pytest.mark.parametrize(("more", "own_id", "version"), [
    *(row("G-106", {"id": text}, text, 10) for text in ("1", "", "номер 1", "a" * 300, '"\\ {}', "line\nnul\0")),
    *(row("G-107", {"model_version": str(number)}, "", number, name=str(number)) for number in VERSIONS),
    row("G-108 G-125", {}, "", 10),
    row("G-118", {"parameters": RESERVED}, "", 10),
])  # fmt: skip
def test_the_id_comes_back_and_the_version_asked_for_runs(remote: Remote, more: Any, own_id: str, version: int) -> None:
    """Without a version 10 runs, not 2; fields that are not set are empty, and parameters for Triton change nothing."""
    response = remote.infer("versions", raw("x", "INT64", X), **more)
    assert (response.id, response.model_version) == (own_id, str(version))
    assert tensors(response)["y"].tolist() == [version]
    assert not response.parameters


@FORMS
@pytest.mark.parametrize("names", [row("G-109", ["OUTPUT1"]), row("G-110", ["OUTPUT1", "OUTPUT0"])])
def test_only_the_outputs_asked_for_come_back_in_their_order(
    remote: Remote, form: Callable[..., Any], names: list[str]
) -> None:
    """Raw contents have the same order."""
    inputs = form("INPUT0", "INT32", RAMP), form("INPUT1", "INT32", RAMP)
    response = remote.infer("add_sub", *inputs, outputs=wanted(*names))
    expected = {"OUTPUT0": (2 * RAMP).tolist(), "OUTPUT1": [0] * 16}
    assert [output.name for output in response.outputs] == names
    assert {name: found.tolist() for name, found in tensors(response).items()} == {n: expected[n] for n in names}


@pytest.mark.row("G-111")
@FORMS
@pytest.mark.parametrize("backwards", [False, True])
def test_tensors_of_three_types_in_any_order(remote: Remote, form: Callable[..., Any], *, backwards: bool) -> None:
    """They are matched by name."""
    given = [
        form("integers", "INT32", np.array([1, -2], np.int32)),
        form("text", "BYTES", np.array([b"a", "日".encode()], object)),
        form("flags", "BOOL", np.array([True, False, True])),
    ]
    found = tensors(remote.infer("three_types", *(given[::-1] if backwards else given)))
    assert found["integers_out"].tolist() == [1, -2]
    assert found["text_out"].tolist() == [b"a", "日".encode()]
    assert found["flags_out"].tolist() == [True, False, True]


@pytest.mark.row("G-112")
def test_rows_of_nothing_are_calculated_with(remote: Remote) -> None:
    """Their sums are 0."""
    found = tensors(remote.infer("zero_dims", raw("matrix", "FP32", np.empty((2, 0), np.float32))))
    assert found["same"].shape == (2, 0)
    assert found["sums"].tolist() == [0, 0]


@pytest.mark.row("G-127")
@FORMS
def test_bytes_that_are_no_text_are_refused_for_a_runtime_of_texts(remote: Remote, form: Callable[..., Any]) -> None:
    """The text names the input."""
    with pytest.raises(grpc.RpcError, match="INPUT0") as refused:
        remote.infer("identity_bytes", form("INPUT0", "BYTES", NOT_TEXT))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(("given", "found"), [
    row("G-116", {"f": {"bool_param": False}, "i": {"int64_param": -5}, "s": {"string_param": "é"}},
        '{"f": false, "i": -5, "s": "\\u00e9"}', name="of the specification"),
    row("G-117", {"d": {"double_param": 0.5}, "u": {"uint64_param": 2**64 - 1}},
        '{"d": 0.5, "u": 18446744073709551615}', name="of newer clients"),
])  # fmt: skip
def test_parameters_reach_the_model(remote: Remote, given: dict[str, Any], found: str) -> None:
    """The model answers with them as JSON."""
    parameters = {name: oip.InferParameter(**value) for name, value in given.items()}
    response = remote.infer("py_echo_parameters", raw("x", "FP32", np.ones(1, np.float32)), parameters=parameters)
    assert tensors(response)["parameters"][0].decode() == found


@pytest.mark.row("G-119")
def test_a_name_may_have_dots_dashes_and_underscores(remote: Remote) -> None:
    """The name is taken as it is."""
    response = remote.infer("mo-del.v1_beta.2", raw("INPUT0", "INT32", RAMP))
    assert response.model_name == "mo-del.v1_beta.2"


@pytest.mark.row("G-120")
def test_metadata_of_the_client_change_nothing(remote: Remote) -> None:
    """They are text and binary."""
    metadata = (("x-request-id", "1"), ("traceparent", "00-1-1-00"), ("any-bin", b"\0\xff"))
    response = remote.ask("ModelInfer", question("versions", raw("x", "INT64", X)), metadata=metadata)
    assert response.model_version == "10"


@pytest.mark.row("G-121", "G-122")
@pytest.mark.parametrize("mebibytes", [5, 20])
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_large_messages_go_there_and_back(remote: Remote, mebibytes: int, offset: int) -> None:
    """The elements may be anywhere in the message."""
    values = np.arange(mebibytes << 18, dtype=np.float32)
    response = remote.infer("vector_fp32", raw("INPUT0", "FP32", values), id="x" * offset)
    assert same(tensors(response)["OUTPUT0"], values)


@pytest.mark.row("G-121")
def test_a_large_typed_message_goes_there_and_back(remote: Remote) -> None:
    """Its elements are the protocol's, never Python objects."""
    values = np.arange(1 << 21, dtype=np.float32)
    assert same(tensors(remote.infer("vector_fp32", typed("INPUT0", "FP32", values)))["OUTPUT0"], values)


@pytest.mark.row("G-123")
@pytest.mark.parametrize("coding", [grpc.Compression.Gzip, grpc.Compression.Deflate])
def test_messages_may_be_compressed(remote: Remote, coding: grpc.Compression) -> None:
    """The channel compresses them."""
    values = np.zeros(100_000, np.float32)
    message = question("vector_fp32", raw("INPUT0", "FP32", values))
    assert same(tensors(remote.ask("ModelInfer", message, compression=coding))["OUTPUT0"], values)


@pytest.mark.row("G-124")
def test_sixty_requests_at_once(remote: Remote) -> None:
    """No client gets another's answer."""

    def one(number: int) -> tuple[str, list[int]]:
        response = remote.infer("any_add_sub", *pair(np.full(3, number, np.int32)), id=str(number))
        return response.id, tensors(response)["OUTPUT0"].tolist()

    with ThreadPoolExecutor(60) as pool:
        assert list(pool.map(one, range(60))) == [(str(number), [2 * number] * 3) for number in range(60)]


def pair(values: NDArray[Any]) -> list[Any]:
    """Returns both inputs of any_add_sub."""
    return [raw(f"INPUT{index}", "INT32", values) for index in (0, 1)]


def test_every_datatype_of_the_protocol_is_tried() -> None:
    """They are those with a field, and the two without."""
    assert {*FIELD, "FP16"} == set(JSON_DATATYPES)
    assert {*FIELD, "FP16", "BF16"} == set(DATATYPES)


def test_a_model_without_metadata_takes_raw_and_typed(remote: Remote) -> None:
    """Only the request describes its tensors."""
    for form in (raw, typed):
        response = remote.ask(
            "ModelInfer", question("py_no_metadata", form("x", "FP32", np.ones(2, np.float32))), timeout=SECONDS
        )
        assert tensors(response)["y"].tolist() == [2, 2]

"""ModelInfer: raw and typed contents, and what comes back."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest

from core.schema import open_inference as oip
from tests.protocols.v2.test_values import extremes, special
from tests.support.remote import FIELD, SECONDS, question, raw, tensors, typed, wanted
from tests.support.wire import same
from tests.support.zoo.models import DATATYPES, JSON_DATATYPES, VERSIONS

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tests.support.remote import Remote

RAMP = np.arange(16, dtype=np.int32)
X = np.array([0])
FORMS = pytest.mark.parametrize("form", [raw, typed], ids=["raw", "typed"])
NOT_TEXT = np.array([b"\xff\xfe\0", b""], object)


def values_of(datatype: str) -> NDArray[Any]:
    """Values of a type that a careless path loses."""
    if datatype == "BF16":
        return np.array([1.0, -2.5, 3e38, np.inf, -0.0], DATATYPES["BF16"].numpy)
    return extremes(datatype)


@pytest.mark.row("G-100", "G-103", "G-104", "G-126")
@FORMS
def test_an_inference_is_answered_in_its_own_form(remote: Remote, form: Callable[..., Any]) -> None:
    """A raw answer has no contents message, which tritonclient would not look at; a typed one has nothing raw."""
    response = remote.infer("add_sub", form("INPUT0", "INT32", RAMP), form("INPUT1", "INT32", RAMP))
    assert (response.model_name, response.model_version) == ("add_sub", "1")
    assert np.array_equal(tensors(response)["OUTPUT0"], 2 * RAMP)
    assert len(response.raw_output_contents) == 2 * (form is raw)
    assert [output.HasField("contents") for output in response.outputs] == [form is typed] * 2
    assert form is raw or list(response.outputs[1].contents.int_contents) == [0] * 16


@pytest.mark.row("G-101", "G-105")
@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_raw(remote: Remote, datatype: str) -> None:
    """They come back to the bit, and raw again."""
    values = values_of(datatype)
    response = remote.infer(DATATYPES[datatype].model, raw("INPUT0", datatype, values))
    assert response.outputs[0].datatype == datatype
    assert len(response.raw_output_contents) == 1
    assert datatype not in ("FP16", "BF16") or response.raw_output_contents[0] == values.tobytes()
    assert same(tensors(response)["OUTPUT0"], values)


@pytest.mark.row("G-102")
@pytest.mark.parametrize("datatype", FIELD)
def test_every_datatype_typed(remote: Remote, datatype: str) -> None:
    """They come back to the bit, and typed again."""
    values = extremes(datatype)
    response = remote.infer(DATATYPES[datatype].model, typed("INPUT0", datatype, values))
    assert not response.raw_output_contents
    assert same(tensors(response)["OUTPUT0"], values)


@pytest.mark.row("G-415")
def test_a_typed_request_that_asks_for_it_has_a_raw_answer(remote: Remote) -> None:
    """The parameter is the one of REST."""
    parameters = {"binary_data_output": oip.InferParameter(bool_param=True)}
    inputs = typed("INPUT0", "INT32", RAMP), typed("INPUT1", "INT32", RAMP)
    response = remote.infer("add_sub", *inputs, parameters=parameters)
    assert [len(part) for part in response.raw_output_contents] == [64, 64]


@pytest.mark.row("G-106")
@pytest.mark.parametrize("text", ["1", "", "номер 1", "a" * 300, '"\\ {}', "line\nnul\0"])
def test_the_id_comes_back(remote: Remote, text: str) -> None:
    """It may be any string."""
    assert remote.infer("versions", raw("x", "INT64", X), id=text).id == text


@pytest.mark.row("G-107")
@pytest.mark.parametrize("version", VERSIONS)
def test_the_version_asked_for_runs(remote: Remote, version: int) -> None:
    """The answer names it."""
    response = remote.infer("versions", raw("x", "INT64", X), model_version=str(version))
    assert tensors(response)["y"].tolist() == [version]
    assert response.model_version == str(version)


@pytest.mark.row("G-108")
def test_without_a_version_the_largest_number_runs(remote: Remote) -> None:
    """10, not 2."""
    response = remote.infer("versions", raw("x", "INT64", X))
    assert (tensors(response)["y"].tolist(), response.model_version) == ([10], "10")


@pytest.mark.row("G-109")
@FORMS
def test_only_the_outputs_that_were_asked_for_come_back(remote: Remote, form: Callable[..., Any]) -> None:
    """Their contents with them."""
    inputs = form("INPUT0", "INT32", RAMP), form("INPUT1", "INT32", RAMP)
    response = remote.infer("add_sub", *inputs, outputs=wanted("OUTPUT1"))
    assert list(tensors(response)) == ["OUTPUT1"]
    assert tensors(response)["OUTPUT1"].tolist() == [0] * 16


@pytest.mark.row("G-110")
@FORMS
def test_outputs_come_in_the_order_asked(remote: Remote, form: Callable[..., Any]) -> None:
    """Raw contents have the same order."""
    inputs = form("INPUT0", "INT32", RAMP), form("INPUT1", "INT32", RAMP)
    response = remote.infer("add_sub", *inputs, outputs=wanted("OUTPUT1", "OUTPUT0"))
    assert [output.name for output in response.outputs] == ["OUTPUT1", "OUTPUT0"]
    assert tensors(response)["OUTPUT0"].tolist() == (2 * RAMP).tolist()


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
@FORMS
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES", "BOOL"])
def test_tensors_without_elements(
    remote: Remote, form: Callable[..., Any], shape: tuple[int, ...], datatype: str
) -> None:
    """The same shape comes back."""
    values = np.empty(shape, DATATYPES[datatype].numpy)
    response = remote.infer(DATATYPES[datatype].model, form("INPUT0", datatype, values))
    assert same(tensors(response)["OUTPUT0"], values)
    assert len(response.raw_output_contents) == (form is raw)


@pytest.mark.row("G-112")
def test_rows_of_nothing_are_calculated_with(remote: Remote) -> None:
    """Their sums are 0."""
    found = tensors(remote.infer("zero_dims", raw("matrix", "FP32", np.empty((2, 0), np.float32))))
    assert found["same"].shape == (2, 0)
    assert found["sums"].tolist() == [0, 0]


@pytest.mark.row("G-113")
@FORMS
def test_scalars(remote: Remote, form: Callable[..., Any]) -> None:
    """No dimension, one element."""
    response = remote.infer("scalar", form("INPUT0", "FP32", np.array(2.5, np.float32)))
    assert list(response.outputs[0].shape) == []
    assert tensors(response)["OUTPUT0"] == np.float32(2.5)


@pytest.mark.row("G-114")
@FORMS
@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_nan_and_infinities(remote: Remote, form: Callable[..., Any], datatype: str) -> None:
    """They are numbers here."""
    values = special(datatype)
    assert same(tensors(remote.infer(DATATYPES[datatype].model, form("INPUT0", datatype, values)))["OUTPUT0"], values)


@pytest.mark.row("G-115")
@FORMS
def test_bytes_that_are_no_text_are_never_altered(remote: Remote, form: Callable[..., Any]) -> None:
    """Through a model that takes bytes."""
    assert same(tensors(remote.infer("py_raw_bytes", form("data", "BYTES", NOT_TEXT)))["data"], NOT_TEXT)


@pytest.mark.row("G-127")
@FORMS
def test_bytes_that_are_no_text_are_refused_for_a_runtime_of_texts(remote: Remote, form: Callable[..., Any]) -> None:
    """The text names the input."""
    with pytest.raises(grpc.RpcError, match="INPUT0") as refused:
        remote.infer("identity_bytes", form("INPUT0", "BYTES", NOT_TEXT))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


def echoed(remote: Remote, **parameters: Any) -> str:
    """The parameters that reach a model, as JSON."""
    given = {name: oip.InferParameter(**value) for name, value in parameters.items()}
    response = remote.infer("py_echo_parameters", raw("x", "FP32", np.ones(1, np.float32)), parameters=given)
    return tensors(response)["parameters"][0].decode()


@pytest.mark.row("G-116")
def test_parameters_of_the_specification_reach_the_model(remote: Remote) -> None:
    """A flag, an integer, a string."""
    found = echoed(remote, f={"bool_param": False}, i={"int64_param": -5}, s={"string_param": "é"})
    assert found == '{"f": false, "i": -5, "s": "\\u00e9"}'


@pytest.mark.row("G-117")
def test_doubles_and_unsigned_integers_are_parameters_too(remote: Remote) -> None:
    """Newer clients send them."""
    found = echoed(remote, d={"double_param": 0.5}, u={"uint64_param": 2**64 - 1})
    assert found == '{"d": 0.5, "u": 18446744073709551615}'


@pytest.mark.row("G-118")
def test_parameters_that_triton_reserves_change_nothing_here(remote: Remote) -> None:
    """Sequences, priorities, time limits."""
    parameters = {
        "sequence_id": oip.InferParameter(int64_param=9),
        "sequence_start": oip.InferParameter(bool_param=True),
        "sequence_end": oip.InferParameter(bool_param=True),
        "priority": oip.InferParameter(uint64_param=1),
        "timeout": oip.InferParameter(int64_param=10_000_000),
        "triton_enable_empty_final_response": oip.InferParameter(bool_param=True),
    }
    response = remote.infer("versions", raw("x", "INT64", X), parameters=parameters)
    assert tensors(response)["y"].tolist() == [10]


@pytest.mark.row("G-119")
def test_a_name_may_have_dots_dashes_and_underscores(remote: Remote) -> None:
    """The name is taken as it is."""
    response = remote.infer("mo-del.v1_beta.2", raw("INPUT0", "INT32", RAMP))
    assert response.model_name == "mo-del.v1_beta.2"


@pytest.mark.row("G-120")
def test_metadata_of_the_client_change_nothing(remote: Remote) -> None:
    """Text and binary."""
    metadata = (("x-request-id", "1"), ("traceparent", "00-1-1-00"), ("any-bin", b"\0\xff"))
    response = remote.ask("ModelInfer", question("versions", raw("x", "INT64", X)), metadata=metadata)
    assert response.model_version == "10"


@pytest.mark.row("G-121", "G-122")
@pytest.mark.parametrize("mebibytes", [5, 20])
@pytest.mark.parametrize("offset", [0, 1, 2, 3])
def test_large_messages_go_there_and_back(remote: Remote, mebibytes: int, offset: int) -> None:
    """Wherever in the message the elements lie."""
    values = np.arange(mebibytes << 18, dtype=np.float32)
    response = remote.infer("vector_fp32", raw("INPUT0", "FP32", values), id="x" * offset)
    assert same(tensors(response)["OUTPUT0"], values)


@pytest.mark.row("G-121")
def test_a_large_typed_message_goes_there_and_back(remote: Remote) -> None:
    """Element by element of the protocol, not of Python."""
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
    """Nobody gets another's answer."""

    def one(number: int) -> tuple[str, list[int]]:
        response = remote.infer("any_add_sub", *pair(np.full(3, number, np.int32)), id=str(number))
        return response.id, tensors(response)["OUTPUT0"].tolist()

    with ThreadPoolExecutor(60) as pool:
        assert list(pool.map(one, range(60))) == [(str(number), [2 * number] * 3) for number in range(60)]


def pair(values: NDArray[Any]) -> list[Any]:
    """Both inputs of any_add_sub."""
    return [raw(f"INPUT{index}", "INT32", values) for index in (0, 1)]


@pytest.mark.row("G-125")
def test_fields_that_are_not_set_are_empty(remote: Remote) -> None:
    """No id, no parameters."""
    response = remote.infer("versions", raw("x", "INT64", X))
    assert response.id == ""
    assert not response.parameters


def test_every_datatype_of_the_protocol_is_tried() -> None:
    """Those with a field of their own, and the two without."""
    assert {*FIELD, "FP16"} == set(JSON_DATATYPES)
    assert {*FIELD, "FP16", "BF16"} == set(DATATYPES)


def test_a_model_without_metadata_takes_raw_and_typed(remote: Remote) -> None:
    """Nothing is known of it but what the request says."""
    for form in (raw, typed):
        response = remote.ask(
            "ModelInfer", question("py_no_metadata", form("x", "FP32", np.ones(2, np.float32))), timeout=SECONDS
        )
        assert tensors(response)["y"].tolist() == [2, 2]

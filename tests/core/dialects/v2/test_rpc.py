"""core.dialects.v2.rpc and rpc_infer: the operations that messages decode to, and the answers of results."""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pytest
from google.protobuf import json_format

from core import operations as ops
from core.dialects.v2 import rpc_infer as v2_rpc_infer
from core.dialects.v2.rpc import V2_RPC
from core.dtype import BF16, BYTES, DATATYPES
from core.errors import InvalidInput, ModelFailed, ModelNotFound, NotSupported, VersionNotFound
from core.operations import InferResult, ModelRef, State
from core.schema import open_inference as oip
from core.statistics import BatchCount, Count, Statistics
from core.tensor import Tensor, TensorSpec, from_raw

FP16, FP32, INT32 = DATATYPES["FP16"], DATATYPES["FP32"], DATATYPES["INT32"]
METHODS: Final = {method.rpc.name: method for method in V2_RPC}
FOUR: Final = np.arange(4, dtype=np.float32)
TEXTS: Final = np.array([b"\xff\0", b""], object)
SPEC: Final = ops.ModelSpec(
    "m",
    "7",
    "onnx_onnxv1",
    (TensorSpec("x", FP32, (-1, 3), format="FORMAT_NCHW"), TensorSpec("o", INT32, None, optional=True)),
    (TensorSpec("y", BYTES, (-1,)),),
)  # fmt: skip
INFO: Final = ops.ModelInfo(SPEC, ("1", "7"))


def asked(method: str, message: Any) -> tuple[ops.Operation, Callable[[Any], Any]]:
    """Returns what a method makes of a message that came as bytes."""
    return METHODS[method].rpc.decode(METHODS[method].read(message.SerializeToString()))


def given(name: str = "x", datatype: str = "FP32", shape: tuple[int, ...] = (4,), **contents: Any) -> Any:
    """Returns an input, with typed contents if any are named."""
    own = oip.InferTensorContents(**contents) if contents else None
    return oip.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape, contents=own)


def question(*inputs: Any, **members: Any) -> oip.ModelInferRequest:
    """Returns a request to model m."""
    return oip.ModelInferRequest(model_name="m", inputs=inputs, **members)


def raw_question(**members: Any) -> oip.ModelInferRequest:
    """Returns a correct request with raw contents."""
    return question(given(), raw_input_contents=[FOUR.tobytes()], **members)


def infer(message: oip.ModelInferRequest, method: str = "ModelInfer") -> tuple[ops.Infer, Callable[[Any], bytes]]:
    """Returns the inference that a request asks for."""
    operation, phrase = asked(method, message)
    assert isinstance(operation, ops.Infer)
    return operation, phrase


def streamed(message: oip.ModelInferRequest, results: Any) -> list[oip.ModelStreamInferResponse]:
    """Returns the streamed answers to these results."""
    operation, phrase = asked("ModelStreamInfer", message)
    assert isinstance(operation, ops.Stream)
    return [oip.ModelStreamInferResponse.FromString(answer) for answer in phrase(results)]


def answer(message: oip.ModelInferRequest, *outputs: Tensor) -> oip.ModelInferResponse:
    """Returns the answer to a result with these outputs."""
    _, phrase = infer(message)
    return oip.ModelInferResponse.FromString(phrase(InferResult("m", "7", outputs)))


def test_raw_contents_are_the_inputs_in_their_order() -> None:
    """The inference has the version and the model that were named."""
    inputs = given(shape=(2, 2)), given("t", "BYTES", (2,))
    raw = [FOUR.tobytes(), b"\2\0\0\0\xff\0\0\0\0\0"]
    operation, _ = infer(question(*inputs, model_version="7", raw_input_contents=raw))
    assert operation.ref == ModelRef("m", "7")
    x, text = operation.inputs
    assert np.array_equal(x.array, FOUR.reshape(2, 2))
    assert text.array.tolist() == TEXTS.tolist()
    assert operation.outputs == ()
    assert operation.parameters == {}


def test_large_raw_contents_are_never_copied_out_of_the_message() -> None:
    """They are read in place if they are aligned there. Small ones come out of protobuf."""
    size = v2_rpc_infer.WORTH_SPLITTING
    values = np.arange(size, dtype=np.uint8)
    message = question(given(datatype="UINT8", shape=(size,)), id="a", raw_input_contents=[values.tobytes()])
    body = message.SerializeToString()
    request = v2_rpc_infer.read(body)
    (part,) = request.raw
    assert isinstance(part, memoryview)
    assert part.obj is body
    assert not request.message.raw_input_contents
    operation, _ = v2_rpc_infer.decode(request)
    assert np.array_equal(operation.inputs[0].array, values)
    small = v2_rpc_infer.read(raw_question().SerializeToString())
    assert list(small.raw) == [FOUR.tobytes()]


def test_a_large_message_that_cannot_be_split_is_left_to_protobuf() -> None:
    """Here it has an unknown group."""
    size = v2_rpc_infer.WORTH_SPLITTING
    message = question(given(datatype="UINT8", shape=(size,)), raw_input_contents=[bytes(size)])
    request = v2_rpc_infer.read(message.SerializeToString() + b"\x7b\x7c")
    assert len(request.message.raw_input_contents) == 1
    assert len(request.raw) == 1


@pytest.mark.parametrize("datatype", [row for row in DATATYPES.values() if row.contents], ids=lambda row: row.name)
def test_typed_contents_of_every_datatype_become_its_elements_and_come_back(datatype: Any) -> None:
    """The one field is the one that the table of datatypes names."""
    values = [b"\xff\0", b""] if datatype is BYTES else [1, 0]
    message = question(given(datatype=datatype.name, shape=(2,), **{datatype.contents: values}))
    operation, _ = infer(message)
    (tensor,) = operation.inputs
    assert tensor.array.dtype == datatype.numpy
    assert tensor.array.tolist() == values
    response = answer(message, tensor)
    assert not response.raw_output_contents
    assert list(getattr(response.outputs[0].contents, datatype.contents)) == values
    assert list(response.outputs[0].shape) == [2]


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_what_has_no_typed_contents_is_refused_in_them_and_answered_raw(datatype: str) -> None:
    """The whole answer is raw, because a message has one form."""
    with pytest.raises(InvalidInput, match=f"input 'x' is {datatype}, which has no typed contents: send it raw"):
        infer(question(given(datatype=datatype, fp32_contents=[1])))
    half = Tensor("y", DATATYPES[datatype], np.ones(2, DATATYPES[datatype].numpy))
    whole = Tensor("z", FP32, FOUR)
    response = answer(question(given(fp32_contents=FOUR)), half, whole)
    assert list(response.raw_output_contents) == [half.array.tobytes(), FOUR.tobytes()]
    assert not any(output.HasField("contents") for output in response.outputs)


@pytest.mark.parametrize("message", [
    raw_question(),
    question(given(fp32_contents=FOUR), parameters={"binary_data_output": oip.InferParameter(bool_param=True)}),
    question(),
], ids=["raw", "asked-for", "without-inputs"])  # fmt: skip
def test_an_answer_is_raw_where_the_request_is_or_says_so_or_cannot_tell(message: oip.ModelInferRequest) -> None:
    """No output of a raw answer has a contents message."""
    response = answer(message, Tensor("y", FP32, FOUR), Tensor("t", BYTES, TEXTS))
    floats, texts = response.raw_output_contents
    assert np.array_equal(np.frombuffer(floats, np.float32), FOUR)
    assert from_raw("t", BYTES, (2,), texts).array.tolist() == TEXTS.tolist()
    assert [output.name for output in response.outputs] == ["y", "t"]
    assert not any(output.HasField("contents") for output in response.outputs)
    assert (response.model_name, response.model_version) == ("m", "7")


def test_the_id_comes_back_and_an_unset_one_stays_empty() -> None:
    """It may be any text."""
    assert answer(raw_question(id="номер 1\0")).id == "номер 1\0"
    assert answer(raw_question()).id == ""


def test_an_empty_contents_message_beside_raw_contents_says_nothing() -> None:
    """Some clients send it."""
    tensor = given()
    tensor.contents.SetInParent()
    operation, _ = infer(question(tensor, raw_input_contents=[FOUR.tobytes()]))
    assert operation.inputs[0].array.tolist() == FOUR.tolist()


PARAMETERS: Final = {
    "flag": oip.InferParameter(bool_param=False), "number": oip.InferParameter(int64_param=-(2**63)),
    "text": oip.InferParameter(string_param=""), "real": oip.InferParameter(double_param=0.5),
    "large": oip.InferParameter(uint64_param=2**64 - 1),
}  # fmt: skip


def test_parameters_of_every_kind_reach_the_model() -> None:
    """They are the request's; parameters of an input and an output are read and not passed on."""
    tensor = given()
    tensor.parameters["own"].int64_param = 1
    wish = oip.ModelInferRequest.InferRequestedOutputTensor(name="y", parameters=PARAMETERS)
    message = question(tensor, outputs=[wish], parameters=PARAMETERS, raw_input_contents=[FOUR.tobytes()])
    operation, _ = infer(message)
    expected = {"flag": False, "number": -(2**63), "text": "", "real": 0.5, "large": 2**64 - 1}
    assert operation.parameters == expected
    assert operation.outputs == (ops.RequestedOutput("y"),)


def test_outputs_are_asked_for_in_order_with_their_classes() -> None:
    """The classification extension's parameter is an integer of either kind."""
    wish = oip.ModelInferRequest.InferRequestedOutputTensor
    outputs = [
        wish(name="z", parameters={"classification": oip.InferParameter(int64_param=2)}),
        wish(name="y", parameters={"classification": oip.InferParameter(uint64_param=1)}),
        wish(name="x"),
    ]
    operation, _ = infer(raw_question(outputs=outputs))
    assert operation.outputs == (ops.RequestedOutput("z", 2), ops.RequestedOutput("y", 1), ops.RequestedOutput("x"))


RAW: Final = FOUR.tobytes()


def shared(name: str) -> Any:
    """An input whose elements are elsewhere."""
    tensor = given(name)
    tensor.parameters["shared_memory_region"].string_param = "r"
    return tensor


@pytest.mark.parametrize(("message", "culprit"), [
    (question(given(int_contents=[1, 2, 3, 4])), "input 'x' is FP32 and has 'int_contents'; expected 'fp32_con"),
    (question(given("t", "BYTES", (3,), bytes_contents=[b""])), "input 't' has 1 element; its shape .3. needs 3"),
    (question(given(fp32_contents=FOUR), raw_input_contents=[RAW]), "input 'x' has 'contents' beside 'raw_input"),
    (question(given(), given("z"), raw_input_contents=[RAW]), "input 'z' has no entry in 'raw_input_contents'"),
    (question(given(), shared("z"), raw_input_contents=[RAW]), "input 'z' has 'shared_memory_region': this server sh"),
    (question(shared("x"), given("z"), raw_input_contents=[RAW]), "input 'x' has 'shared_memory_region'"),
    (question(raw_input_contents=[RAW]), "'raw_input_contents' has 1 entry for 0 inputs"),
    (raw_question(parameters={"p": oip.InferParameter()}), "parameter 'p' of the request has no value"),
])  # fmt: skip
def test_a_request_that_contradicts_itself_is_refused_by_the_name_of_its_culprit(message: Any, culprit: str) -> None:
    """No model is asked. The protocol's tests over the wire have all other mistakes."""
    with pytest.raises(InvalidInput, match=culprit):
        infer(message)


@pytest.mark.parametrize("own", ["binary_data_output", "triton_enable_empty_final_response"])
@pytest.mark.parametrize("read_json", [False, True], ids=["proto", "json"])
def test_the_protocols_own_parameters_do_not_reach_the_model(own: str, read_json: bool) -> None:  # noqa: FBT001 - both ways
    """All others do."""
    parameters = {own: oip.InferParameter(bool_param=True), "a": oip.InferParameter(int64_param=1)}
    message = raw_question(parameters=parameters)
    for rpc in (METHODS["ModelInfer"].rpc, METHODS["ModelStreamInfer"].rpc):
        if read_json:
            text = json_format.MessageToJson(message).encode()
            operation: Any = rpc.decode_json(rpc.read_json(text))[0]  # type: ignore[misc] # both have one
        else:
            operation = rpc.decode(v2_rpc_infer.read(message.SerializeToString()))[0]
        assert getattr(operation, "infer", operation).parameters == {"a": 1}


def test_a_stream_answers_with_the_response_and_says_that_it_is_the_last() -> None:
    """Triton does so for clients that wait for it; typed contents are mirrored there, too."""
    result = InferResult("m", "7", (Tensor("y", FP32, FOUR),))
    (response,) = streamed(raw_question(id="a"), (result,))
    assert response.error_message == ""
    assert response.infer_response.id == "a"
    assert list(response.infer_response.raw_output_contents) == [RAW]
    assert response.infer_response.parameters["triton_final_response"].bool_param
    (response,) = streamed(question(given(fp32_contents=FOUR)), (result,))
    assert list(response.infer_response.outputs[0].contents.fp32_contents) == FOUR.tolist()


def test_outputs_are_raw_where_the_model_asks_for_it() -> None:
    """Whatever the form of the request, in a stream, too."""
    message, result = question(given(fp32_contents=FOUR)), InferResult("m", "7", (Tensor("y", FP32, FOUR),), raw=True)
    response = oip.ModelInferResponse.FromString(infer(message)[1](result))
    (in_stream,) = streamed(message, (result,))
    for each in (response, in_stream.infer_response):
        assert list(each.raw_output_contents) == [RAW]
        assert not each.outputs[0].HasField("contents")


ENDED: Final = oip.ModelInferResponse(
    model_name="m", model_version="7", id="a", parameters={"triton_final_response": oip.InferParameter(bool_param=True)}
)
"""The last answer for a request, if it has no outputs."""


def test_the_answers_of_a_model_that_gives_many_are_none_of_them_the_last() -> None:
    """A client that asks for it gets an answer without outputs at the end, as from Triton."""
    results = [InferResult("m", "7", (Tensor("y", FP32, FOUR[:n]),)) for n in (1, 2)]
    answers = streamed(raw_question(id="a"), iter(results))
    assert [list(one.infer_response.outputs[0].shape) for one in answers] == [[1], [2]]
    assert not any(one.infer_response.parameters["triton_final_response"].bool_param for one in answers)
    asked_for = {"triton_enable_empty_final_response": oip.InferParameter(bool_param=True)}
    *answers, last = streamed(raw_question(id="a", model_version="7", parameters=asked_for), iter(results))
    assert len(answers) == 2
    assert last == oip.ModelStreamInferResponse(infer_response=ENDED)
    (only,) = streamed(raw_question(parameters=asked_for), tuple(results[:1]))
    assert only.infer_response.parameters["triton_final_response"].bool_param


def instead(method: str, request: Any, error: Any) -> Any:
    """Returns what a method answers in place of an error."""
    found = METHODS[method].rpc.instead
    assert found is not None
    return found(request, error)


def test_a_stream_tells_what_went_wrong_in_its_answer() -> None:
    """It has the request's id, name and version, and is its last one, as from Triton."""
    request = v2_rpc_infer.read(raw_question(id="a", model_version="7").SerializeToString())
    told = instead("ModelStreamInfer", request, ModelFailed("no"))
    assert told == oip.ModelStreamInferResponse(error_message="no", infer_response=ENDED)
    head = oip.ModelInferRequest(model_name="m", model_version="7", id="a")
    assert instead("ModelStreamInfer", head, InvalidInput("no")) == told


UNSAID: Final = ops.ModelInfo(SPEC._replace(inputs=None, outputs=None), ("7",), {"signer": "key:1"})
SIGNED: Final = {"parameters": {"signer": oip.InferParameter(string_param="key:1")}}
NAMED: Final = {"name": "m", "version": "7"}
READY, UNREADY = ops.Readiness(ready=True), ops.Readiness(ready=False)
X: Final = {"name": "x", "datatype": "FP32", "shape": [-1, 3]}
REST: Final = {"name": "o", "datatype": "INT32", "shape": [-1]}, {"name": "y", "datatype": "BYTES", "shape": [-1]}
META: Final = {"inputs": [X, REST[0]], "outputs": [REST[1]]}
MODEL: Final = {"name": "m", "versions": ["1", "7"], "platform": "onnx_onnxv1"}
EXTENSIONS: Final = ["classification", "model_configuration", "model_repository", "statistics"]
SERVER: Final = {"name": "dragoman", "version": "1", "extensions": EXTENSIONS}


@pytest.mark.parametrize(("method", "members", "operation", "result", "answer"), [
    ("ServerLive", {}, ops.ServerLive(), READY, {"live": True}),
    ("ServerReady", {}, ops.ServerReady(), UNREADY, {"ready": False}),
    ("ModelReady", NAMED, ops.ModelReady(ModelRef("m", "7")), READY, {"ready": True}),
    ("ServerMetadata", {}, ops.ServerMetadata(), ops.ServerInfo("dragoman", "1"), SERVER),
    ("ModelMetadata", {"name": "m"}, ops.ModelMetadata(ModelRef("m")), INFO, MODEL | META),
    ("ModelMetadata", NAMED, ops.ModelMetadata(ModelRef("m", "7")), UNSAID, MODEL | {"versions": ["7"]} | SIGNED),
])  # fmt: skip
def test_a_method_asks_an_operation_and_answers_its_result(
    method: str, members: dict[str, str], operation: ops.Operation, result: Any, answer: dict[str, Any]
) -> None:
    """Raw tensors are not an extension over gRPC; any rank becomes [-1]."""
    found, phrase = asked(method, getattr(oip, f"{method}Request")(**members))
    assert found == operation
    assert phrase(result) == getattr(oip, f"{method}Response")(**answer)


def test_a_model_that_is_not_there_is_not_ready_and_no_error() -> None:
    """The same holds for a version; any other failure is an error."""
    for error in (ModelNotFound("m"), VersionNotFound("7")):
        assert instead("ModelReady", oip.ModelReadyRequest(), error) == oip.ModelReadyResponse(ready=False)
    assert instead("ModelReady", oip.ModelReadyRequest(), ModelFailed("no")) is None


def test_the_configuration_is_in_tritons_words() -> None:
    """Dims omit the batch dimension if there is one."""
    operation, phrase = asked("ModelConfig", oip.ModelConfigRequest(name="m", version="7"))
    assert operation == ops.ModelMetadata(ModelRef("m", "7"))
    config = phrase(INFO).config
    assert (config.name, config.platform, config.backend) == ("m", "onnx_onnxv1", "onnx")
    assert list(config.version_policy.specific.versions) == [1, 7]
    assert [(i.name, i.data_type, list(i.dims), i.optional, i.format) for i in config.input] == [
        ("x", 11, [-1, 3], False, 2),
        ("o", 8, [-1], True, 0),
    ]
    assert [(o.name, o.data_type, list(o.dims)) for o in config.output] == [("y", 13, [-1])]
    batched = phrase(ops.ModelInfo(SPEC._replace(max_batch_size=8), ("7",))).config
    assert (batched.max_batch_size, batched.WhichOneof("scheduling_choice")) == (8, None)
    together = SPEC._replace(batching=ops.Batching(8, 0.0025, (4, 8)))
    found = phrase(ops.ModelInfo(together, ("7",))).config
    dynamic = found.dynamic_batching
    assert (list(dynamic.preferred_batch_size), dynamic.max_queue_delay_microseconds) == ([4, 8], 2500)
    assert (found.max_batch_size, list(found.input[0].dims)) == (8, [3])
    assert list(batched.input[0].dims) == [3]
    assert not phrase(ops.ModelInfo(SPEC._replace(inputs=None, outputs=None), ("7",))).config.input
    assert not config.HasField("model_transaction_policy")
    assert phrase(ops.ModelInfo(SPEC._replace(decoupled=True), ("7",))).config.model_transaction_policy.decoupled


def test_statistics_are_of_a_version_a_model_or_everything() -> None:
    """A version without a model selects nothing."""
    assert asked("ModelStatistics", oip.ModelStatisticsRequest())[0] == ops.ModelStatistics(None)
    assert asked("ModelStatistics", oip.ModelStatisticsRequest(name="m"))[0] == ops.ModelStatistics(ModelRef("m"))
    operation, phrase = asked("ModelStatistics", oip.ModelStatisticsRequest(name="m", version="7"))
    assert operation == ops.ModelStatistics(ModelRef("m", "7"))
    with pytest.raises(InvalidInput, match="'version' is '7' without a 'name'"):
        asked("ModelStatistics", oip.ModelStatisticsRequest(version="7"))
    batches = (BatchCount(2, Count(1, 7), Count(1, 8), Count(1, 9)),)
    of_steps = {"success": Count(3, 30), "compute_output": Count(3, 5)}
    counts = Statistics("m", "7", 3, 99, **of_steps, execution_count=2, batches=batches)
    (told,) = phrase([counts]).model_stats
    assert (told.name, told.version, told.last_inference) == ("m", "7", 99)
    assert (told.inference_count, told.execution_count) == (3, 2)
    assert (told.inference_stats.success.count, told.inference_stats.success.ns) == (3, 30)
    assert told.inference_stats.compute_output.ns == 5
    assert told.inference_stats.fail == oip.StatisticDuration(count=0, ns=0)
    (batch,) = told.batch_stats
    steps = (batch.compute_input, batch.compute_infer, batch.compute_output)
    assert (batch.batch_size, [step.ns for step in steps]) == (2, [7, 8, 9])


def test_the_repository_is_listed_loaded_and_unloaded() -> None:
    """A client's own files are never loaded."""
    operation, phrase = asked("RepositoryIndex", oip.RepositoryIndexRequest(ready=True))
    assert operation == ops.RepositoryIndex(ready_only=True)
    (entry,) = phrase([ops.IndexEntry("m", "7", State.UNAVAILABLE, "why")]).models
    assert (entry.name, entry.version, entry.state, entry.reason) == ("m", "7", "UNAVAILABLE", "why")
    for kind, expected in (("Load", ops.Load("m")), ("Unload", ops.Unload("m"))):
        request = getattr(oip, f"RepositoryModel{kind}Request")
        operation, phrase = asked(f"RepositoryModel{kind}", request(model_name="m"))
        assert operation == expected
        assert phrase(None) == getattr(oip, f"RepositoryModel{kind}Response")()
        for name in ("config", "file:1/model.onnx"):
            foreign = {name: oip.ModelRepositoryParameter(bytes_param=b"")}
            with pytest.raises(InvalidInput, match=f"parameter '{name}' is not possible"):
                asked(f"RepositoryModel{kind}", request(model_name="m", parameters=foreign))


@pytest.mark.parametrize("kind", ["RepositoryIndex", "RepositoryModelLoad", "RepositoryModelUnload"])
def test_a_repository_of_a_name_is_refused_in_tritons_words(kind: str) -> None:
    """An empty name is as good as none."""
    request = getattr(oip, f"{kind}Request")
    assert asked(kind, request(repository_name="")) is not None
    with pytest.raises(NotSupported, match=r"^'repository_name' specification is not supported$"):
        asked(kind, request(repository_name="/models"))


def test_bf16_is_answered_as_its_bits() -> None:
    """The answer is raw, with two bytes for each element."""
    bits = np.array([0x3F80, 0x7FC0], np.uint16)
    assert answer(raw_question(), Tensor("y", BF16, bits)).raw_output_contents[0] == bits.tobytes()

"""gRPC's extensions: health checking, reflection, repository, configuration, statistics, classification, stream."""

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from core.schema import health, reflection
from core.schema import open_inference as oip
from tests.support.catalogue import row
from tests.support.remote import SERVICE, Remote, raw, tensors, typed, wanted
from tests.support.remote import question as asked
from tests.support.zoo.models import LABELS

HEALTH = "grpc.health.v1.Health"
X = raw("x", "INT64", np.array([0]))
SERVING, NOT_SERVING, SERVICE_UNKNOWN = 1, 2, 3


def checked(remote: Remote, name: str) -> int:
    """Returns the status of a service."""
    status: int = remote.ask("Check", health.HealthCheckRequest(service=name), HEALTH).status
    return status


@pytest.mark.row("G-300")
@pytest.mark.parametrize("name", ["", SERVICE])
def test_the_server_is_serving(remote: Remote, name: str) -> None:
    """Kubernetes' probes ask for it."""
    assert checked(remote, name) == SERVING


@pytest.mark.row("G-300")
def test_a_model_is_serving_while_it_is_loaded(remote: Remote) -> None:
    """Its name is the name of a service."""
    remote.infer("versions_latest", X)
    assert checked(remote, "versions_latest") == SERVING
    remote.ask("RepositoryModelUnload", oip.RepositoryModelUnloadRequest(model_name="versions_latest"))
    assert checked(remote, "versions_latest") == NOT_SERVING


@pytest.mark.row("G-300")
def test_health_of_what_is_not_there_is_not_found(remote: Remote) -> None:
    """The protocol says so."""
    with pytest.raises(grpc.RpcError) as refused:
        checked(remote, "unheard_of")
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND


@pytest.mark.row("G-300")
@pytest.mark.parametrize(("name", "status"), [("", SERVING), ("unheard_of", SERVICE_UNKNOWN)])
def test_who_watches_is_told_at_once(remote: Remote, name: str, status: int) -> None:
    """The call goes on until the client ends it."""
    watch: Any = remote.channel.unary_stream(f"/{HEALTH}/Watch")
    call = watch(health.HealthCheckRequest(service=name).SerializeToString())
    assert health.HealthCheckResponse.FromString(next(call)).status == status
    call.cancel()


@pytest.mark.row("G-301")
def test_a_client_of_reflection_learns_the_services_and_their_messages(remote: Remote) -> None:
    """It is grpcio-reflection's unmodified client, which speaks v1alpha."""
    database = ProtoReflectionDescriptorDatabase(remote.channel)
    own = {"grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection"}
    assert set(database.get_services()) == {SERVICE, HEALTH, "grps.protos.v1.GrpsService", *own}
    pool = DescriptorPool(database)
    for name in own:
        assert [*pool.FindServiceByName(name).methods_by_name] == ["ServerReflectionInfo"]
    service = pool.FindServiceByName(SERVICE)
    request = service.methods_by_name["ModelInfer"].input_type
    assert request.fields_by_name["raw_input_contents"].number == 7
    assert pool.FindMessageTypeByName("inference.ModelConfig").fields_by_name["backend"].number == 17


@pytest.mark.row("G-301")
@pytest.mark.parametrize("package", ["grpc.reflection.v1", "grpc.reflection.v1alpha"])
def test_reflection_answers_each_request_of_its_stream(remote: Remote, package: str) -> None:
    """Either version answers, and an unknown symbol does not end the stream."""
    exchange: Any = remote.channel.stream_stream(f"/{package}.ServerReflection/ServerReflectionInfo")
    requests = [
        reflection.ServerReflectionRequest(file_containing_symbol="nope"),
        reflection.ServerReflectionRequest(file_containing_symbol=f"{SERVICE}.ModelInfer"),
    ]
    answers = exchange(iter([request.SerializeToString() for request in requests]))
    missing, found = map(reflection.ServerReflectionResponse.FromString, answers)
    assert missing.error_response.error_code == 5
    assert b"ModelInferRequest" in found.file_descriptor_response.file_descriptor_proto[0]


def test_reflection_refuses_bytes_that_ask_nothing(remote: Remote) -> None:
    """The stream ends with the refusal."""
    exchange: Any = remote.channel.stream_stream("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
    with pytest.raises(grpc.RpcError) as refused:
        next(exchange(iter([b"\x1a\xff"])))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.row("G-302")
def test_the_index_has_every_version_with_its_state(remote: Remote) -> None:
    """A request for ready models gets them alone."""
    remote.infer("versions", X)
    entries = {(entry.name, entry.version): entry for entry in remote.ask("RepositoryIndex", b"").models}
    assert entries["versions", "10"].state == "READY"
    assert entries["broken_newest", "2"].state == "UNAVAILABLE"
    ready = remote.ask("RepositoryIndex", oip.RepositoryIndexRequest(ready=True)).models
    assert {entry.state for entry in ready} == {"READY"}


@pytest.mark.row("G-303")
def test_a_model_is_loaded_and_unloaded(remote: Remote) -> None:
    """It can be asked again afterwards."""
    remote.ask("RepositoryModelLoad", oip.RepositoryModelLoadRequest(model_name="spare_rpc_load"))
    ready = oip.ModelReadyRequest(name="spare_rpc_load")
    assert remote.ask("ModelReady", ready).ready
    remote.ask("RepositoryModelUnload", oip.RepositoryModelUnloadRequest(model_name="spare_rpc_load"))
    assert not remote.ask("ModelReady", ready).ready
    assert tensors(remote.infer("spare_rpc_load", X))["y"].tolist() == [5]


OWN = {name: oip.ModelRepositoryParameter(bytes_param=b"{}") for name in ("config", "file:1/model.onnx")}


@pytest.mark.parametrize(("name", "parameters", "culprit", "code"), [
    row("G-304", "unheard_of", {}, "unheard_of", grpc.StatusCode.NOT_FOUND),
    row("G-304", "broken_onnx", {}, "broken_onnx", grpc.StatusCode.FAILED_PRECONDITION),
    *(row("G-304", "spare_rpc_load", {name: value}, name, grpc.StatusCode.INVALID_ARGUMENT)
      for name, value in OWN.items()),
])  # fmt: skip
def test_what_cannot_be_loaded_is_an_error(
    remote: Remote, name: str, parameters: Any, culprit: str, code: grpc.StatusCode
) -> None:
    """The text names it; the repository is the only source of models."""
    with pytest.raises(grpc.RpcError, match=culprit) as refused:
        remote.ask("RepositoryModelLoad", oip.RepositoryModelLoadRequest(model_name=name, parameters=parameters))
    assert refused.value.code() is code


@pytest.mark.row("G-305")
def test_the_configuration_of_a_model(remote: Remote) -> None:
    """It uses Triton's names."""
    config = remote.ask("ModelConfig", oip.ModelConfigRequest(name="fixed")).config
    assert (config.name, config.platform, config.backend) == ("fixed", "onnx_onnxv1", "onnx")
    assert [(tensor.data_type, list(tensor.dims)) for tensor in config.input] == [(11, [2, 3])]


@pytest.mark.row("G-306")
def test_statistics_count_what_was_asked_over_grpc(remote: Remote) -> None:
    """They have successes, failures, and durations."""
    model = oip.ModelStatisticsRequest(name="spare_rpc_statistics", version="1")
    for _ in range(3):
        remote.infer("spare_rpc_statistics", X)
    with pytest.raises(grpc.RpcError):
        remote.infer("spare_rpc_statistics", raw("z", "INT64", np.array([0])))
    (stats,) = remote.ask("ModelStatistics", model).model_stats
    assert (stats.name, stats.version) == ("spare_rpc_statistics", "1")
    assert (stats.inference_count, stats.inference_stats.success.count, stats.inference_stats.fail.count) == (3, 3, 1)
    assert stats.last_inference > 0
    assert stats.inference_stats.success.ns > 0
    everything = remote.ask("ModelStatistics", oip.ModelStatisticsRequest()).model_stats
    assert "spare_rpc_statistics" in {each.name for each in everything}


@pytest.mark.row("G-307")
@pytest.mark.parametrize("form", [raw, typed], ids=["raw", "typed"])
def test_the_best_classes_come_as_text(remote: Remote, form: Any) -> None:
    """They are BYTES of value, index and label."""
    scores = np.array([0.1, 0.5, -1.25, 0.25], np.float32)
    outputs = wanted("scores", classification={"int64_param": 2})
    response = remote.infer("classifier", form("features", "FP32", scores), outputs=outputs)
    expected = [f"0.500000:1:{LABELS[1]}".encode(), f"0.250000:3:{LABELS[3]}".encode()]
    assert tensors(response)["scores"].tolist() == expected


@pytest.mark.row("G-308")
@pytest.mark.parametrize("ids", [range(50), [7] * 50], ids=["own", "same"])
def test_a_stream_has_one_answer_per_request(remote: Remote, ids: Sequence[int]) -> None:
    """Each is the last one of its request. Requests of the same id are answered in their order."""
    messages = [asked("versions", raw("x", "INT64", np.array([n])), id=str(own)) for n, own in enumerate(ids)]
    answers = [answer.infer_response for answer in remote.stream(iter(messages))]
    found = [(int(answer.id), tensors(answer)["y"].tolist()) for answer in answers]
    assert (found if ids[0] else sorted(found)) == [(own, [n + 10]) for n, own in enumerate(ids)]
    assert all(answer.parameters["triton_final_response"].bool_param for answer in answers)


@pytest.mark.row("G-308")
def test_what_goes_wrong_in_a_stream_is_told_in_an_answer_and_the_stream_goes_on(remote: Remote) -> None:
    """The answer is the request's last, and has its id, if that could be read. A long request is refused unread."""
    messages = [
        asked("unheard_of", X, id="1"), b"\x0a", asked("fails", raw("index", "INT64", np.array([99])), id="3"),
        asked("versions", X, id="4"), asked("unheard_of", raw("x", "INT64", np.arange(10_000)), id="5"),
        asked("unheard_of", *[X] * 5000, id="6"),
    ]  # fmt: skip
    answers = {answer.infer_response.id: answer for answer in remote.stream(iter(messages))}
    assert "unheard_of" in answers["1"].error_message
    assert "ModelInferRequest" in answers[""].error_message
    assert "fails" in answers["3"].error_message
    assert answers["4"].error_message == ""
    assert "unheard_of" in answers["5"].error_message
    assert "4096" in answers["6"].error_message
    assert all(answer.infer_response.parameters["triton_final_response"].bool_param for answer in answers.values())


@pytest.mark.row("G-310")
def test_a_model_that_yields_answers_many_times(remote: Remote) -> None:
    """Each is sent as it is made. A later failure is also an answer, and the stream goes on."""
    told = {"triton_enable_empty_final_response": oip.InferParameter(bool_param=True)}
    messages = [
        asked("yields", raw("n", "INT64", np.array([1000])), id="1", parameters=told),
        asked(
            "yields", raw("n", "INT64", np.array([1])), id="2", parameters={"fail": oip.InferParameter(bool_param=True)}
        ),
        asked("versions", X, id="3"),
    ]
    found: dict[str, list[Any]] = {"1": [], "2": [], "3": []}
    for answer in remote.stream(iter(messages)):
        found[answer.infer_response.id].append(answer)
    *answers, end = found["1"]
    assert [tensors(answer.infer_response)["y"].tolist() for answer in answers] == [[n] for n in range(1000)]
    one, failed = found["2"]
    (right,) = found["3"]
    assert end.infer_response.parameters["triton_final_response"].bool_param
    assert (end.infer_response.id, len(end.infer_response.outputs)) == ("1", 0)
    assert tensors(one.infer_response)["y"].tolist() == [0]
    assert "raised RuntimeError" in failed.error_message
    assert right.infer_response.id == "3"


@pytest.mark.row("G-310")
def test_one_answer_of_a_model_that_gives_many_is_refused(remote: Remote) -> None:
    """The text names the way to get all of them."""
    with pytest.raises(grpc.RpcError, match="request a stream"):
        remote.infer("yields", raw("n", "INT64", np.array([2])))
    assert tensors(remote.infer("yields", raw("n", "INT64", np.array([1]))))["y"].tolist() == [0]


def test_a_stream_answers_while_its_client_still_thinks(remote: Remote) -> None:
    """Each answer comes before the next question."""
    questions: queue.Queue[Any] = queue.Queue()
    turn = threading.Event()

    def next_question() -> Iterator[Any]:
        while (message := questions.get()) is not None:
            turn.set()
            yield message

    answers = remote.stream(next_question())
    for number in range(3):
        questions.put(asked("versions", X, id=str(number)))
        assert next(answers).infer_response.id == str(number)
    questions.put(None)
    assert list(answers) == []
    assert turn.is_set()


@pytest.mark.row("G-309")
@pytest.mark.parametrize(("path", "text"), [
    (f"/{SERVICE}/SystemSharedMemoryStatus", "shared memory is not offered"),
    (f"/{SERVICE}/TraceSetting", "trace settings are not offered"),
    (f"/{SERVICE}/LogSettings", "log settings are not offered"),
    ("/unheard.Of/Call", ""),
])  # fmt: skip
def test_a_method_that_is_not_there_is_unimplemented(remote: Remote, path: str, text: str) -> None:
    """The text says what is not offered."""
    with pytest.raises(grpc.RpcError) as refused:
        remote.channel.unary_unary(path)(bytes(100))
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert text in str(refused.value.details())

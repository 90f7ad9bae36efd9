"""core.rpc: a method's messages as bytes and in proto3's JSON."""

import pytest

from core.dialects.rpcs import RPCS
from core.errors import InvalidInput
from core.operations import ModelReady, ModelRef, ServerReady
from core.rpc import Form
from core.schema import open_inference as oip
from core.schema.health import HealthCheckRequest

METHODS = {method.path: method for method in RPCS}
CONFIG = METHODS["/inference.GRPCInferenceService/ModelConfig"]


def test_every_method_has_a_path_of_its_own() -> None:
    """The path consists of its service and its name."""
    assert len(METHODS) == len(RPCS)
    assert METHODS["/grpc.health.v1.Health/Watch"].form is Form.WATCH
    assert METHODS["/grps.protos.v1.GrpsService/PredictStreaming"].form is Form.STREAM
    assert METHODS["/inference.GRPCInferenceService/ModelStreamInfer"].form is Form.EXCHANGE
    assert CONFIG.form is Form.UNARY


def test_health_is_told_of_every_service() -> None:
    """They share the server's health; any other name is a model's."""
    for form in ("Check", "Watch"):
        method = METHODS[f"/grpc.health.v1.Health/{form}"]
        for service in {each.service for each in RPCS}:
            operation, _ = method.rpc.decode(HealthCheckRequest(service=service))
            assert operation == ServerReady()
        assert method.rpc.decode(HealthCheckRequest(service="grps.protos"))[0] == ModelReady(ModelRef("grps.protos"))


def test_a_message_is_read_from_json_with_either_spelling_and_members_that_are_not_known() -> None:
    """Proto3's JSON mapping requires it."""
    method = METHODS["/inference.GRPCInferenceService/RepositoryIndex"]
    for text in (b'{"repositoryName": "r", "ready": true}', b'{"repository_name": "r", "ready": true, "new": {}}'):
        assert method.read_json(text) == oip.RepositoryIndexRequest(repository_name="r", ready=True)


HEAD = oip.ModelInferRequest(model_name="m", model_version="7", id="a")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (HEAD.SerializeToString() + b"\x2a\xff", HEAD),
        (b'{"modelName": "m", "model_version": "7", "id": "a", "inputs": ' + b"[1], " * 20_000, HEAD),
        (b'{"inputs": [{"shape": ["zz"]}], "id": "a", "model_name": "m", "modelVersion": "7"}', HEAD),
        (b'{"id": "a", "modelName": 5, "modelVersion": null}', oip.ModelInferRequest(id="a")),
        (b'{"inputs": [' + b"1, " * 30_000 + b'0], "id": "a"}', oip.ModelInferRequest()),
        (b'{"id": "\\ud800", "modelName": "m"}', oip.ModelInferRequest()),
        (b"\xff", oip.ModelInferRequest()),
        (b"[]", oip.ModelInferRequest()),
    ],
)
def test_a_client_recognises_the_answer_to_a_message_that_is_not_read(
    body: bytes, found: oip.ModelInferRequest
) -> None:
    """The texts at its start are enough, and no long message is read for those behind."""
    method = METHODS["/inference.GRPCInferenceService/ModelStreamInfer"]
    assert method.head(memoryview(body), json=body[:1] in b"{[") == found
    assert CONFIG.head(body, json=False) is None


def test_a_member_in_both_spellings_is_refused() -> None:
    """Else protobuf takes the last one, and a gateway before the server perhaps another one."""
    method = METHODS["/inference.GRPCInferenceService/RepositoryIndex"]
    with pytest.raises(InvalidInput, match="'repository_name' and 'repositoryName' are the same member"):
        method.read_json(b'{"repositoryName": "r", "repository_name": "s"}')


@pytest.mark.parametrize(("text", "words"), [
    (b"", "not JSON"),
    (b"{", "not JSON"),
    (b"\xff", "not UTF-8"),
    (b"[]", r"the body is \[\]; expected an object, the ModelConfigRequest in JSON"),
    (b'{"name": 1}', "the body is not a ModelConfigRequest in JSON: .*name"),
    (b'{"name": 1e999}', "the body is not a ModelConfigRequest in JSON: .*name"),
    (b'{"a": ' * 10_000, "nested too deeply|Expecting value"),  # Python 3.14 reads so many
])  # fmt: skip
def test_what_is_no_message_in_json_is_refused_by_its_kind(text: bytes, words: str) -> None:
    """The refusal says what is wrong with it."""
    with pytest.raises(InvalidInput, match=words):
        CONFIG.read_json(text)


def test_the_id_of_a_streams_message_is_read_from_its_start() -> None:
    """Other methods have none."""
    stream, body = METHODS["/inference.GRPCInferenceService/ModelStreamInfer"], oip.ModelInferRequest(id="7")
    assert stream.id_of(body.SerializeToString(), json=False) == "7"
    assert stream.id_of(memoryview(b'{"modelName": "m", "id": "7", "inputs": ['), json=True) == "7"
    assert stream.id_of(b'{"inputs": [], "id": "7"}', json=True) == ""
    assert CONFIG.id_of(body.SerializeToString(), json=False) == ""


def test_an_answer_is_written_in_lower_camel_case_on_one_line() -> None:
    """64-bit integers are strings."""
    answer = oip.ModelConfigResponse(
        config=oip.ModelConfig(max_batch_size=3, version_policy={"specific": {"versions": [7]}})
    )
    written = CONFIG.write_json(answer)
    assert written == b'{"config": {"versionPolicy": {"specific": {"versions": ["7"]}}, "maxBatchSize": 3}}'


def test_a_method_that_does_not_say_where_its_model_stands_is_not_looked_into() -> None:
    """Its message is read first."""
    assert CONFIG.peek(b"", json=False) is None

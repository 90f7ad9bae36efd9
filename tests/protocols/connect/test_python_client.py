"""connectrpc, the official client for Python, unmodified, with this project's messages in place of generated ones."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from connectrpc.client import ConnectClientSync
from connectrpc.code import Code
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.protocol import ProtocolType

from core.dialects.rpcs import RPCS
from core.schema import grps, health
from core.schema import open_inference as oip
from tests.protocols.v2.test_values import extremes
from tests.support.remote import question, raw, tensors, typed
from tests.support.server import Server
from tests.support.wire import same
from tests.support.zoo.models import DATATYPES

Connect = Callable[..., ConnectClientSync]

METHODS = {method.rpc.name: method for method in reversed(RPCS)}
FORMS = {
    "connect": (ProtocolType.CONNECT, google_protobuf_binary_codec),
    "connect-json": (ProtocolType.CONNECT, google_protobuf_json_codec),
    "grpc-web": (ProtocolType.GRPC_WEB, google_protobuf_binary_codec),
    "grpc-web-json": (ProtocolType.GRPC_WEB, google_protobuf_json_codec),
}
TYPED = [name for name in DATATYPES if name not in ("FP16", "BF16")]


@pytest.fixture(params=FORMS)
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[ConnectClientSync]:
    """A client for each protocol, which by default compresses its requests and accepts gzip."""
    protocol, codec = FORMS[request.param]
    with ConnectClientSync(f"http://{server.netloc}", codec=codec(), protocol=protocol) as made:
        yield made


def info(name: str) -> MethodInfo[Any, Any]:
    """Returns what generated code would contain for a method."""
    method = METHODS[name]
    level = IdempotencyLevel.NO_SIDE_EFFECTS if method.safe else IdempotencyLevel.UNKNOWN
    return MethodInfo(
        name=name, service_name=method.service, input=method.request, output=method.response, idempotency_level=level,
        stream_type=StreamType.UNARY if name in ("ModelInfer", "ModelMetadata") else StreamType.SERVER_STREAM,
    )  # fmt: skip


def ask(client: ConnectClientSync, name: str, message: Any, **more: Any) -> Any:
    return client.execute_unary(request=message, method=info(name), **more)


@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_goes_there_and_back_raw(client: ConnectClientSync, datatype: str) -> None:
    """They come back to the bit."""
    values = np.array([1.0, -2.5], DATATYPES[datatype].numpy) if datatype == "BF16" else extremes(datatype)
    answer = ask(client, "ModelInfer", question(DATATYPES[datatype].model, raw("INPUT0", datatype, values)))
    assert same(tensors(answer)["OUTPUT0"], values)


@pytest.mark.parametrize("datatype", TYPED)
def test_every_datatype_goes_there_and_back_typed(client: ConnectClientSync, datatype: str) -> None:
    """They come back to the bit, as far as protobuf's own JSON can print and read them."""
    values = extremes(datatype)
    if datatype == "FP32":  # its largest is printed with the fewest digits, and then refused by the same library
        values = values[np.abs(values) < 3.4e38]
    answer = ask(client, "ModelInfer", question(DATATYPES[datatype].model, typed("INPUT0", datatype, values)))
    assert same(tensors(answer)["OUTPUT0"], values)


def test_an_error_is_raised_with_its_code(client: ConnectClientSync) -> None:
    """The exception has the text, too, and a detail with the id that the client has sent."""
    for headers, details in (({}, []), ({"x-request-id": "mine"}, [("google.rpc.RequestInfo", b"\n\x04mine")])):
        with pytest.raises(ConnectError, match="unheard_of") as refused:
            ask(client, "ModelInfer", question("unheard_of", raw("x", "FP32", np.ones(1, np.float32))), headers=headers)
        assert refused.value.code == Code.NOT_FOUND
        assert [(each.type_name, each.message_bytes) for each in refused.value.details] == details


def test_a_large_answer_comes_compressed(client: ConnectClientSync) -> None:
    """The client asks for it."""
    message = question("vector_fp32", raw("INPUT0", "FP32", np.zeros(50_000, np.float32)))
    assert not tensors(ask(client, "ModelInfer", message))["OUTPUT0"].any()


@pytest.mark.parametrize("form", ["connect", "connect-json"])
def test_a_get_is_answered(server: Server, form: str) -> None:
    """The message is compressed, and in base64."""
    protocol, codec = FORMS[form]
    with ConnectClientSync(f"http://{server.netloc}", codec=codec(), protocol=protocol) as client:
        message = oip.ModelMetadataRequest(name="versions")
        assert ask(client, "ModelMetadata", message, use_get=True).versions == ["1", "2", "10"]


def test_a_stream_is_read_to_its_end(client: ConnectClientSync) -> None:
    """It has every answer of the model, whatever their number."""
    tensor = grps.GenericTensor(name="n", dtype="DT_INT64", shape=[1], flat_int64=[1000])
    message = grps.GrpsMessage(model="yields", gtensors=grps.GenericTensorData(tensors=[tensor]))
    answers = client.execute_server_stream(request=message, method=info("PredictStreaming"))
    assert [answer.gtensors.tensors[0].flat_int64[0] for answer in answers] == list(range(1000))


def test_who_watches_is_told_at_once(client: ConnectClientSync) -> None:
    """The client may end the call at any time."""
    answers = client.execute_server_stream(request=health.HealthCheckRequest(), method=info("Watch"))
    assert next(iter(answers)).status == 1
    answers.close()  # type: ignore[attr-defined] # a generator

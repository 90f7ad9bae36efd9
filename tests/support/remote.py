"""A server with --grpc-port, started as a stranger would, and calls to it with this project's own messages."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import grpc
import numpy as np
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from numpy.typing import NDArray

from core.schema import open_inference as oip
from core.schema.pool import POOL
from tests.support.server import Server, serve_rpc
from tests.support.wire import from_binary, to_binary
from tests.support.zoo.models import DATATYPES

SERVICE: Final = "inference.GRPCInferenceService"
SECONDS: Final = 60
UNLIMITED: Final = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]


@contextmanager
def serve(log: Path, **settings: str) -> Iterator[Server]:
    """Runs a server of HTTP and gRPC; `netloc` is that of gRPC."""
    with serve_rpc(log, **settings) as server:
        yield replace(server, port=server.rpc_port)


class Remote:
    """A connection, and the methods of the services that the schemas know."""

    def __init__(self, netloc: str) -> None:
        """Connects without a limit on the client's side."""
        self.channel = grpc.insecure_channel(netloc, options=UNLIMITED)

    def close(self) -> None:
        self.channel.close()

    def call(self, method: str, service: str = SERVICE) -> Any:
        """Returns a callable that takes bytes and answers with bytes."""
        return self.channel.unary_unary(f"/{service}/{method}")

    def ask(self, method: str, message: Message | bytes, service: str = SERVICE, **more: Any) -> Any:
        """Returns one answer. Raises grpc.RpcError."""
        body = message if isinstance(message, bytes) else message.SerializeToString()
        descriptor = POOL.FindServiceByName(service).methods_by_name[method]
        answer = self.call(method, service)(body, **{"timeout": SECONDS, **more})
        return GetMessageClass(descriptor.output_type).FromString(answer)

    def infer(self, model: str, *inputs: Any, **members: Any) -> oip.ModelInferResponse:
        """Makes one inference. Raises grpc.RpcError."""
        answer: oip.ModelInferResponse = self.ask("ModelInfer", question(model, *inputs, **members))
        return answer

    def stream(self, messages: Iterator[Any]) -> Any:
        """Yields the answers of ModelStreamInfer as they arrive."""
        call: Any = self.channel.stream_stream(f"/{SERVICE}/ModelStreamInfer")
        answers = call((m if isinstance(m, bytes) else m.SerializeToString() for m in messages), timeout=SECONDS)
        return map(oip.ModelStreamInferResponse.FromString, answers)


def raw(name: str, datatype: str, values: NDArray[Any]) -> tuple[Any, bytes]:
    """Returns an input, and its raw contents."""
    tensor = oip.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=values.shape)
    return tensor, to_binary(values)


def typed(name: str, datatype: str, values: NDArray[Any]) -> Any:
    """Returns an input with its contents in the field that the protocol has for its datatype."""
    contents = oip.InferTensorContents(**{FIELD[datatype]: values.ravel().tolist()})
    tensor = oip.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=values.shape)
    tensor.contents.CopyFrom(contents)
    return tensor


FIELD: Final = {
    "BOOL": "bool_contents", **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"), "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"), "UINT64": "uint64_contents",
    "FP32": "fp32_contents", "FP64": "fp64_contents", "BYTES": "bytes_contents",
}  # fmt: skip


def question(model: str, *inputs: Any, **members: Any) -> oip.ModelInferRequest:
    """Returns a request of inputs that `raw` or `typed` made."""
    tensors = [each[0] if isinstance(each, tuple) else each for each in inputs]
    contents = [each[1] for each in inputs if isinstance(each, tuple)]
    return oip.ModelInferRequest(model_name=model, inputs=tensors, raw_input_contents=contents, **members)


def wanted(*names: str, **parameters: Any) -> list[Any]:
    """Returns outputs to ask for, each with the same parameters."""
    of_each = {name: oip.InferParameter(**value) for name, value in parameters.items()}
    return [oip.ModelInferRequest.InferRequestedOutputTensor(name=name, parameters=of_each) for name in names]


def tensors(response: oip.ModelInferResponse) -> dict[str, NDArray[Any]]:
    """Returns the outputs by name: raw contents and no contents message, or no raw contents at all."""
    outputs = list(response.outputs)
    if response.raw_output_contents:
        assert not any(output.HasField("contents") for output in outputs)
        pairs = zip(outputs, response.raw_output_contents, strict=True)
        return {output.name: from_binary(output.datatype, tuple(output.shape), part) for output, part in pairs}
    return {output.name: _typed(output) for output in outputs}


def _typed(output: Any) -> NDArray[Any]:
    values = getattr(output.contents, FIELD[output.datatype])
    return np.array([*values, None], object)[:-1].astype(DATATYPES[output.datatype].numpy).reshape(tuple(output.shape))


def alive(remote: Remote) -> None:
    """Asserts that the server calculates."""
    left, right = np.arange(16, dtype=np.int32), np.full(16, 3, np.int32)
    found = tensors(remote.infer("add_sub", raw("INPUT0", "INT32", left), raw("INPUT1", "INT32", right)))
    assert np.array_equal(found["OUTPUT0"], left + right)
    assert np.array_equal(found["OUTPUT1"], left - right)

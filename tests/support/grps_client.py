"""A client of GRPS written from the description of the protocol, over HTTP and over gRPC, with separate messages.

Nothing here is imported from the product: the messages have the field numbers that the protocol's clients have.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import urlencode

import grpc
import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from numpy.typing import NDArray

from tests.support.wire import refuse_constant

SECONDS: Final = 60
PACKAGE: Final = "grps.protos.v1"
SERVICE: Final = f"{PACKAGE}.GrpsService"
JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
SUCCESS: Final = {"code": 200, "msg": "OK", "status": "SUCCESS"}
LIMITS: Final = [
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
]
FLAT: Final = {
    "DT_UINT8": ("flat_uint8", np.uint8), "DT_INT8": ("flat_int8", np.int8), "DT_INT16": ("flat_int16", np.int16),
    "DT_INT32": ("flat_int32", np.int32), "DT_INT64": ("flat_int64", np.int64),
    "DT_FLOAT16": ("flat_float16", np.float16), "DT_FLOAT32": ("flat_float32", np.float32),
    "DT_FLOAT64": ("flat_float64", np.float64), "DT_STRING": ("flat_string", np.object_),
}  # fmt: skip
"""The types in the order of their numbers, from 1 on: the field for the elements, and the type that holds them here."""
NUMBERS: Final = {name: number for number, name in enumerate(FLAT, 1)}


def to_json(name: str, dtype: str, array: NDArray[Any]) -> dict[str, Any]:
    """Returns a tensor in JSON's form."""
    field, _ = FLAT[dtype]
    tensor = {"name": name, "dtype": dtype, "shape": list(array.shape), field: list(map(_told, array.ravel().tolist()))}
    return {key: value for key, value in tensor.items() if key != "name" or value}


def _told(value: Any) -> Any:
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def from_json(tensor: Mapping[str, Any]) -> NDArray[Any]:
    """Returns the array of a tensor in JSON, whose elements must be in its type's field alone."""
    field, kind = FLAT[tensor["dtype"]]
    assert {key for key in tensor if key.startswith("flat_")} <= {field}
    data = tensor.get(field, [])
    if tensor["dtype"] in {"DT_INT64", "DT_STRING"}:
        assert all(isinstance(value, str) for value in data)
    if kind is not np.object_:
        data = [float(value) if "FLOAT" in tensor["dtype"] else int(value) for value in data]
    return np.array(data, kind).reshape(tensor.get("shape", []))


@dataclass(frozen=True, slots=True)
class Reply:
    """The received answer; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Returns the body as strict JSON."""
        assert self.headers["content-type"].partition(";")[0] == JSON, self.headers
        return json.loads(self.body.decode("utf-8"), parse_constant=refuse_constant)

    def content(self) -> dict[str, Any]:
        """Returns what stands beside the status of a success."""
        document = self.json()
        assert self.status == http.client.OK, document
        assert document.pop("status") == SUCCESS
        found: dict[str, Any] = document
        return found

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Returns the tensors of a success, by name."""
        listed = self.content()["gtensors"].get("tensors", [])
        assert len({tensor.get("name") for tensor in listed}) == len(listed)
        return {tensor.get("name", ""): from_json(tensor) for tensor in listed}

    def bytes(self) -> bytes:
        """Returns the content of a success that is bytes."""
        assert (self.status, self.headers["content-type"]) == (http.client.OK, OCTETS), self.body[:500]
        return self.body

    def refusal(self, *codes: int) -> str:
        """Returns the text of a failure, whose code is the status of HTTP and one of these."""
        document = self.json()
        assert list(document) == ["status"], document
        status = document["status"]
        assert list(status) == ["code", "msg", "status"], status
        assert status["status"] == "FAILURE"
        assert status["code"] == self.status
        assert not codes or self.status in codes, status
        text = status["msg"]
        assert isinstance(text, str)
        assert text.strip()
        assert "\n" not in text
        return text


class Http:
    """One connection."""

    def __init__(self, host: str, port: int) -> None:
        self.connection = http.client.HTTPConnection(host, port, timeout=SECONDS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def send(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> http.client.HTTPResponse:
        """Sends a request below /grps/v1, and returns the answer before its body is read."""
        self.connection.request(method, f"/grps/v1/{path}", body, dict(headers or {}))
        return self.connection.getresponse()

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        response = self.send(method, path, body, headers)
        content = response.read()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def predict(self, body: Any, headers: Mapping[str, str] | None = None, **query: str) -> Reply:
        """Makes an inference of a document, or of bytes."""
        content, own = (body, OCTETS) if isinstance(body, bytes) else (json.dumps(body).encode(), JSON)
        return self.call("POST", path_of(query), content, {"Content-Type": own, **(headers or {})})

    def infer(self, model: str, *tensors: dict[str, Any]) -> Reply:
        """Makes an inference of tensors."""
        return self.predict({"model": model, "gtensors": {"tensors": list(tensors)}})

    def model_metadata(self, document: Any) -> Reply:
        return self.call("POST", "metadata/model", json.dumps(document).encode(), {"Content-Type": JSON})

    def stream(self, body: Any, **query: str) -> Iterator[bytes]:
        """Yields the chunks of a streamed inference, as they arrive."""
        content, own = (body, OCTETS) if isinstance(body, bytes) else (json.dumps(body).encode(), JSON)
        response = self.send("POST", path_of({"streaming": "true", **query}), content, {"Content-Type": own})
        assert response.status == http.client.OK, response.read()
        assert response.headers["transfer-encoding"] == "chunked"
        assert response.headers["content-type"] == OCTETS
        while chunk := response.read1(1 << 20):
            yield chunk

    def documents(self, body: Any, **query: str) -> list[Any]:
        """Yields the documents of a streamed inference, which follow one another directly."""
        return split(b"".join(self.stream(body, **query)))


def alive(http: Http) -> None:
    """Asserts that the server calculates."""
    assert http.predict({"model": "text-1", "str_data": "alive"}).content() == {"str_data": "alive"}


def path_of(query: Mapping[str, str]) -> str:
    """Returns the path of an inference."""
    return f"infer/predict?{urlencode(query)}" if query else "infer/predict"


def split(content: bytes) -> list[Any]:
    """Splits concatenated JSON documents, each of which begins where the one before ends."""
    text, position, found = content.decode("utf-8"), 0, []
    decoder = json.JSONDecoder(parse_constant=refuse_constant)
    while position < len(text):
        document, position = decoder.raw_decode(text, position)
        found.append(document)
    return found


Kind = FieldDescriptorProto
MESSAGES: Final = {
    "Status": {"code": (1, Kind.TYPE_INT32), "msg": (2, Kind.TYPE_STRING), "status": (3, Kind.TYPE_ENUM, "StatusFlag")},
    "GenericTensor": {
        "name": (1, Kind.TYPE_STRING), "dtype": (2, Kind.TYPE_ENUM, "DataType"), "shape": (3, Kind.TYPE_UINT32, "*"),
        "flat_uint8": (4, Kind.TYPE_UINT32, "*"), "flat_int8": (5, Kind.TYPE_INT32, "*"),
        "flat_int16": (6, Kind.TYPE_INT32, "*"), "flat_int32": (7, Kind.TYPE_INT32, "*"),
        "flat_int64": (8, Kind.TYPE_INT64, "*"), "flat_float16": (9, Kind.TYPE_FLOAT, "*"),
        "flat_float32": (10, Kind.TYPE_FLOAT, "*"), "flat_float64": (11, Kind.TYPE_DOUBLE, "*"),
        "flat_string": (12, Kind.TYPE_STRING, "*"),
    },
    "GenericTensorData": {"tensors": (1, Kind.TYPE_MESSAGE, "*GenericTensor")},
    "NDArrayData": {},
    "GenericMapData": {
        "s_s": (1, Kind.TYPE_MESSAGE, "*GenericMapData.SSEntry"),
        "s_b": (2, Kind.TYPE_MESSAGE, "*GenericMapData.SBEntry"),
        "s_i32": (3, Kind.TYPE_MESSAGE, "*GenericMapData.SI32Entry"),
        "s_i64": (4, Kind.TYPE_MESSAGE, "*GenericMapData.SI64Entry"),
        "s_f": (5, Kind.TYPE_MESSAGE, "*GenericMapData.SFEntry"),
        "s_d": (6, Kind.TYPE_MESSAGE, "*GenericMapData.SDEntry"),
    },
    "GrpsMessage": {
        "status": (1, Kind.TYPE_MESSAGE, "Status"), "model": (2, Kind.TYPE_STRING),
        "bin_data": (3, Kind.TYPE_BYTES, "|"), "str_data": (4, Kind.TYPE_STRING, "|"),
        "gtensors": (5, Kind.TYPE_MESSAGE, "|GenericTensorData"), "ndarray": (6, Kind.TYPE_MESSAGE, "|NDArrayData"),
        "gmap": (7, Kind.TYPE_MESSAGE, "|GenericMapData"),
    },
}  # fmt: skip
"""Field: number, type and, after "*" if it is repeated, "|" if it is one of the contents, the name of its type."""
MAPS: Final = {
    "SSEntry": Kind.TYPE_STRING, "SBEntry": Kind.TYPE_BYTES, "SI32Entry": Kind.TYPE_INT32, "SI64Entry": Kind.TYPE_INT64,
    "SFEntry": Kind.TYPE_FLOAT, "SDEntry": Kind.TYPE_DOUBLE,
}  # fmt: skip
ENUMS: Final = {"StatusFlag": ("UNKNOWN", "SUCCESS", "FAILURE"), "DataType": ("DT_INVALID", *FLAT)}


def _field(owner: Any, name: str, number: int, kind: int, more: str = "") -> None:
    label = Kind.LABEL_REPEATED if more.startswith("*") else Kind.LABEL_OPTIONAL
    field = owner.field.add(name=name, number=number, type=kind, label=label)
    if more.startswith("|"):
        field.oneof_index = 0
    if of_type := more.lstrip("*|"):
        field.type_name = f".{PACKAGE}.{of_type}"


def _messages() -> dict[str, Any]:
    file = FileDescriptorProto(name="grps_client.proto", package=PACKAGE, syntax="proto3")
    for name, values in ENUMS.items():
        enum = file.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "GrpsMessage":
            message.oneof_decl.add(name="data_oneof")
        for entry, kind in MAPS.items() if name == "GenericMapData" else ():
            nested = message.nested_type.add(name=entry)
            nested.options.map_entry = True
            _field(nested, "key", 1, Kind.TYPE_STRING)
            _field(nested, "value", 2, kind)
        for field, described in fields.items():
            _field(message, field, *described)
    pool = DescriptorPool()
    pool.Add(file)
    return {name: GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in MESSAGES}


_CLASSES: Final = _messages()
Message: Final[Any] = _CLASSES["GrpsMessage"]
GenericTensor: Final[Any] = _CLASSES["GenericTensor"]


def to_message(name: str, dtype: str, array: NDArray[Any]) -> Any:
    """Returns a tensor in a message's form."""
    field, _ = FLAT[dtype]
    return GenericTensor(name=name, dtype=NUMBERS[dtype], shape=array.shape, **{field: array.ravel().tolist()})


def from_message(tensor: Any) -> NDArray[Any]:
    """Returns the array of a tensor in a message."""
    field, kind = FLAT[list(FLAT)[tensor.dtype - 1]]
    assert {each.name for each, _ in tensor.ListFields() if each.name.startswith("flat_")} <= {field}
    return np.array(getattr(tensor, field), kind).reshape(tensor.shape)


class Rpc:
    """One connection."""

    def __init__(self, netloc: str) -> None:
        self.channel = grpc.insecure_channel(netloc, options=LIMITS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.channel.close()

    def ask(self, method: str, message: Any = None, **members: Any) -> Any:
        """Returns one answer. Raises grpc.RpcError."""
        call: Any = self.channel.unary_unary(f"/{SERVICE}/{method}")
        return Message.FromString(call(encoded(message, members), timeout=SECONDS))

    def stream(self, message: Any = None, **members: Any) -> Any:
        """Yields the answers of PredictStreaming, as they arrive. Raises grpc.RpcError."""
        call: Any = self.channel.unary_stream(f"/{SERVICE}/PredictStreaming")
        return map(Message.FromString, call(encoded(message, members), timeout=SECONDS))

    def infer(self, model: str, *tensors: Any) -> dict[str, NDArray[Any]]:
        """Returns the tensors of an inference, by name."""
        answer = ok(self.ask("Predict", model=model, gtensors={"tensors": tensors}))
        return {tensor.name: from_message(tensor) for tensor in answer.gtensors.tensors}


def encoded(message: Any, members: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a message or of its members; bytes are returned unchanged."""
    if isinstance(message, bytes):
        return message
    encoded: bytes = (Message(**members) if message is None else message).SerializeToString()
    return encoded


def ok(message: Any) -> Any:
    """Returns the message, which is a success."""
    assert (message.status.code, message.status.msg, message.status.status) == (200, "OK", 1), message.status
    assert message.model == ""
    return message


def refusal(message: Any, *codes: int) -> str:
    """Returns the text of a failure with one of these codes."""
    assert message.status.status == 2, message
    assert message.status.code in codes, message.status
    assert message.WhichOneof("data_oneof") is None
    text: str = message.status.msg
    assert text.strip()
    assert "\n" not in text
    return text

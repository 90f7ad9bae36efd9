"""A client of V2 over HTTP that follows the specification, without the product's code."""

import gzip
import http.client
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from tests.support.zoo.models import DATATYPES

HEADER_LENGTH: Final = "Inference-Header-Content-Length"
TIMEOUT: Final = 30

COMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "gzip": partial(gzip.compress, compresslevel=1),
    "deflate": partial(zlib.compress, level=1),
}
DECOMPRESS: Final[dict[str, Callable[[bytes], bytes]]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


def refuse_constant(name: str) -> None:
    """Refuses NaN and infinities, which are not JSON: json.loads would accept them."""
    raise AssertionError(name)


@dataclass(frozen=True, slots=True)
class Answer:
    """The received answer; the names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def content(self) -> bytes:
        """Returns the body without its Content-Encoding."""
        encoding = self.headers.get("content-encoding", "identity")
        return self.body if encoding == "identity" else DECOMPRESS[encoding](self.body)

    def json(self) -> Any:
        """Returns the whole body as strict JSON."""
        return json.loads(self.content.decode("utf-8"), parse_constant=refuse_constant)

    def split(self) -> tuple[dict[str, Any], bytes]:
        """Returns the JSON part and the bytes behind it."""
        length = int(self.headers.get(HEADER_LENGTH.lower(), len(self.content)))
        head = json.loads(self.content[:length].decode("utf-8"), parse_constant=refuse_constant)
        return head, self.content[length:]

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Returns every output of a 200 as an array; the binary parts must end where the body ends."""
        assert self.status == http.client.OK, (self.status, self.content[:1000])
        head, rest = self.split()
        found: dict[str, NDArray[Any]] = {}
        for output in head["outputs"]:
            size = output.get("parameters", {}).get("binary_data_size")
            if size is None:
                found[output["name"]] = from_json(output["datatype"], output["shape"], output["data"])
            else:
                assert "data" not in output
                found[output["name"]] = from_binary(output["datatype"], output["shape"], rest[:size])
                rest = rest[size:]
        assert not rest
        return found

    def tensor(self) -> NDArray[Any]:
        (only,) = self.tensors().values()
        return only


def from_json(datatype: str, shape: Sequence[int], data: list[Any]) -> NDArray[Any]:
    """Converts flat JSON data to an array as tritonclient, kserve and mlserver do, and checks every element."""
    assert all(not isinstance(element, list) for element in data)
    kinds = {"BOOL": bool, "BYTES": str}
    if datatype == "BYTES":
        data = [element.encode() for element in data]
    elif datatype == "BOOL" or "INT" in datatype:
        assert all(type(element) is kinds.get(datatype, int) for element in data)
    return np.array(data, DATATYPES[datatype].numpy).reshape(shape)


def to_json(array: NDArray[Any], *, nested: bool = False) -> Any:
    """Converts an array to JSON data; NaN and infinities become the strings that JSON can hold."""
    flat = [_element(element) for element in array.ravel().tolist()]
    return _nest(flat, array.shape) if nested else flat


def _element(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, float) and not np.isfinite(value):
        return "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _nest(flat: list[Any], shape: tuple[int, ...]) -> Any:
    if not shape:
        return flat  # a scalar is one element in a list: `data` is an array of the specification
    if len(shape) == 1:
        return flat
    step = len(flat) // shape[0] if shape[0] else 0
    return [_nest(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def from_binary(datatype: str, shape: Sequence[int], raw: bytes) -> NDArray[Any]:
    """Converts a binary part to an array (extension_binary_data: little-endian, row-major, BYTES with lengths)."""
    if datatype != "BYTES":
        return np.frombuffer(raw, np.dtype(DATATYPES[datatype].numpy).newbyteorder("<")).reshape(shape)
    elements = []
    while raw:
        (length,) = struct.unpack_from("<I", raw)
        assert len(raw) >= 4 + length
        elements.append(raw[4 : 4 + length])
        raw = raw[4 + length :]
    return np.array(elements, object).reshape(shape)


def to_binary(array: NDArray[Any]) -> bytes:
    """Converts an array to a binary part."""
    if array.dtype != object:
        return np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return b"".join(struct.pack("<I", len(element)) + element for element in array.ravel().tolist())


def json_input(name: str, datatype: str, array: NDArray[Any], *, nested: bool = False) -> dict[str, Any]:
    """Returns an input whose elements stand in the JSON."""
    return {
        "name": name, "datatype": datatype, "shape": list(array.shape), "data": to_json(array, nested=nested),
    }  # fmt: skip


def binary_input(name: str, datatype: str, array: NDArray[Any]) -> tuple[dict[str, Any], bytes]:
    """Returns an input whose elements follow the JSON: (member of inputs, part)."""
    part = to_binary(array)
    parameters = {"binary_data_size": len(part)}
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "parameters": parameters}, part


def pack(document: Mapping[str, Any], parts: Iterable[bytes]) -> tuple[bytes, dict[str, str]]:
    """Returns a request of the binary extension: body and its headers."""
    head = json.dumps(document).encode()
    return b"".join((head, *parts)), {HEADER_LENGTH: str(len(head))}


def same(left: NDArray[Any], right: NDArray[Any]) -> bool:
    """Returns whether both are equal to the bit; any NaN equals any NaN."""
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    if left.dtype == object:
        return left.tolist() == right.tolist()
    with np.errstate(invalid="ignore"):  # looking at a signalling NaN sets a flag
        equal = left == right
        if left.dtype.kind in "fV":  # bfloat16 is of kind V
            both_nan = np.isnan(left) & np.isnan(right)
            equal = both_nan | (equal & (np.signbit(left) == np.signbit(right)))
    return bool(np.all(equal))


class Wire:
    """One keep-alive connection that adds no headers except Host and Content-Length."""

    def __init__(self, host: str, port: int) -> None:
        self.connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.connection.close()

    def call(
        self,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Sends a request and reads its answer. An iterable body is sent chunked."""
        self.connection.putrequest(method, target, skip_accept_encoding=True)
        for name, value in (headers or {}).items():
            self.connection.putheader(name, value)
        chunked = body is not None and not isinstance(body, bytes)
        if chunked:
            self.connection.putheader("Transfer-Encoding", "chunked")
        elif body is not None or method in {"POST", "PUT", "PATCH"}:
            self.connection.putheader("Content-Length", str(len(body or b"")))
        self.connection.endheaders(body, encode_chunked=chunked)
        response = self.connection.getresponse()
        content = response.read()
        return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, content)

    def get(self, target: str, headers: Mapping[str, str] | None = None) -> Answer:
        return self.call("GET", target, headers=headers)

    def post(self, target: str, document: Any = None, headers: Mapping[str, str] | None = None) -> Answer:
        """Sends a POST: bytes unchanged, None as no body, anything else as JSON."""
        if document is not None and not isinstance(document, bytes):
            document = json.dumps(document).encode()
        return self.call("POST", target, document, headers)

    def infer(
        self, model: str, *inputs: dict[str, Any], headers: Mapping[str, str] | None = None, **rest: Any
    ) -> Answer:
        """Makes a JSON inference; `rest` are further members of the request, `version` goes into the path."""
        version = rest.pop("version", None)
        place = f"/versions/{version}" if version is not None else ""
        return self.post(f"/v2/models/{model}{place}/infer", {"inputs": list(inputs), **rest}, headers)

    def infer_binary(self, model: str, *inputs: Any, headers: Mapping[str, str] | None = None, **rest: Any) -> Answer:
        """Makes an inference with the binary extension; an input is a dict (JSON) or what binary_input made."""
        pairs = [item if isinstance(item, tuple) else (item, b"") for item in inputs]
        body, own = pack({"inputs": [head for head, _ in pairs], **rest}, [part for _, part in pairs])
        return self.call("POST", f"/v2/models/{model}/infer", body, {**own, **(headers or {})})

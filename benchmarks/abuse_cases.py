"""THE table of requests that cost a server more than they should: each is made for a number of bytes.

A case stands for a family. What it sends is valid HTTP or gRPC; a server may answer it or refuse it.
"""

import gzip
import json
from collections.abc import Callable
from typing import NamedTuple

Headers = dict[str, str]
JSON: Headers = {"content-type": "application/json"}
PROTO: Headers = {"content-type": "application/proto"}
STREAM: Headers = {"content-type": "application/connect+proto"}
WEB: Headers = {"content-type": "application/grpc-web+proto"}
CSV: Headers = {"content-type": "text/csv"}
EVENT: Headers = {"content-type": "application/cloudevents+json"}
V2 = "/v2/models/{}/infer"
V1 = "/v1/models/{}:{}"
GRPS = "/grps/v1/infer/predict"
OIP = "/inference.GRPCInferenceService/"
GRPS_RPC = "/grps.protos.v1.GrpsService/"


class Case(NamedTuple):
    """A request. `make`: returns its body for a number of bytes. `zipped`: it is sent as gzip of that many bytes.

    `rpc`: it is a gRPC message for the method `path`; `frames`: the body is so many messages of a stream. `tokenizes`:
    it is accepted, and its cost is that of the model's tokenizer.
    """

    name: str
    dialect: str
    path: str
    make: Callable[[int], bytes]
    headers: Headers = JSON
    zipped: bool = False
    rpc: bool = False
    frames: bytes = b""
    tokenizes: bool = False

    def body(self, size: int) -> bytes:
        made = self.make(size)
        return gzip.compress(made, 9) if self.zipped else made

    def head(self) -> Headers:
        return {**self.headers, "content-encoding": "gzip"} if self.zipped else self.headers


def text(start: str, unit: str, end: str) -> Callable[[int], bytes]:
    """Returns a maker of `unit`, repeated with commas between, up to the size. @ in the unit is a running number."""

    def make(size: int) -> bytes:
        if "@" not in unit:
            count = max(1, (size - len(start) - len(end)) // (len(unit) + 1))
            return (start + ",".join([unit] * count) + end).encode()
        units, left, number = [], size - len(start) - len(end), 0
        while left > 0:
            units.append(unit.replace("@", f"{number:x}"))
            left -= len(units[-1]) + 1
            number += 1
        return (start + ",".join(units) + end).encode()

    return make


def _varint(number: int) -> bytes:
    found = b""
    while number > 127:
        found += bytes([number & 127 | 128])
        number >>= 7
    return found + bytes([number])


def field(number: int, content: bytes) -> bytes:
    """Returns a protobuf field of bytes."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def wire(unit: bytes, *around: int, start: bytes = b"") -> Callable[[int], bytes]:
    """Returns a maker of a message with `unit` repeated, wrapped into the fields `around` from inside out."""

    def make(size: int) -> bytes:
        body = unit * (size // len(unit))
        for number in around:
            body = field(number, body)
        return start + body

    return make


def tensor(datatype: str, shape: bytes, contents_field: int, unit: bytes) -> Callable[[int], bytes]:
    """Returns a maker of a ModelInferRequest of one input, with typed contents of repeated `unit`."""

    def make(size: int) -> bytes:
        contents = field(contents_field, unit * (size // len(unit)))
        if contents_field == BYTES_CONTENTS:
            contents = unit * (size // len(unit))
        head = field(1, b"x") + field(2, datatype.encode()) + field(3, shape)
        return field(1, b"tiny") + field(5, head + field(5, contents))

    return make


BYTES_CONTENTS = 8
MODEL = field(1, b"tiny")
_ONE = '{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}'
_DATA = '{"inputs":[{"name":"x","shape":[1,4],"datatype":"%s","data":['


def classes(size: int) -> bytes:
    """Returns an inference of FP64, each of whose elements is asked for as text."""
    count = size // 8
    head = {
        "inputs": [
            {"name": "x", "shape": [1, count], "datatype": "FP64", "parameters": {"binary_data_size": 8 * count}}
        ],
        "outputs": [{"name": "y", "parameters": {"classification": count}}],
    }
    return json.dumps(head).ljust(HEAD).encode() + _LOWEST * count


HEAD = 400
_LOWEST = b"\xa0\xc8\xeb\x85\xf3\xcc\xe1\xff"
"""-1e308."""
_HEADED = {"inference-header-content-length": str(HEAD)}


def _v2(name: str, make: Callable[[int], bytes], model: str = "tiny", **more: bool) -> Case:
    return Case(name, "V2", V2.format(model), make, **more)


def _v1(name: str, make: Callable[[int], bytes], model: str = "tiny", verb: str = "predict", **more: bool) -> Case:
    return Case(name, "V1", V1.format(model, verb), make, **more)


def _grps(name: str, make: Callable[[int], bytes], **more: bool) -> Case:
    return Case(name, "GRPS", GRPS + "?model=tiny", make, **more)


def _connect(name: str, make: Callable[[int], bytes], headers: Headers = JSON, path: str = OIP + "ModelInfer") -> Case:
    return Case(name, "Connect", path, make, headers)


def _rpc(name: str, make: Callable[[int], bytes], path: str = OIP + "ModelInfer", frames: bytes = b"") -> Case:
    return Case(name, "gRPC", path, make, rpc=True, frames=frames)


def _platform(name: str, make: Callable[[int], bytes], headers: Headers = JSON) -> Case:
    return Case(name, "platform", "/invocations", make, headers)


def lines(unit: str) -> Callable[[int], bytes]:
    """Returns a maker of as many equal lines."""
    return lambda size: f"{unit}\n".encode() * (size // (len(unit) + 1))


_CONNECT = '{"modelName":"tiny","inputs":['
_INT64 = '{"modelName":"tiny","inputs":[{"name":"x","datatype":"INT64","shape":["1"],"contents":{"int64Contents":['
CASES: tuple[Case, ...] = (
    # V2
    _v2("numbers", text(_DATA % "FP32", "0", "]}]}")),
    _v2("numbers, model unknown", text(_DATA % "FP32", "0", "]}]}"), "nobody"),
    _v2("numbers, fixed shape", text(_DATA % "FP32", "0", "]}]}"), "fixed"),
    _v2("numbers, last a string", text(_DATA % "FP32", "0", ',"NaN"]}]}')),
    _v2("floats in lists of one", text(_DATA % "FP32", "[1.5]", "]}]}")),
    _v2("empty lists", text(_DATA % "FP32", "[]", "]}]}")),
    _v2("empty objects", text(_DATA % "FP32", "{}", "]}]}")),
    _v2("strings", text(_DATA % "BYTES", '""', "]}]}"), "strings"),
    _v2("strings, escaped", text(_DATA % "BYTES", '"\\u00e9"', "]}]}"), "strings"),
    _v2("lone surrogates", text(_DATA % "BYTES", '"\\ud800"', "]}]}"), "strings"),
    _v2("not JSON", text(_DATA % "FP32", "[]", "")),
    _v2("NaN tokens", text(_DATA % "FP32", "NaN", "]}]}")),
    _v2("long integers", text(_DATA % "INT64", "9" * 300, "]}]}")),
    _v2("inputs", text('{"inputs":[', _ONE, "]}")),
    _v2("inputs, empty", text('{"inputs":[', "{}", "]}")),
    _v2("outputs", text('{"inputs":[' + _ONE + '],"outputs":[', '{"name":"y"}', "]}")),
    _v2("outputs, own names", text('{"inputs":[' + _ONE + '],"outputs":[', '{"name":"@"}', "]}")),
    _v2("parameters", text('{"inputs":[' + _ONE + '],"parameters":{', '"@":0', "}}")),
    _v2("members nobody knows", text('{"inputs":[' + _ONE + '],"extra":{', '"@":{}', "}}")),
    _v2("nested to the depth", lambda size: b'{"inputs":' + b"[" * (size // 2) + b"]" * (size // 2) + b"}"),
    Case("classification of -1e308", "V2", V2.format("doubles"), classes, _HEADED),
    _v2("index, members", text('{"ready":true,"x":[', "{}", "]}"))._replace(path="/v2/repository/index"),
    _v2("gzip, numbers", text(_DATA % "FP32", "0", "]}]}"), zipped=True),
    _v2("gzip, numbers, model unknown", text(_DATA % "FP32", "0", "]}]}"), "nobody", zipped=True),
    # V1
    _v1("numbers", text('{"instances":[', "0", "]}")),
    _v1("rows", text('{"instances":[', "[1,2,3,4]", "]}")),
    _v1("rows, model unknown", text('{"instances":[', "[1,2,3,4]", "]}"), "nobody"),
    _v1("rows, last ragged", text('{"instances":[', "[1,2,3,4]", ",[1]]}")),
    _v1("rows of one, last ragged", text('{"instances":[', "[1]", ",[1,2]]}")),
    _v1("rows of nothing, last ragged", text('{"instances":[', "[]", ",[1,2]]}")),
    _v1("rows, last text", text('{"instances":[', "[1,2,3,4]", ',[1,2,3,"a"]]}')),
    _v1("deep rows, last ragged", text('{"instances":[', "[[[1]]]", ",[1,2]]}")),
    _v1("objects", text('{"instances":[', '{"x":[1,2,3,4]}', "]}")),
    _v1("objects, empty", text('{"instances":[', "{}", "]}")),
    _v1("objects, last odd", text('{"instances":[', '{"x":[1]}', ',{"y":1}]}')),
    _v1("base64", text('{"instances":[', '{"b64":""}', "]}"), "strings"),
    _v1("not JSON, strings", text('{"instances":[', '""', "")),
    _v1("escaped quotes", lambda size: b'{"instances": \\"' + b'\\"' * (size // 2)),
    _v1("columns of nobody", text('{"inputs":{', '"@":0', "}}")),
    _v1("examples", text('{"examples":[', '{"x":[1,2,3,4]}', "]}"), "examples", "classify"),
    _v1("examples, empty", text('{"examples":[', "{}", "]}"), "examples", "classify"),
    _v1("examples with context", text('{"context":{"x":[1,2,3,4]},"examples":[', "{}", "]}"), "examples", "classify"),
    _v1(
        "event", text('{"specversion":"1.0","id":"1","source":"a","type":"b","data":{"instances":[', "[]", "]}}")
    )._replace(headers=EVENT),
    _v1("gzip, numbers", text('{"instances":[', "0", "]}"), zipped=True),
    _v1("gzip, empty objects", text('{"instances":[', "{}", "]}"), zipped=True),
    _v1(
        "explanations",
        text('{"instances":[', "[1.00000001,2.00000002,3.00000003,5.0000005]", "]}"),
        "explained",
        "explain",
    ),
    _v1("columns of a table", text('{"instances":[', '{"age":1,"sex":"m","class":2}', "]}"), "columns"),
    # generate, OpenAI and platforms
    Case("generate, a list", "V2", "/v2/models/tiny/generate", text('{"x":[', "1.5", "]}")),
    Case("generate, texts", "V2", "/v2/models/texts/generate", text('{"text":[', '"a"', "]}"), tokenizes=True),
    Case(
        "embeddings, one text",
        "OpenAI",
        "/v1/embeddings",
        lambda size: b'{"model":"texts","input":"%b"}' % (b"a " * (size // 2)),
    ),
    Case("embeddings, texts", "OpenAI", "/v1/embeddings", text('{"model":"vectors","input":[', '""', "]}")),
    _platform("records", text('{"dataframe_records":[', '{"age":1,"sex":"","class":2}', "]}")),
    _platform("names of columns, one twice", text('{"dataframe_split":{"columns":[', '"@"', ',"0"],"data":[[1]]}}')),
    _platform("CSV, empty cells", lines(",,"), CSV),
    _platform("CSV, odd cells", lines("nan,,true"), CSV),
    _platform("CSV, rows that are right", lines("1,a,2"), CSV),
    _platform(
        "CSV, texts for numbers", lines("x"), CSV | {"x-amzn-sagemaker-custom-attributes": "tfs-model-name=doubles"}
    ),
    # GRPS
    _grps("ndarray", text('{"ndarray":[', "0", "]}")),
    _grps("ndarray, rows", text('{"ndarray":[', "[1]", "]}")),
    _grps("ndarray, ragged", text('{"ndarray":[', "[1]", ",[1,2]]}")),
    _grps("gmap of names nobody knows", text('{"gmap":{"s_i64":{', '"@":1', "}}}")),
    _grps("gtensors, empty", text('{"gtensors":{"tensors":[', "{}", "]}}")),
    _grps(
        "quoted integers",
        text('{"gtensors":{"tensors":[{"dtype":"DT_INT64","shape":[1],"flat_int64":[', '"1"', "]}]}}"),
    ),
    _grps(
        "quoted floats",
        text('{"gtensors":{"tensors":[{"dtype":"DT_FLOAT32","shape":[1],"flat_float32":[', '"1"', "]}]}}"),
    ),
    _grps("metadata, a large one", text('{"str_data":"tiny","x":[', "[]", "]}"))._replace(
        path="/grps/v1/metadata/model"
    ),
    _grps("gzip, ndarray", text('{"ndarray":[', "0", "]}"), zipped=True),
    Case(
        "gmap",
        "GRPS",
        GRPS_RPC + "Predict",
        wire(field(4, field(1, b"a") + b"\x10\x01"), 7, start=field(2, b"tiny")),
        PROTO,
    ),
    # Connect and gRPC-Web
    _connect("inputs, empty", text(_CONNECT, "{}", "]}")),
    _connect("inputs, model unknown", text('{"modelName":"nobody","inputs":[', "{}", "]}")),
    _connect("outputs", text('{"modelName":"tiny","outputs":[', '{"name":"y"}', "]}")),
    _connect("parameters", text('{"modelName":"tiny","parameters":{', '"@":{}', "}}")),
    _connect("parameters of an input", text(_CONNECT + '{"parameters":{', '"@":{}', "}}]}")),
    _connect("shape", text(_CONNECT + '{"name":"x","shape":[', '"1"', "]}]}")),
    _connect("quoted integers", text(_INT64, '"1"', "]}}]}")),
    _connect("quoted integers, last odd", text(_INT64, '"1"', ',"a"]}}]}')),
    _connect("raw contents", text('{"modelName":"tiny","rawInputContents":[', '""', "]}")),
    _connect(
        "tensors in a call of health", text('{"gtensors":{"tensors":[', "{}", "]}}"), path=GRPS_RPC + "CheckLiveness"
    ),
    _connect("stream of empty messages", wire(b"\0\0\0\0\0"), STREAM, OIP + "ModelStreamInfer"),
    _connect("stream of a model unknown", wire(b"\0\0\0\0\x03" + field(1, b"n")), STREAM, OIP + "ModelStreamInfer"),
    _connect("web stream of empty messages", wire(b"\0\0\0\0\0"), WEB, OIP + "ModelStreamInfer"),
    _connect("unary, many envelopes", wire(b"\0\0\0\0\0"), WEB),
    # gRPC
    _rpc("inputs, empty", wire(field(5, b""), start=MODEL)),
    _rpc("inputs, named", wire(field(5, field(1, b"x") + field(2, b"FP32") + field(3, b"\x01\x04")), start=MODEL)),
    _rpc("outputs, empty", wire(field(6, b""), start=MODEL)),
    _rpc("outputs of a model unknown", wire(field(6, b""), start=field(1, b"nobody"))),
    _rpc("parameters", wire(field(4, field(1, b"a") + field(2, b"\x08\x01")), start=MODEL)),
    _rpc("raw contents, empty", wire(field(7, b""), start=MODEL)),
    _rpc("raw contents, many small", wire(field(7, b"abcd"), start=MODEL)),
    _rpc("fields nobody knows", wire(b"\xf8\x07\x01", start=MODEL)),
    _rpc("shape", wire(b"\x01", 3, 5, start=MODEL)),
    _rpc("packed integers", tensor("INT32", b"\x01", 2, b"\x01")),
    _rpc("integers, not packed", wire(b"\x10\x01", 5, 5, start=MODEL)),
    _rpc("packed booleans", tensor("BOOL", b"\x01", 1, b"\x01")),
    _rpc("strings", tensor("BYTES", b"\x01", BYTES_CONTENTS, field(8, b""))),
    _rpc("gmap", wire(field(4, field(1, b"a") + b"\x10\x01"), 7, start=field(2, b"tiny")), GRPS_RPC + "Predict"),
    _rpc("gtensors, empty", wire(field(1, b""), 5, start=field(2, b"tiny")), GRPS_RPC + "Predict"),
    _rpc("tensors in a call of health", wire(field(1, b""), 5), GRPS_RPC + "CheckLiveness"),
    _rpc("stream of empty messages", wire(b"\0"), OIP + "ModelStreamInfer", frames=b"\0"),
)

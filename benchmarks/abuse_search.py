"""Searches for the request that costs the most CPU per MB.

    python -m benchmarks.abuse_search [--seconds N] [--seed N] [--size BYTES]

Every protocol has templates with a hole. A hole is filled with a unit that is repeated: a JSON value or protobuf
fields, made at random. The application runs in this process, in one thread, so that its time is the thread's own. The
cases that it finds go into `abuse_cases.CASES`.
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import abuse_models
from benchmarks.abuse_cases import field

OIP: Final = "/inference.GRPCInferenceService/"
GRPS: Final = "/grps.protos.v1.GrpsService/"
JSON, PROTO, STREAM, EVENT, CSV = (
    "application/json",
    "application/proto",
    "application/connect+proto",
    "application/cloudevents+json",
    "text/csv",
)
MODELS: Final = ("tiny", "fixed", "strings", "doubles", "examples", "columns", "texts", "nobody")
SCALARS: Final = (
    *(
        "0",
        "1.5",
        "-1e300",
        "NaN",
        "-Infinity",
        "null",
        "true",
        '""',
        '"a"',
        '"1"',
        '"1.5"',
        '"NaN"',
        '"@"',
        '"\\u00e9"',
    ),
    *('"\\\\"', '"\\ud83d\\ude00"', '{"b64":""}', "[]", "{}", "99999999999999999999", "1e999"),
)
KEYS: Final = (
    *("name", "shape", "datatype", "data", "parameters", "inputs", "outputs", "x", "y", "@", "contents", "dtype"),
    *("fp32Contents", "int64Contents", "bytesContents", "tensors", "flat_float32", "flat_int64", "flat_string"),
    *("age", "sex", "class", "text", "input", "columns", "index", "instances", "content_type"),
    *("s_s", "s_b", "s_i32", "s_i64", "s_f", "s_d", "b64", "classification", "binary_data_size"),
)
_EVENT: Final = '{"specversion":"1.0","id":"1","source":"a","type":"b","data":{"instances":[#]}}'
_COLUMNS: Final = (
    '{"inputs":[{"name":"age","shape":[%n,1],"datatype":"FP32","data":[#]},'
    '{"name":"sex","shape":[%n,1],"datatype":"BYTES","data":[#],"parameters":{"content_type":"pd"}}]}'
)
_FLAT: Final = '{"gtensors":{"tensors":[{"dtype":"DT_%g","shape":[%n],"flat_%f":[#]}]}}'
_TENSOR: Final = '{"name":"x","datatype":"%d","shape":["%n"],"contents":{"%c":[#]}}'
TEMPLATES: Final = (
    ("/v2/models/%m/infer", JSON, '{"inputs":[#]}'),
    ("/v2/models/%m/infer", JSON, '{"inputs":[{"name":"x","shape":[1,4],"datatype":"%d","data":[#]}]}'),
    ("/v2/models/%m/infer", JSON, '{"inputs":[{"name":"x","shape":[%n],"datatype":"%d","data":[#]}]}'),
    ("/v2/models/%m/infer", JSON, '{"inputs":[{"name":"x","shape":[%n,4],"datatype":"%d","data":[#]}],"outputs":[#]}'),
    ("/v2/models/%m/infer", JSON, '{"inputs":[],"parameters":{"a":[#]},"outputs":[#]}'),
    ("/v2/models/%m/infer", JSON, '{"a":[#]'),
    ("/v2/repository/index", JSON, '{"a":[#]}'),
    ("/v1/models/%m:predict", JSON, '{"instances":[#]}'),
    ("/v1/models/%m:predict", JSON, '{"instances":[#,%s]}'),
    ("/v1/models/%m:predict", JSON, '{"inputs":{"x":[#]}}'),
    ("/v1/models/%m:predict", JSON, '{"inputs":[#,%s]}'),
    ("/v1/models/%m:predict", JSON, '{"inputs":[#]'),
    ("/v1/models/examples:classify", JSON, '{"examples":[#]}'),
    ("/v1/models/examples:classify", JSON, '{"context":{"x":[%s]},"examples":[#,%s]}'),
    ("/v1/models/%m:predict", EVENT, _EVENT),
    ("/grps/v1/infer/predict?model=%m", JSON, '{"ndarray":[#]}'),
    ("/grps/v1/infer/predict?model=%m", JSON, '{"ndarray":[#,%s]}'),
    ("/grps/v1/infer/predict?model=%m", JSON, '{"gtensors":{"tensors":[#]}}'),
    ("/grps/v1/infer/predict?model=%m", JSON, _FLAT),
    ("/grps/v1/metadata/model", JSON, '{"str_data":"tiny","a":[#]}'),
    (OIP + "ModelInfer", JSON, '{"modelName":"%m","inputs":[#]}'),
    (OIP + "ModelInfer", JSON, '{"inputs":[#],"outputs":[#],"modelName":"%m"}'),
    (OIP + "ModelInfer", JSON, '{"modelName":"%m","inputs":[' + _TENSOR + "]}"),
    (OIP + "ModelConfig", JSON, '{"name":"tiny","a":[#]}'),
    (GRPS + "Predict", JSON, '{"model":"%m","gtensors":{"tensors":[#]}}'),
    (GRPS + "CheckLiveness", JSON, '{"gtensors":{"tensors":[#]}}'),
    ("/v2/models/%m/generate", JSON, '{"x":[#]}'),
    ("/v2/models/%m/generate", JSON, '{"text":[#],"age":[#],"a":%s}'),
    ("/v2/models/%m/generate", JSON, '{"text":"a","parameters":{"a":[#]}}'),
    ("/v2/models/%m/generate_stream", JSON, '{"x":[#],"text":[#]}'),
    ("/v2/models/%m/infer", JSON, _COLUMNS),
    ("/v1/models/columns:predict", JSON, '{"instances":[#]}'),
    ("/v1/models/columns:predict", JSON, '{"instances":[{"age":%s,"sex":%s,"class":1},#]}'),
    ("/v1/models/columns:predict", JSON, '{"inputs":{"age":[#],"sex":[#],"class":[#]}}'),
    ("/v1/models/explained:explain", JSON, '{"instances":[#]}'),
    ("/v1/models/explained:explain", JSON, '{"instances":[#,%s]}'),
    ("/v1/models/%m:classify", JSON, '{"examples":[#]}'),
    ("/v1/models/%m:regress", JSON, '{"examples":[#]}'),
    ("/v1/embeddings", JSON, '{"model":"vectors","input":[#]}'),
    ("/v1/embeddings", JSON, '{"model":"%m","input":[%s],"a":[#]}'),
    ("/v1/embeddings", JSON, '{"model":"texts","input":"#","user":[#]}'),
    ("/invocations", JSON, '{"instances":[#]}'),
    ("/invocations", JSON, '{"dataframe_records":[#]}'),
    ("/invocations", JSON, '{"dataframe_records":[#,%s]}'),
    ("/invocations", JSON, '{"dataframe_split":{"columns":["age","sex","class"],"data":[#]}}'),
    ("/invocations", JSON, '{"dataframe_split":{"columns":[#],"index":[#],"data":[[#]]}}'),
    ("/invocations", JSON, '{"input_data":[#]}'),
    ("/invocations", JSON, '{"inputs":{"age":[#],"sex":[#],"class":[#]},"params":{"a":[#]}}'),
    ("/invocations", CSV, "age,sex,class\n#"),
    ("/invocations", CSV, "#"),
    ("/invocations", CSV, "#\n%s"),
    ("/grps/v1/metadata/model", JSON, '{"str_data":"#"}'),
)  # fmt: skip
"""Paths, media types and bodies. # is the hole; %m a model, %n the number of units, %s a scalar, others are WORDS."""
WORDS: Final = {
    "%d": ("FP32", "FP64", "INT64", "INT8", "BOOL", "BYTES", "FP16", "UINT64"),
    "%g": ("FLOAT32", "INT64", "STRING", "FLOAT16", "UINT8"),
    "%f": ("float32", "int64", "string", "float16", "uint8"),
    "%c": ("fp32Contents", "int64Contents", "bytesContents", "boolContents", "fp64Contents"),
}
CALLS: Final = ("ModelInfer", "ModelStreamInfer", "ModelReady", "ServerLive", "RepositoryIndex", "RepositoryModelLoad")


class Found(NamedTuple):
    """A request and its seconds of CPU per MB."""

    rate: float
    seconds: float
    size: int
    status: int
    path: str
    body: bytes


def value(choose: random.Random, depth: int = 0) -> str:
    """Returns a small JSON value."""
    kind = choose.random()
    if depth > 3 or kind < 0.5:
        return choose.choice(SCALARS)
    inner = [value(choose, depth + 1) for _ in range(choose.choice((0, 1, 1, 2, 5)))]
    if kind < 0.75:
        return f"[{','.join(inner)}]"
    return "{" + ",".join(f'"{choose.choice(KEYS)}":{each}' for each in inner) + "}"


def _text(choose: random.Random, size: int) -> tuple[str, str, bytes]:
    path, kind, body = choose.choice(TEMPLATES)
    unit, between = value(choose), ","
    if kind == CSV:
        unit, between = choose.choice((",", "1,a,2", "1.5", '""', '"a""b",x', "nan,,true", unit)), choose.choice("\n,")
    count = max(1, size // (len(unit) + 1) // max(1, body.count("#")))
    if "@" in unit:
        units = between.join(unit.replace("@", f"{number:x}") for number in range(count))
    else:
        units = between.join([unit] * count)
    for word, choices in WORDS.items():
        body = body.replace(word, choose.choice(choices))
    body = body.replace("%n", str(count)).replace("%s", choose.choice(SCALARS)).replace("#", units)
    model = choose.choice(MODELS)
    return path.replace("%m", model), kind, body.replace("%m", model).encode()


def _message(choose: random.Random, size: int) -> tuple[str, str, bytes]:
    grps = choose.random() < 0.3
    path = GRPS + choose.choice(("Predict", "CheckLiveness")) if grps else OIP + choose.choice(CALLS)
    unit = b"".join(_field(choose) for _ in range(choose.choice((1, 1, 2, 4))))
    body = unit * max(1, size // len(unit))
    for _ in range(choose.choice((0, 1, 2, 3))):
        body = field(choose.randint(1, 8), body)
    body = field(2 if grps else 1, choose.choice(MODELS).encode()) + body
    if "Stream" in path:
        piece = b"\0" + len(unit).to_bytes(4) + unit
        return path, STREAM, piece * max(1, size // len(piece))
    return path, PROTO, body


def _field(choose: random.Random) -> bytes:
    number = choose.randint(1, 13)
    kind = choose.random()
    if kind < 0.3:
        return bytes([number << 3]) + choose.choice((b"\0", b"\x01", b"\xff\x01"))
    content = choose.choice((b"", b"x", b"FP32", b"\x01\x04", b"abcd", bytes(16), b"\x0a\0", b"\x0a\x01x\x12\x04FP32"))
    return field(number, content)


async def _ask(app: Any, path: str, kind: str, body: bytes) -> int:
    sent: list[Any] = []
    inbox = [{"type": "http.request", "body": body}]

    async def receive() -> Any:
        return inbox.pop() if inbox else await asyncio.Event().wait()

    async def send(message: Any) -> None:
        sent.append(message)

    path, _, query = path.partition("?")
    scope = {"type": "http", "method": "POST", "path": path, "headers": [(b"content-type", kind.encode())]}
    await app({**scope, "query_string": query.encode()}, receive, send)
    return int(sent[0]["status"])


def search(seconds: float, seed: int, size: int) -> list[Found]:
    """Returns the worst requests, the worst first."""
    from handler.edge.app import App  # noqa: PLC0415 - the checkout that is searched
    from handler.settings import Settings  # noqa: PLC0415 - the same

    choose, found = random.Random(seed), list[Found]()  # noqa: S311 - no secrets
    makers = (_text, _text, _message)
    with tempfile.TemporaryDirectory() as folder:
        abuse_models.make(Path(folder))
        more = {"DRAGOMAN_PLATFORM": "mlflow", "DRAGOMAN_DEFAULT_MODEL": choose.choice(("tiny", "columns"))}
        app = App(Settings.from_env({"DRAGOMAN_REPOSITORY": folder, **more}), inline=True)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            path, kind, body = choose.choice(makers)(choose, choose.choice((size // 10, size, size * 4)))
            began = time.thread_time()
            status = asyncio.run(_ask(app, path, kind, body))
            took = time.thread_time() - began
            # Below 100 kB, a body counts as 100 kB, as in `abuse`.
            found.append(Found(took / max(len(body) / 1e6, 0.1), took, len(body), status, path, body))
            found = sorted(found, reverse=True)[:40]
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m benchmarks.abuse_search")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", type=int, default=200_000)
    given = parser.parse_args()
    for each in search(given.seconds, given.seed, given.size):
        shown = json.dumps(each.body[:110].decode("latin-1"))
        print(f"{each.rate:7.3f} s/MB {each.seconds:7.3f} s {each.size:9} {each.status} {each.path:38} {shown}")

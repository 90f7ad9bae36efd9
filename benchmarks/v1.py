"""V1 predict: rows and columns to tensors and back, the refusal of wrong bodies, and a tiny request on uvicorn.

Ours is the core's own decode and answer, the reading of the document and every check included; the control is orjson
and numpy, which check nothing. For a refusal, the control reads the body without the mistake.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import orjson

from benchmarks import json_tensors
from benchmarks.measure import Row, fastest, interleaved, row, seconds, table
from benchmarks.per_request import BAR_TINY, Case, against_echo, servers
from core.dialects import V1
from core.dtype import DATATYPES
from core.errors import InvalidInput
from core.operations import Deferred, Infer, InferResult, ModelSpec
from core.router import Router
from core.signature import plain
from core.tensor import Tensor, TensorSpec
from core.wire import Call, HttpRequest, Reply

BAR: Final = 1.3
BAR_REFUSAL: Final = 12.0
BAR_COLUMNS: Final = 1.15
IMAGE: Final = (1, 3, 224, 224)
BATCH: Final = (1000, 32)
PATH: Final = "/v1/models/m:predict"
FP32: Final = DATATYPES["FP32"]
X, Y = TensorSpec("x", FP32, None), TensorSpec("y", FP32, None)
SPEC: Final = ModelSpec("m", "1", "onnx", (X,), (Y,), signatures=plain((X,), (Y,)))
ROUTE, MODEL = Router(V1).find("POST", PATH)

Array = np.ndarray[Any, np.dtype[np.float32]]


class Form(NamedTuple):
    """A form of a request. `opening`, `closing`: the text around the numbers. `answer`: the key of its answer."""

    name: str
    opening: bytes
    closing: bytes
    answer: str
    numbers: Callable[[Any], Any]

    def body(self, values: Any) -> bytes:
        return self.opening + orjson.dumps(values, option=orjson.OPT_SERIALIZE_NUMPY) + self.closing

    def read(self, body: bytes) -> Array:
        """Reads a request as the control does."""
        return np.array(self.numbers(orjson.loads(body)), np.float32)

    def write(self, array: Array) -> bytes:
        """Writes an answer as the control does."""
        return orjson.dumps({self.answer: array}, option=orjson.OPT_SERIALIZE_NUMPY)


ROWS: Final = Form("rows", b'{"instances":', b"}", "predictions", lambda document: document["instances"])
COLUMNS: Final = Form("columns", b'{"inputs":{"x":', b"}}", "outputs", lambda document: document["inputs"]["x"])


def read(body: bytes) -> tuple[Infer, Reply]:
    deferred: Deferred
    deferred, _ = ROUTE.decode(Call(HttpRequest("POST", PATH, {}, body), MODEL))  # type: ignore[assignment] # predict's
    return deferred.decode(SPEC)  # type: ignore[return-value] # predict's


def answered(body: bytes, array: Array) -> bytes:
    _, reply = read(body)
    return b"".join(reply(InferResult("m", "1", (Tensor("y", FP32, array),))).parts)


def refused(body: bytes) -> str:
    try:
        read(body)
    except InvalidInput as error:
        return error.message
    raise AssertionError("taken for a tensor")


def compare(name: str, ours: Callable[[], object], control: Callable[[], object], bar: float, rounds: int) -> Row:
    taken = interleaved({"ours": lambda: seconds(ours, 7) * 1e3, "control": lambda: seconds(control, 7) * 1e3}, rounds)
    return row(name, taken["ours"], taken["control"], "ms", bar)


def predict(form: Form, shape: tuple[int, ...], rounds: int) -> Row:
    """Measures reading a request, and writing the same numbers as its answer."""
    array = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    body = form.body(array)
    if not np.array_equal(read(body)[0].inputs[0].array, array):
        raise AssertionError(f"{form.name}: read wrong")
    if orjson.loads(answered(body, array)) != orjson.loads(form.write(array)):
        raise AssertionError(f"{form.name}: written wrong")

    def control() -> tuple[Array, bytes]:
        return form.read(body), form.write(array)

    name = f"{form.name} {'x'.join(map(str, shape))}, in and out"
    return compare(name, lambda: answered(body, array), control, BAR, rounds)


def mistaken(array: Array) -> dict[str, list[list[Any]]]:
    """Returns the numbers with the last row too short, and with text for the last number."""
    ragged, mixed = array.tolist(), array.tolist()
    ragged[-1].pop()
    mixed[-1][-1] = "0"
    return {"ragged": ragged, "mixed": mixed}


def refusals(form: Form, rounds: int) -> list[Row]:
    array = np.random.default_rng(0).standard_normal(BATCH).astype(np.float32)
    good = form.body(array)
    rows = []
    for kind, values in mistaken(array).items():
        body = form.body(values)
        refused(body)
        name = f"{form.name} {'x'.join(map(str, BATCH))}, {kind}: refused / in"
        rows.append(compare(name, lambda b=body: refused(b), lambda: form.read(good), BAR_REFUSAL, rounds))  # type: ignore[misc]
    return rows


def large(rounds: int) -> Row:
    """Compares an answer of 150,528 floats that has both protocols' keys with that of V2, which has them once."""
    array = np.random.default_rng(0).standard_normal((1, 150_528)).astype(np.float32)
    result = InferResult("m", "1", (Tensor("y", FP32, array),))
    replies = [read(b'{"inputs":[[1,2]]}')[1], json_tensors.ours_in(json_tensors.request(array[:, :2], flat=True))[1]]
    ours, control = (partial(json_tensors.ours_out, reply, result) for reply in replies)
    taken = interleaved({"ours": lambda: seconds(ours, 7) * 1e3, "control": lambda: seconds(control, 7) * 1e3}, rounds)
    return fastest("columns, answer 1x150528 / V2's", taken["ours"], taken["control"], "ms", BAR_COLUMNS)


def tiny(rounds: int) -> Row:
    body = ROWS.body(np.random.default_rng(1).standard_normal((1, 4)).astype(np.float32))
    case = Case("tiny V1 rows [1, 4]", "tiny", body, 4, 1500, bar=BAR_TINY, path="/v1/models/{}:predict")
    with servers() as (ours, bare):
        return against_echo(case, ours, bare, rounds)


def main(*, quick: bool = False) -> list[Row]:
    rounds = 5 if quick else 21
    rows = [predict(form, shape, rounds) for shape in (IMAGE, BATCH) for form in (ROWS, COLUMNS)]
    rows += [each for form in (ROWS, COLUMNS) for each in refusals(form, rounds)]
    rows.append(large(rounds))
    rows.append(tiny(3 if quick else 9))
    print(table("V1 predict: in the core against orjson + numpy, FP32; on uvicorn against a bare echo", rows))
    return rows


if __name__ == "__main__":
    main()

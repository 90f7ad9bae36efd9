"""Nanoseconds per float of V2's JSON, in and out, for one FP32 image of 1x3x224x224; and the conversion of short lists.

Ours is the core's own decode and encode, validation included; the control is orjson and numpy, which check nothing. A
short list is parsed already: its conversion to a tensor is compared with `np.array`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import orjson

from benchmarks.measure import Row, interleaved, row, seconds, table
from core.dialects import V2
from core.dialects.v1.values import elements
from core.dtype import DATATYPES
from core.encoding.values import from_values
from core.operations import Infer, InferResult
from core.tensor import Tensor
from core.wire import Call, HttpRequest, Options, Reply

BAR_IN = 0.5
BAR_OUT = 1.1
BAR_FEW = 10
FEW: tuple[tuple[str, list[Any]], ...] = (("INT64", [1, 2, 3, 4]), ("FP32", [1, 2, 3, 4.5]))
TIMES = 2000
SHAPE = (1, 3, 224, 224)
COUNT = 150_528
INFER = next(route for route in V2.routes if route.pattern == "/v2/models/{model}/infer")

Array = np.ndarray[Any, np.dtype[np.float32]]


def request(image: Array, *, flat: bool) -> bytes:
    data = image.reshape(-1) if flat else image
    tensor = {"name": "x", "shape": image.shape, "datatype": "FP32", "data": data}
    return orjson.dumps({"id": "1", "inputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY)


def ours_in(body: bytes) -> tuple[Infer, Reply]:
    return INFER.decode(Call(HttpRequest("POST", "/v2/models/m/infer", {}, body, Options()), {"model": "m"}))  # type: ignore[return-value]


def control_in(body: bytes) -> Array:
    tensor = orjson.loads(body)["inputs"][0]
    return np.array(tensor["data"], np.float32).reshape(tensor["shape"])


def ours_out(reply: Reply, result: InferResult) -> bytes:
    return b"".join(reply(result).parts)


def control_out(image: Array) -> bytes:
    tensor = {"name": "y", "shape": image.shape, "datatype": "FP32", "data": image.reshape(-1)}
    answer = {"model_name": "m", "model_version": "1", "id": "1", "outputs": [tensor]}
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)


def compare(name: str, ours: Callable[[], object], control: Callable[[], object], bar: float, rounds: int) -> Row:
    taken = interleaved({"ours": lambda: seconds(ours, 7), "control": lambda: seconds(control, 7)}, rounds)
    per_float = {side: [value / COUNT * 1e9 for value in values] for side, values in taken.items()}
    return row(name, per_float["ours"], per_float["control"], "ns/float", bar)


def of_few(rounds: int) -> list[Row]:
    """Compares the conversions of four numbers, in microseconds per list."""
    rows = []
    for name, data in FEW:
        datatype = DATATYPES[name]
        control = partial(np.array, data, datatype.numpy)
        for dialect, ours in (
            ("V2", partial(from_values, "x", datatype, (4,), data)),
            ("V1", partial(elements, data, datatype)),
        ):
            taken = interleaved(
                {side: partial(per_call, call) for side, call in (("ours", ours), ("control", control))}, rounds
            )
            rows.append(row(f"in, {data} as {name}, {dialect}", taken["ours"], taken["control"], "us", BAR_FEW))
    return rows


def per_call(call: Callable[[], object]) -> float:
    return seconds(call, TIMES) * 1e6


def main(*, quick: bool = False) -> list[Row]:
    rounds = 5 if quick else 21
    image = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    rows = []
    for form in ("flat", "nested"):
        body = request(image, flat=form == "flat")
        infer, reply = ours_in(body)
        if not np.array_equal(infer.inputs[0].array, control_in(body)):
            raise AssertionError(f"{form}: read wrong")
        rows.append(compare(f"in, {form}", lambda b=body: ours_in(b), lambda b=body: control_in(b), BAR_IN, rounds))  # type: ignore[misc]
    result = InferResult("m", "1", (Tensor("y", DATATYPES["FP32"], image),))
    if orjson.loads(ours_out(reply, result)) != orjson.loads(control_out(image)):
        raise AssertionError("written wrong")
    rows.append(compare("out", lambda: ours_out(reply, result), lambda: control_out(image), BAR_OUT, rounds))
    rows += of_few(rounds)
    print(table("JSON tensors: V2 in the core against orjson + numpy, 1x3x224x224 FP32", rows))
    return rows


if __name__ == "__main__":
    main()

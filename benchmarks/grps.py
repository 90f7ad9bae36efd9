"""GRPS gtensors in the core, of one FP32 image of 1x3x224x224: JSON against orjson, messages against protobuf.

Ours is the core's own decode and answer, every check included; the controls check nothing.
"""

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import orjson

from benchmarks.measure import Row, interleaved, row, seconds, table
from core.dialects import GRPS
from core.dialects.grps.rpc import GRPS_RPC
from core.dtype import DATATYPES
from core.operations import Deferred, Infer, InferResult, ModelSpec
from core.router import Router
from core.schema.grps import GenericTensor, GenericTensorData, GrpsMessage
from core.tensor import Tensor, TensorSpec
from core.wire import Call, HttpRequest

BAR: Final = 1.5
BAR_MESSAGE: Final = 1.0
IMAGE: Final = (1, 3, 224, 224)
PATH: Final = "/grps/v1/infer/predict"
HEADERS: Final = {b"content-type": b"application/json"}
FP32: Final = DATATYPES["FP32"]
SPEC: Final = ModelSpec("m", "1", "onnx", (TensorSpec("x", FP32, None),), (TensorSpec("y", FP32, None),))
ROUTE, _ = Router(GRPS).find("POST", PATH)
PREDICT: Final = next(method for method in GRPS_RPC if method.rpc.name == "Predict")

Array = np.ndarray[Any, np.dtype[np.float32]]


def told(array: Array, name: str) -> bytes:
    tensor = {"name": name, "dtype": "DT_FLOAT32", "shape": array.shape, "flat_float32": array.reshape(-1)}
    return orjson.dumps({"gtensors": {"tensors": [tensor]}}, option=orjson.OPT_SERIALIZE_NUMPY)


def read_plainly(body: bytes) -> Array:
    (tensor,) = orjson.loads(body)["gtensors"]["tensors"]
    return np.array(tensor["flat_float32"], np.float32).reshape(tensor["shape"])


def bound(deferred: Any) -> tuple[Infer, Callable[[InferResult], Any]]:
    operation: Deferred = deferred[0]
    return operation.decode(SPEC)  # type: ignore[return-value] # a prediction's


def read_json(body: bytes) -> tuple[Infer, Callable[[InferResult], Any]]:
    return bound(ROUTE.decode(Call(HttpRequest("POST", PATH, HEADERS, body), {})))


def read_message(body: bytes) -> tuple[Infer, Callable[[InferResult], Any]]:
    return bound(PREDICT.rpc.decode(PREDICT.read(body)))


def message(array: Array, name: str) -> bytes:
    tensor = GenericTensor(name=name, dtype="DT_FLOAT32", shape=array.shape, flat_float32=array.reshape(-1).tolist())
    return GrpsMessage(gtensors=GenericTensorData(tensors=[tensor])).SerializeToString()


def read_field(body: bytes) -> Array:
    (tensor,) = GrpsMessage.FromString(body).gtensors.tensors
    return np.array(tensor.flat_float32, np.float32).reshape(tensor.shape)


def compare(name: str, ours: Callable[[], object], control: Callable[[], object], bar: float, rounds: int) -> Row:
    taken = interleaved({"ours": lambda: seconds(ours, 7) * 1e3, "control": lambda: seconds(control, 7) * 1e3}, rounds)
    return row(name, taken["ours"], taken["control"], "ms", bar)


def main(*, quick: bool = False) -> list[Row]:
    rounds = 5 if quick else 21
    array = np.random.default_rng(0).standard_normal(IMAGE).astype(np.float32)
    result = InferResult("m", "1", (Tensor("y", FP32, array),))
    body, packed = told(array, "x"), message(array, "x")
    for infer, _ in (read_json(body), read_message(packed)):
        if not np.array_equal(infer.inputs[0].array, array):
            raise AssertionError("read wrong")
    _, reply = read_json(body)
    _, phrase = read_message(packed)
    if not np.array_equal(read_plainly(b"".join(reply(result).parts)), array):
        raise AssertionError("written wrong")
    if not np.array_equal(read_field(phrase(result)), array):
        raise AssertionError("packed wrong")
    rows = [
        compare("JSON in", lambda: read_json(body), lambda: read_plainly(body), BAR, rounds),
        compare("JSON out", lambda: reply(result), lambda: told(array, "y"), BAR, rounds),
        compare("message in", lambda: read_message(packed), lambda: read_field(packed), BAR_MESSAGE, rounds),
        compare("message out", lambda: phrase(result), lambda: message(array, "y"), BAR_MESSAGE, rounds),
    ]
    print(table("GRPS gtensors in the core: JSON against orjson + numpy, messages against protobuf + numpy", rows))
    return rows


if __name__ == "__main__":
    main()

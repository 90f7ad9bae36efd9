"""core.dialects.v2.parameters: the parameters of a request as a model gets them."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from core.bounds import MOST_LEVELS
from core.dialects.platforms.invocations import decode as invoked
from core.dialects.v2 import generate
from core.dialects.v2 import infer as v2_infer
from core.dialects.v2.parameters import for_model
from core.dtype import FP32
from core.encoding import simd
from core.errors import InvalidInput
from core.operations import Deferred, Infer, ModelSpec
from core.tensor import TensorSpec
from core.wire import Call, HttpRequest

SPEC = ModelSpec("m", "1", "onnx", (TensorSpec("x", FP32, (-1,)),), None)
VALUES: dict[str, Any] = {
    "data": [1, 2, 3],
    "fractions": {"data": [0.5, 1.5]},
    "listed": [[1, 2], [{"data": [7]}, None, True]],
    "text": "data",
    "seed": 2**53 + 1,
}


def call(parameters: bytes, path: str = "/v2/models/m/infer") -> Call:
    """Returns an inference request with enough numbers that simdjson reads it, and with these parameters."""
    x = {"name": "x", "shape": [2500], "datatype": "FP32", "data": [0.5] * 2500}
    body = b'{"parameters": %s, "inputs": [%s]}' % (parameters, json.dumps(x).encode())
    assert len(body) > simd.WORTH_SIMD
    return Call(HttpRequest("POST", path, {b"content-type": b"application/json"}, body), {"model": "m"})


def by_invocations(parameters: bytes) -> Infer:
    operation, _ = invoked(call(parameters))
    assert isinstance(operation, Infer)
    return operation


@pytest.mark.parametrize("value", ["1e400", "[1, -1e400]", '{"a": [{"b": 1e400}]}', "7" * 500])
def test_a_number_beyond_every_double_does_not_reach_a_model(value: str) -> None:
    """The refusal has the parameter's name and the number."""
    with pytest.raises(InvalidInput, match=r"parameter 'scale' of the request has (-?1e400|7+\.*), which is beyond"):
        v2_infer.decode(call(b'{"scale": %s}' % value.encode()))


def by_v2(parameters: bytes) -> Infer:
    operation, _ = v2_infer.decode(call(parameters))
    assert isinstance(operation, Infer)
    return operation


def by_mlflow(parameters: bytes) -> Infer:
    body = b'{"params": %s, "inputs": {"x": %s}}' % (parameters, json.dumps([0.5] * 2500).encode())
    deferred, _ = invoked(Call(HttpRequest("POST", "/invocations", {}, body), {}))
    assert isinstance(deferred, Deferred)
    return deferred.decode(SPEC)[0]


def by_generate(parameters: bytes) -> Infer:
    body = b'{"parameters": %s, "x": [1]}' % parameters
    deferred, _ = generate.decode(Call(HttpRequest("POST", "/", {}, body), {"model": "m"}), stream=False)
    return deferred.decode(SPEC)[0]


@pytest.mark.parametrize("decode", [by_v2, by_invocations, by_mlflow])
def test_a_model_gets_the_lists_of_a_long_request_as_lists(decode: Callable[[bytes], Infer]) -> None:
    """Only tensors are the parser's arrays, whatever the names of parameters and of members in them are."""
    infer = decode(json.dumps(VALUES).encode())
    assert json.dumps(infer.parameters) == json.dumps(VALUES)
    assert infer.inputs[0].array.tolist() == [0.5] * 2500


@pytest.mark.parametrize(("opened", "closed"), [(b"[", b"]"), (b'{"b": ', b"}")], ids=["arrays", "objects"])
@pytest.mark.parametrize("decode", [by_v2, by_mlflow, by_generate])
def test_a_value_in_too_many_arrays_or_objects_does_not_reach_a_model(
    decode: Callable[[bytes], Infer], opened: bytes, closed: bytes
) -> None:
    """A model would walk through them by recursion, which ends at some hundreds."""

    def within(depth: int) -> bytes:
        return b'{"a": %s}' % (opened * depth + b"1" + closed * depth)

    assert json.dumps(decode(within(MOST_LEVELS)).parameters).encode() == within(MOST_LEVELS)
    for depth in (MOST_LEVELS + 1, 900):
        with pytest.raises(InvalidInput, match="parameter 'a' has a value in more than 32 arrays and objects"):
            decode(within(depth))


def test_parameters_of_the_protocol_are_not_the_models() -> None:
    """Parameters without one of them are the same object."""
    assert for_model({"binary_data_output": True, "triton_final_response": False, "a": None}) == {"a": None}
    assert for_model(VALUES) is VALUES

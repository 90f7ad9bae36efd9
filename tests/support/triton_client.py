"""tritonclient.grpc, unmodified: every call that a client of this server can make.

A process of its own, because kserve's messages, which other tests import, have the names of tritonclient's. The
argument is host:port; printed is JSON: for each case "ok", or what went wrong.
"""

from __future__ import annotations

import asyncio
import json
import queue
import sys
import traceback
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

from tests.protocols.v2.test_values import extremes, special
from tests.support.wire import same
from tests.support.zoo.models import DATATYPES

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

LEFT = np.arange(16, dtype=np.int32)
RIGHT = np.full(16, 3, np.int32)
CASES: dict[str, Callable[[triton.InferenceServerClient], None]] = {}


def given(name: str, datatype: str, values: NDArray[Any]) -> triton.InferInput:
    """An input."""
    made = triton.InferInput(name, list(values.shape), datatype)
    made.set_data_from_numpy(values)
    return made


def both() -> list[triton.InferInput]:
    """The inputs of add_sub."""
    return [given("INPUT0", "INT32", LEFT), given("INPUT1", "INT32", RIGHT)]


def round_trip(client: triton.InferenceServerClient, datatype: str, values: NDArray[Any]) -> None:
    """Through an identity and back."""
    result = client.infer(DATATYPES[datatype].model, [given("INPUT0", datatype, values)])
    assert same(result.as_numpy("OUTPUT0"), values)


def case(function: Callable[[triton.InferenceServerClient], None]) -> Callable[[triton.InferenceServerClient], None]:
    """Note a case under its name."""
    CASES[function.__name__] = function
    return function


@case
def health_and_metadata(client: triton.InferenceServerClient) -> None:
    """Live, ready, a model that is ready once it is loaded."""
    assert client.is_server_live()
    assert client.is_server_ready()
    client.load_model("spare_rpc_triton")
    assert client.is_model_ready("spare_rpc_triton")
    assert client.is_model_ready("spare_rpc_triton", "1")
    assert not client.is_model_ready("unheard_of")
    assert client.get_server_metadata().name == "dragoman"
    assert client.get_model_metadata("versions", as_json=True)["versions"] == ["1", "2", "10"]
    client.unload_model("spare_rpc_triton")
    assert not client.is_model_ready("spare_rpc_triton")


@case
def infer(client: triton.InferenceServerClient) -> None:
    """Both outputs."""
    result = client.infer("add_sub", both(), request_id="номер 1")
    assert np.array_equal(result.as_numpy("OUTPUT0"), LEFT + RIGHT)
    assert np.array_equal(result.as_numpy("OUTPUT1"), LEFT - RIGHT)
    assert result.get_response().id == "номер 1"


@case
def outputs(client: triton.InferenceServerClient) -> None:
    """One of them, and classes of another."""
    result = client.infer("add_sub", both(), outputs=[triton.InferRequestedOutput("OUTPUT1")])
    assert result.as_numpy("OUTPUT0") is None
    assert np.array_equal(result.as_numpy("OUTPUT1"), LEFT - RIGHT)
    scores = given("features", "FP32", np.array([0.1, 0.5], np.float32))
    best = client.infer("classifier", [scores], outputs=[triton.InferRequestedOutput("scores", class_count=1)])
    assert best.as_numpy("scores").tolist() == [b"0.500000:1:bee"]


def _datatype(datatype: str) -> Callable[[triton.InferenceServerClient], None]:
    def datatype_case(client: triton.InferenceServerClient) -> None:
        odd = np.array([1.0, -2.5, 3e38, np.inf], ml_dtypes.bfloat16)
        round_trip(client, datatype, odd if datatype == "BF16" else extremes(datatype))

    return datatype_case


CASES |= {f"datatype_{datatype}": _datatype(datatype) for datatype in DATATYPES}


def _compression(coding: str) -> Callable[[triton.InferenceServerClient], None]:
    def compression_case(client: triton.InferenceServerClient) -> None:
        values = np.zeros(50_000, np.float32)
        result = client.infer("vector_fp32", [given("INPUT0", "FP32", values)], compression_algorithm=coding)
        assert np.array_equal(result.as_numpy("OUTPUT0"), values)

    return compression_case


CASES |= {f"compression_{coding}": _compression(coding) for coding in ("gzip", "deflate")}


@case
def model_version(client: triton.InferenceServerClient) -> None:
    """The one asked for."""
    for version in ("1", "2", "10"):
        result = client.infer("versions", [given("x", "INT64", np.array([0]))], model_version=version)
        assert result.as_numpy("y").tolist() == [int(version)]


@case
def parameters(client: triton.InferenceServerClient) -> None:
    """The client's own, and those of sequences and priorities."""
    result = client.infer(
        "py_echo_parameters",
        [given("x", "FP32", np.ones(2, np.float32))],
        sequence_id=9,
        sequence_start=True,
        sequence_end=True,
        priority=2,
        timeout=10_000_000,
        parameters={"own": "value", "flag": True, "number": 2, "real": 0.5},
        headers={"x-request-id": "1"},
    )
    found = json.loads(result.as_numpy("parameters")[0])
    assert {name: found[name] for name in ("own", "flag", "number", "real")} == {
        "own": "value",
        "flag": True,
        "number": 2,
        "real": 0.5,
    }


def _empty(datatype: str) -> Callable[[triton.InferenceServerClient], None]:
    return lambda client: round_trip(client, datatype, np.empty((0, 3), DATATYPES[datatype].numpy))


CASES |= {f"empty_{datatype}": _empty(datatype) for datatype in ("FP32", "BYTES")}


def refused(call: Callable[[], object]) -> InferenceServerException:
    """The error of a call that must fail."""
    try:
        call()
    except InferenceServerException as error:
        return error
    raise AssertionError


@case
def errors(client: triton.InferenceServerClient) -> None:
    """Status code and text."""
    unknown = refused(lambda: client.infer("unheard_of", both()))
    assert unknown.status() == "StatusCode.NOT_FOUND"
    assert "unheard_of" in unknown.message()
    wrong = refused(lambda: client.infer("add_sub", both()[:1]))
    assert wrong.status() == "StatusCode.INVALID_ARGUMENT"
    assert "INPUT1" in wrong.message()
    assert refused(client.get_trace_settings).status() == "StatusCode.UNIMPLEMENTED"


@case
def async_infer(client: triton.InferenceServerClient) -> None:
    """With a callback in a thread of the client's."""
    told: queue.Queue[Any] = queue.Queue()
    for number in range(8):
        client.async_infer("add_sub", both(), lambda result, error: told.put((result, error)), request_id=str(number))
    found = [told.get(timeout=30) for _ in range(8)]
    assert not any(error for _, error in found)
    assert {result.get_response().id for result, _ in found} == {str(number) for number in range(8)}


@case
def stream(client: triton.InferenceServerClient) -> None:
    """An answer or an error for each request."""
    told: queue.Queue[Any] = queue.Queue()
    client.start_stream(lambda result, error: told.put((result, error)))
    client.async_stream_infer("add_sub", both(), request_id="1")
    client.async_stream_infer("unheard_of", both(), request_id="2")
    client.async_stream_infer("add_sub", both(), request_id="3", enable_empty_final_response=True)
    first, second, third = (told.get(timeout=30) for _ in range(3))
    client.stop_stream()
    assert np.array_equal(first[0].as_numpy("OUTPUT0"), LEFT + RIGHT)
    assert "unheard_of" in second[1].message()
    assert third[0].get_response().id == "3"
    assert third[0].get_response().parameters["triton_final_response"].bool_param


@case
def repository_index(client: triton.InferenceServerClient) -> None:
    """And statistics."""
    client.infer("add_sub", both())
    ready = {model.name for model in client.get_model_repository_index().models if model.state == "READY"}
    assert "add_sub" in ready
    stats = client.get_inference_statistics("add_sub").model_stats[0]
    assert stats.inference_stats.success.count > 0


@case
def model_config(client: triton.InferenceServerClient) -> None:
    """As JSON, which uses the names of enumerations."""
    config = client.get_model_config("add_sub", as_json=True)["config"]
    assert config["input"][0]["data_type"] == "TYPE_INT32"
    assert config["version_policy"] == {"specific": {"versions": ["1"]}}


@case
def nan(client: triton.InferenceServerClient) -> None:
    """And infinities."""
    for datatype in ("FP16", "FP32", "FP64"):
        round_trip(client, datatype, special(datatype))


async def _aio(netloc: str) -> None:
    async with triton_aio.InferenceServerClient(netloc) as client:
        assert await client.is_server_ready()
        assert not await client.is_model_ready("unheard_of")
        inputs = [triton_aio.InferInput(f"INPUT{index}", [16], "INT32") for index in (0, 1)]
        for made, values in zip(inputs, (LEFT, RIGHT), strict=True):
            made.set_data_from_numpy(values)
        results = await asyncio.gather(*(client.infer("add_sub", inputs) for _ in range(8)))
        assert all(np.array_equal(result.as_numpy("OUTPUT0"), LEFT + RIGHT) for result in results)

        async def requests() -> Any:
            for number in range(3):
                yield {"model_name": "add_sub", "inputs": inputs, "request_id": str(number)}

        found = [result.get_response().id async for result, error in client.stream_infer(requests()) if error is None]
        assert found == ["0", "1", "2"]


def main(netloc: str) -> None:
    """Run every case."""
    outcomes = {}
    with triton.InferenceServerClient(netloc) as client:
        runs: dict[str, Callable[[], object]] = {
            name: (lambda function=function: function(client)) for name, function in CASES.items()
        }
        runs["aio"] = lambda: asyncio.run(_aio(netloc))
        for name, run in runs.items():
            try:
                run()
                outcomes[name] = "ok"
            except Exception:  # noqa: BLE001 - told to the test
                outcomes[name] = traceback.format_exc()
    json.dump(outcomes, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])

"""tritonclient runs unmodified: over HTTP, with asyncio, and over gRPC in a separate process, behind one interface.

kserve's messages, which other tests import, have tritonclient.grpc's names: no process can have both.
"""

import asyncio
import functools
import gc
import multiprocessing
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

Inputs = Mapping[str, tuple[str, NDArray[Any]]]

MODULES: Final = {"http": "tritonclient.http", "aio": "tritonclient.http.aio", "grpc": "tritonclient.grpc"}
SECONDS: Final = 30


class Result(NamedTuple):
    """The result of an inference."""

    id: str
    version: str
    tensors: dict[str, NDArray[Any]]


class Refused(Exception):
    """A refusal as a client shows it: status and text."""


class Triton:
    """A client as the documentation makes it; `binary`: whether tensors travel as bytes over HTTP."""

    def __init__(self, kind: str, netloc: str, *, binary: bool = True) -> None:
        self.kind, self.netloc, self.binary = kind, netloc, binary
        self.module: Any = import_module("tritonclient.grpc" if kind == "grpc" else "tritonclient.http")
        self.make: Callable[..., Any] = import_module(MODULES[kind]).InferenceServerClient
        self._runner = asyncio.Runner()
        self._awaited_client: Any = None

    def close(self) -> None:
        """Ends the connection of asyncio, and with it the answers that the client has not read."""
        if self._awaited_client is not None:
            self._runner.run(self._awaited_client.close())
            gc.collect()
        self._runner.close()

    def call(self, method: str, *arguments: Any, **more: Any) -> Any:
        """Returns what a method of the client returns. Raises Refused."""
        try:
            if self.kind == "aio":
                return self._runner.run(self._awaited(method, *arguments, **more))
            with self.make(self.netloc) as client:
                return getattr(client, method)(*arguments, **more)
        except InferenceServerException as error:
            raise Refused(str(error.status()).removeprefix("StatusCode."), error.message()) from None

    async def _awaited(self, method: str, *arguments: Any, **more: Any) -> Any:
        self._awaited_client = self._awaited_client or self.make(self.netloc)
        return await getattr(self._awaited_client, method)(*arguments, **more)

    def asked(self, method: str, *arguments: Any) -> Any:
        """Returns the metadata of the server or a model, as JSON."""
        return self.call(method, *arguments, **({"as_json": True} if self.kind == "grpc" else {}))

    def live(self) -> bool:
        """Returns whether the server is live."""
        return bool(self.call("is_server_live"))

    def ready(self, *model: str) -> bool:
        """Returns whether the server is ready, or a model, or a version."""
        return bool(self.call("is_model_ready", *model) if model else self.call("is_server_ready"))

    def inputs(self, inputs: Inputs) -> list[Any]:
        """Returns inputs of this client."""
        made = []
        for name, (datatype, values) in inputs.items():
            made.append(self.module.InferInput(name, list(values.shape), datatype))
            made[-1].set_data_from_numpy(values, **({} if self.kind == "grpc" else {"binary_data": self.binary}))
        return made

    def outputs(self, names: tuple[str, ...], classes: int, *, binary: bool) -> list[Any]:
        """Returns requested outputs of this client."""
        form: dict[str, Any] = {} if self.kind == "grpc" else {"binary_data": binary}
        return [self.module.InferRequestedOutput(name, class_count=classes, **form) for name in names]

    def infer(
        self,
        model: str,
        inputs: Inputs,
        *outputs: str,
        classes: int = 0,
        version: str = "",
        binary_out: bool | None = None,
        **more: Any,
    ) -> Result:
        """Returns an inference; without names of outputs the client does not ask for any. Raises Refused."""
        binary = self.binary if binary_out is None else binary_out
        wanted = self.outputs(outputs, classes, binary=binary) or None
        found = self.call("infer", model, self.inputs(inputs), version, wanted, **more)
        return self.result(found)

    def result(self, found: Any) -> Result:
        """Returns the parts of a result; texts of a JSON answer are `str` in this client, and bytes here."""
        head = found.get_response()
        parts = (
            [output.name for output in head.outputs] if self.kind == "grpc" else [o["name"] for o in head["outputs"]]
        )
        tensors = {name: as_bytes(found.as_numpy(name)) for name in parts}
        if self.kind == "grpc":
            return Result(head.id, head.model_version, tensors)
        return Result(head.get("id", ""), head["model_version"], tensors)

    def several(self, model: str, inputs: Inputs, count: int) -> list[Result]:
        """Returns the results of requests that are in flight at the same time."""
        own = self.inputs(inputs)
        ids = [str(number) for number in range(count)]
        if self.kind == "aio":
            return [self.result(found) for found in self._runner.run(self._gathered(model, own, ids))]
        with self.make(self.netloc) as client:
            if self.kind == "http":
                sent = [client.async_infer(model, own, request_id=each) for each in ids]
                return [self.result(each.get_result()) for each in sent]
            told: queue.Queue[Any] = queue.Queue()
            for each in ids:
                client.async_infer(model, own, lambda result, error: told.put((result, error)), request_id=each)
            found = [told.get(timeout=SECONDS) for _ in ids]
        assert not any(error for _, error in found)
        return sorted((self.result(result) for result, _ in found), key=lambda result: int(result.id))

    async def _gathered(self, model: str, own: list[Any], ids: list[str]) -> list[Any]:
        async with self.make(self.netloc) as client:
            return await asyncio.gather(*(client.infer(model, own, request_id=each) for each in ids))

    def stream(self, *requests: tuple[str, Inputs, dict[str, Any]]) -> list[Any]:
        """Returns a result, or a text, for each request of a stream; a final answer says so behind its id."""
        told: queue.Queue[Any] = queue.Queue()
        with self.make(self.netloc) as client:
            client.start_stream(lambda result, error: told.put((result, error)))
            for model, inputs, more in requests:
                client.async_stream_infer(model, self.inputs(inputs), **more)
            found = [told.get(timeout=SECONDS) for _ in requests]
            client.stop_stream()
        final = "triton_final_response"
        return [
            error.message() if error else (self.result(result), result.get_response().parameters[final].bool_param)
            for result, error in found
        ]

    def overtaken(self, slow: str, gate: str, model: str, inputs: Inputs) -> list[str]:
        """Returns the ids of a stream's two answers as they came. The slow model waits for the file `gate`.

        The file is there once the other one has answered.
        """
        told: queue.Queue[Any] = queue.Queue()
        waits = {"gate": ("BYTES", np.array([gate.encode()], object))}
        with self.make(self.netloc) as client:
            client.start_stream(lambda result, error: told.put((result, error)))
            client.async_stream_infer(slow, self.inputs(waits), request_id="1")
            client.async_stream_infer(model, self.inputs(inputs), request_id="2")
            first, _ = told.get(timeout=SECONDS)
            Path(gate).touch()
            second, _ = told.get(timeout=SECONDS)
            client.stop_stream()
        return [found.get_response().id for found in (first, second)]

    def awaited_stream(self, model: str, inputs: Inputs, count: int) -> tuple[list[str], list[Any]]:
        """Returns the ids of a stream with asyncio over gRPC, and the outputs of as many requests at once."""
        module: Any = import_module("tritonclient.grpc.aio")

        async def work() -> tuple[list[str], list[Any]]:
            async with module.InferenceServerClient(self.netloc) as client:
                assert await client.is_server_ready()
                assert not await client.is_model_ready("unheard_of")
                own = self.inputs(inputs)

                async def requests() -> Any:
                    for number in range(count):
                        yield {"model_name": model, "inputs": own, "request_id": str(number)}

                results = await asyncio.gather(*(client.infer(model, own) for _ in range(count)))
                ids = [found.get_response().id async for found, error in client.stream_infer(requests()) if not error]
                return ids, [result.as_numpy("OUTPUT0") for result in results]

        return asyncio.run(work())


def as_bytes(found: NDArray[Any]) -> NDArray[Any]:
    """Returns the array with texts as bytes."""
    if found.dtype != object:
        return found
    flat = [text.encode() if isinstance(text, str) else text for text in found.ravel()]
    return np.array([*flat, None], object)[:-1].reshape(found.shape)


def _there(netloc: str, method: str, arguments: Any, more: Any) -> Any:
    return getattr(Triton("grpc", netloc), method)(*arguments, **more)


class Elsewhere:
    """A client over gRPC whose methods run in a separate process."""

    kind = "grpc"

    def __init__(self, process: ProcessPoolExecutor, netloc: str) -> None:
        self._process, self._netloc = process, netloc

    def __getattr__(self, method: str) -> Callable[..., Any]:
        return functools.partial(self._run, method)

    def _run(self, method: str, *arguments: Any, **more: Any) -> Any:
        return self._process.submit(_there, self._netloc, method, arguments, more).result()


def process() -> ProcessPoolExecutor:
    """Returns a process that has imported nothing of this one."""
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))

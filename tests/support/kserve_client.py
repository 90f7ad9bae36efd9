"""kserve's InferenceRESTClient and InferenceGRPCClient, unmodified, behind the interface of `tests.support.triton`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import httpx
from kserve import InferenceGRPCClient, InferenceRESTClient, InferInput, InferRequest, RESTConfig
from kserve.protocol.infer_type import RequestedOutput

from tests.support.triton import Inputs, Refused, Result, as_bytes


class KServe:
    """A client of `kind` "rest" or "grpc"; `binary`: whether tensors travel as bytes."""

    def __init__(self, kind: str, netloc: str, *, binary: bool = True) -> None:
        self.kind, self.netloc, self.binary = kind, netloc, binary

    def run(self, work: Callable[[Any, tuple[str, ...]], Awaitable[Any]]) -> Any:
        """Returns the result of a coroutine that gets a new client. Raises Refused."""

        async def main() -> Any:
            if self.kind == "grpc":
                async with InferenceGRPCClient(self.netloc) as client:
                    return await work(client, ())
            async with InferenceRESTClient(RESTConfig(protocol="v2", timeout=30)) as client:
                return await work(client, (f"http://{self.netloc}",))

        try:
            return asyncio.run(main())
        except grpc.RpcError as error:
            raise Refused(error.code().name, error.details()) from None
        except httpx.HTTPStatusError as error:
            raise Refused(str(error.response.status_code), str(error)) from None

    def live(self) -> Any:
        """Returns whether the server is live."""
        return self.run(lambda client, url: client.is_server_live(*url))

    def ready(self, *model: str) -> Any:
        """Returns whether the server is ready, or a model."""
        if model:
            return self.run(lambda client, url: client.is_model_ready(*url, *model))
        return self.run(lambda client, url: client.is_server_ready(*url))

    def infer(
        self,
        model: str,
        inputs: Inputs,
        *outputs: str,
        binary_out: dict[str, bool] | None = None,
        parameters: Any = None,
        **more: Any,
    ) -> Result:
        """Returns an inference. Raises Refused."""
        own = []
        for name, (datatype, values) in inputs.items():
            own.append(InferInput(name, list(values.shape), datatype))
            own[-1].set_data_from_numpy(values, binary_data=self.binary)
        form = binary_out or dict.fromkeys(outputs, self.binary)
        if self.kind == "rest":
            more["request_outputs"] = [RequestedOutput(name, {"binary_data": form[name]}) for name in outputs] or None
        else:
            more["request_outputs"] = [RequestedOutput(name) for name in outputs] or None
        request = InferRequest(model, own, parameters=parameters, **more)
        named = {"model_name": model} if self.kind == "rest" else {}
        found = self.run(lambda client, url: client.infer(*url, request, **named))
        tensors = {output.name: as_bytes(output.as_numpy()) for output in found.outputs}
        return Result(found.id, found.model_version, tensors)

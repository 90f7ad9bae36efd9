"""Sends a request over one protocol: with its own bytes, or converted to that protocol."""

import http.client
import json
from collections.abc import Mapping
from typing import Any, Final, Protocol
from urllib.parse import quote

from core.dialects.v2 import infer
from core.dialects.v2.rpc import SERVICE
from core.errors import ServingError
from core.operations import Infer, InferResult, ModelSpec
from core.schema.open_inference import ModelInferResponse, ModelMetadataRequest, ModelMetadataResponse
from handler.commands import channels
from handler.commands.replay import translate
from handler.commands.replay.compare import V2_CALL, tensors
from handler.commands.replay.recorded import CALLS, WEB, Exchange, Payload, Reached, reached_by
from handler.edge.observe.observer import GONE

HEADER_LENGTH: Final = infer.HEADER_LENGTH.decode()
KINDS: Final = {"connect": "application/proto", WEB: "application/grpc-web+proto"}


class Wire(Protocol):
    """A connection to a server. Its errors are OSError."""

    def send(self, protocol: str, path: str, body: Payload) -> Reached: ...

    def metadata(self, model: str, version: str | None) -> dict[str, Any]:
        """Returns V2's metadata of a model, as its JSON has it, with `signatures`: V1's, if they can be known.

        Raises Untranslatable.
        """
        ...

    def close(self) -> None: ...


class OverHttp:
    """REST, Connect and gRPC-Web."""

    def __init__(self, url: str, headers: Mapping[str, str], seconds: float) -> None:
        """Raises WrongOption for a text that is not a URL."""
        self._connection, self._prefix = channels.over_http(url, seconds)
        self._headers = dict(headers)

    def send(self, protocol: str, path: str, body: Payload) -> Reached:
        headers = self._headers | {"content-type": body.kind}
        content = body.content
        if protocol in CALLS and "json" not in body.kind:
            headers["content-type"] = KINDS[protocol]
        if protocol == WEB:
            headers["content-type"] = "application/grpc-web+" + ("json" if "json" in body.kind else "proto")
            content = b"\0" + len(content).to_bytes(4) + content
        if protocol == "connect":
            headers["connect-protocol-version"] = "1"
        if body.length:
            headers[HEADER_LENGTH] = body.length
        if body.accept:
            headers["accept"] = body.accept
        status, found, answer = self._asked("POST", path, content, headers, body.query)
        kind = found.get("content-type") or ""
        return reached_by(protocol, str(status), Payload(answer, kind, found.get(HEADER_LENGTH) or ""))

    def metadata(self, model: str, version: str | None) -> dict[str, Any]:
        path = f"/v2/models/{model}" + (f"/versions/{version}" if version else "")
        status, _, answer = self._asked("GET", path, None, self._headers)
        if status != http.client.OK:
            raise translate.Untranslatable(f"the server has no metadata of model {model}: status {status}")
        found: dict[str, Any] = json.loads(answer)
        status, _, answer = self._asked("GET", f"{path.replace('/v2/', '/v1/', 1)}/metadata", None, self._headers)
        return found | {"signatures": json.loads(answer) if status == http.client.OK else "none"}

    def _asked(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], query: str = ""
    ) -> tuple[int, Any, bytes]:
        """Asks for a path that is not percent-encoded. Raises OSError."""
        connection, target = self._connection, self._prefix + quote(path, safe="/:~")
        try:
            connection.request(method, f"{target}?{query}" if query else target, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        except http.client.HTTPException as error:
            raise OSError(channels.other_wire(error) or f"{type(error).__name__} {error}") from None
        finally:
            connection.close()

    def close(self) -> None:
        self._connection.close()


class OverGrpc:
    """gRPC, without TLS unless the URL is https://."""

    def __init__(self, url: str, headers: Mapping[str, str], seconds: float) -> None:
        """Raises Refused if grpcio is not installed."""
        self._error = channels.library().RpcError
        self._channel = channels.opened(url)
        self._metadata = tuple((name.lower(), value) for name, value in headers.items())
        self._seconds = seconds

    def send(self, _protocol: str, path: str, body: Payload) -> Reached:
        try:
            answer = self._asked(path, body.content)
        except self._error as error:
            return Reached(
                error.code().name, is_good=False, body=Payload((error.details() or "").encode(), "text/plain")
            )
        return Reached("OK", is_good=True, body=Payload(answer, "application/protobuf"))

    def metadata(self, model: str, version: str | None) -> dict[str, Any]:
        try:
            message = ModelMetadataRequest(name=model, version=version or "").SerializeToString()
            answer = ModelMetadataResponse.FromString(self._asked(f"/{SERVICE}/ModelMetadata", message))
        except self._error as error:
            code = error.code().name
            raise translate.Untranslatable(f"the server has no metadata of model {model}: {code}") from None
        inputs, outputs = (
            [{"name": each.name, "datatype": each.datatype, "shape": each.shape} for each in side]
            for side in (answer.inputs, answer.outputs)
        )
        return {"name": answer.name, "platform": answer.platform, "inputs": inputs, "outputs": outputs}

    def _asked(self, path: str, message: bytes) -> bytes:
        """Raises OSError, RpcError."""
        method = self._channel.unary_unary(path)
        return channels.called(self._channel, method, message, self._seconds, self._metadata)

    def close(self) -> None:
        self._channel.close()


class Replayer:
    """Sends exchanges over a wire. `protocol`: as the command has it; "same" is the exchange's own."""

    def __init__(self, line: Wire, protocol: str) -> None:
        self._line = line
        self._protocol = protocol
        self._specs: dict[tuple[str, str | None], ModelSpec] = {}

    def again(self, exchange: Exchange) -> Reached:
        """Returns the answer, in the form of the exchange's own protocol.

        Raises Untranslatable, OSError, and ServingError or ValueError for what cannot be read.
        """
        if exchange.answer.status in map(str, GONE):
            raise translate.Untranslatable("its client left before the answer")
        if self._protocol in ("same", exchange.protocol):
            if (exchange.protocol == "grpc") is not isinstance(self._line, OverGrpc):
                raise translate.Untranslatable(f"{exchange.protocol} cannot be sent to this URL: choose a --protocol")
            return self._line.send(exchange.protocol, exchange.path, exchange.request)
        try:
            meant = translate.meant(exchange, lambda: self._spec(exchange.model, None))
        except ServingError as error:
            if exchange.answer.is_good:
                raise
            raise translate.Untranslatable(f"it was refused, and cannot be converted: {error.message}") from None
        reached, outputs = self._inferred(meant.infer)
        if not reached.is_good:
            return reached
        return reached._replace(body=meant.phrased(outputs))

    def _inferred(self, infer: Infer) -> tuple[Reached, Any]:
        """Returns the answer as it came, and the outputs as an InferResult; None in a refusal's place."""
        protocol, ref = self._protocol, infer.ref
        signature = None
        version = f"/versions/{ref.version}" if ref.version else ""
        if protocol in CALLS:
            reached = self._line.send(protocol, V2_CALL, Payload(translate.to_message(infer), "application/protobuf"))
        elif protocol == "v1":
            signature = translate.signature_of(infer, lambda: self._spec(ref.name, ref.version))
            body = translate.to_v1(infer, signature)
            reached = self._line.send(protocol, f"/v1/models/{ref.name}{version}:predict", body)
        else:
            body = translate.to_v2(infer, binary=protocol == "v2-binary")
            reached = self._line.send(protocol, f"/v2/models/{ref.name}{version}/infer", body)
        if not reached.is_good:
            return reached, None
        if protocol == "v1":
            found = translate.from_v1(reached.body, signature)
        else:
            found = tensors(reached.body, is_call=protocol in CALLS)
        wanted = [output.name for output in infer.outputs]
        ordered = tuple(each for each in found if each.name in wanted or not wanted)
        return reached, InferResult(ref.name, _version(reached, protocol), ordered)

    def _spec(self, model: str, version: str | None) -> ModelSpec:
        """Raises Untranslatable, OSError, ServingError."""
        found = self._specs.get((model, version))
        if found is None:
            found = translate.spec_of(self._line.metadata(model, version), version or "1")
            self._specs[model, version] = found
        return found


def _version(reached: Reached, protocol: str) -> str:
    if protocol in CALLS:
        return ModelInferResponse.FromString(reached.body.content).model_version
    return ""

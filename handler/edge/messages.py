"""Remote calls as jobs: a message in, a message out, or many of them; in protobuf or in its JSON."""

import logging
from collections.abc import Awaitable, Iterable, Iterator
from typing import Any, Final, Protocol

from core.engine import kept
from core.errors import ModelFailed, ServingError
from core.operations import Deferred, Infer, ModelRef, ModelSpec, Operation
from core.ports import Use
from core.rpc import Form, RpcMethod
from handler.edge.jobs import QUICKLY_READ as QUICKLY_READ_JSON
from handler.edge.jobs import Decoded
from handler.edge.protocols import INTERNAL

log = logging.getLogger(__name__)
MANY: Final = (Form.STREAM, Form.EXCHANGE)
QUICKLY_READ: Final = 1024 * 1024
"""Bytes of a message up to which it may be read before it is known which thread its model runs in."""
WATCH_SECONDS: Final = 5.0
"""Between two looks at what a client watches."""


class Answering(Protocol):
    """A codec, as far as it knows its method."""

    def instead(self, error: ServingError) -> Any: ...


async def guarded(work: Awaitable[Any], codec: Answering, name: str) -> Any:
    """Returns the work's result, or the method's own answer in place of its error. Raises ServingError.

    `name`: the method's, for the log.
    """
    try:
        return await work
    except ServingError as error:
        failure = error
    except Exception:
        log.exception("%s failed", name)
        failure = ModelFailed(INTERNAL)
    try:
        instead = codec.instead(failure)
        if instead is None:
            raise failure
        return instead
    finally:
        del failure  # its traceback holds this frame: a circle, with the request's body in it


class MessageCodec:
    """One message of a method. `json`: it is in proto3's JSON, and so is its answer."""

    __slots__ = ("_body", "_decoded", "_json", "_method", "_request", "size")

    def __init__(self, method: RpcMethod, body: bytes, *, json: bool = False) -> None:
        self._method = method
        self._body = body
        self._json = json
        self._request: Any = None
        self._decoded: Decoded | None = None
        self.size = len(body)

    def ref(self) -> ModelRef | None:
        if self._json:
            operation = self.read()[0] if self.size <= QUICKLY_READ_JSON else None
            return operation.ref if isinstance(operation, Infer | Deferred) else None
        ref = self._method.rpc.ref
        return None if ref is None or self.size > QUICKLY_READ else ref(self._message())

    def read(self) -> Decoded:
        if self._decoded is None:
            rpc = self._method.rpc
            decode = (self._json and rpc.decode_json) or rpc.decode
            operation, reply = decode(self._message())
            if isinstance(operation, Deferred):
                operation = operation._replace(decode=self._releasing(operation))
            self._decoded = operation, reply
        return self._decoded

    def _releasing(self, operation: Deferred) -> Any:
        def decode(spec: ModelSpec) -> Any:
            decoded = operation.decode(spec)
            self._request = None  # it has become tensors, and may be larger than they are
            return decoded

        return decode

    def finish(self, reply: Any, operation: Operation, use: Use | None, *, lazy: bool) -> bytes | Iterable[bytes]:  # noqa: ARG002 - Codec
        """Returns the message; of methods with many answers a tuple of them, or an iterator."""
        if self._method.form not in MANY:
            return self._written(reply)
        answers = self._each(reply)
        return kept(use, answers) if lazy and use is not None else tuple(answers)

    def _each(self, answers: Iterable[Any]) -> Iterator[bytes]:
        for answer in answers:
            yield self._written(answer)

    def instead(self, error: ServingError) -> bytes | None:
        """Returns what the method answers in place of the error; None if it fails with it."""
        instead = self._method.rpc.instead
        message = None if instead is None else instead(self._request, error)
        return None if message is None else self._written(message)

    def _message(self) -> Any:
        if self._request is None:
            read_json = self._method.rpc.read_json or self._method.read_json
            self._request = read_json(self._body) if self._json else self._method.read(self._body)
        return self._request

    def _written(self, answer: Any) -> bytes:
        if isinstance(answer, bytes):
            return answer
        written: bytes = self._method.write_json(answer) if self._json else answer.SerializeToString()
        return written

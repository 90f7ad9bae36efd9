"""Remote calls as jobs: a message in, a message out, or many of them; in protobuf or in its JSON."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final

from core.bounds import MOST_REFUSED
from core.engine import kept
from core.errors import ModelFailed, NotPermitted, ServingError, TooLarge, Unauthenticated
from core.operations import Deferred, ModelRef, ModelSpec, Operation
from core.ports import Use
from core.rpc import Form, RpcMethod
from core.wire import Part
from handler.edge.jobs import QUICKLY_READ, RAW_QUICKLY_READ, Decoded, ref_of
from handler.edge.observe.record import refused, refused_one
from handler.edge.protocols import INTERNAL

log = logging.getLogger(__name__)
MANY: Final = (Form.STREAM, Form.EXCHANGE)
WATCH_SECONDS: Final = 5.0
"""Seconds between two looks at a watched state."""


async def guarded(work: Awaitable[Any], codec: "MessageCodec", timing: Any, name: str) -> Any:
    """Returns the work's result, or the method's own answer in place of its error. Raises ServingError.

    `timing`: of the message. `name`: the method's, for the log.
    """
    try:
        return await work
    except Exception as error:  # noqa: BLE001 - each has an answer
        failure = _worded(error, codec, name)
    try:
        instead = codec.instead(failure)
        if instead is not None and codec.is_one_of_many:
            refused_one(failure, *codec.model(timing))
        else:
            refused(failure)
        if instead is None:
            raise failure
        return instead
    finally:
        del failure  # its traceback holds this frame: a circle, with the request's body in it


def failed(error: Exception, codec: "MessageCodec", name: str) -> ServingError:
    """Returns the error that the client gets, and notes it in the record. `name`: the method's, for the log."""
    failure = _worded(error, codec, name)
    refused(failure)
    return failure


def _worded(error: Exception, codec: "MessageCodec", name: str) -> ServingError:
    return codec.worded(error) if isinstance(error, ServingError) else unforeseen(error, name)


def unforeseen(error: Exception, name: str) -> ModelFailed:
    """Logs an error of this server's own, and returns what its client gets. `name`: the method's, for the log."""
    log.error("%s failed", name, exc_info=error)
    return ModelFailed(INTERNAL)


class RefusedInARow:
    """Ends a stream whose messages are refused one after the other: each costs a server more than its client."""

    def __init__(self) -> None:
        self._count = 0

    def check(self, *, refused: bool) -> None:
        """Counts a message. Raises TooLarge for more than MOST_REFUSED refusals in a row."""
        self._count = self._count + 1 if refused else 0
        if self._count > MOST_REFUSED:
            raise TooLarge(f"more than {MOST_REFUSED} messages in a row were refused")


class MessageCodec:
    """One message of a method. `json`: it is in proto3's JSON, as is its answer. `refused`: it ended in an error.

    `inflate`: returns the message of a body that its carrier has compressed; raises InvalidInput, TooLarge.
    `size`: bytes of the message, of a compressed body until it is read.
    """

    __slots__ = (
        *("_body", "_decoded", "_head", "_inflate", "_is_long", "_json", "_method", "_named", "_request"),
        *("refused", "size"),
    )

    def __init__(
        self, method: RpcMethod, body: Any, *, json: bool = False, inflate: Callable[[], Any] | None = None
    ) -> None:
        self._method = method
        self._body = body
        self._inflate = inflate
        self._json = json
        self._is_long: bool | None = None
        self._named: ModelRef | None = None
        self._request: Any = None
        self._head: Any = None  # what its client recognises, of a message that was compressed again
        self.refused = False
        self._decoded: Decoded | None = None
        self.size = len(body)

    def is_long(self) -> bool:
        if self._inflate is not None:
            return True
        if self._is_long is None:
            self._is_long = self.size > QUICKLY_READ and not self._is_raw()
        return self._is_long

    def _is_raw(self) -> bool:
        """Decides whether a long message is a few short fields and numbers, which take no time to read."""
        rest = None if self._json else self._method.rpc.rest
        if rest is None or self.size > RAW_QUICKLY_READ:
            return False
        size = rest(self._body)
        return size is not None and size <= QUICKLY_READ

    def ref(self) -> ModelRef | None:
        return None if self.is_long() else self.named()

    def asked(self) -> tuple[str, Part]:
        """Returns the method's path, and its message; b"" for one of a stream, and for one that is compressed still."""
        is_only = self._method.form is Form.UNARY and self._inflate is None
        return self._method.path, self._body if is_only else b""

    def named(self) -> ModelRef | None:
        """Looks into a long message for its name alone, and reads one that is quickly read.

        A message that is long once it is inflated is inflated again when its model is there. It may wait for that, and
        the bytes in flight count what was received.
        """
        if self._named is None and self._method.rpc.ref is not None:
            received = self._body, self._inflate
            self._named = self._found(self._method.rpc.ref)
            if self.size > QUICKLY_READ and self._inflate is not received[1]:
                self._head = self._method.head(self._body, json=self._json)
                (self._body, self._inflate), self._request = received, None
        return self._named

    def _found(self, ref: Callable[[Any], ModelRef]) -> ModelRef:
        if self._request is None:
            body = self._plain()
            found = self._method.peek(body, json=self._json) if self.is_long() else None
            if found is not None:
                return found
        return ref(self._message())

    def known(self) -> ModelRef | None:
        return self._named if self._decoded is None else ref_of(self._decoded)

    @property
    def is_one_of_many(self) -> bool:
        """Whether its refusal leaves the stream that it is part of as it is."""
        return self._method.form is Form.EXCHANGE

    def model(self, timing: Any) -> tuple[str, str]:
        """Returns the model and version that have worked on the message, else those that it has named."""
        if timing.use is not None:
            return timing.use.model.spec.name, timing.use.model.spec.version
        ref = self.known()
        return ("", "") if ref is None else (ref.name, ref.version or "")

    def read(self, _spec: ModelSpec | None = None) -> Decoded:
        if self._decoded is None:
            rpc = self._method.rpc
            decode = (self._json and rpc.decode_json) or rpc.decode
            self._decoded = decode(self._message())
        operation, reply = self._decoded
        if isinstance(operation, Deferred):  # its function holds this codec, which therefore does not keep it
            operation = operation._replace(decode=self._releasing(operation))
        return operation, reply

    def _releasing(self, operation: Deferred) -> Any:
        def decode(spec: ModelSpec) -> Any:
            decoded = operation.decode(spec)
            self._request = None  # it has become tensors, and can be larger than they are
            return decoded

        return decode

    def close(self) -> None:
        """Lets go of the message, once it is answered. The record of a stream keeps the codec of the last one."""
        self._named = self.known()
        self._body, self._inflate, self._request, self._decoded = b"", None, None, None

    def finish(self, reply: Any, operation: Operation, use: Use | None, *, lazy: bool) -> Any:  # noqa: ARG002 - Codec
        """Returns the message; of methods with many answers a tuple of them, or an iterator."""
        if self._method.form not in MANY:
            return self._written(reply)
        answers = self._each(reply)
        return kept(use, answers) if lazy and use is not None else tuple(answers)

    def _each(self, answers: Iterable[Any]) -> Iterator[Any]:
        for answer in answers:
            yield self._written(answer)

    def worded(self, error: ServingError) -> ServingError:
        return self._method.worded(error)

    def instead(self, error: ServingError) -> Any:
        """Returns the method's answer in place of the error; None if the call fails with it.

        A refusal of the gate ends the call with its code, which clients and proxies know. In a stream of requests, the
        refusal of a model belongs to its own request.
        """
        ends = isinstance(error, Unauthenticated if self.is_one_of_many else Unauthenticated | NotPermitted)
        instead = None if ends else self._method.rpc.instead
        self.refused = True
        message = None if instead is None else instead(self._recognised(), error)
        return None if message is None else self._written(message)

    def _recognised(self) -> Any:
        """Returns the request, or what its client recognises if it was not read; None if that is nothing."""
        if self._request is not None:
            return self._request
        return self._head or self._method.head(b"" if self._inflate else self._body, json=self._json)

    def _message(self) -> Any:
        if self._request is None:
            body, read_json = self._plain(), self._method.rpc.read_json or self._method.read_json
            self._request = read_json(body) if self._json else self._method.read(body)
        return self._request

    def _plain(self) -> Any:
        if self._inflate is not None:
            self._body, self._inflate = self._inflate(), None
            self.size = len(self._body)
        return self._body

    def _written(self, answer: Any) -> Any:
        if isinstance(answer, bytes):
            return self._framed(answer)
        return self._framed(self._method.write_json(answer) if self._json else answer.SerializeToString())

    def _framed(self, message: bytes) -> Any:
        """Returns the bytes that a carrier sends for a message."""
        return message

"""One remote call, run in one thread from reading its message to writing its answer, timed and counted."""

import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Any, Final, Protocol

from core.engine import ask, execute
from core.errors import ModelFailed, ServingError
from core.operations import Deferred, Infer, Operation, Question, Stream
from core.rpc import Form, RpcMethod
from handler.edge.jobs import QUICKLY_READ as QUICKLY_READ_JSON
from handler.edge.jobs import counted, counted_each, kept, waited_here
from handler.edge.protocols import INTERNAL
from handler.edge.timing import Timing
from handler.lifecycle.registry import Registry
from handler.lifecycle.versions import Loaded

log = logging.getLogger(__name__)
Decoded = tuple[Operation, Callable[[Any], Any]]
MANY: Final = (Form.STREAM, Form.EXCHANGE)
QUICKLY_READ: Final = 1024 * 1024
"""Bytes of a message up to which it may be read before it is known which thread its model runs in."""
WATCH_SECONDS: Final = 5.0
"""Between two looks at what a client watches."""


class Answering(Protocol):
    """A job, as far as it knows its method."""

    def instead(self, error: ServingError) -> Any: ...


async def guarded(work: Awaitable[Any], job: Answering, name: str) -> Any:
    """What the work gives, or what the method `name` answers in place of its error. Raises ServingError."""
    try:
        return await work
    except ServingError as error:
        failure = error
    except Exception:
        log.exception("%s failed", name)
        failure = ModelFailed(INTERNAL)
    try:
        instead = job.instead(failure)
        if instead is None:
            raise failure
        return instead
    finally:
        del failure  # its traceback holds this frame: a circle, with the request's body in it


class RpcJob:
    """As jobs.Job, of a message instead of an HTTP request. `json`: in proto3's JSON, and so its answer."""

    __slots__ = ("_body", "_decoded", "_json", "_method", "_registry", "_request", "timing")

    def __init__(
        self, registry: Registry, method: RpcMethod, body: bytes, timing: Timing | None = None, *, json: bool = False
    ) -> None:
        self._registry = registry
        self._method = method
        self._body = body
        self._json = json
        self._request: Any = None
        self._decoded: Decoded | None = None
        self.timing = timing or Timing()

    def is_quick(self) -> bool:
        size = len(self._body)
        if self._json:
            operation = self._decode() if size <= QUICKLY_READ_JSON else None
            return isinstance(operation, Infer | Deferred) and self._registry.is_quick(operation.ref, size)
        ref = self._method.rpc.ref
        if ref is None or size > QUICKLY_READ:
            return False
        return self._registry.is_quick(ref(self._read()), size)

    def run(self) -> bytes | Iterable[bytes]:
        """The answer; of methods with many, a tuple of them or a generator. Raises ServingError, Pending."""
        self.timing.begun = time.perf_counter_ns()
        operation = self._decode()
        if not isinstance(operation, Question):
            return self.phrase(execute(operation, self._registry))
        held = self._registry.use(operation.ref)
        waited_here(self._registry, self.timing)
        with held as model:
            if isinstance(operation, Deferred):
                self._decoded = operation.decode(model.spec)
                operation, _ = self._decoded
                self._request = None  # it has become tensors, and may be larger than they are
            answer = self._answer(operation, held)
            return answer if isinstance(answer, bytes | tuple) else kept(held, answer)

    def _answer(self, operation: Any, held: Loaded) -> bytes | Iterable[bytes]:
        if isinstance(operation, Infer):
            return counted(held, operation, self.phrase, len(self._body), self.timing)
        if isinstance(operation, Stream):
            return self.phrase(counted_each(held, operation, len(self._body), self.timing))
        return self.phrase(ask(operation, held.model))

    def phrase(self, result: Any) -> bytes | Iterable[bytes]:
        if self._decoded is None:
            raise AssertionError
        answer = self._decoded[1](result)
        if self._method.form not in MANY:
            return self._written(answer)
        answers = self._each(answer)
        return tuple(answers) if isinstance(result, tuple) else answers

    def _each(self, answers: Iterable[Any]) -> Iterator[bytes]:
        for answer in answers:
            yield self._written(answer)

    def instead(self, error: ServingError) -> bytes | None:
        """What the method answers in place of the error, if it does not fail with it."""
        instead = self._method.rpc.instead
        message = None if instead is None else instead(self._request, error)
        return None if message is None else self._written(message)

    def _decode(self) -> Operation:
        if self._decoded is None:
            rpc = self._method.rpc
            decode = (self._json and rpc.decode_json) or rpc.decode
            self._decoded = decode(self._read())
        return self._decoded[0]

    def _read(self) -> Any:
        if self._request is None:
            self._request = self._method.read_json(self._body) if self._json else self._method.read(self._body)
        return self._request

    def _written(self, answer: Any) -> bytes:
        if isinstance(answer, bytes):
            return answer
        written: bytes = self._method.write_json(answer) if self._json else answer.SerializeToString()
        return written

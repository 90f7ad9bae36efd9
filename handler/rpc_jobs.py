"""One remote call, run in one thread from reading its message to writing its answer, timed and counted."""

import time
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import Message

from core.engine import execute
from core.errors import ServingError
from core.operations import Infer, Operation
from core.rpc import RpcMethod
from handler.jobs import counted
from handler.registry import Registry

Decoded = tuple[Operation, Callable[[Any], Message | bytes]]
QUICKLY_READ: Final = 1024 * 1024
"""Bytes of a message up to which it may be read before it is known which thread its model runs in."""


class RpcJob:
    """As handler.jobs.Job, of a message instead of an HTTP request."""

    __slots__ = ("_body", "_decoded", "_method", "_registry", "_request", "_started")

    def __init__(self, registry: Registry, method: RpcMethod, body: bytes) -> None:
        self._registry = registry
        self._method = method
        self._body = body
        self._request: Any = None
        self._decoded: Decoded | None = None
        self._started = time.perf_counter_ns()

    def is_quick(self) -> bool:
        ref = self._method.rpc.ref
        if ref is None or len(self._body) > QUICKLY_READ:
            return False
        return self._registry.is_quick(ref(self._read()), len(self._body))

    def run(self) -> bytes:
        """Raises ServingError, Pending."""
        begun = time.perf_counter_ns()
        if self._decoded is None:
            self._decoded = self._method.rpc.decode(self._read())
        operation, _ = self._decoded
        if isinstance(operation, Infer):
            return counted(self._registry, operation, self.phrase, len(self._body), (self._started, begun))
        return self.phrase(execute(operation, self._registry))

    def phrase(self, result: Any) -> bytes:
        if self._decoded is None:
            raise AssertionError
        answer = self._decoded[1](result)
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    def instead(self, error: ServingError) -> bytes | None:
        """What the method answers in place of the error, if it does not fail with it."""
        instead = self._method.rpc.instead
        message = None if instead is None else instead(self._request, error)
        return None if message is None else message.SerializeToString()

    def _read(self) -> Any:
        if self._request is None:
            self._request = self._method.read(self._body)
        return self._request

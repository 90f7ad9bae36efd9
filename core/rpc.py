"""Remote calls as the dialects see them: a table of methods over protobuf messages. No sockets, no framework."""

from collections.abc import Callable
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from core.errors import InvalidInput, ServingError
from core.operations import ModelRef, Operation
from core.schema import pool
from core.wire import Waits

Decode = Callable[[Any], tuple[Operation, Callable[[Any], Message | bytes]]]
NO_SIDE_EFFECTS: Final = 1
"""google.protobuf.MethodOptions.IdempotencyLevel."""


class Form(Enum):
    """How the requests and the answers of a method follow each other."""

    UNARY = auto()
    EXCHANGE = auto()
    """A stream of requests, and an answer to each, in their order."""
    WATCH = auto()
    """One request, its answer, and another one whenever the answer has changed."""


FORMS: Final = {(False, False): Form.UNARY, (True, True): Form.EXCHANGE, (False, True): Form.WATCH}
"""By whether requests, and answers, are a stream."""


class Rpc(NamedTuple):
    """What is made of a method's requests.

    `read`: the request out of its bytes, where that is more than its message. Raises DecodeError. `ref`: the model that
    a request names, where the model tells how long it takes. `instead`: the protocol's own answer in place of an error,
    None where it is an error there, too; of a request that could not be read it gets None.
    """

    name: str
    decode: Decode
    waits: Waits = Waits.STORE
    read: Callable[[bytes], Any] | None = None
    ref: Callable[[Any], ModelRef] | None = None
    instead: Callable[[Any, ServingError], Message | None] | None = None


class RpcMethod(NamedTuple):
    """One method of a service, with what its .proto says of it. `safe`: it changes nothing, and may be a GET."""

    service: str
    rpc: Rpc
    request: type[Message]
    form: Form
    safe: bool

    def read(self, body: bytes) -> Any:
        """What `decode` takes. Raises InvalidInput for bytes that are no such message."""
        try:
            return (self.rpc.read or self.request.FromString)(body)
        except DecodeError:
            kind = self.request.DESCRIPTOR.name
            raise InvalidInput(f"the {len(body)} bytes of the request are not a {kind}") from None


def methods(service: str, *rpcs: Rpc) -> tuple[RpcMethod, ...]:
    found = []
    for rpc in rpcs:
        descriptor, request = pool.method(service, rpc.name)
        form = FORMS[descriptor.client_streaming, descriptor.server_streaming]
        safe = descriptor.GetOptions().idempotency_level == NO_SIDE_EFFECTS
        found.append(RpcMethod(service, rpc, request, form, safe))
    return tuple(found)

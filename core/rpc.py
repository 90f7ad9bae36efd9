"""Remote calls as the dialects see them: a table of methods over protobuf messages. No sockets, no framework."""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError, Message

from core.encoding import jsonio
from core.errors import InvalidInput, ServingError, shown
from core.operations import ModelRef, Operation
from core.schema import pool
from core.wire import Waits

Answer = Message | bytes
Decode = Callable[[Any], tuple[Operation, Callable[[Any], Answer | Iterable[Answer]]]]
NO_SIDE_EFFECTS: Final = 1
"""google.protobuf.MethodOptions.IdempotencyLevel."""


class Form(Enum):
    """The order of a method's requests and answers."""

    UNARY = auto()
    STREAM = auto()
    """One request, and any number of answers."""
    EXCHANGE = auto()
    """A stream of requests, and any number of answers to each, in their order."""
    WATCH = auto()
    """One request, its answer, and another one whenever the answer has changed."""


FORMS: Final = {(False, False): Form.UNARY, (True, True): Form.EXCHANGE, (False, True): Form.STREAM}
"""Forms by two facts: whether requests are a stream, and whether answers are."""


class Rpc(NamedTuple):
    """One remote call's decoding.

    `decode`: returns the operation, and the function that makes the answer, or every answer, from its result. `read`:
    parses a request's bytes, where they are more than its message. Raises DecodeError. `ref`: returns the model that a
    request names, if the model decides how long the call takes. `instead`: returns the protocol's own answer in place
    of an error, None if the protocol reports an error, too. Its request is None if that could not be read, or if its
    Deferred was decoded. `watched`: one answer is sent whenever it changes. `read_json`, `decode_json`: like `read` and
    `decode`, from and to proto3's JSON, for methods that carry tensors; they raise InvalidInput.
    """

    name: str
    decode: Decode
    waits: Waits = Waits.STORE
    read: Callable[[bytes], Any] | None = None
    ref: Callable[[Any], ModelRef] | None = None
    instead: Callable[[Any, ServingError], Message | None] | None = None
    watched: bool = False
    read_json: Callable[[bytes], Any] | None = None
    decode_json: Decode | None = None


class RpcMethod(NamedTuple):
    """One method of a service, with the facts in its .proto. `safe`: it changes nothing, and GET is permitted."""

    service: str
    rpc: Rpc
    request: type[Message]
    response: type[Message]
    form: Form
    safe: bool

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.rpc.name}"

    def read(self, body: bytes) -> Any:
        """Returns the argument of `decode`. Raises InvalidInput for bytes that are not such a message."""
        try:
            return (self.rpc.read or self.request.FromString)(body)
        except DecodeError:
            kind = self.request.DESCRIPTOR.name
            raise InvalidInput(f"the {len(body)} bytes of the request are not a {kind}") from None

    def read_json(self, body: bytes) -> Any:
        """Returns the argument of `decode_json`, or of `decode` if there is none. Raises InvalidInput."""
        if self.rpc.read_json is not None:
            return self.rpc.read_json(body)
        from google.protobuf import json_format  # noqa: PLC0415 - only JSON requests need it

        kind = self.request.DESCRIPTOR.name
        document = jsonio.loads_exact(body)
        if not isinstance(document, dict):
            raise InvalidInput(f"the body is {shown(document)}; expected an object, the {kind} in JSON")
        try:
            return json_format.ParseDict(document, self.request(), ignore_unknown_fields=True)
        except (json_format.ParseError, RecursionError) as error:
            raise InvalidInput(f"the body is no {kind} in JSON: {shown(str(error))}") from None

    def write_json(self, answer: Message) -> bytes:
        from google.protobuf import json_format  # noqa: PLC0415 - only JSON requests need it

        return json_format.MessageToJson(answer, indent=None).encode()


def methods(service: str, *rpcs: Rpc) -> tuple[RpcMethod, ...]:
    found = []
    for rpc in rpcs:
        descriptor, request, response = pool.method(service, rpc.name)
        form = Form.WATCH if rpc.watched else FORMS[descriptor.client_streaming, descriptor.server_streaming]
        safe = descriptor.GetOptions().idempotency_level == NO_SIDE_EFFECTS
        found.append(RpcMethod(service, rpc, request, response, form, safe))
    return tuple(found)

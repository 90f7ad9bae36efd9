"""Remote calls as the dialects see them: a table of methods over protobuf messages. No sockets, no framework."""

from collections.abc import Callable, Iterable
from enum import Enum, auto
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from core.bounds import LONGEST_CALL, check_call, check_values
from core.encoding import jsonio, peek
from core.encoding.proto_json import check_spellings, unreadable
from core.errors import InvalidInput, ServingError, shown
from core.operations import ModelRef, Operation
from core.records import NamedTuple
from core.schema import fields, pool
from core.wire import Part, Right, Waits

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


class Named(NamedTuple):
    """How the name of a model is found in a long message. `fields`: their names. `ref`: what their texts mean."""

    fields: tuple[str, ...]
    ref: Callable[..., ModelRef]


class Rpc(NamedTuple):
    """One remote call's decoding.

    `decode`: returns the operation, and the function that makes the answer, or every answer, from its result. `read`:
    parses a request's bytes, where they are more than its message. Raises DecodeError. `ref`: returns the model that a
    request names, if the model decides how long the call takes. `instead`: returns the protocol's own answer in place
    of an error, None if the protocol reports an error, too. Its request is what `read` has returned; `RpcMethod.head`
    if it was not read; None without an `id_field`, and if its Deferred was decoded. `watched`: one answer is sent
    whenever it changes. `read_json`, `decode_json`: like `read` and `decode`, from and to proto3's JSON, for methods
    that carry tensors; they raise InvalidInput. `right`: as Route's. `named`: finds the model of a long message.
    `id_field`: the text by which clients distinguish a stream's answers. `rest`: returns how many bytes of a message
    are not raw numbers, None if it is not known at once.
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
    right: Right = Right.ADMIN
    named: Named | None = None
    id_field: str = ""
    rest: Callable[[Part], int | None] | None = None


class RpcMethod(NamedTuple):
    """One method of a service, with the facts in its .proto. `safe`: it changes nothing, and GET is permitted.

    `worded`: returns an error in the words of the service.
    """

    service: str
    rpc: Rpc
    request: type[Message]
    response: type[Message]
    form: Form
    safe: bool
    worded: Callable[[ServingError], ServingError] = lambda error: error

    @property
    def path(self) -> str:
        return f"/{self.service}/{self.rpc.name}"

    def read(self, body: bytes) -> Any:
        """Returns the argument of `decode`. Counts the parts of a long message first.

        Raises InvalidInput for bytes that are not such a message, TooMany.
        """
        try:
            if len(body) > LONGEST_CALL:
                fields.check(body, nested(self.request), self.request.DESCRIPTOR)
            return (self.rpc.read or self.request.FromString)(body)
        except DecodeError:
            kind = self.request.DESCRIPTOR.name
            raise InvalidInput(f"the {len(body)} bytes of the request are not a {kind}") from None

    def read_json(self, body: bytes) -> Any:
        """Returns the argument of `decode_json`, or of `decode` if there is none. Raises InvalidInput.

        Raises TooLarge, TooMany for a message without tensors that is too long.
        """
        if self.rpc.read_json is not None:
            return self.rpc.read_json(body)
        from google.protobuf import json_format  # noqa: PLC0415 - only JSON requests need it

        check_call(len(body))
        kind = self.request.DESCRIPTOR.name
        document = jsonio.loads_exact(body)
        if not isinstance(document, dict):
            raise InvalidInput(f"the body is {shown(document)}; expected an object, the {kind} in JSON")
        check_spellings(document, self.request.DESCRIPTOR.fields)
        check_values(document)  # protobuf reads each in microseconds
        try:
            return json_format.ParseDict(document, self.request(), ignore_unknown_fields=True)
        except (json_format.ParseError, RecursionError) as error:
            raise unreadable(document, self.request.DESCRIPTOR, str(error)) from None

    def peek(self, body: Part, *, json: bool) -> ModelRef | None:
        """Returns the model that a message names, None if that takes parsing the message."""
        named = self.rpc.named
        if named is None:
            return None
        known = self.request.DESCRIPTOR.fields_by_name
        if json:
            texts: Any = [peek.member(body, (name, known[name].json_name)) for name in named.fields]
            texts[0] = texts[0] or None  # without the model's name, the text may not be JSON
        else:
            texts = fields.texts(body, [known[name].number for name in named.fields])
        return None if texts is None or None in texts else named.ref(*texts)

    def id_of(self, body: Part, *, json: bool) -> str:
        """Returns the text by which a client recognises the answers to a message; "" if its start has none."""
        field = self.request.DESCRIPTOR.fields_by_name.get(self.rpc.id_field)
        if field is None:
            return ""
        if json:
            return peek.member(body[: peek.START], tuple({field.name, field.json_name})) or ""
        return fields.first_texts(body, [field.number])[0]

    def head(self, body: Part, *, json: bool) -> Message | None:
        """Returns a request with the texts alone by which a client recognises the answers to a message.

        For one that is refused unread, or that cannot be read; a text that is not found is "". None: it has no id.
        """
        rpc = self.rpc
        if not rpc.id_field:
            return None
        names = (*(rpc.named.fields if rpc.named else ()), rpc.id_field)
        known = [self.request.DESCRIPTOR.fields_by_name[name] for name in names]
        if json:
            texts = [_text(body, tuple({field.name, field.json_name})) for field in known]
        else:
            texts = fields.first_texts(body, [field.number for field in known])
        return self.request(**{field.name: text for field, text in zip(known, texts, strict=True)})

    def write_json(self, answer: Message) -> bytes:
        from google.protobuf import json_format  # noqa: PLC0415 - only JSON requests need it

        return json_format.MessageToJson(answer, indent=None).encode()


def _text(body: Part, spellings: tuple[str, ...]) -> str:
    """Returns the text of a JSON message's member, "" for one that is not found. Reads no long message for it."""
    found = peek.member(body, spellings)
    if found is None and len(body) <= LONGEST_CALL:
        try:
            members = jsonio.loads(body)
        except ServingError:
            return ""
        texts = [members.get(spelling) for spelling in spellings] if isinstance(members, dict) else []
        found = next((text for text in texts if isinstance(text, str)), None)
    return found or ""


def nested(request: type[Message]) -> dict[int, int]:
    """Returns the numbers of the fields that are messages themselves, each with the number of its shape or 0."""
    inner = {each.number: each.message_type.fields_by_name for each in request.DESCRIPTOR.fields if each.message_type}
    return {number: found["shape"].number if "shape" in found else 0 for number, found in inner.items()}


def methods(
    service: str, *rpcs: Rpc, worded: Callable[[ServingError], ServingError] = lambda error: error
) -> tuple[RpcMethod, ...]:
    found = []
    for rpc in rpcs:
        descriptor, request, response = pool.method(service, rpc.name)
        form = Form.WATCH if rpc.watched else FORMS[descriptor.client_streaming, descriptor.server_streaming]
        safe = descriptor.GetOptions().idempotency_level == NO_SIDE_EFFECTS
        found.append(RpcMethod(service, rpc, request, response, form, safe, worded))
    return tuple(found)

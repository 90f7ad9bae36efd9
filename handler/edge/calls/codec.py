"""The messages of remote calls over HTTP, with their envelopes and their compression."""

from typing import Any

from core.dialects.connect.codes import EdgeError
from core.dialects.connect.envelopes import Frame
from core.dialects.connect.protocol import Question
from core.errors import ServingError
from core.operations import ModelRef
from core.records import NamedTuple
from core.rpc import Form
from handler.edge.calls.messages import MessageCodec
from handler.edge.flight import Flight
from handler.edge.idling import Idling


class CallOptions(NamedTuple):
    """`limit`: bytes of a body, and of an inflated message. `least`: bytes of an answer that are worth compressing.

    `abreast`: the most requests of one stream under way. `idling`: the streams that wait for a message or for news.
    """

    limit: int
    least: int
    flight: Flight
    abreast: int
    idling: Idling


class EnvelopeCodec(MessageCodec):
    """A message codec with the message's compression and framing both ways, which belong in the same thread."""

    __slots__ = ("_least", "_question")

    def __init__(self, question: Question, frame: Frame, options: CallOptions) -> None:
        def message() -> Any:
            # Protobuf reads a view as well as bytes, without a copy; its JSON is text.
            content: Any = frame.message(options.limit) if frame.coding else frame.content
            return bytes(content) if question.kind.json else content

        self._question = question
        self._least = options.least
        body, inflate = (frame.content, message) if frame.coding else (message(), None)
        super().__init__(question.method, body, json=question.kind.json, inflate=inflate)

    def ref(self) -> ModelRef | None:
        return None if self._inflate is not None or self._question.deflates else super().ref()

    def instead(self, error: ServingError) -> Any:
        """Returns what is sent in place of an error that is not the protocol's own; None if it is an error."""
        return None if isinstance(error, EdgeError) else super().instead(error)

    def _framed(self, message: bytes) -> Any:
        if self._question.method.form is Form.UNARY:
            return self._question.answer(message, self._least)
        return self._question.part(message, self._least)

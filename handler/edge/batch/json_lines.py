"""Records that are lines of JSON: rows as V1's "instances" have them, or V2 inference requests."""

from collections.abc import Sequence
from typing import Any, Final

from core.dialects.v1 import bulk
from core.dialects.v2 import infer
from core.encoding import jsonio
from core.encoding.jsonio import NotJson
from core.encoding.values import EXACT_IN_DOUBLE
from core.errors import InvalidInput
from core.operations import InferResult
from core.wire import Call, HttpRequest
from handler.edge.batch.ranges import bound
from handler.edge.batch.terms import ID, BatchTerms, RecordCall, predictions

TENSOR: Final = {"name", "datatype"}


class JsonBlock:
    """`lines`: without blanks around them."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self.lines = lines
        self.ids: list[Any] | None = None

    def __len__(self) -> int:
        return len(self.lines)

    def part(self, start: int, end: int) -> "JsonBlock":
        return JsonBlock(self.lines[start:end])

    def call(self, terms: BatchTerms) -> RecordCall:
        try:
            values = bulk.instances(self.lines)
        except NotJson as error:
            raise InvalidInput(f"the record is not JSON: {error.reason} behind character {error.offset}") from None
        if isinstance(values, list) and isinstance(values[0], dict):
            first = values[0]
            if is_request(first):
                return self._request(first, terms)
            if ID in first and terms.has_ids:
                self.ids = [_id(*each) for each in zip(values, self.lines, strict=True)]
        return predictions(bound(values, terms), self.ids, terms)

    def _request(self, document: dict[str, Any], terms: BatchTerms) -> RecordCall:
        """Returns the call of a V2 request, whose answer is its response. Raises InvalidInput for several."""
        if len(self.lines) > 1:
            raise InvalidInput("requests run together by their shapes")
        if ID in document:
            self.ids = [document[ID]]
        path = {"model": terms.spec.name, "version": terms.spec.version}
        asked, reply = infer.decode(Call(HttpRequest("POST", "/", body=self.lines[0], options=terms.options), path))

        def write(result: InferResult) -> list[bytes]:
            parts = reply(result).parts
            if len(parts) > 1:
                raise InvalidInput("an answer in a line of JSON cannot have binary outputs: do not ask for them")
            return [bytes(parts[0])[1:-1]]

        return RecordCall(asked, write)


def _id(value: Any, line: bytes) -> Any:
    """Removes a record's own id from its inputs, and returns it; None if it has none."""
    own = value.pop(ID, None) if isinstance(value, dict) else None
    is_rounded = type(own) is float and abs(own) >= EXACT_IN_DOUBLE
    return jsonio.loads_exact(line)[ID] if is_rounded else own


def is_request(value: dict[str, Any]) -> bool:
    """Decides whether an object is a V2 request: its "inputs" are tensors with names and datatypes."""
    inputs = value.get("inputs")
    return isinstance(inputs, list) and bool(inputs) and isinstance(inputs[0], dict) and inputs[0].keys() >= TENSOR


class LongRecord:
    """A record that is longer than a request may be, and was not kept."""

    def __init__(self, limit: int) -> None:
        self.ids: list[Any] | None = None
        self._limit = limit

    def __len__(self) -> int:
        return 1

    def part(self, _start: int, _end: int) -> "LongRecord":
        return self

    def call(self, _terms: BatchTerms) -> RecordCall:
        raise InvalidInput(f"the record has more than {self._limit} bytes (DRAGOMAN_MAX_BODY_BYTES)")

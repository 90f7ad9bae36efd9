"""The terms of a batch: its model, and the names and forms of its inputs and outputs. Runs one inference of records."""

from collections.abc import Callable
from typing import Any, Final, Protocol

from core.deadline import NEVER, Deadline
from core.dialects.v1 import bulk
from core.dialects.v1.bulk import BoundRows
from core.dialects.v1.inputs import Bindings
from core.encoding import jsonio
from core.encoding.jsonio import NonFinite
from core.operations import Infer, InferResult, ModelSpec
from core.records import NamedTuple
from core.wire import Options

ID: Final = "id"
"""The member or column that is a record's own id, unless the model has an input of this name."""


class BatchTerms(NamedTuple):
    """`signature`: the name of the signature whose inputs and outputs rows have; "" for the default one.

    `options`: the operator's choices for JSON.
    """

    spec: ModelSpec
    signature: str = ""
    options: Options = Options()

    @property
    def non_finite(self) -> NonFinite | None:
        return self.options.tokens(NonFinite.BARE)

    @property
    def bindings(self) -> Bindings:
        """The inputs of rows; None if the model does not declare them. Raises InvalidInput for an unknown signature."""
        signature = bulk.signature_of(self.spec, self.signature)
        return None if signature is None else signature.inputs

    @property
    def has_ids(self) -> bool:
        """Whether a record's `id` is its own, and not an input."""
        return ID not in (self.bindings or ())


class BlockLimits:
    """`records`: the most in the next block. `record_bytes`: the most of a record; a longer one is refused.

    `deadline`: when inferences end.
    """

    def __init__(self, records: int, record_bytes: int, deadline: Deadline = NEVER) -> None:
        self.records = records
        self.record_bytes = record_bytes
        self.deadline = deadline


class RecordCall(NamedTuple):
    """The inference of one or more records. `write`: returns the members of each record's answer, as JSON text."""

    infer: Infer
    write: Callable[[InferResult], list[bytes]]


class RecordBlock(Protocol):
    """Consecutive records. `ids`: their own ids, once `call` has read them; None for records without ids."""

    ids: list[Any] | None

    def __len__(self) -> int: ...

    def part(self, start: int, end: int, /) -> "RecordBlock":
        """Returns the block of some of the records."""
        ...

    def call(self, terms: BatchTerms, /) -> RecordCall:
        """Returns the inference of all records at once. Raises ServingError if one of them is wrong, or differs.

        A block of one record raises the record's own error.
        """
        ...


def predictions(rows: BoundRows, ids: list[Any] | None, terms: BatchTerms) -> RecordCall:
    """Returns the call of bound rows, whose answers have a prediction each."""

    def write(result: InferResult) -> list[bytes]:
        texts = rows.texts(result.outputs, terms.non_finite, b'"prediction":')
        if ids is None:
            return texts
        return [
            text if own is None else b'"id":%b,%b' % (id_text(own), text) for own, text in zip(ids, texts, strict=True)
        ]

    return RecordCall(rows.infer, write)


def id_text(own: Any) -> bytes:
    """Returns a record's own id as JSON: of bytes, a decimal and whatever else JSON does not have, the text."""
    try:
        return jsonio.dumps(own)
    except TypeError:
        if isinstance(own, int):  # of more than 64 bits
            return b"%d" % own
        text = own.decode(errors="backslashreplace") if isinstance(own, bytes) else str(own)
        return jsonio.dumps(text.encode(errors="backslashreplace").decode())

"""JSON lines: a row in each line, and a prediction in each line of the answer, as batch transforms cut and join files.

A line is a row as "instances" has it. {"features": row} is SageMaker's form of one. Source: SageMaker's "Common data
formats for inference".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from core.dialects.v1 import bulk
from core.dialects.v1.answer import Output
from core.dialects.v1.inputs import from_rows
from core.dialects.v1.odd_rows import WrongRow
from core.encoding import jsonio
from core.encoding.jsonio import NonFinite, NotJson
from core.encoding.structure import MOST_ARRAYS, check_structure
from core.errors import InvalidInput, TooMany
from core.operations import ModelSpec
from core.signature import DEFAULT
from core.tensor import Tensor

FEATURES: Final = "features"


def read(body: bytes, spec: ModelSpec) -> tuple[Tensor, ...]:
    """Returns the inputs. Lines without text do not count. Raises InvalidInput, TooMany."""
    count = body.count(b"\n", 0, -1) + 1  # without the end of the last line
    if count > MOST_ARRAYS:
        raise TooMany(f"the body has {count} lines; at most {MOST_ARRAYS} are read")
    check_structure(body)
    lines = [*map(bytes.strip, body.split(b"\n"))]
    if not any(lines):
        raise InvalidInput("the body has no lines; expected a row in each")
    signature = spec.signatures.get(DEFAULT)
    bindings = None if signature is None else signature.inputs
    try:
        return from_rows(_features(_values(lines), bindings or {}), bindings)
    except WrongRow as error:
        number = [number for number, line in enumerate(lines, 1) if line][error.index]
        raise InvalidInput(f"line {number} is not a row of the model: {error.reason}") from None


def _values(lines: Sequence[bytes]) -> Any:
    """Returns the values of the lines with text. Raises InvalidInput, which names the first one that is not JSON."""
    try:
        return bulk.instances([*filter(None, lines)])
    except NotJson as error:
        wrong = next((number for number, line in enumerate(lines, 1) if line and not _is_json(line)), 0)
        raise InvalidInput(f"line {wrong} is not JSON: {error.reason}") from None


def _is_json(line: bytes) -> bool:
    try:
        jsonio.loads_lists(line)
    except InvalidInput:
        return False
    return True


def _features(values: Any, bindings: Mapping[str, Any]) -> Any:
    """Returns the rows of {"features": row}, where no input has this name; other values as they are."""
    if FEATURES in bindings or not all(isinstance(value, dict) and value.keys() == {FEATURES} for value in values):
        return values
    return [value[FEATURES] for value in values]


def write(outputs: Sequence[Output], non_finite: NonFinite | None) -> bytes:
    """Returns a line for each row: its prediction. Raises InvalidInput for an output without rows."""
    rows = outputs[0].tensor.shape[0] if outputs and outputs[0].tensor.shape else 0
    return b"".join([text + b"\n" for text in bulk.texts(outputs, rows, non_finite)])

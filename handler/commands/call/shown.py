"""Outputs as a table, and as JSON."""

from typing import Any, Final

from core.dtype import BYTES
from core.encoding import jsonio, proto_json
from core.encoding.jsonio import NonFinite, numeric
from core.errors import escaped
from core.tensor import Tensor
from handler.commands import tables
from handler.commands.call.protocols import ModelAnswer
from handler.commands.call.served import CalledModel
from handler.commands.tables import TableRow

MOST_ROWS: Final = 50
WIDEST: Final = 60
"""The most characters of a cell."""
LONGEST: Final = 400
"""The most characters of an output that is not in the table."""


def document(model: CalledModel, answer: ModelAnswer, seconds: float) -> str:
    """Returns the outputs as JSON, with flat data as in V2. Bytes that are not UTF-8 are {"b64": text}."""
    outputs = [
        {"name": each.name, "datatype": each.datatype.name, "shape": each.array.shape, "data": _flat(each)}
        for each in answer.outputs
    ]
    head = {"model": model.name, "version": answer.version or model.version or None, "milliseconds": seconds * 1000}
    return jsonio.dumps(head | {"outputs": outputs}).decode()


def _flat(tensor: Tensor) -> Any:
    flat = tensor._replace(array=tensor.array.reshape(-1))
    return [_text(each) for each in flat.array] if tensor.datatype is BYTES else numeric(flat, NonFinite.QUOTED)


def _text(content: bytes) -> Any:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"b64": proto_json.from_bytes(content)}


def show(model: CalledModel, answer: ModelAnswer, seconds: float) -> None:
    """Prints the outputs that have a row for each input's row as a table, and others below it."""
    version = answer.version or model.version
    print(f"{escaped(model.name)}{f' version {escaped(version)}' if version else ''}, {seconds * 1000:.1f} ms\n")  # noqa: T201 - the result
    rows = next((each.array.shape[0] for each in answer.outputs if each.array.ndim), 0)
    columns = [each for each in answer.outputs if each.array.ndim and each.array.shape[0] == rows]
    if columns:
        cells = ([_cell(_row(each, row), WIDEST) for each in columns] for row in range(min(rows, MOST_ROWS)))
        tables.show([_head(each) for each in columns], [*map(TableRow, cells)])
    if rows > MOST_ROWS:
        print(f"... and {rows - MOST_ROWS} more rows: --json prints them")  # noqa: T201 - the same
    for each in answer.outputs:
        if not any(each is column for column in columns):
            print(f"{_head(each)}: {_cell(each, LONGEST)}")  # noqa: T201 - the same


def _head(tensor: Tensor) -> str:
    return f"{escaped(tensor.name)} {tensor.datatype.name} {list(tensor.array.shape)}"


def _row(tensor: Tensor, row: int) -> Tensor:
    """Returns one row; an array without a dimension where that is one element."""
    return tensor._replace(array=tensor.array[row : row + 1].reshape(tensor.array.shape[1:]))


def _cell(tensor: Tensor, most: int) -> str:
    """Returns elements as JSON, of which only as many are written as fit."""
    head = tensor if tensor.array.size <= most else tensor._replace(array=tensor.array.reshape(-1)[:most])
    if tensor.datatype is BYTES:
        flat = [each.decode(errors="backslashreplace") for each in head.array.reshape(-1)]
        text = flat[0] if not tensor.array.ndim else jsonio.dumps(flat).decode()
    else:
        text = jsonio.dumps(numeric(head, NonFinite.BARE)).decode()
    text = escaped(text)
    return text if len(text) <= most and head is tensor else text[: most - 3] + "..."

"""Data frames as tensors: pandas' "split" and "records" forms, and the rows of CSV.

A column is the input of its name. If the model has one input, all columns together are its rows, in the order in which
the model's settings name them (`explainer.feature_names`), else in their own. Columns that no input has are left out,
as MLflow does. A cell is a value, or nested lists, and null is NaN. Source: MLflow's scoring_server, parse_json_data.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, Final

import numpy as np

from core.bounds import check_parts
from core.dialects.v1.inputs import UNNAMED, from_columns
from core.dialects.v1.values import flattened
from core.dtype import FP64, DataType
from core.encoding.structure import MOST_MEMBERS
from core.encoding.values import from_values
from core.errors import InvalidInput, TooMany, shown
from core.operations import ModelSpec
from core.records import NamedTuple
from core.tensor import Tensor, TensorSpec, as_column, check_rank

Cells = Callable[[Sequence[Any], DataType], Sequence[Any]]
MATRIX_RANK: Final = 2


class DataFrame(NamedTuple):
    """`rows`: lists of as many cells as there are columns, or an array [rows, columns]. `columns` None: without names.

    `cells`: makes values of the cells of one datatype, if they are texts.
    """

    columns: tuple[str, ...] | None
    rows: Any
    cells: Cells | None = None

    @property
    def width(self) -> int:
        return len(self.rows[0])


def from_split(value: Any, what: str) -> DataFrame:
    """Returns the frame of {"columns": [names], "data": [rows]}; "index" does not matter. Raises InvalidInput."""
    if not isinstance(value, dict) or "data" not in value:
        raise InvalidInput(f"{what!r} is {shown(value)}; expected an object with 'columns' and 'data'")
    columns = None if value.get("columns") is None else _names(value["columns"])
    return checked(DataFrame(columns, value["data"]), what)


def from_records(value: Any) -> DataFrame:
    """Returns the frame of a list of objects with the same members. Raises InvalidInput."""
    if not isinstance(value, list) or not value or not isinstance(value[0], dict):
        raise InvalidInput(f"'dataframe_records' is {shown(value)}; expected an array of objects")
    names = value[0].keys()
    for index, row in enumerate(value):
        if not isinstance(row, dict) or row.keys() != names:
            expected = f"an object with the members {shown(list(names))} of the first one"
            raise InvalidInput(f"'dataframe_records' has {shown(row)} at index {index}; expected {expected}")
    return checked(DataFrame(tuple(names), [[row[name] for name in names] for row in value]), "dataframe_records")


def _names(columns: Any) -> tuple[str, ...]:
    """Returns the names of columns, which pandas also numbers. Raises InvalidInput."""
    if isinstance(columns, np.ndarray):
        columns = columns.tolist()
    if isinstance(columns, list) and len(columns) > MOST_MEMBERS:
        raise TooMany(f"'columns' has {len(columns)} names; at most {MOST_MEMBERS} are accepted")
    if not isinstance(columns, list) or not all(type(each) in (str, int) for each in columns):
        raise InvalidInput(f"'columns' is {shown(columns)}; expected an array of names")
    names = tuple(map(str, columns))
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise InvalidInput(f"'columns' has {shown(twice)} twice; expected each name once")
    return names


def checked(frame: DataFrame, what: str) -> DataFrame:
    """Returns the frame if each row has a cell for each column. Raises InvalidInput."""
    rows = frame.rows
    if not isinstance(rows, list | np.ndarray) or not len(rows):
        raise InvalidInput(f"{what!r} has no rows; expected at least one")
    if isinstance(rows, np.ndarray):
        sizes = set(rows.shape[1:2]) if rows.ndim == MATRIX_RANK else set()
    else:
        sizes = set(map(len, rows)) if set(map(type, rows)) == {list} else set()
    first = rows[0] if frame.columns is None and sizes else frame.columns or ()
    width = len(first)
    if sizes != {width} or not width:
        raise _ragged(rows, width, what)
    return frame


def _ragged(rows: Any, width: int, what: str) -> InvalidInput:
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != width:
            return InvalidInput(f"{what!r} has the row {shown(row)} at index {index}; expected {width} cells")
    return InvalidInput(f"{what!r} has rows without cells; expected one for each column")


def tensors(frame: DataFrame, spec: ModelSpec) -> tuple[Tensor, ...]:
    """Returns the model's inputs. Raises InvalidInput."""
    if spec.inputs is None:
        return _undeclared(frame)
    required = [tensor for tensor in spec.inputs if not tensor.optional] or list(spec.inputs)
    if frame.columns is not None and {tensor.name for tensor in required} <= set(frame.columns):
        return _named(frame, spec.inputs, frame.columns)
    if len(required) == 1:
        return (_whole(frame, required[0], spec),)
    if frame.columns is None and frame.width == len(spec.inputs):
        return _named(frame, spec.inputs, [tensor.name for tensor in spec.inputs])
    missing = [tensor.name for tensor in required if tensor.name not in (frame.columns or ())]
    has = f"{frame.width} columns without names" if frame.columns is None else f"the columns {shown(frame.columns)}"
    raise InvalidInput(f"the data frame has {has}; model {shown(spec.name)} also needs {shown(missing)}")


def _undeclared(frame: DataFrame) -> tuple[Tensor, ...]:
    """Returns a tensor for each column, or one of all rows; the values decide on the datatype."""
    if frame.columns is None:
        return (_inferred(UNNAMED, frame.rows),)
    check_parts(frame.columns, "columns")
    return tuple(map(_inferred, frame.columns, _columns(frame.rows)))


def _inferred(name: str, values: Any) -> Tensor:
    """Returns an input of the datatype that its values have. Numbers and null are FP64. Raises InvalidInput."""
    if isinstance(values, list):
        flat, shape = flattened(values)
        kinds = set(map(type, flat))
        if type(None) in kinds and kinds <= {int, float, type(None)}:
            check_rank(len(shape), name)
            return from_values(name, FP64, shape, flat)
    return from_columns({name: values}, None)[0]


def _columns(rows: Any) -> list[Any]:
    if isinstance(rows, np.ndarray):
        return [rows[:, index] for index in range(rows.shape[1])]
    if len(rows) > len(rows[0]):  # an iterator for each row costs a microsecond
        return [list(map(itemgetter(index), rows)) for index in range(len(rows[0]))]
    return [list(column) for column in zip(*rows, strict=True)]


def _named(frame: DataFrame, inputs: Sequence[TensorSpec], names: Sequence[str]) -> tuple[Tensor, ...]:
    by_name = dict(zip(names, _columns(frame.rows), strict=True))
    return tuple(_column(tensor, by_name[tensor.name], frame.cells) for tensor in inputs if tensor.name in by_name)


def _column(spec: TensorSpec, values: Any, cells: Cells | None) -> Tensor:
    """Returns the input that a column is: [rows, *shape of a cell], a scalar for a row of one element."""
    if cells is not None:
        values = cells(values, spec.datatype)
    if isinstance(values, np.ndarray):
        return as_column(from_values(spec.name, spec.datatype, values.shape, values), spec.shape)
    flat, shape = flattened(values)
    check_rank(len(shape), spec.name)
    return as_column(from_values(spec.name, spec.datatype, shape, flat), spec.shape)


def _whole(frame: DataFrame, spec: TensorSpec, model: ModelSpec) -> Tensor:
    """Returns the only input: a single column, or all columns as rows."""
    frame = _arranged(frame, spec, model)
    if frame.width == 1 and (spec.shape is None or len(spec.shape) != MATRIX_RANK):
        return _column(spec, _columns(frame.rows)[0], frame.cells)
    shape, rows = (len(frame.rows), frame.width), frame.rows
    if frame.cells is not None:
        rows = frame.cells([cell for row in rows for cell in row], spec.datatype)
    return from_values(spec.name, spec.datatype, shape, rows.reshape(-1) if isinstance(rows, np.ndarray) else rows)


def _arranged(frame: DataFrame, spec: TensorSpec, model: ModelSpec) -> DataFrame:
    """Returns the frame with its columns in the order of the input's features, if these are the same names."""
    features = () if model.explainer is None else model.explainer.feature_names.get(spec.name, ())
    columns = frame.columns
    if columns is None or tuple(features) == columns or not features or set(features) != set(columns):
        return frame
    order = [columns.index(name) for name in features]
    if isinstance(frame.rows, np.ndarray):
        return DataFrame(tuple(features), frame.rows[:, order], frame.cells)
    return DataFrame(tuple(features), [[row[index] for index in order] for row in frame.rows], frame.cells)

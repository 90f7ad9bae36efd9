"""Reads TensorFlow Serving's rows and columns as tensors, and refuses others with its messages.

Rows are checked as a whole, which is quick. If that fails, `odd_rows` names the first that does not fit.
Source: TF Serving's json_tensor.h.
"""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from core.bounds import check_filled, check_parts
from core.checks import fitting
from core.dialects.v1.odd_rows import WrongRow, blame, odd_object
from core.dialects.v1.values import flattened, is_named, to_tensor
from core.dtype import BOOL, BYTES, FP64, INT64, DataType, of_array
from core.errors import InvalidInput, shown
from core.operations import ModelSpec
from core.signature import Binding
from core.tensor import Tensor, TensorSpec, as_column

UNNAMED: Final = "input-0"
"""KServe's and MLServer's name for the only input of a request that does not name it."""
Bindings = Mapping[str, Binding] | None
"""A signature's inputs; None if the model does not declare them, and any are accepted."""


def are_rows(value: Any) -> bool:
    """Decides whether "inputs" has rows: a list of objects can be nothing else."""
    return isinstance(value, list) and bool(value) and is_named(value[0])


def from_inputs(value: Any, bindings: Bindings, what: str = "inputs") -> tuple[Tensor, ...]:
    """Returns the inputs of rows, or of whole tensors. `what`: the member that has them, for messages.

    Raises InvalidInput as `from_rows` and `from_columns` do.
    """
    if not are_rows(value):
        return from_columns(value, bindings, what)
    try:
        return from_rows(value, bindings)
    except WrongRow as error:
        raise WrongRow(error.index, error.reason, error.form, what) from None


def from_columns(value: Any, bindings: Bindings, what: str = "inputs") -> tuple[Tensor, ...]:
    """Returns the inputs of a request with whole tensors ("inputs"). `what`: the member that has them, for messages.

    `value` is {alias: tensor}, or the tensor itself if the signature requires one input. Each tensor's shape is its
    nesting: lists [[1, 2, 3]] have shape [1, 3]. Scalars may stand for rows of one element (`as_column`). Missing
    inputs get their defaults as `from_rows` has it, if all given ones have as many rows.
    Raises InvalidInput with TF Serving's messages. Source: TF Serving's json_tensor.h.
    """
    if not is_named(value):
        name = _only(bindings, f"{what} is a plain value/list, but expecting an object")
        given = {name: _tensor(name, bindings, value)}
        return _with_defaults(given, bindings, _rows(given), what)
    if bindings is None:
        check_parts(value, "inputs")
        return tuple(_tensor(name, None, member) for name, member in value.items())
    given = {name: _tensor(name, bindings, value[name]) for name in bindings if name in value}
    return _with_defaults(given, bindings, _rows(given), what)


def _rows(given: dict[str, Tensor]) -> int | None:
    """Returns the number of rows of all columns, 1 without any; None if they differ, or have none."""
    sizes = {tensor.array.shape[:1] for tensor in given.values()} or {(1,)}
    return sizes.pop()[0] if len(sizes) == 1 and () not in sizes else None


def _with_defaults(
    given: dict[str, Tensor], bindings: Bindings, rows: int | None, what: str = "inputs"
) -> tuple[Tensor, ...]:
    for name, binding in (bindings or {}).items():
        if name in given:
            continue
        if binding.required:
            raise InvalidInput(f"Missing named input: {name} in {what!r} object.")
        if binding.default is not None:
            found = _repeated(binding.default, binding, 1 if rows is None else rows)
            if rows is None and found is not binding.default:
                raise InvalidInput(_without_rows(name, given))
            given[name] = found
    return tuple(given.values())


def _without_rows(name: str, given: dict[str, Tensor]) -> str:
    """Returns why a default that is one row's cannot be repeated. It names two inputs whose rows differ, if any do."""
    (first, shape), *others = [(alias, tensor.array.shape) for alias, tensor in given.items()]
    other = next((f" and {shown(alias)} {list(found)}" for alias, found in others if found[:1] != shape[:1]), "")
    return (
        f"input {shown(name)} is missing, and its default is repeated for each row: expected the same number of rows "
        f"in all other inputs; {shown(first)} has shape {list(shape)}{other}"
    )


def _repeated(default: Tensor, binding: Binding, rows: int) -> Tensor:
    """Repeats an example's default for each row: [rows, *shape]. A default of the input's own rank stays as it is."""
    shape = binding.spec.shape
    each = np.broadcast_to(default.array, (rows, *default.array.shape))
    repeated = as_column(default._replace(array=each), shape)
    if shape is None or len(shape) != repeated.array.ndim:
        return default
    check_filled(rows * default.datatype.memory(default.array))
    return repeated


def _only(bindings: Bindings, problem: str) -> str:
    if bindings is None:
        return UNNAMED
    required = [name for name, binding in bindings.items() if binding.required] or list(bindings)
    if len(required) != 1:
        raise InvalidInput(
            f"{problem} as multiple input tensors required as per tensorinfo_map: {', '.join(sorted(required))[:256]}"
        )
    return required[0]


def _tensor(name: str, bindings: Bindings, value: Any) -> Tensor:
    """Raises InvalidInput."""
    if bindings is None:
        return to_tensor(name, _inferred(value), value)
    binding = bindings[name]
    if not binding.encoded:
        return as_column(to_tensor(binding.spec.name, binding.spec.datatype, value), binding.spec.shape)
    return decoded(binding.spec, to_tensor(name, BYTES, value))


def _datatype(binding: Binding) -> DataType:
    """Returns the datatype that a client sends."""
    return BYTES if binding.encoded else binding.spec.datatype


def check_renamed(inputs: tuple[Tensor, ...], bindings: Mapping[str, Binding], spec: ModelSpec) -> None:
    """Checks inputs under the client's aliases: the engine would name the model's tensors. Raises InvalidInput."""
    aliases = {binding.spec.name: alias for alias, binding in bindings.items()}
    for tensor in inputs:
        alias = aliases[tensor.name]
        if alias != tensor.name:
            fitting(tensor._replace(name=alias), bindings[alias].spec, spec)


def decoded(spec: TensorSpec, strings: Tensor) -> Tensor:
    """Converts strings to UINT8 [*shape, length], with their bytes along the last axis. Raises InvalidInput."""
    contents = strings.array.reshape(-1).tolist()
    lengths = set(map(len, contents))
    if len(lengths) > 1:
        raise InvalidInput(
            f"input {shown(strings.name)} has strings of {min(lengths)} and of {max(lengths)} bytes; its elements are "
            "bytes, so all strings of one request need the same length"
        )
    array = np.frombuffer(b"".join(contents), np.uint8)
    return Tensor(spec.name, spec.datatype, array.reshape(*strings.array.shape, *lengths or {0}))


def _inferred(value: Any) -> DataType:
    """Infers the datatype of values for a model that does not declare its inputs."""
    if isinstance(value, np.ndarray):
        return of_array(value.dtype) or BYTES
    kinds = set(map(type, flattened(value)[0]))
    if kinds <= {bool} and kinds:
        return BOOL
    if kinds <= {int} and kinds:
        return INT64
    return FP64 if kinds <= {int, float} else BYTES


def from_rows(instances: Any, bindings: Bindings) -> tuple[Tensor, ...]:
    """Returns the inputs of a request with one value per row ("instances").

    A row is {alias: value}, or the value itself if the signature requires one input. An input's shape is [rows, *shape
    of one value]. A scalar may stand for a row of one element (`as_column`). Missing inputs get their defaults,
    repeated per row if the input has one more axis than the default.
    Raises InvalidInput with TF Serving's messages. Source: TF Serving's json_tensor.h.
    """
    if isinstance(instances, np.ndarray) and instances.ndim:
        instances = instances if len(instances) else []
    elif not isinstance(instances, list):
        raise InvalidInput("Expecting 'instances' to be an list/array")
    if not len(instances):
        raise InvalidInput("No values in 'instances' array")
    if isinstance(instances, list) and isinstance(instances[0], dict) and is_named(instances[0]):
        return _objects(instances, bindings)
    name = _only(bindings, "instances is a plain list, but expecting list of objects")
    given = {name: _stacked(name, bindings, instances, are_rows=True)}
    return _with_defaults(given, bindings, len(instances))


def from_table(columns: Mapping[str, Any], rows: int, bindings: Bindings) -> tuple[Tensor, ...]:
    """Returns the inputs of a table. Each of its columns has the values of one input, one for each row.

    A column is a list, or an int64, uint64 or double array. Missing inputs get their defaults as `from_rows` has it.
    Raises InvalidInput, also for a column that is not an input.
    """
    foreign = next((name for name in columns if bindings is not None and name not in bindings), None)
    if foreign is not None:
        raise InvalidInput(f"the table has the column {shown(foreign)}; expected columns {shown(list(bindings or ()))}")
    names = [name for name in bindings or columns if name in columns]
    return _with_defaults({name: _stacked(name, bindings, columns[name]) for name in names}, bindings, rows)


def _stacked(name: str, bindings: Bindings, values: Any, *, are_rows: bool = False) -> Tensor:
    """Stacks one input of every row. `are_rows`: the values are the rows themselves, of which none may be an object.

    Raises InvalidInput that names the first row that differs from those before it.
    """
    if isinstance(values, list) and isinstance(values[0], np.ndarray):
        alike = {(value.shape, value.dtype) if isinstance(value, np.ndarray) else None for value in values}
        if len(alike) > 1:
            raise InvalidInput("rows of different kinds")  # the request is then read as lists, which names the row
        values = np.stack(values)
    try:
        return _tensor(name, bindings, values)
    except InvalidInput:
        if isinstance(values, list):
            blame(values, None if bindings is None else _datatype(bindings[name]), are_rows=are_rows)
        raise


def _objects(instances: list[Any], bindings: Bindings) -> tuple[Tensor, ...]:
    first = instances[0]
    if bindings is None:
        check_parts(first, "inputs")
        names = list(first)
    else:
        names = [name for name, binding in bindings.items() if name in first or binding.required]
    wanted = set(names)
    for index, instance in enumerate(instances):
        if not isinstance(instance, dict) or instance.keys() != wanted:
            raise odd_object(index, instance, wanted, wanted if bindings is None else bindings)
    given = {name: _stacked(name, bindings, [instance[name] for instance in instances]) for name in names}
    return _with_defaults(given, bindings, len(instances))

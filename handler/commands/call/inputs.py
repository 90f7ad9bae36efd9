"""From `--input NAME=VALUE` and `--file [NAME=]PATH` to tensors of the datatypes and shapes that the model declares."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from core.dialects.v1.values import Irregular, flattened
from core.dtype import BF16, BOOL, BYTES, FP32, FP64, INT64, DataType, of_array
from core.encoding.values import from_values, listed
from core.errors import InvalidInput, shown
from core.float16 import bf16_from_float
from core.tensor import MAX_RANK, Tensor, TensorSpec, as_column, objects
from handler.commands.call import files, samples
from handler.commands.call.served import CalledModel, hint
from handler.commands.options import CommandOptions
from handler.commands.refused import Refused


def read(options: CommandOptions, model: CalledModel) -> tuple[Tensor, ...]:
    """Returns the tensors of a request. Raises Refused for wrong, missing and unknown inputs."""
    if options.sample:
        return samples.made(model, options.rows)
    given = dict[str, Any]()
    for name, value in (*_typed(options.input, model), *_filed(options.file, model)):
        if name in given:
            raise Refused(f"input {shown(name)} is given twice")
        given[name] = value
    _check(given, model)
    try:
        return tuple(_tensor(name, value, _spec(name, model)) for name, value in given.items())
    except InvalidInput as error:
        raise Refused(error.message) from None


def _check(given: dict[str, Any], model: CalledModel) -> None:
    """Raises Refused for an input that the model does not have, and for one that is missing."""
    if model.inputs is None:
        if not given:
            raise Refused(f"model {shown(model.name)} does not declare its inputs: give them with --input NAME=VALUE")
        return
    names = [spec.name for spec in model.inputs]
    odd = next((name for name in given if name not in names), None)
    if odd is not None:
        raise Refused(f"model {shown(model.name)} has no input {shown(odd)}{hint(odd, names)}")
    missing = [spec for spec in model.inputs if not spec.optional and spec.name not in given]
    if missing:
        wanted = ", ".join(_described(spec) for spec in missing)
        example = " ".join(samples.flag(spec) for spec in missing)
        raise Refused(f"model {shown(model.name)} needs {wanted}; try: {example}, or --sample")


def _described(spec: TensorSpec) -> str:
    shape = "of any rank" if spec.shape is None else str(list(spec.shape))
    return f"{shown(spec.name)} ({spec.datatype.name} {shape})"


def _spec(name: str, model: CalledModel) -> TensorSpec | None:
    return next((spec for spec in model.inputs or () if spec.name == name), None)


def _typed(texts: Sequence[str], model: CalledModel) -> Iterator[tuple[str, Any]]:
    """Yields names and values of --input."""
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator:
            name, value = only(model, f"--input {text[:64]}"), text
        spec = _spec(name, model)
        yield name, _value(name, value, None if spec is None else spec.datatype)


def only(model: CalledModel, flag: str) -> str:
    """Returns the name of a model's only input, for a flag without a name. Raises Refused if it has another number."""
    names = [spec.name for spec in model.inputs or ()]
    if len(names) != 1:
        known = f", one of {', '.join(names)}" if names else ""
        raise Refused(f"{flag} needs NAME= before it{known}")
    return names[0]


def _value(name: str, text: str, datatype: DataType | None) -> Any:
    """Reads a value: JSON, but a word is a text where the model takes texts, or where it does not say what it takes."""
    if datatype is BYTES and not text.startswith(("[", '"')):
        return text
    try:
        return files.parsed(text)
    except ValueError:
        if datatype is None or datatype is BYTES:
            return text
        raise Refused(
            f"input {shown(name)} is {shown(text)}; expected {datatype.name} in JSON, such as 1 or [1, 2]"
        ) from None
    except RecursionError:
        raise Refused(f"input {shown(name)} has too many dimensions") from None


def _filed(texts: Sequence[str], model: CalledModel) -> Iterator[tuple[str, Any]]:
    """Yields names and values of --file. A table or an object without a name has one for each input."""
    for text in texts:
        name, separator, path = text.partition("=")
        if separator:
            yield name, files.read(Path(path))
            continue
        content = files.read(Path(text))
        if isinstance(content, files.Table) and _has_inputs(content, model):
            yield from content.columns()
        elif isinstance(content, dict):
            yield from content.items()
        else:
            yield only(model, f"--file {text}"), content


def _has_inputs(table: files.Table, model: CalledModel) -> bool:
    """Decides whether a table's columns are inputs, and not the elements of the model's only one."""
    specs = model.inputs or ()
    names = frozenset(spec.name for spec in specs)
    has_texts = any(spec.datatype.is_bytes for spec in specs)
    is_only = len(specs) == 1 and names.isdisjoint(table.first)
    return not is_only and table.is_named(names, has_texts=has_texts)


def _tensor(name: str, value: Any, spec: TensorSpec | None) -> Tensor:
    """Returns a value as a tensor. Raises InvalidInput for a value that the datatype cannot hold."""
    if isinstance(value, bytes):
        return _binary(name, value, spec)
    if isinstance(value, np.ndarray):
        tensor = _of_array(name, value, None if spec is None else spec.datatype)
    else:
        if isinstance(value, files.Table):
            value = _rows(value, name, spec)
        is_cells = isinstance(value, files.Cells)
        flat, shape = (_typed_cells(value, spec), value.shape) if is_cells else _nested(name, value)
        if len(shape) > MAX_RANK:
            raise InvalidInput(f"input {shown(name)} has {len(shape)} dimensions; expected at most {MAX_RANK}")
        tensor = _of_values(name, flat, shape, guessed(flat) if spec is None else spec.datatype)
    return tensor if spec is None else fitted(tensor, spec.shape)


def _nested(name: str, value: Any) -> tuple[Sequence[Any], tuple[int, ...]]:
    try:
        return flattened(value)
    except Irregular as error:
        raise InvalidInput(f"input {shown(name)}: {error.message}") from None


def _rows(table: files.Table, name: str, spec: TensorSpec | None) -> files.Cells:
    """Returns a table's rows, as one input. Without a declaration it is text if a row below the first line is."""
    has_texts = table.rows(is_named=True).are_texts if spec is None else spec.datatype.is_bytes
    return table.rows(is_named=table.is_named(frozenset((name,)), has_texts=has_texts))


def _typed_cells(cells: files.Cells, spec: TensorSpec | None) -> list[Any]:
    """Returns cells as the datatype needs them: texts stay as they are written."""
    is_text = cells.are_texts if spec is None else spec.datatype.is_bytes
    return cells.texts if is_text else cells.numbers()


def _of_values(name: str, flat: Sequence[Any], shape: tuple[int, ...], datatype: DataType) -> Tensor:
    if datatype is BYTES:
        flat = [str(each) if type(each) in (int, float) else each for each in flat]
    if datatype is BF16:
        numbers = from_values(name, FP32, shape, flat).array
        return Tensor(name, BF16, bf16_from_float(numbers.reshape(-1)).reshape(shape))
    return from_values(name, datatype, shape, list(flat))


def guessed(flat: Sequence[Any]) -> DataType:
    """Returns the datatype of values without a declaration: FP64, INT64, BOOL or BYTES."""
    kinds = set(map(type, flat))
    if kinds <= {int}:
        return INT64
    if kinds <= {int, float}:
        return FP64
    return BOOL if kinds == {bool} else BYTES


def _of_array(name: str, array: Any, datatype: DataType | None) -> Tensor:
    """Returns a numpy array as a tensor: floats are rounded to the datatype, whole numbers stay exact."""
    own = of_array(array.dtype)
    if own is None:
        raise InvalidInput(f"input {shown(name)} is an array of {array.dtype}, which has no datatype here")
    datatype = own if datatype is None else datatype
    if array.dtype.kind in "biuf" and own is datatype:
        return Tensor(name, datatype, array.astype(datatype.numpy))
    if array.dtype.kind in "iuf" and not datatype.is_bytes and datatype is not BF16:
        wide = array.astype({"i": np.int64, "u": np.uint64, "f": np.float64}[array.dtype.kind])
        return from_values(name, datatype, array.shape, wide.reshape(-1))
    flat = listed(array.reshape(-1))
    if array.dtype.kind == "S" and datatype is BYTES:
        return Tensor(name, BYTES, objects(flat).reshape(array.shape))
    if array.dtype.kind == "S":
        flat = [each.decode(errors="backslashreplace") for each in flat]  # no number has a backslash
    return _of_values(name, flat, array.shape, datatype)


def _binary(name: str, content: bytes, spec: TensorSpec | None) -> Tensor:
    """Returns a file's bytes: one element of BYTES, or an element of UINT8 for each."""
    if spec is not None and spec.datatype.name == "UINT8":
        return fitted(Tensor(name, spec.datatype, np.frombuffer(content, np.uint8)), spec.shape)
    if spec is not None and spec.datatype is not BYTES:
        raise InvalidInput(f"input {shown(name)} is {spec.datatype.name}; expected a .npy, .json or .csv file")
    array = np.empty((), object)
    array[()] = content
    tensor = Tensor(name, BYTES, array)
    return tensor if spec is None else fitted(tensor, spec.shape)


def fitted(tensor: Tensor, shape: tuple[int, ...] | None) -> Tensor:
    """Returns a tensor with its missing dimensions added: those of one row, or of a column. Others are unchanged."""
    if shape is None or tensor.array.ndim >= len(shape):
        return tensor
    own = tensor.array.shape
    grown = (1,) * (len(shape) - len(own)) + own
    if all(want in (-1, size) for want, size in zip(shape, grown, strict=True)):
        return tensor._replace(array=tensor.array.reshape(grown))
    return as_column(tensor, shape)

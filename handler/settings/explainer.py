"""The key "explainer" of model-settings.json: the background of Shapley values, and how to calculate them.

    "explainer": {
        "background": [[5.1, 3.5, 1.4, 0.2], [6.3, 2.9, 5.6, 1.8]],
        "budget": 2048,
        "seed": 0,
        "output": "probabilities",
        "target": 1,
        "feature_names": ["sepal length", "sepal width", "petal length", "petal width"]
    }

background      Required. Typical examples, at most 1,000. An "absent" feature has their values instead of the
                explained example's. One of
                - rows: an array of examples, each nested like the model's only input without its leading axis;
                - {"input": rows, ...}: rows by name for a model of several inputs, with equal numbers of rows;
                - {"file": "background.json"}: a file in the version's folder, in the same two forms: .json; .npy, an
                  array [rows, ...]; .npz, such arrays by the names of the inputs.
budget          The most coalitions of features to evaluate for an example, from 4 to 65536; default 2048. With 2048,
                all coalitions of 11 features are evaluated, and scores are exact. For more features they are
                estimated (KernelSHAP), which needs a budget of at least 2 x features + 2. One explanation costs
                rows x coalitions predictions, which are at most 4,194,304.
seed            The seed of the estimate: a whole number from 0 up; default 0. Equal seeds yield equal scores.
output          The output to explain. Default: the only one of numbers, else the first that has class labels or is
                called "probabilities" or "scores", else the first of floats, else the first of numbers.
target          The index of the class to explain. Default: the class of the highest score, for each example.
feature_names   Names to send along: one per element of an example, row by row; or {"input": names, ...}.

Every input is explained, texts (BYTES) as numbers: a feature has the example's value or the background's. The model
must declare its inputs. Where an input has one element for each row, [-1, 1], its rows may be scalars: a DataFrame's
`df.to_dict("list")`. Other keys are refused.
"""

import io
import json
import math
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any, Final

import numpy as np

from core.dtype import BF16, FP32, DataType, NDArray
from core.encoding.values import from_values, listed
from core.errors import InvalidInput, counted, shown
from core.explain import explanation, shapley
from core.float16 import bf16_from_float
from core.operations import Explainer, ModelSpec
from core.records import NamedTuple
from core.tensor import TensorSpec, is_column
from handler.settings.checked import Wrong, WrongText, an_object, is_below, size_of, texts

MOST_BACKGROUND: Final = 1000
"""The most rows of a background."""
MOST_BUDGET: Final = 65536
MOST_NUMBER: Final = 2**63 - 1
MOST_CELLS: Final = 2**23
"""The most features x coalitions: the matrices of the method take 8 bytes for each."""
MOST_ELEMENTS: Final = 2**22
"""The most elements of a background. MOST_CELLS permits about 2,000 features, and MOST_BACKGROUND so many rows."""
LARGEST_FILE: Final = 2**27
"""The most bytes of a background's JSON, or of the arrays of its file, which can be smaller by a thousand times."""
HEADER: Final = 2**14
"""The bytes of an array's file that hold its header, which says its shape."""
FILES: Final = (".json", ".npy", ".npz")
SAID: Final = 'a row per example, an object of such rows by input, or {"file": name}'
READERS: Final[Mapping[tuple[int, int], Any]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
WIDE: Final = {"b": np.bool_, "i": np.int64, "u": np.uint64, "f": np.float64}
"""A type for each kind of a file's elements that holds them all."""


class ExplainerSettings(NamedTuple):
    """The settings as written. `file`: the name of the file that replaces `background`."""

    background: Any
    file: str | None
    budget: int
    seed: int
    output: str | None
    target: int | None
    feature_names: Any


def parse(value: Any) -> ExplainerSettings | None:
    """Parses the key's value; None stays None. Raises Wrong."""
    if value is None:
        return None
    known = ("background", "budget", "seed", "output", "target", "feature_names")
    members = an_object(value, "explainer", *known)
    background, output = members.get("background"), members.get("output")
    if not isinstance(background, list | dict) or not background:
        raise _wrong(".background", background, SAID)
    if output is not None and not isinstance(output, str):
        raise _wrong(".output", output, "the name of an output")
    return ExplainerSettings(
        background,
        _file(background),
        _number(members, "budget", 2048, 4, MOST_BUDGET),
        _number(members, "seed", 0, 0, MOST_NUMBER),
        output,
        None if members.get("target") is None else _number(members, "target", 0, 0, MOST_NUMBER),
        _parsed_names(members.get("feature_names")),
    )


def build(said: ExplainerSettings, folder: Path, spec: ModelSpec) -> Explainer:
    """Builds the explainer of a model with this spec. `folder`: its version's. Raises Wrong."""
    background = _background(said, folder, spec)
    names = _names(said.feature_names, background)
    explainer = Explainer(background, said.budget, said.seed, said.output, said.target, names)
    _check_budget(explainer)
    _check_output(explainer, spec)
    return explainer


def _wrong(path: str, value: Any, expected: str) -> Wrong:
    return Wrong(f"explainer{path}", value, expected)


def _file(background: Any) -> str | None:
    """Returns the background's file name, None without one. A list under "file" is rows of an input of that name."""
    name = background.get("file") if isinstance(background, dict) else None
    if name is None or isinstance(name, list):
        return None
    beside = f"the name of a file in the version's folder that ends in {', '.join(FILES)}"
    if not is_below(name) or PurePath(name).name != name or PurePath(name).suffix not in FILES:
        raise _wrong(".background.file", name, beside)
    if len(background) > 1:
        raise _wrong(".background", background, '"file" without other keys')
    return str(name)


def _number(members: Mapping[str, Any], key: str, default: int, least: int, most: int) -> int:
    value = members.get(key)
    if value is None:
        return default
    if type(value) is not int or not least <= value <= most:
        raise _wrong(f".{key}", value, f"a whole number from {least} to {most}")
    return value


def _parsed_names(value: Any) -> Any:
    """Parses names by input, or the names of the only input. Raises Wrong."""
    if isinstance(value, dict):
        return {name: texts(names, f"explainer.feature_names.{name}") for name, names in value.items()}
    return None if value is None else texts(value, "explainer.feature_names")


def _background(said: ExplainerSettings, folder: Path, spec: ModelSpec) -> dict[str, NDArray[Any]]:
    path = ".background" if said.file is None else f".background.file {said.file!r}"
    rows = said.background if said.file is None else _read(folder / said.file, path)
    if spec.inputs is None:
        raise WrongText('explainer needs a model that declares its inputs: add "inputs" to these settings')
    by_name = _by_input(rows, path, [tensor.name for tensor in spec.inputs], SAID)
    _check_counts({name: len(value) for name, value in by_name.items() if isinstance(value, list) and value}, path)
    background = {tensor.name: _rows(by_name[tensor.name], tensor, path) for tensor in spec.inputs}
    _check_counts({name: len(array) for name, array in background.items()}, path)
    return background


def _check_counts(counts: Mapping[str, int], path: str) -> None:
    if counts and (len(set(counts.values())) != 1 or not 0 < max(counts.values()) <= MOST_BACKGROUND):
        raise _wrong(path, counts, f"from 1 to {MOST_BACKGROUND} rows, the same number for every input")


def _by_input(value: Any, path: str, inputs: list[str], expected: str) -> Mapping[str, Any]:
    """Returns a value for each of the model's inputs. Raises Wrong if inputs are missing or unknown."""
    if not isinstance(value, Mapping):
        if len(inputs) != 1:
            raise _wrong(path, value, f"an object by input; the model's inputs are {shown(inputs)}")
        return {inputs[0]: value}
    if set(value) != set(inputs):
        raise _wrong(path, list(value), f"the model's inputs {shown(inputs)}: {expected}")
    return value


def _read(path: Path, where: str) -> Any:
    """Reads a file's rows, without running code from it. Raises Wrong."""
    try:
        size = size_of(path)
        if path.suffix == ".json":
            _check_bytes(size, where)
            return json.loads(path.read_bytes())
        if path.suffix == ".npy":
            with path.open("rb") as file:
                _count(file.read(HEADER), where)
            # A header can claim any size. Without the mapping, numpy would first allocate as much memory.
            return np.lib.format.open_memmap(path, mode="r")
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            total = 0
            for member in arrays.zip.infolist():
                with arrays.zip.open(member) as inner:
                    total += _count(inner.read(HEADER), f"{where} {shown(member.filename)}", total)
            return {name: arrays[name] for name in arrays.files}
    except Wrong:
        raise
    except OSError as error:
        raise WrongText(f"explainer{where} cannot be read: {error.strerror}") from None
    except Exception as error:  # numpy's own, which may quote an object (<...>), zipfile's, and MemoryError
        reason = str(error).replace(str(path), "").partition(": <")[0]
        raise WrongText(f"explainer{where} is not a file of numbers: {shown(reason)}") from error


def _check_bytes(size: int, where: str) -> None:
    if size > LARGEST_FILE:
        raise _wrong(where, f"{size} bytes", f"at most {LARGEST_FILE} in all")


def _count(header: bytes, where: str, before: int = 0) -> int:
    """Returns the bytes of an array, by its header alone. `before`: the bytes of the arrays before it.

    Raises Wrong for an array with too many rows, elements or bytes, ValueError for another file.
    """
    file = io.BytesIO(header)
    if (version := np.lib.format.read_magic(file)) not in READERS:
        raise ValueError(f"an array's file of version {version}")
    shape, _, dtype = READERS[version](file)
    size: int = (count := math.prod(shape)) * dtype.itemsize
    if shape and shape[0] > MOST_BACKGROUND:
        raise _wrong(where, counted(shape[0], "row"), f"from 1 to {MOST_BACKGROUND} rows")
    if count > MOST_ELEMENTS:
        raise _wrong(where, f"{count} elements", f"a file of numbers, at most {MOST_ELEMENTS}")
    _check_bytes(before + size, where)
    return size


def _rows(value: Any, tensor: TensorSpec, path: str) -> NDArray[Any]:
    """Returns rows [rows, ...] in the input's type, exact or rounded like a request's elements. Raises Wrong."""
    path = f"{path}.{tensor.name}"
    shape = _shape(value, path)
    expected = tensor.shape
    if len(shape) == 1 and is_column(expected):
        shape = (*shape, *expected[1:])
    if expected is not None and (
        len(shape) != len(expected) or any(e not in (-1, s) for s, e in zip(shape[1:], expected[1:], strict=True))
    ):
        raise _wrong(path, list(shape), f"rows of the input's shape {list(expected)}, except its first axis")
    datatype = FP32 if tensor.datatype is BF16 else tensor.datatype
    try:
        array = from_values(tensor.name, datatype, shape, _wide(value, datatype, path)).array
    except InvalidInput as error:
        raise WrongText(f"explainer{path}: {error.message}") from None
    return bf16_from_float(array) if tensor.datatype is BF16 else array


def _wide(value: Any, datatype: DataType, path: str) -> Any:
    """Copies an array into memory, in one of the types that parsers make. Lists stay as they are. Raises Wrong."""
    if isinstance(value, list):
        return value
    if datatype.is_bytes and value.dtype.kind == "U":
        return listed(value)
    if datatype.is_bytes or value.dtype.kind not in WIDE:
        raise _wrong(path, str(value.dtype), "an array of text" if datatype.is_bytes else "an array of numbers")
    return np.array(value, WIDE[value.dtype.kind])


def _shape(value: Any, path: str) -> tuple[int, ...]:
    try:
        shape: tuple[int, ...] = np.shape(value)
    except ValueError:
        raise _wrong(path, value, "rows that are all of one shape") from None
    if not shape or not isinstance(value, list | np.ndarray):
        raise _wrong(path, value, "an array of rows")
    return shape


def _names(said: Any, background: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, ...]]:
    if said is None:
        return {}
    names = _by_input(said, ".feature_names", list(background), "an array of text for each")
    for name, array in background.items():
        if len(names[name]) != math.prod(array.shape[1:]):
            expected = f"{math.prod(array.shape[1:])} names, one for each element of an example's input {name!r}"
            raise _wrong(".feature_names", list(names[name]), expected)
    return {name: tuple(names[name]) for name in background}


def _check_budget(explainer: Explainer) -> None:
    features = sum(math.prod(array.shape[1:]) for array in explainer.background.values())
    count, budget = len(next(iter(explainer.background.values()))), explainer.budget
    if budget < min(least := shapley.least_budget(features), 2**features) or budget * features > MOST_CELLS:
        most = f"for {features} features at least {least}, at most {MOST_CELLS // max(1, features)}"
        raise _wrong(".budget", budget, most)
    if min(budget, 2**features) * count > explanation.MOST_ROWS:
        expected = f"at most {explanation.MOST_ROWS // count} with a background of {counted(count, 'row')}"
        raise _wrong(".budget", budget, expected)


def _check_output(explainer: Explainer, spec: ModelSpec) -> None:
    if spec.outputs is None:
        return
    output = explanation.explained(spec.outputs, explainer.output)
    if output is None:
        numeric = [output.name for output in spec.outputs if not output.datatype.is_bytes]
        raise _wrong(".output", explainer.output, f"one of the model's outputs of numbers, {shown(numeric)}")
    classes = output.shape[-1] if output.shape and len(output.shape) > 1 else -1
    if explainer.target is not None and 1 < classes <= explainer.target:
        raise _wrong(".target", explainer.target, f"a class of output {output.name!r}, which has {classes}")

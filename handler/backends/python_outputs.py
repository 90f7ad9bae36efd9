"""What the functions of a Python model return, as tensors and as explanations.

The objects may be of the model's own classes, so reading them runs code of the model.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from core.dtype import BF16, BYTES, DataType, NDArray, of_array
from core.errors import InvalidInput, ModelFailed, shown
from core.operations import ModelSpec
from core.tensor import Tensor, TextTensor, objects

PLAIN: Final = (bool, int, float, complex, str, bytes, np.generic)
"""Types whose text is the value alone."""


def _told(value: Any) -> str:
    """Returns a value for messages. The text of an object may have a path, an address of memory or anything else."""
    return shown(value) if value is None or isinstance(value, PLAIN) else f"an object of type {type(value).__name__}"


def _holds(datatype: DataType, array: NDArray[Any]) -> bool:
    """Decides whether a declared datatype can have such values; integers have to be in its range, too."""
    if np.can_cast(array.dtype, datatype.numpy, "same_kind"):
        return True
    # A list is INT64 for numpy, and FP64 without elements.
    unsigned = datatype.numpy.kind == "u" and datatype is not BF16
    return (array.dtype.kind == "i" and unsigned) or (array.dtype.kind == "f" and not array.size)


def _array(value: Any, *, is_text: bool = False) -> NDArray[Any]:
    """Returns what a model returned as an array. Raises ValueError for a ragged list, and for masked elements.

    Under a mask, numpy keeps values that mean nothing. Of a list of texts it would make an array in which each takes as
    much memory as the longest: texts stay the objects that they are. `is_text`: whatever the list begins with.
    """
    if isinstance(value, np.ndarray) and np.any(getattr(value, "mask", False)):
        raise ValueError("it has masked elements, which need values: filled()")
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    return np.asarray(value, object if is_text or isinstance(first, str | bytes) else None)


def _are_objects(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(member, Mapping) for member in value)


class Returned:
    """Reads the objects that a model returned. Each failure is the model's, and names what was expected."""

    def __init__(self, spec: ModelSpec) -> None:
        self._model = spec.name
        self._datatypes = {output.name: output.datatype for output in spec.outputs or ()}

    def tensors(self, wanted: Sequence[str], answered: Any) -> list[Tensor]:
        """Returns the wanted outputs of `predict`, all of them by default. Raises ModelFailed, InvalidInput."""
        if not isinstance(answered, Mapping):
            raise self.wrong(f"predict returned {type(answered).__name__}, not a dict of arrays")
        return [self._output(name, answered) for name in wanted or map(self._name, answered)]

    def _name(self, key: Any) -> str:
        """Returns the name of an undeclared output. Raises ModelFailed unless it is Unicode text."""
        try:
            return str(key.encode(), "utf-8")
        except (AttributeError, UnicodeEncodeError):
            raise self.wrong(f"predict returned an output with the name {_told(key)}; expected text") from None

    def explanations(self, answered: Any) -> list[Mapping[str, Any]]:
        """Returns one explanation per example, from each form that `explain` may return. Raises ModelFailed."""
        if isinstance(answered, Mapping) and _are_objects(answered.get("explanations")):
            answered = answered["explanations"]  # a whole answer, as KServe's models return it
        if _are_objects(answered):
            return list(answered)
        members = answered if isinstance(answered, Mapping) else {"importance_scores": answered}
        arrays = {str(name): self._members(str(name), member) for name, member in members.items()}
        if len({len(array) for array in arrays.values()}) != 1:
            counts = {name: len(array) for name, array in arrays.items()}
            raise self.wrong(f"explain returned members of unequal length: {shown(counts)}")
        return [dict(zip(arrays, values, strict=True)) for values in zip(*arrays.values(), strict=True)]

    def _members(self, name: str, value: Any) -> Sequence[Any]:
        """Returns one value per example for JSON: an array of numbers, a number, or lists of text."""
        try:
            array = _array(value)
        except ValueError as error:
            raise self.wrong(f"explain returned {name!r}, which is not an array: {error}") from error
        is_text = array.dtype.kind in "UT" or (array.size and all(isinstance(each, str) for each in array.flat))
        if not array.ndim or not (is_text or array.dtype.kind in "biuf"):
            found = _told(value) if array.dtype.kind == "O" else shown(value)
            raise self.wrong(f"explain returned {name!r} of {found}; expected an array of numbers or text")
        if not is_text:
            # JSON writers do not know long doubles and foreign byte orders.
            native = np.float64 if array.dtype == np.longdouble else array.dtype.newbyteorder("=")
            array = np.ascontiguousarray(array, native)
        values: list[Any] = array.tolist() if is_text or array.ndim == 1 else list(array)
        return values

    def _output(self, name: str, answered: Mapping[str, Any]) -> Tensor:
        if name not in answered:
            kind = self.wrong if name in self._datatypes else InvalidInput
            keys: list[Any] = list(answered)
            there = shown([key if isinstance(key, PLAIN) else _told(key) for key in keys])
            raise kind(f"predict returned no output {name!r}; it returned {there}")
        try:
            array = _array(answered[name], is_text=self._datatypes.get(name) is BYTES)
        except ValueError as error:
            raise self.wrong(f"output {name!r} is not an array: {error}") from error
        found = of_array(array.dtype)
        datatype = self._datatypes.get(name, found)
        if datatype is BYTES:
            return self._strings(name, array)
        same = found is datatype or (datatype is BF16 and array.dtype == BF16.numpy)
        if datatype is None or not (same or _holds(datatype, array)):
            expected = "a type that the protocols have" if datatype is None else datatype.name
            raise self.wrong(f"output {name!r} is {array.dtype}, which is not {expected}")
        if not same and datatype.numpy.kind in "iu":
            self._check_range(name, array, datatype)
        # Model code may fill the same array again, while pipelines, batches and explanations still need this answer.
        with np.errstate(over="ignore", invalid="ignore"):
            made = array.astype(datatype.numpy)
        if not same and datatype.is_float:
            self._check_finite(name, array, made, datatype)
        return Tensor(name, datatype, made)

    def _check_range(self, name: str, array: NDArray[Any], datatype: DataType) -> None:
        """Raises ModelFailed for an integer that numpy would wrap: 300 as INT8 is 44."""
        limits = np.iinfo(datatype.numpy.str)
        for extreme in (array.min().item(), array.max().item()) if array.size else ():
            if not limits.min <= extreme <= limits.max:
                raise self.wrong(f"output {name!r} has {extreme}, which is out of range for {datatype.name}")

    def _check_finite(self, name: str, array: NDArray[Any], made: NDArray[Any], datatype: DataType) -> None:
        """Raises ModelFailed for a number that numpy has made infinite: 1e300 as FP32 is inf."""
        lost = np.isinf(made)
        if lost.any() and (lost := lost & ~np.isinf(array)).any():
            raise self.wrong(f"output {name!r} has {array[lost][0]!s}, which is out of range for {datatype.name}")

    def _strings(self, name: str, array: NDArray[Any]) -> Tensor:
        array = array.astype(object, copy=False)
        given = array.reshape(-1).tolist()
        kinds = set(map(type, given))
        if kinds == {bytes}:
            return Tensor(name, BYTES, objects(given).reshape(array.shape))
        if kinds == {str} and "".join(given).isascii():
            return TextTensor(name, objects(given).reshape(array.shape))
        return Tensor(name, BYTES, self._encoded(name, given).reshape(array.shape))

    def _encoded(self, name: str, given: Sequence[Any]) -> NDArray[Any]:
        flat = np.empty(len(given), object)
        for index, element in enumerate(given):
            try:
                flat[index] = element.encode() if isinstance(element, str) else element
            except UnicodeEncodeError:
                raise self.wrong(f"output {name!r} has a lone surrogate, which is not Unicode text") from None
            if not isinstance(flat[index], bytes):
                raise self.wrong(f"output {name!r} has {_told(element)} where BYTES needs str or bytes")
        return flat

    def wrong(self, text: str) -> ModelFailed:
        return ModelFailed(f"model {self._model!r}: {text}")

"""Outputs as TensorFlow Serving's rows and columns.

Strings whose alias ends in _bytes are {"b64": text}. So is every other string that is not UTF-8, for which TF Serving's
answer is not valid JSON. Source: TF Serving's json_tensor.h.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from core.dtype import BYTES
from core.encoding import jsonio, long_json
from core.encoding.jsonio import TOGETHER, NonFinite
from core.encoding.proto_json import from_bytes
from core.errors import InvalidInput
from core.records import NamedTuple
from core.signature import Signature
from core.tensor import Tensor, objects

BINARY_SUFFIX: Final = "_bytes"


class Output(NamedTuple):
    """One output under the alias that the client knows."""

    alias: str
    tensor: Tensor

    def value(self, non_finite: NonFinite | None) -> Any:
        """Returns the tensor for `jsonio.dumps`, nested in its shape. Raises InvalidInput as `numeric` does."""
        if self.tensor.datatype is not BYTES:
            return jsonio.numeric(self.tensor, non_finite)
        elements = prod(self.tensor.shape)
        if elements <= TOGETHER:
            return self._strings(long_json.array)
        size, *inner = self.tensor.shape

        def rows_of(start: int, end: int) -> Any:
            part = self.part(start, end)
            if elements // size <= TOGETHER:
                return part.value(non_finite)
            return [Output(self.alias, part.tensor.reshaped(tuple(inner))).value(non_finite)]

        return _in_pieces(size, elements, rows_of)

    def rows(self, non_finite: NonFinite | None) -> list[Any]:
        """Returns one such value per element of the first axis. Raises InvalidInput as `numeric` does."""
        if self.tensor.datatype is BYTES:
            strings: list[Any] = self._strings(long_json.texts)
            return strings
        return jsonio.rows(self.tensor, non_finite)

    def _strings(self, flat: Callable[[list[str]], Any]) -> Any:
        """Returns the tensor's strings in its shape. `flat`: makes the array of texts for `jsonio.dumps`."""
        return _strings(self.tensor, flat, binary=self.alias.endswith(BINARY_SUFFIX))

    def part(self, start: int, end: int) -> "Output":
        return Output(self.alias, self.tensor.rows(start, end))


def named(tensors: Sequence[Tensor], signature: Signature | None) -> list[Output]:
    """Returns a model's outputs under the signature's aliases, or under their own names if it has none."""
    if signature is None or not signature.outputs:
        return [Output(tensor.name, tensor) for tensor in tensors]
    by_name = {tensor.name: tensor for tensor in tensors}
    return [
        Output(alias, _encoded(by_name[binding.spec.name]) if binding.encoded else by_name[binding.spec.name])
        for alias, binding in signature.outputs.items()
    ]


def columns(outputs: Sequence[Output], non_finite: NonFinite | None) -> Any:
    """Returns {alias: value}, whole tensors in their shapes; a single output is the value itself.

    Raises InvalidInput for NaN and infinities if `non_finite` is None.
    """
    if len(outputs) == 1:
        return outputs[0].value(non_finite)
    return {output.alias: output.value(non_finite) for output in outputs}


def rows(outputs: Sequence[Output], non_finite: NonFinite | None) -> Any:
    """Returns one value per row, or one {alias: value} per row if there are several outputs.

    Raises InvalidInput, in TF Serving's words, for an output without a first axis and for outputs with different
    numbers of rows; also for NaN and infinities if `non_finite` is None.
    """
    sizes: list[int] = []
    for alias, tensor in outputs:
        if not tensor.shape:
            raise InvalidInput(f"Tensor name: {alias} has no shape information")
        sizes.append(tensor.shape[0])
        if sizes[-1] != sizes[0]:
            raise InvalidInput(f"Tensor name: {alias} has inconsistent batch size: {sizes[-1]} expecting: {sizes[0]}")
    if len(outputs) == 1:
        return outputs[0].value(non_finite)
    elements = sum(prod(tensor.shape) for _, tensor in outputs)
    if elements <= TOGETHER:
        return _objects(outputs, non_finite)
    return _in_pieces(
        sizes[0], elements, lambda start, end: _objects([each.part(start, end) for each in outputs], non_finite)
    )


def _in_pieces(size: int, elements: int, rows_of: Callable[[int, int], Any]) -> Any:
    """Returns the array of all rows for `jsonio.dumps`, written some rows at a time: other threads run in between.

    `size`: the number of rows. `elements`: in all of them. `rows_of`: returns the rows from one index to another.
    """
    step = max(1, TOGETHER * size // elements)
    pieces = [jsonio.dumps(rows_of(start, start + step))[1:-1] for start in range(0, size, step)]
    return jsonio.verbatim(b"[%b]" % b",".join(pieces))


def _objects(outputs: Sequence[Output], non_finite: NonFinite | None) -> list[dict[str, Any]]:
    aliases = [output.alias for output in outputs]
    return [
        dict(zip(aliases, row, strict=True))
        for row in zip(*(output.rows(non_finite) for output in outputs), strict=True)
    ]


def _encoded(tensor: Tensor) -> Tensor:
    """Converts UINT8 to strings: each is the bytes along the last axis."""
    array = np.ascontiguousarray(tensor.array)
    strings = np.empty(array.shape[:-1], object)
    for at in np.ndindex(strings.shape):
        strings[at] = array[at].tobytes()
    return Tensor(tensor.name, BYTES, strings)


def _strings(tensor: Tensor, flat: Callable[[list[str]], Any], *, binary: bool) -> Any:
    texts = None if binary else tensor.texts
    if texts is None:
        elements = [text(element, binary=binary) for element in tensor.array.flat]
    else:
        made = flat if texts.ndim == 1 else long_json.texts
        elements = made((texts if texts.ndim == 1 else texts.reshape(-1)).tolist())
    return elements if len(tensor.shape) == 1 else objects(elements).reshape(tensor.shape).tolist()


def text(element: bytes, *, binary: bool = False) -> Any:
    """Returns the element for `jsonio.dumps`: as a string, or as {"b64": text} if it is binary or not UTF-8."""
    if not binary:
        try:
            return long_json.text(element.decode())
        except UnicodeDecodeError:
            pass
    return {"b64": from_bytes(element)}

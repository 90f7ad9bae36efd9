"""MLServer's parameter "content_type" on a request, its inputs and outputs, and on the outputs of its answer.

A content type says which Python object a client encodes as a tensor: "np", "pd", "str", "datetime", "base64". Models
see tensors, so only one of them changes a model's inputs: the elements of a BYTES input of "base64" are decoded.
MLServer's codecs decode an output by its content type, and a BYTES output without one stays text or bytes. So a request
that has a content type gets one with every BYTES output: the one that it asks for, "base64" if its BYTES inputs are
base64, else "str" if the elements are UTF-8. Other clients get none. Source: MLServer's codecs, content-type.md.
"""

from binascii import b2a_base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from core.dtype import BYTES
from core.encoding.proto_json import to_bytes
from core.errors import InvalidInput, shown
from core.records import NamedTuple
from core.tensor import Tensor, named

NAME: Final = "content_type"
BASE64: Final = "base64"
STR: Final = "str"
ECHOED: Final = frozenset({"np", STR, "datetime", BASE64})
"""The types of MLServer's codecs for single outputs."""


class ContentTypes(NamedTuple):
    """The types of a request. `inputs`: in their order, "" for none. `outputs`: by the names of those that have one."""

    inputs: Sequence[str]
    outputs: Mapping[str, str]

    @property
    def member(self) -> str:
        """The parameter's name."""
        return NAME

    def decoded(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Returns the inputs as the model sees them. Raises InvalidInput for an element that is not base64."""
        pairs = zip(tensors, self.inputs, strict=True)
        return tuple(
            _decoded(tensor) if kind == BASE64 and tensor.datatype is BYTES else tensor for tensor, kind in pairs
        )

    def answered(self, tensor: Tensor) -> tuple[Tensor, str]:
        """Returns an output as the client reads it, and its content type; "" for none."""
        kind = self.outputs.get(tensor.name, "")
        if tensor.datatype is not BYTES:
            return tensor, kind if kind != BASE64 else ""
        if not kind:
            kind = BASE64 if BASE64 in self.inputs else STR if _is_text(tensor) else ""
        return (_encoded(tensor) if kind == BASE64 else tensor), kind


def of_request(
    parameters: Mapping[str, Any], inputs: Iterable[Mapping[str, Any]], outputs: Iterable[tuple[str, Mapping[str, Any]]]
) -> ContentTypes | None:
    """Returns the content types of a request, None for a request without any.

    `inputs`: the parameters of each; `outputs`: names and parameters. Raises InvalidInput for one that is not text.
    """
    of_inputs = [_kind(given) for given in inputs]
    of_outputs = {name: kind for name, given in outputs if (kind := _kind(given)) in ECHOED}
    if not (of_outputs or any(of_inputs) or _kind(parameters)):
        return None
    return ContentTypes(of_inputs, of_outputs)


def _kind(parameters: Mapping[str, Any]) -> str:
    kind = parameters.get(NAME)
    if kind is None:
        return ""
    if not isinstance(kind, str):
        raise InvalidInput(f"parameter '{NAME}' is {shown(kind)}; expected text")
    return kind


def _decoded(tensor: Tensor) -> Tensor:
    elements = np.empty(tensor.array.size, object)
    for index, element in enumerate(tensor.array.flat):
        try:
            elements[index] = to_bytes(element.decode("ascii"))
        except ValueError:
            what = f"{named(tensor.name)} is of content_type '{BASE64}'"
            raise InvalidInput(f"{what} and has {shown(element)}, which is not base64") from None
    return tensor._replace(array=elements.reshape(tensor.array.shape))


def _encoded(tensor: Tensor) -> Tensor:
    elements = np.empty(tensor.array.shape, object)
    elements.reshape(-1)[:] = [b2a_base64(element, newline=False) for element in tensor.array.flat]
    return tensor._replace(array=elements)


def _is_text(tensor: Tensor) -> bool:
    try:
        for element in tensor.array.flat:
            element.decode()
    except UnicodeDecodeError:
        return False
    return True

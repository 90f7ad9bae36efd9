"""Asks TensorFlow and ONNX Runtime the same rows, through one signature of a SavedModel."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import BF16, BY_ONNX, BYTES
from core.records import NamedTuple
from handler.backends.onnx_file import Value
from handler.commands.convert.parity import given, samples
from handler.commands.convert.parity.measured import narrow
from handler.commands.convert.saved_model.features import Feature
from handler.commands.convert.saved_model.labels import CLASSES, fill_zeros
from handler.commands.convert.saved_model.opened import SavedModel, SavedSignature
from handler.commands.convert.saved_model.runtime import tf
from handler.commands.convert.sources.original import Arrays, one_line, refusing

OMITTED: Final = 4
"""One in this many rows leaves out the features that have a default."""


class Bound(NamedTuple):
    """One input or feature. `value`: by its alias. `tensor`: its name in the ONNX model. `default`: of a feature."""

    value: Value
    tensor: str
    default: NDArray[Any] | None


class AskedSignature:
    """`method`: predict, classify or regress. `labels`: of the scores, where the ONNX model leaves the classes out.

    `unread`: features that the ONNX model lacks, and TensorFlow's examples need.
    """

    def __init__(
        self,
        saved: SavedModel,
        signature: SavedSignature,
        said: Mapping[str, Any],
        inputs: Sequence[Value],
        unread: Sequence[Feature],
    ) -> None:
        self.name, self.method = signature.name, str(said["method"])
        self.labels: Sequence[str] | None = said.get("class_labels")
        self._session, self._signature = saved.session, signature
        self._examples = signature.examples if self.method != "predict" else None
        self._unread = [feature for feature in unread if feature.default is None]
        self._outputs = {alias: _tensor(binding) for alias, binding in said["outputs"].items()}
        elements = {value.name: value.element for value in inputs}
        self._bound = {
            alias: self._bind(alias, binding, elements[_tensor(binding)]) for alias, binding in said["inputs"].items()
        }

    def _bind(self, alias: str, binding: Any, element: int) -> Bound:
        if self._examples is None:
            return Bound(Value(alias, "tensor", element, self._signature.inputs[alias].shape), _tensor(binding), None)
        shape = tuple(binding["shape"])
        value, default = Value(alias, "tensor", element, (-1, *shape)), None
        if "default" in binding and element != BYTES.onnx and BY_ONNX[element] is not BF16:
            default = np.broadcast_to(np.array(binding["default"], BY_ONNX[element].numpy).reshape(shape or ()), shape)
        return Bound(value, _tensor(binding), default)

    @property
    def values(self) -> list[Value]:
        """The inputs by alias, with the SavedModel's shapes."""
        return [bound.value for bound in self._bound.values()]

    @property
    def fixed(self) -> int:
        """The rows that the SavedModel fixes; 0 if a request chooses them."""
        return max((value.shape[0] for value in self.values if value.shape and value.shape[0] > 0), default=0)

    def made(self, graph: Any, rows: int, free: int, seed: int) -> Arrays:
        """Makes an input. `free`: the size of axes without one. Raises Refused for values that nobody can guess."""
        found = {}
        for index, value in enumerate(self.values):
            first, *others = value.shape or (-1,)
            shape = (rows if first < 0 else first, *(free if size < 0 else size for size in others))
            like = value._replace(shape=shape, name=self._bound[value.name].tensor)
            (array,) = samples.made(graph, [like], {}, rows, seed + index).values()
            found[value.name] = array[0] if value.shape == () else array
        for bound in self._bound.values():
            if bound.default is not None:
                found[bound.value.name][OMITTED - 1 :: OMITTED] = bound.default
        return found

    def narrowed(self, arrays: Mapping[str, NDArray[Any]]) -> Arrays:
        """Returns rows in the inputs' datatypes, as a request has them."""
        found = {value.name: np.asarray(arrays[value.name]) for value in self.values}
        return {value.name: narrow(value, found[value.name]).reshape(found[value.name].shape) for value in self.values}

    def theirs(self, arrays: Arrays) -> Arrays:
        """Asks TensorFlow for the outputs, the classes among them. Its errors pass."""
        if self._examples is not None:
            feed: dict[str, Any] = {self._examples.tensor: self._serialized(arrays)}
        else:
            feed = {port.tensor: arrays[alias] for alias, port in self._signature.inputs.items()}
        fetched = {*self._outputs, *((CLASSES,) if self.labels else ())}
        found = self._session.run({alias: self._signature.outputs[alias].tensor for alias in fetched}, feed)
        return {alias: np.asarray(array) for alias, array in found.items()}

    def ours(self, session: Any, arrays: Arrays) -> Arrays:
        """Asks ONNX Runtime. Raises Refused."""
        feed = {self._bound[alias].tensor: array for alias, array in arrays.items()}
        names = [value.name for value in session.get_inputs()] + [
            v.name for v in session.get_overridable_initializers()
        ]
        alone = "" if set(names) <= set(feed) else " beside the other signatures; convert it alone with --signature"
        with refusing(f"signature {self.name!r}: ONNX Runtime does not answer what the original answers{alone}"):
            found = session.run(list(self._outputs.values()), feed)
        return {alias: np.asarray(array) for alias, array in zip(self._outputs, found, strict=True)}

    def _serialized(self, arrays: Mapping[str, NDArray[Any]]) -> list[bytes]:
        rows = range(len(next(iter(arrays.values()))))
        return [tf.train.Example(features=self._features(arrays, row)).SerializeToString() for row in rows]

    def _features(self, arrays: Mapping[str, NDArray[Any]], row: int) -> Any:
        features = tf.train.Features()
        for alias, array in arrays.items():
            default = self._bound[alias].default
            if default is None or not np.array_equal(array[row], default):
                _fill(features.feature[alias], array[row].reshape(-1))
        for feature in self._unread:
            fill_zeros(features.feature[feature.name], feature.dtype, abs(int(np.prod(feature.shape))))
        return features

    def fitted(self, data: given.GivenData) -> Arrays:
        """Returns the given rows as inputs. Raises Refused if they are not this signature's."""
        return self.narrowed(given.feed(data, self.values, ()))


def has_bfloat16(values: Iterable[Value]) -> bool:
    """Decides whether ONNX Runtime's Python interface cannot pass one of these."""
    return any(BY_ONNX[value.element] is BF16 for value in values)


def reason(error: Exception) -> str:
    """Returns the words of an error of TensorFlow's, without the place in the graph."""
    if not isinstance(error, tf.errors.OpError):
        return one_line(error)
    words = str(error.message).rpartition("\nNode: ")[2].partition("[[")[0]
    return " ".join((words.partition("\n")[2].strip() or words).split())[:200]


def _tensor(binding: Any) -> str:
    return binding if isinstance(binding, str) else str(binding["tensor"])


def _fill(feature: Any, values: NDArray[Any]) -> None:
    if values.dtype.kind == "O":
        feature.bytes_list.value.extend(text.encode() for text in values)
    elif values.dtype.kind == "f":
        feature.float_list.value.extend(values)
    else:
        feature.int64_list.value.extend(values)

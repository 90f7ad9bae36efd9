"""The sides of a comparison are TensorFlow on the SavedModel, and ONNX Runtime on the written model and settings."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from handler.commands.convert.saved_model.conversion import Converted, convert
from handler.commands.convert.saved_model.runtime import tf

Arrays = dict[str, Any]


def tensorflow(folder: Path, signature: str, inputs: Mapping[str, Any]) -> Arrays:
    """Returns the signature's outputs by alias. As in TensorFlow Serving, a session feeds and fetches its tensors."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        meta = tf.compat.v1.saved_model.load(session, ["serve"], str(folder))
        said = meta.signature_def[signature]
        feed = {said.inputs[alias].name: value for alias, value in inputs.items()}
        fetches = {alias: info.name for alias, info in said.outputs.items()}
        answer: Arrays = session.run(fetches, feed)
        return answer


def examples(rows: Sequence[Mapping[str, Any]]) -> list[bytes]:
    """Returns serialized tf.train.Examples of lists of floats, integers or bytes."""
    serialized = []
    for row in rows:
        example = tf.train.Example()
        for name, values in row.items():
            feature = example.features.feature[name]
            kind = {float: feature.float_list, int: feature.int64_list, bytes: feature.bytes_list}[type(values[0])]
            kind.value.extend(values)
        serialized.append(example.SerializeToString())
    return serialized


class Served:
    """A converted model with its settings as written, on ONNX Runtime."""

    def __init__(self, converted: Converted) -> None:
        self.settings: dict[str, Any] = json.loads(json.dumps(converted.settings))
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(converted.model, options)
        named = {info.name: info for info in self.session.get_inputs()}
        optional = {info.name: info for info in self.session.get_overridable_initializers()}
        self.required, self.optional = list(named), list(optional)
        self._dtypes = {name: _numpy(info.type) for name, info in (named | optional).items()}

    def predict(self, signature: str, inputs: Mapping[str, Any]) -> Arrays:
        """Returns the outputs by alias. Only the inputs that the signature binds are fed."""
        bindings = self.settings["signatures"][signature]["inputs"]
        feed = {_tensor(bindings[alias]): value for alias, value in inputs.items()}
        for binding in bindings.values():
            if isinstance(binding, dict) and "default" in binding:
                name = binding["tensor"]
                feed.setdefault(name, np.array(binding["default"], self._dtypes[name]))
        return self._run(signature, feed)

    def from_examples(self, signature: str, rows: Sequence[Mapping[str, Any]]) -> Arrays:
        """Does the same with a row of values per example and feature, or the feature's default."""
        feed = {}
        for name, binding in self.settings["signatures"][signature]["inputs"].items():
            values = [row.get(name, binding.get("default")) for row in rows]
            array = np.array(values, self._dtypes[binding["tensor"]])
            feed[binding["tensor"]] = array.reshape(len(rows), *binding["shape"])
        return self._run(signature, feed)

    def _run(self, signature: str, feed: Arrays) -> Arrays:
        said = self.settings["signatures"][signature]
        outputs = {alias: _tensor(binding) for alias, binding in said["outputs"].items()}
        texts = {name: _texts(value) for name, value in feed.items()}
        values = self.session.run(list(outputs.values()), texts)
        return dict(zip(outputs, values, strict=True))


def served(folder: Path, *signatures: str) -> Served:
    return Served(convert(folder, signatures))


def _tensor(binding: Any) -> str:
    return binding if isinstance(binding, str) else str(binding["tensor"])


def _numpy(kind: str) -> Any:
    name = kind.removeprefix("tensor(").removesuffix(")")
    return {"float": np.float32, "double": np.float64, "string": np.object_}.get(name) or np.dtype(name)


def _texts(value: Any) -> Any:
    array = np.asarray(value)
    if array.dtype.kind not in "OSU":
        return array
    texts = [each.decode() if isinstance(each, bytes) else str(each) for each in array.reshape(-1)]
    return np.array(texts, object).reshape(array.shape)


def same(ours: Arrays, theirs: Arrays) -> bool:
    """Returns whether aliases, shapes and types are equal, and the values agree to 1e-6."""
    assert set(ours) == set(theirs)
    for alias, expected in theirs.items():
        expected = np.asarray(expected)  # noqa: PLW2901 - a scalar comes as numpy's
        assert ours[alias].shape == expected.shape, alias
        if expected.dtype.kind == "O":
            assert ours[alias].tolist() == _texts(expected).tolist(), alias
        else:
            assert ours[alias].dtype == expected.dtype, alias
            np.testing.assert_allclose(ours[alias], expected, rtol=1e-6, atol=1e-6)
    return True

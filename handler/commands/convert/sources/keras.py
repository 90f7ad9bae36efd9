"""Keras: .keras and .h5 files, by Keras' own export to ONNX, which is tf2onnx's on its backend TensorFlow."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from handler.commands.convert.sources import graph, tensorflow_ops
from handler.commands.convert.sources.original import (
    Arrays,
    LibraryModel,
    Progress,
    SourceOptions,
    library,
    refusing,
    versioned,
)

TITLE: Final = "Keras"
EXTRA: Final = "convert"
QUIET: Final = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0", "CUDA_VISIBLE_DEVICES": "-1"}
"""As for SavedModels: oneDNN's kernels round in another order than the plain ones."""


def convert(file: Path, _: SourceOptions, progress: Progress) -> LibraryModel:
    """Converts a model. Raises Refused."""
    for variable, value in QUIET.items():
        os.environ.setdefault(variable, value)
    keras = library("keras", TITLE, EXTRA)
    tensorflow_ops.register()
    onnx = library("onnx", TITLE, EXTRA)
    with refusing(f"{file} cannot be read as a model of Keras"):
        model = keras.saving.load_model(file, compile=False, safe_mode=True)
    progress(f"exporting with {versioned('keras')} and {versioned('tf2onnx')}")
    with TemporaryDirectory(prefix="keras-") as made, refusing("Keras does not export this model"):
        _answer(keras, model, [np.zeros([size or 1 for size in each.shape], each.dtype) for each in model.inputs])
        for layer in _layers(model):
            if isinstance(layer, keras.layers.Normalization):  # an export makes inputs of what such layers have learned
                layer.mean, layer.variance = np.asarray(layer.mean), np.asarray(layer.variance)
        path = Path(made) / "model.onnx"
        model.export(path, format="onnx", verbose=False)
        exported = onnx.load(path)
    count = len(exported.graph.output)
    names = list(getattr(model, "output_names", ()))
    if len(set(names)) != count:
        names = ["output"] if count == 1 else [f"output_{index}" for index in range(count)]
    graph.rename_outputs(exported, names)
    inputs = [value.name for value in exported.graph.input]
    return LibraryModel(
        graph.without_notes(exported).SerializeToString(),
        _Original(keras, model, inputs, names),
        versioned("keras"),
        versioned("tf2onnx"),
        "network",
    )


def _layers(model: Any) -> Iterator[Any]:
    for layer in model.layers:
        yield layer
        if hasattr(layer, "layers"):
            yield from _layers(layer)


def _answer(keras: Any, model: Any, arrays: list[NDArray[Any]]) -> list[Any]:
    """Returns the outputs in the order of an export. A model that has never been called has none."""
    found: list[Any] = keras.tree.flatten(model(arrays if len(arrays) > 1 else arrays[0], training=False))
    return found


class _Original:
    def __init__(self, keras: Any, model: Any, inputs: list[str], outputs: list[str]) -> None:
        self._keras = keras
        self._model = model
        self._inputs = inputs
        self._outputs = outputs

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        dtypes = [each.dtype for each in self._model.inputs]
        arrays = [inputs[name].astype(dtype) for name, dtype in zip(self._inputs, dtypes, strict=True)]
        answers = _answer(self._keras, self._model, arrays)
        return {name: np.asarray(each) for name, each in zip(self._outputs, answers, strict=True)}

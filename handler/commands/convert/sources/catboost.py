"""CatBoost: .cbm files, by CatBoost's own export to ONNX."""

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from handler.commands.convert.sources import graph
from handler.commands.convert.sources.original import (
    Arrays,
    LibraryModel,
    Progress,
    SourceOptions,
    library,
    refusing,
    versioned,
)
from handler.commands.refused import Refused

TITLE: Final = "CatBoost"
EXTRA: Final = "convert-catboost"
INPUT: Final = "X"
COLUMNS: Final = "train a model for each column"
UNWRITTEN: Final = {
    "MultiRMSE": COLUMNS,
    "MultiRMSEWithMissingValues": COLUMNS,
    "MultiLogloss": COLUMNS,
    "MultiCrossEntropy": COLUMNS,
    "MultiQuantile": "train a model for each quantile",
    "RMSEWithUncertainty": "train with RMSE",
    "MultiClassOneVsAll": "train with MultiClass",
}
"""The loss functions whose answers the export does not write, or not as CatBoost answers, each with what to do."""
LABELS: Final = {"b": "truth values", "f": "floating-point numbers"}
"""By the kind of numpy's datatype."""


def convert(file: Path, _: SourceOptions, progress: Progress) -> LibraryModel:
    """Converts a model. Raises Refused."""
    catboost = library("catboost", TITLE, EXTRA)
    onnx = library("onnx", TITLE, EXTRA)
    with refusing(f"{file} cannot be read as a model of CatBoost"):
        model = catboost.CatBoost()
        model.load_model(str(file))
    for kind in ("cat", "text", "embedding"):
        if indices := getattr(model, f"get_{kind}_feature_indices")():
            columns = ", ".join(model.feature_names_[index] for index in indices)[:200]
            raise Refused(
                f"{file} has {kind} features ({columns}), which CatBoost's ONNX export does not write. "
                "Train on numbers: one-hot or ordinal columns"
            )
    _check_loss(model, file)
    progress(f"exporting with {versioned('catboost')}")
    with TemporaryDirectory(prefix="catboost-") as made:
        path = Path(made) / "model.onnx"
        with refusing("CatBoost does not export this model"):
            model.save_model(str(path), format="onnx")
        exported = onnx.load(path)
    exported = graph.renamed_inputs(graph.without_maps(exported), [INPUT])
    outputs = graph.outputs(exported)
    classes = [str(each) for each in np.asarray(model.classes_).tolist()]
    names = [str(each) for each in model.feature_names_]
    return LibraryModel(
        exported.SerializeToString(),
        _Original(model, outputs),
        versioned("catboost"),
        versioned("catboost"),
        "classifier" if classes else "regressor",
        gaps=True,
        scores=outputs[1] if classes else "",
        class_labels=classes,
        feature_names=[] if names == [str(index) for index in range(len(names))] else names,
    )


def _check_loss(model: Any, file: Path) -> None:
    """Raises Refused for answers and labels that CatBoost's export does not write."""
    loss = str(model.get_all_params().get("loss_function", "")).partition(":")[0]
    if loss in UNWRITTEN:
        raise Refused(
            f"{file} has the loss function {loss!r}, which CatBoost's ONNX export does not write: {UNWRITTEN[loss]}"
        )
    kind = np.asarray(model.classes_).dtype.kind
    if len(model.classes_) and kind in LABELS:
        raise Refused(
            f"{file} has {LABELS[kind]} as labels, which CatBoost's ONNX export does not write: "
            "train with whole numbers or texts as labels"
        )


class _Original:
    """CatBoost reads FP32."""

    def __init__(self, model: Any, outputs: list[str]) -> None:
        self._model = model
        self._outputs = outputs

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        rows = inputs[INPUT].astype(np.float32)
        if len(self._outputs) == 1:
            return {self._outputs[0]: np.asarray(self._model.predict(rows)).reshape(len(rows), -1)}
        label = np.asarray(self._model.predict(rows, prediction_type="Class")).reshape(-1)
        return {
            self._outputs[0]: label,
            self._outputs[1]: np.asarray(self._model.predict(rows, prediction_type="Probability")),
        }

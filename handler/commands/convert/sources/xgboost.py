"""XGBoost: boosters in JSON and UBJSON, by onnxmltools."""

import json
from collections.abc import Mapping
from pathlib import Path
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

TITLE: Final = "XGBoost"
EXTRA: Final = "convert-xgboost"
INPUT: Final = "X"
OPSET: Final = 15
"""The newest that onnxmltools writes for trees."""
UNLINKED: Final = ("reg:logistic", "survival:cox", "survival:aft", "binary:logitraw")


def convert(file: Path, _: SourceOptions, progress: Progress) -> LibraryModel:
    """Converts a booster. Raises Refused."""
    xgboost = library("xgboost", TITLE, EXTRA)
    onnxmltools = library("onnxmltools", TITLE, EXTRA)
    types = library("onnxmltools.convert.common.data_types", TITLE, EXTRA)
    model = _opened(xgboost, file)
    booster = model.get_booster()
    learner = json.loads(booster.save_raw("json"))["learner"]
    _check_kind(learner, file)
    names = list(booster.feature_names or ())
    notes = _categories(learner, file)
    booster.feature_names = booster.feature_types = None  # onnxmltools takes f0, f1, ... alone
    progress(f"converting {learner['objective']['name']} with {versioned('onnxmltools')}")
    with refusing("onnxmltools does not convert this model"):
        made = onnxmltools.convert_xgboost(
            model, initial_types=[(INPUT, types.FloatTensorType([None, booster.num_features()]))], target_opset=OPSET
        )
    made = graph.without_maps(made)
    outputs = graph.outputs(made)
    classifies = len(outputs) > 1
    return LibraryModel(
        made.SerializeToString(),
        _Original(model, outputs),
        versioned("xgboost-cpu", "xgboost"),
        versioned("onnxmltools"),
        "classifier" if classifies else "regressor",
        gaps=True,
        scores=outputs[1] if classifies else "",
        class_labels=[str(index) for index in range(int(model.n_classes_))] if classifies else (),
        feature_names=names,
        notes=notes,
    )


def _opened(xgboost: Any, file: Path) -> Any:
    """Returns the booster in the class of its objective. Raises Refused."""
    with refusing(f"{file} cannot be read as a model of XGBoost"):
        booster = xgboost.Booster()
        booster.load_model(file)
        objective = json.loads(booster.save_config())["learner"]["objective"]["name"]
        if objective == "multi:softmax":  # the same trees; onnxmltools writes their probabilities for both objectives
            booster.set_param("objective", "multi:softprob")
        kind = xgboost.XGBClassifier if objective.startswith(("binary:", "multi:")) else xgboost.XGBRegressor
        booster.set_attr(scikit_learn=None)  # it names the class that saved the model: XGBRegressor refuses a ranker's
        model = kind()
        model.load_model(bytearray(booster.save_raw("json")))
    return model


def _check_kind(learner: Mapping[str, Any], file: Path) -> None:
    """Raises Refused for a booster that is not a plain sum of trees, or whose objective onnxmltools does not know."""
    kind = learner["gradient_booster"]["name"]
    if kind != "gbtree":
        raise Refused(f"{file} has the booster {kind!r}; expected 'gbtree', which alone onnxmltools converts")
    objective = learner["objective"]["name"]
    if objective in UNLINKED:
        raise Refused(
            f"{file} has the objective {objective!r}, whose function behind the trees onnxmltools does not write: "
            "train with another objective"
        )
    targets = int(learner["learner_model_param"].get("num_target", 1))
    if targets > 1:
        raise Refused(
            f"{file} predicts {targets} targets, which onnxmltools does not convert: train a model for each target"
        )


def _categories(learner: Mapping[str, Any], file: Path) -> list[str]:
    """Returns the report's sentences about categorical splits. Raises Refused for a model that has some."""
    trees = learner["gradient_booster"]["model"]["trees"]
    split = sum(bool(tree.get("categories")) for tree in trees)
    if split:
        raise Refused(
            f"{file} has categorical splits in {split} of {len(trees)} trees, which onnxmltools does not convert. "
            "Train on one-hot or ordinal columns (without enable_categorical)"
        )
    return []


class _Original:
    def __init__(self, model: Any, outputs: list[str]) -> None:
        self._model = model
        self._outputs = outputs

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        rows = inputs[INPUT]
        if len(self._outputs) == 1:
            answer = np.asarray(self._model.predict(rows))
            return {self._outputs[0]: answer.reshape(len(rows), -1)}
        return {self._outputs[0]: self._model.predict(rows), self._outputs[1]: self._model.predict_proba(rows)}

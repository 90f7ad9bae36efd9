"""LightGBM: boosters in its text format, by onnxmltools."""

import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from handler.commands.convert.sources import graph
from handler.commands.convert.sources.original import (
    Arrays,
    Domain,
    LibraryModel,
    Progress,
    SourceOptions,
    library,
    lowered,
    refusing,
    versioned,
)
from handler.commands.refused import Refused

TITLE: Final = "LightGBM"
EXTRA: Final = "convert-lightgbm"
INPUT: Final = "X"
OPSET: Final = 15
"""The newest that onnxmltools writes for trees."""
CATEGORICAL: Final = 1
"""The bit of a split's decision_type: its threshold is the number of a set of categories."""
ZERO: Final = float(np.float32(1e-35))
"""LightGBM reads a number as 0 if its size is at most this. It also writes this as the threshold on each side of 0."""
EACH_ALONE: Final = "multiclassova"
"""The objective whose probabilities are those of each class against all others."""
CLASSES: Final = ("binary", "multiclass", EACH_ALONE)


def convert(file: Path, options: SourceOptions, progress: Progress) -> LibraryModel:
    """Converts a booster. Raises Refused."""
    lightgbm = library("lightgbm", TITLE, EXTRA)
    onnxmltools = library("onnxmltools", TITLE, EXTRA)
    types = library("onnxmltools.convert.common.data_types", TITLE, EXTRA)
    with refusing(f"{file} cannot be read as a model of LightGBM"):
        text = file.read_text(encoding="utf-8")
        booster = lightgbm.Booster(model_str=text)
        dumped = booster.dump_model()
    _check_kind(text, file)
    _check_zeros(dumped, file)
    link = str(dumped.get("objective", ""))
    objective = link.partition(" ")[0]
    progress(f"converting {objective or 'a booster'} with {versioned('onnxmltools')}")
    with refusing("onnxmltools does not convert this model"):
        made = onnxmltools.convert_lightgbm(
            lightgbm.Booster(model_str=_prepared(text, _weight(dumped))),
            initial_types=[(INPUT, types.FloatTensorType([None, booster.num_feature()]))],
            target_opset=OPSET,
            zipmap=False,
        )
    made = graph.with_open_rows(_linked(graph.without_maps(made), link))
    outputs = graph.outputs(made)
    classifies = objective in CLASSES and len(outputs) > 1
    return LibraryModel(
        made.SerializeToString(),
        _Original(booster, outputs, objective),
        versioned("lightgbm"),
        versioned("onnxmltools"),
        "classifier" if classifies else "regressor",
        wide=True,
        gaps=True,
        scores=outputs[1] if classifies else "",
        class_labels=[str(index) for index in range(_classes(booster))] if classifies else (),
        feature_names=_names(booster, options.examples),
        domains=_domains(dumped),
        notes=_notes(dumped),
    )


def _check_kind(text: str, file: Path) -> None:
    """Raises Refused for trees whose leaves are not numbers."""
    if re.search("^is_linear=1$", text, re.MULTILINE):
        raise Refused(
            f"{file} has linear models in its leaves (linear_tree), which ONNX's trees cannot express: "
            "train without linear_tree"
        )


def _linked(made: Any, link: str) -> Any:
    """Adds the function behind the trees that onnxmltools leaves out. `link`: the objective, as LightGBM writes it."""
    if link.startswith(EACH_ALONE):
        for node in made.graph.node:
            for attribute in node.attribute:
                if attribute.name == "post_transform":
                    attribute.s = b"LOGISTIC"
    elif "sqrt" in link.split():
        graph.squared_output(made, graph.outputs(made)[0])
    return made


def _check_zeros(dumped: Mapping[str, Any], file: Path) -> None:
    """Raises Refused for splits that send 0 to another branch than its neighbours, because it means a missing value."""
    splits = list(_splits(dumped))
    odd = [each for each in splits if each["missing_type"] == "Zero" and each["decision_type"] == "<="]
    odd = [each for each in odd if each["default_left"] != (float(each["threshold"]) >= 0)]
    if odd:
        raise Refused(
            f"{file} reads 0 as a missing value (zero_as_missing) in {len(odd)} of {len(splits)} splits, "
            "which ONNX's trees cannot express: train without zero_as_missing"
        )


def _weight(dumped: Mapping[str, Any]) -> float:
    """Returns the factor of the leaves' values that onnxmltools leaves out: a sigmoid's slope, a forest's mean."""
    slope = re.match(rf"(?:binary|{EACH_ALONE}).* sigmoid:(\S+)", str(dumped.get("objective", "")))
    trees = len(dumped["tree_info"]) // dumped["num_tree_per_iteration"] if dumped["average_output"] else 1
    return (float(slope[1]) if slope else 1.0) / max(trees, 1)


def _prepared(text: str, weight: float) -> str:
    """Returns the model in a form that onnxmltools converts well: a sum of trees with thresholds of FP32.

    `weight`: multiplies the leaves' values.
    """
    own = ("tree_sizes=", "average_output")  # bytes, which change; and what `weight` does
    lines = [line for line in text.split("\n") if not line.startswith(own)]
    last = 0
    for index, line in enumerate(lines):
        name, _, values = line.partition("=")
        if name == "threshold":
            last = index
        elif name == "decision_type":  # it follows the thresholds
            kinds = [int(each) & CATEGORICAL for each in values.split()]
            written = lines[last].partition("=")[2].split()
            floors = [each if kind else repr(_floor(float(each))) for kind, each in zip(kinds, written, strict=True)]
            lines[last] = f"threshold={' '.join(floors)}"
        elif name == "leaf_value" and weight != 1:
            lines[index] = f"leaf_value={' '.join(repr(float(each) * weight) for each in values.split())}"
    return "\n".join(lines)


def _floor(threshold: float) -> float:
    """Returns the threshold of an ONNX split that sends every FP32 number where LightGBM sends it.

    It is rounded down, as onnxmltools rounds to the nearest. LightGBM compares a number of at most ZERO as 0.
    """
    if abs(threshold) > ZERO:
        return lowered(threshold)
    return ZERO if threshold >= 0 else float(np.nextafter(np.float32(-ZERO), np.float32(-np.inf)))


def _classes(booster: Any) -> int:
    return max(2, int(booster.num_model_per_iteration()))


def _names(booster: Any, columns: Collection[str]) -> list[str]:
    """Returns the names of the features as the columns of the rows have them: LightGBM's have _ for a space."""
    names = list(booster.feature_name())
    if names == [f"Column_{index}" for index in range(len(names))]:
        return []
    spaced = {each.replace(" ", "_"): each for each in columns}
    return [name if name in columns else spaced.get(name, name) for name in names]


def _notes(dumped: Mapping[str, Any]) -> list[str]:
    splits = list(_splits(dumped))
    names = dumped["feature_names"]
    categorical = [split for split in splits if split["decision_type"] == "=="]
    if not categorical:
        return []
    columns = ", ".join(sorted({names[split["split_feature"]] for split in categorical}))[:200]
    how = "in ONNX they compare with whole numbers, and a category that training did not have may go another way"
    return [f"{len(categorical)} of {len(splits)} splits are categorical ({columns}): {how}"]


def _domains(dumped: Mapping[str, Any]) -> dict[str, Domain]:
    """Returns the categories that splits name, by column, with one that none names."""
    found: dict[str, set[int]] = {}
    for split in _splits(dumped):
        if split["decision_type"] == "==":
            categories = {int(each) for each in str(split["threshold"]).split("||")}
            found.setdefault(f"{INPUT}.{split['split_feature']}", set()).update(categories)
    return {name: Domain([*sorted(categories), max(categories) + 1]) for name, categories in found.items()}


def _splits(dumped: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    waiting = [tree["tree_structure"] for tree in dumped["tree_info"]]
    while waiting:
        node = waiting.pop()
        if "split_feature" in node:
            yield node
            waiting += [node["left_child"], node["right_child"]]


class _Original:
    """LightGBM reads and compares FP64."""

    def __init__(self, booster: Any, outputs: list[str], objective: str) -> None:
        self._booster = booster
        self._outputs = outputs
        self._objective = objective

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        rows = inputs[INPUT]
        answer = np.asarray(self._booster.predict(rows.astype(np.float64)))
        if len(self._outputs) == 1:
            return {self._outputs[0]: answer.reshape(len(rows), -1)}
        if answer.ndim == 1:
            answer = np.stack([1 - answer, answer], axis=1)
        return {self._outputs[0]: answer.argmax(axis=1), self._outputs[1]: answer}

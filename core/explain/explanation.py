"""Explains a model's answers, example by example: by the model's own explanations, or by Shapley values of its scores.

One output is explained: the one that the explainer names, else the only one of numbers, else the first that has class
labels or is called "probabilities" or "scores", else the first of floats, else the first of numbers. It must be [rows]
or [rows, classes]. With several classes, the explainer's target is explained, else each example's highest score.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final

import numpy as np

from core.dtype import BF16, NDArray
from core.errors import InvalidInput, ModelFailed, ModelNotLoadable, NotSupported, shown
from core.explain.shapley import Attribution, Predict, coalitions, shapley_values
from core.float16 import bf16_to_float
from core.operations import Explainer, ModelSpec
from core.ports import Model
from core.tensor import Tensor, TensorSpec

MOST_ROWS: Final = 2**22
"""The most predictions for one request: some seconds of a small model."""
FEW: Final = 16
"""So many examples may order so many, because what one of them takes is the publisher's choice."""
MOST_FOR_MANY: Final = 2**18
"""The most predictions for more examples: 30 ms beside the model's own time, as 100 kB of other requests may take."""
MOST_TEXT: Final = 2**29
"""The most bytes of the examples' texts in all predictions for one request: about a second of copies."""
BATCH_ROWS: Final = 1024
BATCH_ELEMENTS: Final = 2**20
"""The limits of one call of `predict`, whichever is reached first."""
SCORES: Final = ("probabilities", "scores")
"""The names that scikit-learn's converters and TensorFlow's signatures use."""


def explain(model: Model, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Returns one explanation per example. Examples lie along the leading axis, which all inputs have in common.

    An explanation by Shapley values is {"importance_scores": in the shape of the example's input, by name if there are
    several inputs, "base_value": the background's mean score, "prediction": base_value + the sum of the scores}. With
    several classes it has "target", the class explained; it has "feature_names" if the explainer has them. Scores are
    float64 arrays. `inputs` have been checked against the model's spec.
    Raises NotSupported for a model without an explainer, InvalidInput for more work than one request may order.
    """
    if model.explain is not None:
        found = list(model.explain(inputs, parameters))
        examples = _examples(inputs)
        if len(found) != examples:
            raise ModelFailed(f"model {model.spec.name!r} returned {len(found)} explanations for {examples} examples")
        return found
    explainer = model.spec.explainer
    if explainer is None:
        raise NotSupported(
            f'model {model.spec.name!r} has no explainer: add "explainer" with a "background" to its '
            "model-settings.json, or, if it is a python model, a function explain(inputs, parameters) to its model.py"
        )
    return _shapley(model, explainer, inputs, parameters)


def _examples(inputs: Mapping[str, Tensor]) -> int:
    """Returns the number of examples. Raises InvalidInput if the inputs disagree, or one is a scalar."""
    counts = {}
    for tensor in inputs.values():
        if not tensor.array.ndim:
            raise InvalidInput(f"input {shown(tensor.name)} is a scalar; an explanation needs an axis of examples")
        counts[tensor.name] = len(tensor.array)
    if len(set(counts.values())) != 1:
        raise InvalidInput(f"all inputs need the same number of examples to be explained, not {shown(counts)}")
    return next(iter(counts.values()))


def _shapley(
    model: Model, explainer: Explainer, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]
) -> list[Mapping[str, Any]]:
    examples = _examples(inputs)
    _check_elements(model.spec, explainer, inputs)
    if not examples:
        return []
    blocks = [tensor.array.reshape(examples, -1) for tensor in inputs.values()]
    background = [explainer.background[name].reshape(len(explainer.background[name]), -1) for name in inputs]
    features = sum(block.shape[1] for block in blocks)
    each = _check_work(examples, features, len(background[0]), explainer.budget)
    _check_texts(blocks, each)
    scores = _Scores(model, explainer, inputs, parameters)
    plan = cache(lambda players: coalitions(players, explainer.budget, explainer.seed))
    predictions = scores(blocks)
    targets = _targets(model.spec, explainer, predictions)
    attribution = shapley_values(scores.of_classes(targets), blocks, background, plan, scores.rows)
    found = _explanations(model.spec, explainer, inputs, attribution)
    if predictions.shape[1] == 1:
        return [*found]
    return [each | {"target": target} for each, target in zip(found, targets.tolist(), strict=True)]


def _check_elements(spec: ModelSpec, explainer: Explainer, inputs: Mapping[str, Tensor]) -> None:
    for name, tensor in inputs.items():
        if name not in explainer.background:
            raise NotSupported(f"input {shown(name)} of model {spec.name!r} cannot be explained by its explainer")
        shape, expected = tensor.array.shape[1:], explainer.background[name].shape[1:]
        if shape != expected:
            raise InvalidInput(
                f"input {shown(name)} has examples of shape {list(shape)}; "
                f"the explainer's background has {list(expected)}"
            )


def _check_work(examples: int, features: int, background: int, budget: int) -> int:
    """Returns the number of predictions for one example. Raises InvalidInput if there are too many for all."""
    each = (2**features if features < budget.bit_length() else budget) * background
    most = max(MOST_FOR_MANY, min(FEW * each, MOST_ROWS))
    if examples * each > most:
        raise InvalidInput(
            f"to explain {examples} examples takes {examples * each} predictions ({each} each); "
            f"one request can take {most}, which is {most // each} examples"
        )
    return each


def _check_texts(blocks: Sequence[NDArray[Any]], each: int) -> None:
    """Raises InvalidInput for texts so long that their copies, one for each prediction, would be much work."""
    size = sum(len(text) for block in blocks if block.dtype.kind == "O" for text in block.flat)
    if size * each > MOST_TEXT:
        raise InvalidInput(
            f"the examples have {size} bytes of text, which {each} predictions each would copy; "
            f"one request may have {MOST_TEXT // each}"
        )


def _targets(spec: ModelSpec, explainer: Explainer, predictions: NDArray[np.float64]) -> NDArray[np.intp]:
    """Returns the index of the class to explain, for each example."""
    classes = predictions.shape[1]
    if classes == 1 or explainer.target is None:
        highest: NDArray[np.intp] = predictions.argmax(1)
        return highest
    if explainer.target >= classes:
        raise ModelNotLoadable(
            f"the explainer of model {spec.name!r} has the target {explainer.target}, "
            f"but the output has {classes} classes"
        )
    return np.full(len(predictions), explainer.target)


def _explanations(
    spec: ModelSpec, explainer: Explainer, inputs: Mapping[str, Tensor], attribution: Attribution
) -> list[dict[str, Any]]:
    scores, base, prediction = attribution.scores[..., 0], attribution.base[:, 0], attribution.prediction[:, 0]
    if not np.isfinite(scores).all() or not np.isfinite(prediction).all():
        raise _unexplained(spec, inputs)
    ends = np.cumsum([math.prod(tensor.shape[1:]) for tensor in inputs.values()])
    parts = [
        np.ascontiguousarray(part).reshape(tensor.array.shape)
        for tensor, part in zip(inputs.values(), np.split(scores, ends[:-1], axis=1), strict=True)
    ]
    each = zip(*(part.tolist() if part.ndim == 1 else part for part in parts), strict=True)
    names = {"feature_names": _by_name(explainer.feature_names)} if explainer.feature_names else {}
    return [
        {
            "importance_scores": _by_name(dict(zip(inputs, values, strict=True))),
            "base_value": low,
            "prediction": high,
            **names,
        }
        for values, low, high in zip(each, base.tolist(), prediction.tolist(), strict=True)
    ]


def _by_name(members: Mapping[str, Any]) -> Any:
    """Returns the members as a dict, or the value itself if there is one member."""
    return dict(members) if len(members) > 1 else next(iter(members.values()))


def explained(outputs: Sequence[TensorSpec], name: str | None) -> TensorSpec | None:
    """Returns the output that is explained by this module's rule, None if there is none."""
    numeric = [output for output in outputs if not output.datatype.is_bytes]
    if name is not None:
        return next((output for output in numeric if output.name == name), None)
    if len(numeric) == 1:
        return numeric[0]
    scores = [output for output in numeric if output.labels or output.name in SCORES]
    floats = [output for output in numeric if output.datatype.is_float or output.datatype is BF16]
    return next(iter([*scores, *floats, *numeric]), None)


def _unexplained(spec: ModelSpec, inputs: Mapping[str, Tensor]) -> InvalidInput | ModelFailed:
    """Returns the refusal of scores that are not finite. NaN in, NaN out: that is not the model's failure."""
    text = f"model {spec.name!r} returned scores that are not finite, which cannot be explained"
    odd = [
        name
        for name, tensor in inputs.items()
        if tensor.array.dtype.kind == "f" and not np.isfinite(tensor.array).all()
    ]
    return InvalidInput(f"{text}: input {shown(odd[0])} has values that are not finite") if odd else ModelFailed(text)


class _Scores:
    """Predicts the explained output for any number of rows, [rows, classes], in batches that fit model and memory."""

    def __init__(
        self, model: Model, explainer: Explainer, inputs: Mapping[str, Tensor], parameters: Mapping[str, Any]
    ) -> None:
        self._model, self._inputs, self._parameters = model, inputs, parameters
        self._asked = explainer.output
        spec = model.spec
        self._output = None if spec.outputs is None else self._chosen(spec.outputs)
        self._fixed = next((i.shape[0] for i in spec.inputs or () if i.shape and i.shape[0] > 0), 0)
        features = sum(math.prod(tensor.shape[1:]) for tensor in inputs.values())
        self.rows = self._fixed or min(
            BATCH_ROWS, max(1, BATCH_ELEMENTS // max(1, features)), spec.max_batch_size or BATCH_ROWS
        )

    def __call__(self, blocks: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        starts = range(0, len(blocks[0]), self.rows)
        return np.concatenate([self._batch([block[at : at + self.rows] for block in blocks]) for at in starts])

    def of_classes(self, indices: NDArray[np.intp]) -> Predict:
        """Returns the predictions of one class alone: that of the example which a row belongs to."""
        return lambda blocks, own: np.take_along_axis(self(blocks), indices[own, None], axis=1)

    def _batch(self, blocks: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Predicts one batch. For a model with a fixed number of rows, it repeats the last row until they are full."""
        wanted = len(blocks[0])
        rows = self._fixed or wanted
        if wanted < rows:
            blocks = [block[np.minimum(np.arange(rows), wanted - 1)] for block in blocks]
        output = self._predicted(
            {
                name: tensor._replace(array=block.reshape(rows, *tensor.array.shape[1:]))
                for (name, tensor), block in zip(self._inputs.items(), blocks, strict=True)
            }
        )
        array = bf16_to_float(output.array) if output.datatype is BF16 else output.array
        if array.ndim not in (1, 2) or len(array) != rows or not array.size:
            raise NotSupported(
                f"output {shown(output.name)} of model {self._model.spec.name!r} has shape {list(array.shape)} for "
                f"{rows} rows; an explanation needs [rows] or [rows, classes]"
            )
        return array.reshape(rows, -1)[:wanted].astype(np.float64)

    def _predicted(self, tensors: Mapping[str, Tensor]) -> Tensor:
        outputs = self._model.predict(tensors, [] if self._output is None else [self._output], self._parameters)
        if self._output is None:
            self._output = self._chosen([TensorSpec(output.name, output.datatype, None) for output in outputs])
        return next(output for output in outputs if output.name == self._output)

    def _chosen(self, outputs: Sequence[TensorSpec]) -> str:
        chosen = explained(outputs, self._asked)
        if chosen is None:
            what = "output of numbers" if self._asked is None else f"output of numbers {shown(self._asked)}"
            raise NotSupported(f"model {self._model.spec.name!r} has no {what} that could be explained")
        return chosen.name

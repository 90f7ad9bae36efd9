"""What a fitted estimator of scikit-learn takes: a matrix, texts, or the columns of a DataFrame, and their values."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from handler.commands.convert.sources.original import Domain, SourceOptions, library
from handler.commands.refused import Refused

TITLE: Final = "scikit-learn"
EXTRA: Final = "convert-sklearn"
INPUT: Final = "X"
"""The input of a model that takes a matrix, or texts."""


def columns(model: Any, options: SourceOptions) -> dict[str, bool]:
    """Returns the columns of a model on a DataFrame: name -> whether it is text. Empty: the model takes a matrix."""
    first = steps(model)[0]
    names = _names(model) or _names(first)
    if not hasattr(first, "transformers_") or not names:
        return {}
    learned = _learned(first, names)
    texts = options.texts | {name for name, domain in learned.items() if _is_text(domain.values)}
    return {name: name in texts for name in names}


def types(model: Any, found: Mapping[str, bool]) -> list[tuple[str, Any]]:
    """Returns skl2onnx's types of the inputs by name. Numbers are FP32. Raises Refused."""
    known = library("skl2onnx.common.data_types", TITLE, EXTRA)
    number, text = known.FloatTensorType, known.StringTensorType
    if found:
        return [(name, (text if is_text else number)([None, 1])) for name, is_text in found.items()]
    first = steps(model)[0]
    if hasattr(first, "vocabulary_"):
        return [(INPUT, text([None]))]
    is_text = any(_is_text(values) for values in getattr(first, "categories_", ()))
    return [(INPUT, (text if is_text else number)([None, _width(model, first)]))]


def domains(model: Any, found: Mapping[str, bool]) -> dict[str, Domain]:
    """Returns the values that columns of categories and texts can have."""
    first = steps(model)[0]
    if found:
        return _learned(first, list(found))
    if hasattr(first, "vocabulary_"):
        return {INPUT: Domain(sorted(first.vocabulary_), words=True)}
    return {f"{INPUT}.{index}": Domain(list(values)) for index, values in enumerate(getattr(first, "categories_", ()))}


def takes_gaps(model: Any) -> bool:
    """Decides whether the estimator takes NaN, by its own words, which it has since scikit-learn 1.6."""
    tags = getattr(model, "__sklearn_tags__", None)
    return tags is not None and bool(tags().input_tags.allow_nan)


def steps(model: Any, *, inner: bool = False) -> list[Any]:
    """Returns the steps of a pipeline, and those of a pipeline in it; of another estimator itself.

    `inner`: the transformers of columns, too.
    """
    parts = [each for _, each in getattr(model, "steps", ())]
    if inner:
        parts += [each[1] for each in getattr(model, "transformers_", ()) if not isinstance(each[1], str)]
    return [model] if not parts else [each for part in parts for each in steps(part, inner=inner)]


def _names(model: Any) -> list[str]:
    return [str(each) for each in getattr(model, "feature_names_in_", ())]


def _learned(transformers: Any, names: Sequence[str]) -> dict[str, Domain]:
    """Returns the values of columns that the transformers of a ColumnTransformer know."""
    found: dict[str, Domain] = {}
    for _, transformer, chosen in transformers.transformers_:
        if not isinstance(transformer, str):
            own = [chosen] if isinstance(chosen, str) else _chosen(chosen, names)
            found |= dict(zip(own, _domains(transformer), strict=False))
    return found


def _chosen(chosen: Any, names: Sequence[str]) -> list[str]:
    return [names[int(each)] if isinstance(each, int | np.integer) else str(each) for each in chosen]


def _domains(transformer: Any) -> Iterator[Domain]:
    """Yields the values of each column that a transformer reads. An imputer leaves them to the steps behind it."""
    for step in steps(transformer):
        if hasattr(step, "vocabulary_"):
            yield Domain(sorted(step.vocabulary_), words=True)
            return
        if hasattr(step, "categories_"):
            yield from (Domain(list(values)) for values in step.categories_)
            return


def _is_text(values: Any) -> bool:
    return any(isinstance(each, str) for each in values)


def _width(model: Any, first: Any) -> int:
    for each in (model, first):
        count = getattr(each, "n_features_in_", None)
        if count is not None:
            return int(count)
    raise Refused(f"{type(model).__name__} does not say how many features it takes (n_features_in_)")

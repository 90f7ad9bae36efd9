"""scikit-learn: estimators and pipelines from skops files, and from pickles where that is permitted; by skl2onnx."""

import warnings
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from handler.commands.convert.sources import PICKLED, first_bytes, graph
from handler.commands.convert.sources import sklearn_histograms as histograms
from handler.commands.convert.sources import sklearn_inputs as inputs
from handler.commands.convert.sources import sklearn_trees as trees
from handler.commands.convert.sources.original import (
    OPSET,
    Arrays,
    LibraryModel,
    Progress,
    SourceOptions,
    library,
    one_line,
    refusing,
    versioned,
)
from handler.commands.convert.sources.sklearn_inputs import EXTRA, INPUT, TITLE
from handler.commands.refused import Refused

LOCALE: Final = "C.UTF-8"
"""skl2onnx writes en_US, which small images do not have."""
ZIP: Final = b"PK"
"""The beginning of a skops file. Another one that `--format` names is a pickle."""
SKOPS: Final = ".skops"
TURNED: Final = ("SVC", "NuSVC")
"""Classifiers whose two scores skl2onnx writes in the other order: the first class's is the second one."""
NO_CONVERTER: Final = ("MissingShapeCalculator", "MissingConverter")


def convert(file: Path, options: SourceOptions, progress: Progress) -> LibraryModel:
    """Converts an estimator. Raises Refused."""
    library("sklearn", TITLE, EXTRA)
    skl2onnx = library("skl2onnx", TITLE, EXTRA)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        model = _opened(file, options)
    columns = inputs.columns(model, options)
    progress(f"converting {type(model).__name__} with {versioned('skl2onnx')}")
    classifies = _is("classifier", model)
    if classifies:
        _check_classes(model)
    subject = histograms.plain(model)
    types = inputs.types(subject, columns)
    try:
        made = skl2onnx.to_onnx(
            subject,
            initial_types=types,
            options=_options(subject, classifies=classifies),
            target_opset={"": OPSET, "ai.onnx.ml": 3},
        )
    except Exception as error:
        raise Refused(_why(error)) from error
    trees.send_missing_values(made, model)
    graph.renamed_inputs(made, [name for name, _ in types])  # skl2onnx has _ for what an identifier cannot have
    if classifies:
        _repair_scores(made, model)
    outputs = graph.outputs(made)
    scores = outputs[1] if classifies and len(outputs) > 1 else ""
    return LibraryModel(
        made.SerializeToString(),
        _Original(model, columns, outputs),
        versioned("scikit-learn"),
        versioned("skl2onnx"),
        _kind(model),
        wide=True,
        gaps=inputs.takes_gaps(model),
        scores=scores,
        class_labels=[str(each) for each in getattr(model, "classes_", ())] if scores else (),
        feature_names=() if columns else [str(each) for each in getattr(model, "feature_names_in_", ())],
        domains=inputs.domains(model, columns),
        notes=_notes(warned),
    )


def _check_classes(model: Any) -> None:
    """Raises Refused for a classifier of several columns, which has an array of classes for each."""
    if isinstance(getattr(model, "classes_", None), list):
        raise Refused(
            f"{type(model).__name__} predicts several columns of classes, and skl2onnx does not write their "
            "probabilities row by row: train a classifier for each column"
        )


def _repair_scores(made: Any, model: Any) -> None:
    """Makes the second output of a classifier one that the comparison can check."""
    method = _second("classifier", model)
    turned = method == "decision_function" and type(_last(model)).__name__ in TURNED
    if not method:  # votes for labels
        del made.graph.output[1:]
    elif turned and len(model.classes_) == 2:  # noqa: PLR2004 - classes
        graph.negated_output(made, graph.outputs(made)[1])


def _notes(warned: Sequence[warnings.WarningMessage]) -> list[str]:
    """Returns a sentence for each other version of scikit-learn that the parts of a model are of.

    Such a part can be read wrongly, and the parity report cannot show it: the model that was read is its original.
    """
    found = {str(getattr(each.message, "original_sklearn_version", "")) for each in warned} - {""}
    now = version("scikit-learn")
    return [
        f"it was saved with scikit-learn {old}, which {now} may read wrongly: use the same version"
        for old in sorted(found)
    ]


def _options(model: Any, *, classifies: bool) -> dict[int, dict[str, Any]]:
    """Returns skl2onnx's options by the object: scores are a tensor, and lower case needs no language's locale.

    Turns off an option of voting classifiers that skl2onnx refuses. It concerns `transform`, which no output needs.
    """
    last = _last(model)
    bare = type(last).__name__ == "LinearSVC"  # its scores are a tensor, and skl2onnx refuses the option that says so
    found: dict[int, dict[str, Any]] = {id(last): {"nocl": False}} if bare else {}
    if classifies and not bare:
        found[id(model)] = {"zipmap": False}
    for step in inputs.steps(model, inner=True):
        if hasattr(step, "vocabulary_"):
            found.setdefault(id(step), {})["locale"] = LOCALE
        if hasattr(step, "flatten_transform"):
            step.flatten_transform = False
    return found


def _last(model: Any) -> Any:
    """Returns the estimator that predicts: the last step of a pipeline, the best one of a search."""
    while True:
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        elif hasattr(model, "steps"):
            model = model.steps[-1][1]
        else:
            return model


# -- reading ------------------------------------------------------------------------------------------------------


def _opened(file: Path, options: SourceOptions) -> Any:
    suffix = file.suffix.lower()
    if suffix in PICKLED or (suffix != SKOPS and not first_bytes(file).startswith(ZIP)):
        return _unpickled(file, allowed=options.allow_pickle)
    skops = library("skops.io", TITLE, EXTRA)
    with refusing(f"{file} cannot be read as a skops file"):
        unknown = skops.get_untrusted_types(file=file)
    foreign = sorted(each for each in set(unknown) - set(options.trusted) if not _is_own(each))
    if foreign:
        raise Refused(
            f"{file} has types that skops does not trust: {', '.join(foreign)[:300]}. Loading one runs its code. "
            "If you know where the file comes from, name each with --trust"
        )
    with refusing(f"{file} cannot be read as a skops file"):
        model = skops.load(file, trusted=unknown)
    return _checked(file, model)


def _is_own(name: str) -> bool:
    """Decides whether a type is a class of scikit-learn, of which skops knows few. Making one runs its code alone.

    A class of another package that a module of scikit-learn has imported is not its own.
    """
    module, _, name = name.rpartition(".")
    if (module, name) == ("numpy", "dtype"):
        return True
    if not module.startswith("sklearn."):
        return False
    try:
        found = getattr(import_module(module), name, None)
    except ImportError:
        return False
    return isinstance(found, type) and found.__module__.startswith("sklearn.")


def _unpickled(file: Path, *, allowed: bool) -> Any:
    if not allowed:
        raise Refused(
            f"{file} is a pickle: loading it can run any code of its author. Save the model with "
            "skops.io.dump, or pass --allow-pickle for a file of your own"
        )
    joblib = library("joblib", TITLE, EXTRA)
    with refusing(f"{file} cannot be read as a pickle"):
        model = joblib.load(file)
    return _checked(file, model)


def _checked(file: Path, model: Any) -> Any:
    """Returns a fitted estimator. Raises Refused."""
    if not hasattr(model, "fit"):
        raise Refused(f"{file} has a {type(model).__name__}; expected an estimator or a pipeline of scikit-learn")
    validation = library("sklearn.utils.validation", TITLE, EXTRA)
    exceptions = library("sklearn.exceptions", TITLE, EXTRA)
    try:
        validation.check_is_fitted(model)
    except exceptions.NotFittedError:
        raise Refused(f"{file} has a {type(model).__name__} that is not fitted") from None
    return model


def _why(error: Exception) -> str:
    text = one_line(error)
    if type(error).__name__ in NO_CONVERTER:
        return f"skl2onnx has no converter for a part of this model, which may be your own class or function: {text}"
    return f"skl2onnx does not convert this model: {text}"


# -- answers ------------------------------------------------------------------------------------------------------


def _is(kind: str, model: Any) -> bool:
    return bool(getattr(library("sklearn.base", TITLE, EXTRA), f"is_{kind}")(model))


def _kind(model: Any) -> str:
    return next((kind for kind in ("classifier", "regressor") if _is(kind, model)), "transformer")


METHODS: Final = {
    "classifier": ("predict", ("predict_proba", "decision_function")),
    "regressor": ("predict", ()),
    "outlier_detector": ("predict", ("decision_function",)),
    "clusterer": ("predict", ("transform",)),
}
"""The method behind the first output, and candidates for the second: the first candidate that the model has."""


def _second(kind: str | None, model: Any) -> str:
    """Returns the method behind the second output, "" if the model has none."""
    others = METHODS[kind][1] if kind else ("predict_proba",)
    return next((each for each in others if hasattr(model, each)), "")


class _Original:
    """Computes the ONNX model's outputs with scikit-learn."""

    def __init__(self, model: Any, columns: Mapping[str, bool], outputs: Sequence[str]) -> None:
        self._model = model
        self._columns = columns
        kind = next((each for each in METHODS if _is(each, model)), None)
        first = METHODS[kind][0] if kind else "predict" if len(outputs) > 1 else "transform"
        self._methods = dict(zip(outputs, (first, _second(kind, model)), strict=False))

    def __call__(self, given: Mapping[str, NDArray[Any]]) -> Arrays:
        rows = self._frame(given) if self._columns else self._matrix(given)
        return {name: _dense(getattr(self._model, method)(rows)) for name, method in self._methods.items() if method}

    def _frame(self, given: Mapping[str, NDArray[Any]]) -> Any:
        pandas = library("pandas", TITLE, EXTRA)
        return pandas.DataFrame({name: given[name].reshape(-1) for name in self._columns})

    def _matrix(self, given: Mapping[str, NDArray[Any]]) -> Any:
        rows = given[INPUT]
        names = getattr(self._model, "feature_names_in_", None)
        return rows if names is None else library("pandas", TITLE, EXTRA).DataFrame(rows, columns=names)


def _dense(answer: Any) -> NDArray[Any]:
    return np.asarray(answer.toarray() if hasattr(answer, "toarray") else answer)

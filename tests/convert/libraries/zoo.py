"""Real models: how each is trained and saved, and what its conversion must say. No file of them is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import skops.io as skops_io
from sklearn import (
    calibration,
    datasets,
    ensemble,
    linear_model,
    model_selection,
    naive_bayes,
    neighbors,
    neural_network,
    pipeline,
    preprocessing,
    svm,
    tree,
)
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.utils import Bunch

IRIS = datasets.load_iris(as_frame=True)
WINE = datasets.load_wine(as_frame=True)
DIABETES = datasets.load_diabetes(as_frame=True)
CANCER = datasets.load_breast_cancer(as_frame=True)
SIGNS = np.random.default_rng(3).integers(-3, 4, (900, 4)).astype(np.float32)
WHOLE = Bunch(data=pd.DataFrame(SIGNS), target=pd.Series(SIGNS[:, 0] * 2 + SIGNS[:, 1] + (SIGNS[:, 2] == 0)))
"""Columns with numbers on both sides of 0, and with 0."""
PAIRS = Bunch(data=WHOLE.data, target=pd.DataFrame((SIGNS[:, :2] > 0).astype(int)))
"""Two columns to predict."""
GAPS = SIGNS.astype(np.float64)
GAPS[::5, 1] = np.nan
GAPPED = Bunch(data=pd.DataFrame(GAPS), target=pd.Series(np.nan_to_num(GAPS[:, 0]) + 9 * np.isnan(GAPS[:, 1])))
"""A column whose missing values matter: its first split is between them and all numbers."""


ASKED = slice(1, 6)
"""The rows that the server is asked."""


class Trained(NamedTuple):
    """`data`: rows for --data, a DataFrame or an array. `answers`: the library's own scores or numbers for ASKED."""

    path: Path
    data: Any
    answers: Any


class Case(NamedTuple):
    """`make(folder)`: trains and saves. `outputs`: those of the ONNX model. `labels`: those of the classes.

    `data`: whether the conversion gets the rows; without them it makes its own, and there is no explainer.
    """

    make: Callable[[Path], Trained]
    outputs: tuple[str, ...]
    labels: tuple[str, ...] = ()
    data: bool = True
    note: str = ""


def answers(model: Any, rows: Any) -> Any:
    method = next(each for each in ("predict_proba", "decision_function", "predict") if hasattr(model, each))
    found = getattr(model, method)(rows[ASKED])
    return np.stack([-found, found], axis=1) if method == "decision_function" and found.ndim == 1 else found


def both(predicted: Any, parameters: dict[str, Any]) -> Any:
    """Returns the probabilities of both classes, where a booster returns that of the second."""
    return np.stack([1 - predicted, predicted], axis=1) if "binary" in parameters["objective"] else predicted


def passengers() -> pd.DataFrame:
    random = np.random.default_rng(1)
    ages, fares = random.uniform(1, 80, 300), random.exponential(30, 300)
    ages[::17] = np.nan
    sexes, ports = random.choice(["m", "f"], 300), random.choice(["S", "C", "Q"], 300)
    return pd.DataFrame({"age": ages, "fare-in-€": fares, "sex": sexes, "1st port": ports})


def skops(estimator: Any, frame: Any = IRIS, *, plain: bool = False) -> Callable[[Path], Trained]:
    """Saves an estimator, trained on one of scikit-learn's data sets. `plain`: on FP32, without names of features."""

    def make(folder: Path) -> Trained:
        x = frame.data.to_numpy(np.float32) if plain else frame.data
        y = frame.target if plain or "target_names" not in frame else np.array(frame.target_names)[frame.target]
        path = folder / "model.skops"
        skops_io.dump(estimator.fit(x, y), path)
        return Trained(path, x, answers(estimator, x))

    return make


def table(folder: Path) -> Trained:
    """A pipeline on a DataFrame: numbers with gaps, and texts. Names of columns are not all identifiers."""
    frame = passengers()
    numbers = pipeline.make_pipeline(SimpleImputer(), preprocessing.StandardScaler())
    texts = preprocessing.OneHotEncoder(handle_unknown="ignore")
    columns = ColumnTransformer([("n", numbers, ["age", "fare-in-€"]), ("t", texts, ["sex", "1st port"])])
    lived = np.where((frame.sex == "f") ^ (frame["fare-in-€"] > 40), "lived", "died")
    model = pipeline.make_pipeline(columns, linear_model.LogisticRegression()).fit(frame, lived)
    skops_io.dump(model, folder / "table.skops")
    return Trained(folder / "table.skops", frame, answers(model, frame))


WORDS = [
    "good film",
    "bad film",
    "a very good story",
    "boring and bad",
    "good good good",
    "not so bad",
    "bad story",
    "fine",
]


def reviews(vectorizer: Any) -> Callable[[Path], Trained]:
    def make(folder: Path) -> Trained:
        texts = [f"{a} {b}" for a in WORDS for b in WORDS]
        liked = np.where([text.count("good") > text.count("bad") for text in texts], "yes", "no")
        model = pipeline.make_pipeline(vectorizer, linear_model.LogisticRegression()).fit(texts, liked)
        skops_io.dump(model, folder / "reviews.skops")
        return Trained(folder / "reviews.skops", np.array(texts), answers(model, texts))

    return make


def xgb(suffix: str, frame: Any, rounds: int = 20, **parameters: Any) -> Callable[[Path], Trained]:
    def make(folder: Path) -> Trained:
        import xgboost  # noqa: PLC0415 - the tests of the other libraries do without

        booster = xgboost.train(parameters, xgboost.DMatrix(frame.data, frame.target), rounds)
        booster.save_model(folder / f"model.{suffix}")
        return Trained(
            folder / f"model.{suffix}",
            frame.data,
            both(booster.predict(xgboost.DMatrix(frame.data[ASKED])), parameters),
        )

    return make


def labels_of_classes(folder: Path) -> Trained:
    """The objective that predicts a label has the trees of the one that predicts probabilities."""
    probable = xgb("json", IRIS, objective="multi:softprob", num_class=3)(folder)
    return probable._replace(path=xgb("ubj", IRIS, objective="multi:softmax", num_class=3)(folder).path)


def ranker(folder: Path) -> Trained:
    """A file of XGBRanker names its class, which the other classes of XGBoost refuse."""
    import xgboost  # noqa: PLC0415 - as above

    model = xgboost.XGBRanker(n_estimators=20).fit(IRIS.data, IRIS.target, group=[len(IRIS.data)])
    model.save_model(folder / "model.json")
    return Trained(folder / "model.json", IRIS.data, model.predict(IRIS.data[ASKED]))


def lgbm(
    frame: Any, *, rounds: int = 20, categorical: bool = False, named: bool = False, **parameters: Any
) -> Callable[[Path], Trained]:
    def make(folder: Path) -> Trained:
        import lightgbm  # noqa: PLC0415 - as above

        x = frame.data if named else frame.data.to_numpy()
        chosen: Any = "auto"
        if categorical:
            x, chosen = np.concatenate([x, np.arange(len(x))[:, None] % 7], axis=1), [x.shape[1]]
        data = lightgbm.Dataset(x, frame.target, categorical_feature=chosen, free_raw_data=False)
        y = np.asarray(frame.target, float) + (x[:, -1] * 10 if categorical else 0)
        data.set_label(y)
        booster = lightgbm.train({"verbosity": -1, "deterministic": True, **parameters}, data, rounds)
        booster.save_model(folder / "model.txt")
        return Trained(folder / "model.txt", x, both(booster.predict(x[ASKED]), parameters))

    return make


def cat(kind: str, frame: Any, *, named: bool = False, **parameters: Any) -> Callable[[Path], Trained]:
    def make(folder: Path) -> Trained:
        import catboost  # noqa: PLC0415 - as above

        x = frame.data if named else frame.data.to_numpy()
        y = np.array(frame.target_names)[frame.target] if named else frame.target
        model = getattr(catboost, kind)(iterations=20, depth=4, verbose=False, allow_writing_files=False, **parameters)
        model.fit(x, y).save_model(str(folder / "model.cbm"))
        return Trained(folder / "model.cbm", x, answers(model, x))

    return make


def scaled(estimator: Any) -> Any:
    return pipeline.make_pipeline(preprocessing.StandardScaler(), estimator)


def votes(**parameters: Any) -> Any:
    voters = {"lines": linear_model.LogisticRegression(max_iter=500), "tree": tree.DecisionTreeClassifier(max_depth=3)}
    return ensemble.VotingClassifier([*voters.items()], **parameters)


THREE = ("0", "1", "2")
SPECIES = ("setosa", "versicolor", "virginica")
CLASSES = ("label", "probabilities")
SKLEARN = {
    "logistic": Case(skops(linear_model.LogisticRegression(max_iter=500)), CLASSES, SPECIES),
    "scaled-svc": Case(skops(scaled(calibration.CalibratedClassifierCV(svm.SVC(), ensemble=False))), CLASSES, SPECIES),
    "linear-svc": Case(skops(scaled(svm.LinearSVC())), CLASSES, SPECIES),
    "search": Case(skops(model_selection.GridSearchCV(svm.LinearSVC(), {"C": [0.1, 1]}), plain=True), CLASSES, THREE),
    "votes": Case(skops(votes(voting="soft")), CLASSES, SPECIES),
    "votes-for-labels": Case(skops(votes(), plain=True), ("label",), data=False),
    "two-classes-svc": Case(skops(scaled(svm.SVC()), CANCER), CLASSES, ("benign", "malignant")),
    "two-classes-lines": Case(
        skops(scaled(linear_model.SGDClassifier(random_state=0)), CANCER, plain=True), CLASSES, ("0", "1")
    ),
    "forest": Case(skops(ensemble.RandomForestClassifier(20, random_state=0)), CLASSES, SPECIES),
    "forest-made": Case(skops(ensemble.RandomForestClassifier(20, random_state=0)), CLASSES, SPECIES, data=False),
    "forest-gaps": Case(skops(ensemble.RandomForestRegressor(20, random_state=0), GAPPED, plain=True), ("variable",)),
    "bags-made": Case(
        skops(ensemble.BaggingRegressor(tree.DecisionTreeRegressor(), max_features=0.7, random_state=0), DIABETES),
        ("variable",),
        data=False,
    ),
    "extra-trees-numbers": Case(
        skops(ensemble.ExtraTreesClassifier(20, random_state=0), WINE, plain=True), CLASSES, THREE
    ),
    "boosting": Case(
        skops(ensemble.GradientBoostingClassifier(n_estimators=20, random_state=0), CANCER),
        CLASSES,
        ("benign", "malignant"),
    ),
    "histogram-boosting": Case(skops(ensemble.HistGradientBoostingClassifier(max_iter=20)), CLASSES, SPECIES),
    "histogram-made": Case(skops(ensemble.HistGradientBoostingClassifier(max_iter=20)), CLASSES, SPECIES, data=False),
    "histogram-regression": Case(
        skops(ensemble.HistGradientBoostingRegressor(max_iter=20), DIABETES, plain=True), ("variable",)
    ),
    "histogram-gaps": Case(
        skops(ensemble.HistGradientBoostingRegressor(max_iter=20), GAPPED, plain=True), ("variable",), data=False
    ),
    "ridge": Case(skops(scaled(linear_model.Ridge()), DIABETES), ("variable",)),
    "tree": Case(skops(tree.DecisionTreeRegressor(max_depth=5), DIABETES, plain=True), ("variable",)),
    "tree-made": Case(skops(tree.DecisionTreeRegressor(max_depth=5), DIABETES, plain=True), ("variable",), data=False),
    "neighbours": Case(skops(neighbors.KNeighborsClassifier(), CANCER, plain=True), CLASSES, ("0", "1")),
    "bayes": Case(skops(naive_bayes.GaussianNB()), CLASSES, SPECIES),
    "perceptron": Case(
        skops(scaled(neural_network.MLPClassifier((8,), solver="lbfgs", max_iter=2000, random_state=0))),
        CLASSES,
        SPECIES,
    ),
    "table": Case(table, CLASSES, ("died", "lived")),
    "table-made": Case(table, CLASSES, ("died", "lived"), data=False),
    "words": Case(reviews(CountVectorizer()), CLASSES, ("no", "yes")),
    "words-made": Case(reviews(TfidfVectorizer()), CLASSES, ("no", "yes"), data=False),
}
XGBOOST = {
    "xgb-binary": Case(xgb("json", CANCER, objective="binary:logistic"), CLASSES, ("0", "1")),
    "xgb-classes": Case(xgb("ubj", IRIS, objective="multi:softprob", num_class=3), CLASSES, THREE),
    "xgb-labels": Case(labels_of_classes, CLASSES, THREE),
    "xgb-regression": Case(xgb("json", DIABETES, objective="reg:squarederror", max_depth=4), ("variable",)),
    "xgb-poisson": Case(xgb("ubj", DIABETES, objective="count:poisson"), ("variable",)),
    "xgb-ranker": Case(ranker, ("variable",)),
    "xgb-made": Case(xgb("json", CANCER, objective="binary:logistic"), CLASSES, ("0", "1"), data=False),
    "xgb-gaps": Case(xgb("json", GAPPED, objective="reg:squarederror"), ("variable",), data=False),
    "xgb-base-score": Case(xgb("json", DIABETES, objective="reg:squarederror", base_score=150.0), ("variable",)),
}
FOREST = {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}
LIGHTGBM = {
    "lgbm-binary": Case(lgbm(CANCER, named=True, objective="binary"), CLASSES, ("0", "1")),
    "lgbm-classes": Case(lgbm(WINE, objective="multiclass", num_class=3), CLASSES, THREE),
    "lgbm-slope": Case(lgbm(CANCER, objective="binary", sigmoid=2.0), CLASSES, ("0", "1")),
    "lgbm-forest": Case(lgbm(DIABETES, objective="regression", **FOREST), ("variable",)),
    "lgbm-forest-classes": Case(lgbm(WINE, objective="multiclass", num_class=3, **FOREST), CLASSES, THREE),
    "lgbm-regression": Case(lgbm(DIABETES, objective="regression"), ("variable",)),
    "lgbm-categories": Case(
        lgbm(DIABETES, categorical=True, objective="regression"), ("variable",), note="categorical"
    ),
    "lgbm-categories-made": Case(
        lgbm(DIABETES, categorical=True, objective="regression"), ("variable",), data=False, note="categorical"
    ),
    "lgbm-made": Case(lgbm(CANCER, objective="binary"), CLASSES, ("0", "1"), data=False),
    "lgbm-each-class": Case(
        lgbm(WINE, objective="multiclassova", num_class=3, sigmoid=2.0), CLASSES, THREE, data=False
    ),
    "lgbm-square-roots": Case(lgbm(WHOLE, objective="regression", reg_sqrt=True), ("variable",), data=False),
    "lgbm-zeros": Case(lgbm(WHOLE, objective="regression"), ("variable",), data=False),
    "lgbm-gaps": Case(lgbm(GAPPED, objective="regression"), ("variable",), data=False),
    "lgbm-zeros-not-missing": Case(lgbm(WHOLE, objective="regression", use_missing=False), ("variable",), data=False),
}
CATBOOST = {
    "cat-binary": Case(cat("CatBoostClassifier", CANCER), CLASSES, ("0", "1")),
    "cat-classes": Case(cat("CatBoostClassifier", IRIS, named=True), CLASSES, SPECIES),
    "cat-regression": Case(cat("CatBoostRegressor", DIABETES), ("predictions",)),
    "cat-made": Case(cat("CatBoostRegressor", DIABETES), ("predictions",), data=False),
}
CASES = SKLEARN | XGBOOST | LIGHTGBM | CATBOOST

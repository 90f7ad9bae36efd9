"""What `dragoman convert` refuses, each with its reason in one line, and nothing is published."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
import skops.io
from sklearn import compose, ensemble, linear_model, neighbors, pipeline, preprocessing
from sklearn.ensemble import HistGradientBoostingRegressor

from tests.convert.libraries import zoo


def halved(rows: Any) -> Any:
    """A function of one's own, which no converter knows."""
    return np.asarray(rows) / 2


def own_function(folder: Path) -> Path:
    steps = preprocessing.FunctionTransformer(halved), linear_model.LogisticRegression(max_iter=500)
    skops.io.dump(pipeline.make_pipeline(*steps).fit(zoo.IRIS.data, zoo.IRIS.target), folder / "own.skops")
    return folder / "own.skops"


def pickled(folder: Path) -> Path:
    model = linear_model.LogisticRegression(max_iter=500).fit(zoo.IRIS.data, zoo.IRIS.target)
    (folder / "model.pkl").write_bytes(pickle.dumps(model))
    return folder / "model.pkl"


def saved(model: Any) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        skops.io.dump(model, folder / "model.skops")
        return folder / "model.skops"

    return make


def content(name: str, text: bytes) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        (folder / name).write_bytes(text)
        return folder / name

    return make


def pipe(folder: Path) -> Path:
    """A file that waits for its writer when it is opened."""
    os.mkfifo(folder / "m.pkl")
    return folder / "m.pkl"


def timestamps(folder: Path) -> Path:
    """A feature of seconds since 1970, of which FP32 has every 128th, and a target that depends on single ones."""
    import lightgbm  # noqa: PLC0415 - the other tests do without

    x = np.stack([1.7e9 + np.arange(400.0), np.arange(400.0) % 5], axis=1)
    y = np.sin(np.arange(400.0) / 8) * 10
    booster = lightgbm.train({"verbosity": -1, "objective": "regression"}, lightgbm.Dataset(x, y), 30)
    booster.save_model(folder / "times.txt")
    np.save(folder / "times.npy", x)
    return folder / "times.txt"


def doubles(folder: Path) -> Path:
    """Splits lie in the middle of two numbers, of which FP32 may have none between."""
    x = zoo.DIABETES.data.to_numpy()
    skops.io.dump(HistGradientBoostingRegressor(max_iter=20).fit(x, zoo.DIABETES.target), folder / "m.skops")
    np.save(folder / "data.npy", x)
    return folder / "m.skops"


def columns_of_classes(folder: Path) -> Path:
    """Two columns with different numbers of classes: the refusal asked for other rows."""
    both = np.stack([zoo.IRIS.target, zoo.IRIS.target > 0], axis=1)
    return saved(ensemble.RandomForestClassifier(3, random_state=0).fit(zoo.IRIS.data, both))(folder)


def column_of_labels(folder: Path) -> Path:
    """A DataFrame with a feature that is called as the first output of classifiers."""
    frame = zoo.IRIS.data.set_axis(["a", "b", "c", "label"], axis=1)
    columns = compose.ColumnTransformer([("n", preprocessing.StandardScaler(), [*frame])])
    model = pipeline.make_pipeline(columns, linear_model.LogisticRegression())
    return saved(model.fit(frame, zoo.IRIS.target))(folder)


def weighted_trees(folder: Path) -> Path:
    """A booster whose trees have weights."""
    return zoo.xgb("json", zoo.IRIS, booster="dart", objective="reg:squarederror")(folder).path


def zeros_as_missing(folder: Path) -> Path:
    """A booster of LightGBM whose splits send 0 where missing values go."""
    return zoo.lgbm(zoo.WHOLE, objective="regression", zero_as_missing=True)(folder).path


def xgboost_categories(folder: Path) -> Path:
    import xgboost  # noqa: PLC0415 - as above

    x = np.random.default_rng(0).integers(0, 8, (300, 2))
    data = xgboost.DMatrix(x, x[:, 0] % 3 == 1, feature_types=["c", "q"], enable_categorical=True)
    xgboost.train({"tree_method": "hist", "max_cat_to_onehot": 1}, data, 5).save_model(folder / "cats.json")
    return folder / "cats.json"


def catboost_of(kind: str, data: Any, loss: str | None = None) -> Callable[[Path], Path]:
    """A model whose answers or labels CatBoost's export does not write."""

    def make(folder: Path) -> Path:
        options = {} if loss is None else {"loss_function": loss}
        return zoo.cat(kind, data, **options)(folder).path

    return make


def labelled(labels: Any) -> Any:
    return zoo.Bunch(data=zoo.WHOLE.data, target=labels)


def catboost_categories(folder: Path) -> Path:
    import catboost  # noqa: PLC0415 - as above

    rows = [[str(index % 3), index] for index in range(60)]
    model = catboost.CatBoostRegressor(iterations=3, verbose=False, allow_writing_files=False, cat_features=[0])
    model.fit(rows, list(range(60))).save_model(str(folder / "cats.cbm"))
    return folder / "cats.cbm"


def forest(folder: Path) -> Path:
    return zoo.SKLEARN["forest"].make(folder).path


REFUSED = {
    "a pickle": (pickled, (), "loading it can run any code of its author. Save the model with skops.io.dump"),
    "a type of one's own": (
        own_function,
        (),
        "types that skops does not trust: tests.convert.libraries.test_refused.halved",
    ),
    "a function of one's own": (
        own_function,
        ("--trust", "tests.convert.libraries.test_refused.halved"),
        "skl2onnx does not convert this model: RuntimeError: FunctionTransformer is not supported unless",
    ),
    "no converter": (saved(neighbors.KernelDensity().fit(zoo.IRIS.data)), (), "skl2onnx has no converter"),
    "several columns of classes": (columns_of_classes, (), "predicts several columns of classes, and skl2onnx "),
    "a column called as an output": (column_of_labels, (), "input 'label' has the name of an output: train with"),
    "not fitted": (saved(neighbors.KNeighborsClassifier()), (), "has a KNeighborsClassifier that is not fitted"),
    "not a model": (saved({"a": 1}), (), "has a dict; expected an estimator or a pipeline"),
    "a cut skops file": (content("m.skops", b"PK\3\4 and no more"), (), "cannot be read as a skops file"),
    "a cut pickle": (content("m.pkl", b"\x80\x04"), ("--allow-pickle",), "cannot be read as a pickle"),
    "a cut xgboost file": (content("m.json", b'{"learner": {'), (), "cannot be read as a model of XGBoost"),
    "a cut ubj file": (content("m.ubj", b'{L\0\0"learner"'), (), "cannot be read as a model of XGBoost"),
    "a cut lightgbm file": (content("m.txt", b"tree\nversion=v4\n"), (), "cannot be read as a model of LightGBM"),
    "a cut catboost file": (content("m.cbm", b"CBM1"), (), "cannot be read as a model of CatBoost"),
    "another json": (content("m.json", b"{}"), (), "does not begin like a model of XGBoost does; --format"),
    "another file": (
        content("m.bin", b"{}"),
        (),
        "has an unknown format; expected a SavedModel's folder, or one of .skops",
    ),
    "a model of onnx": (content("m.onnx", b""), (), "is a model of ONNX already: publish it with `dragoman push`"),
    "a pipe": (pipe, ("--allow-pickle",), "m.pkl is neither a file nor a folder"),
    "a pickle of another name": (
        content("m.sav", b"\x80\x04"),
        ("--format", "sklearn"),
        "m.sav is a pickle: loading it",
    ),
    "splits between numbers of FP64": (
        doubles,
        ("--data", "{folder}/data.npy"),
        "the original reads FP64, the ONNX model FP32; rounding 4420 of the inputs' numbers changes ",
    ),
    "timestamps": (timestamps, ("--data", "{folder}/times.npy"), "numbers changes "),
    "zeros as missing values": (zeros_as_missing, (), "reads 0 as a missing value (zero_as_missing) in "),
    "categories of xgboost": (xgboost_categories, (), "categorical splits in "),
    "another booster": (weighted_trees, (), "model.json has the booster 'dart'; expected 'gbtree', which alone"),
    "linear trees": (
        lambda folder: zoo.lgbm(zoo.DIABETES, objective="regression", linear_tree=True)(folder).path,
        (),
        "has linear models in its leaves (linear_tree), which ONNX's trees cannot express: train without linear_tree",
    ),
    "two targets": (
        lambda folder: zoo.xgb("json", zoo.PAIRS, objective="reg:squarederror")(folder).path,
        (),
        "model.json predicts 2 targets, which onnxmltools does not convert: train a model for each target",
    ),
    "an objective without its function": (
        lambda folder: zoo.xgb("ubj", labelled(zoo.WHOLE.data[0] > 0), objective="reg:logistic")(folder).path,
        (),
        "model.ubj has the objective 'reg:logistic', whose function behind the trees onnxmltools does not write",
    ),
    "two numbers": (
        catboost_of("CatBoostRegressor", zoo.PAIRS, "MultiRMSE"),
        (),
        "has the loss function 'MultiRMSE', which CatBoost's ONNX export does not write: train a model for each column",
    ),
    "quantiles": (
        catboost_of("CatBoostRegressor", zoo.WHOLE, "MultiQuantile:alpha=0.1,0.9"),
        (),
        "has the loss function 'MultiQuantile', which CatBoost's ONNX export does not write: train a model for each q",
    ),
    "each class against all others": (
        catboost_of("CatBoostClassifier", zoo.IRIS, "MultiClassOneVsAll"),
        (),
        "has the loss function 'MultiClassOneVsAll', which CatBoost's ONNX export does not write: train with Multi",
    ),
    "two labels": (
        catboost_of("CatBoostClassifier", zoo.PAIRS, "MultiLogloss"),
        (),
        "has the loss function 'MultiLogloss', which CatBoost's ONNX export does not write: train a model for each ",
    ),
    "truth values": (
        catboost_of("CatBoostClassifier", labelled(zoo.WHOLE.data[0] > 0)),
        (),
        "has truth values as labels, which CatBoost's ONNX export does not write: train with whole numbers or texts",
    ),
    "labels with a point": (
        catboost_of("CatBoostClassifier", labelled(zoo.WHOLE.data[0])),
        (),
        "has floating-point numbers as labels, which CatBoost's ONNX export does not write: train with whole numbers",
    ),
    "another library's file": (
        forest,
        ("--format", "xgboost"),
        "Check failed: str[0] == '{' (P vs. {) : Invalid model format in: `{folder}/model.skops`.\n",
    ),
    "categories of catboost": (catboost_categories, (), "has cat features (0), which CatBoost's ONNX export does not"),
    "too few columns": (forest, ("--data", "{folder}/../few.npy"), "input 'X' is [-1, 4], and the rows are [3, 2]"),
    "data that is not there": (forest, ("--data", "{folder}/none.csv"), "none.csv cannot be read: No such file"),
    "a tolerance that nothing meets": (
        lambda folder: zoo.SKLEARN["histogram-regression"].make(folder).path,
        ("--tolerance", "1e-12"),
        "the converted model does not answer as the original does: output 'variable' differs by up to ",
    ),
    "a signature": (forest, ("--signature", "x"), "--signature is for a SavedModel"),
}


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("what", REFUSED)
def test_it_is_refused_with_its_reason(what: str, run: Any, tmp_path: Path) -> None:
    """The line on stderr has the reason, and there is no traceback."""
    make, options, reason = REFUSED[what]
    np.save(tmp_path / "few.npy", np.zeros((3, 2)))
    (tmp_path / "made").mkdir()
    path = make(tmp_path / "made")
    chosen = [each.format(folder=tmp_path / "made") for each in options]
    code, out, err = run("convert", path, tmp_path / "models" / "m", "--quiet", *chosen)
    assert (code, out, err.count("\n")) == (2 if "--signature" in chosen else 1, "", 1)
    assert reason.replace("{folder}", str(tmp_path / "made")) in err
    assert not (tmp_path / "models").exists()


def test_a_folder_with_a_number_is_that_version(run: Any, tmp_path: Path) -> None:
    """A folder of Hugging Face, as one of TensorFlow. What is there is refused before the conversion."""
    (tmp_path / "reviews" / "7").mkdir(parents=True)
    (tmp_path / "reviews" / "7" / "config.json").write_text('{"model_type": "bert"}', encoding="utf-8")
    (tmp_path / "m" / "7").mkdir(parents=True)
    (tmp_path / "m" / "7" / "model.onnx").touch()
    code, _, err = run("convert", tmp_path / "reviews" / "7", tmp_path / "m")
    assert (code, f"{tmp_path}/m/7 exists already" in err) == (1, True), err


@pytest.mark.usefixtures("here")
def test_a_pickle_is_converted_with_the_flag(run: Any, tmp_path: Path) -> None:
    """The same file is refused without it."""
    code, _, err = run("convert", pickled(tmp_path), tmp_path / "models" / "m", "--allow-pickle", "--quiet")
    assert (code, err) == (0, "")
    assert (tmp_path / "models" / "m" / "1" / "model.onnx").is_file()


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", ["model.pkl", "model.sav"])
def test_a_model_of_another_version_is_named(run: Any, tmp_path: Path, name: str) -> None:
    """It can be read wrongly without an error, and the parity report compares with what was read."""
    model, now = pickled(tmp_path).read_bytes(), sklearn.__version__.encode()
    (tmp_path / name).write_bytes(model.replace(now, b"9" * len(now)))
    code, _, err = run("convert", tmp_path / name, tmp_path / "m", "--format", "sklearn", "--allow-pickle")
    assert code == 0
    assert f"it was saved with scikit-learn {'9' * len(now)}, which {now.decode()} may read wrongly" in err


@pytest.mark.usefixtures("here")
def test_a_model_is_converted_beyond_the_default_tolerance(run: Any, tmp_path: Path) -> None:
    """The publisher decides. The report says what differs."""
    path = timestamps(tmp_path)
    code, out, err = run("convert", path, tmp_path / "m", "--data", tmp_path / "times.npy", "--tolerance", "100")
    assert code == 0
    assert "numbers differ by at most" in out
    assert "the original reads FP64, the ONNX model FP32" in err


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("package", "make", "extra"),
    [
        ("skl2onnx", forest, "convert-sklearn"),
        ("skops.io", forest, "convert-sklearn"),
        ("xgboost", content("m.json", b'{"learner": {'), "convert-xgboost"),
        ("lightgbm", content("m.txt", b"tree\n"), "convert-lightgbm"),
        ("catboost", content("m.cbm", b"CBM1"), "convert-catboost"),
    ],
)
def test_a_missing_library_names_the_extra(
    package: str, make: Any, extra: str, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So does a missing converter."""
    path = make(tmp_path)
    monkeypatch.setitem(__import__("sys").modules, package, None)
    code, _, err = run("convert", path, tmp_path / "m")
    assert code == 1
    assert err.endswith(f"pip install 'dragoman[{extra}]'\n")

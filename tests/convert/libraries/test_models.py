"""Models of other libraries: converted with parity, and served. The library itself is the oracle."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from handler.settings.model import FILE
from handler.stores import parity
from tests.convert.libraries.test_refused import REFUSED as REASONS
from tests.convert.libraries.zoo import ASKED, CASES, Trained, skops, votes
from tests.convert.roll import REFUSED, SERVED
from tests.convert.serving import check_explained, check_served, get, inputs
from tests.support.server import Server

LIBRARIES = ("scikit-learn", "XGBoost", "LightGBM", "CatBoost")


def written(data: Any, folder: Path) -> Path:
    """Writes rows as a publisher has them: a table as CSV, an array as .npy."""
    if isinstance(data, pd.DataFrame):
        data.to_csv(folder / "data.csv", index=False)
        return folder / "data.csv"
    np.save(folder / "data.npy", data)
    return folder / "data.npy"


def asked(trained: Trained, names: list[str], folder: Path) -> tuple[Path, list[Any]]:
    """Returns a file of a few rows by input, and the same rows as V1 has them."""
    rows = trained.data[ASKED]
    if len(names) > 1:
        arrays = {name: rows[[name]].to_numpy() for name in names}
        arrays = {
            name: array.astype(str if array.dtype.kind in "OSU" else np.float32) for name, array in arrays.items()
        }
        instances = rows.to_dict("records")
    else:
        matrix = np.asarray(rows)
        arrays = {names[0]: matrix if matrix.dtype.kind == "U" else matrix.astype(np.float32)}
        instances = matrix.tolist()
    np.savez(folder / "asked.npz", **arrays)
    return folder / "asked.npz", instances


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize("name", CASES)
def test_a_model_is_converted_with_parity_and_served_over_every_protocol(
    name: str, repository: Path, server: Server, run: Any, tmp_path: Path
) -> None:
    """Its answers are the library's. Labels, names of features and the background come along."""
    case = CASES[name]
    trained = case.make(tmp_path)
    data = ["--data", written(trained.data, tmp_path)] if case.data else []
    code, out, err = run("convert", trained.path, repository / name, "--quiet", *data)
    assert (err, code) == ("", 0)
    report = json.loads((repository / name / "1" / parity.FILE).read_text(encoding="utf-8"))
    assert parity.sentence(report) in out
    assert [each["name"] for each in report["outputs"]] == list(case.outputs)
    assert (report["data"]["rows"] == len(trained.data)) is case.data
    assert [
        each for each in report["outputs"] if each.get("different") or each.get("flips", 0) > each.get("ties", 0)
    ] == []
    notes = " ".join(report["notes"])
    assert (case.note in notes, "missing values" in notes) == (True, False)
    path = repository / name / "1" / FILE
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    labels = settings.get("signatures", {}).get("classify", {}).get("class_labels", ())
    assert tuple(labels) == case.labels
    file, instances = asked(trained, inputs(name, server), tmp_path)
    check_served(name, server, run, file, {"": trained.answers})
    shapes = [each["shape"] for each in get(server, f"/v2/models/{name}")["outputs"]]
    assert {shape[0] for shape in shapes} == {-1}, (
        shapes
    )  # else requests are not batched, and rows are not ranked apart
    if case.data:
        check_explained(name, server, instances[0])


@pytest.mark.usefixtures("here")
def test_a_model_of_texts_alone_is_published_without_an_explainer(run: Any, tmp_path: Path) -> None:
    """An explanation divides a number, and a server refuses an explainer without one."""
    trained = skops(votes())(tmp_path)
    data = written(trained.data, tmp_path)
    code, out, err = run("convert", trained.path, tmp_path / "m", "--quiet", "--data", data)
    assert (code, err, "150 rows given" in out) == (0, "", True)
    assert sorted(each.name for each in (tmp_path / "m" / "1").iterdir()) == ["model.onnx", "parity.json"]


def test_the_roll_has_the_models_that_are_explained() -> None:
    """Those without data have no background."""
    explained = {name for name, case in CASES.items() if case.data}
    assert {each for names in map(SERVED.get, LIBRARIES) for each in names or ()} == explained
    assert {each for names in REFUSED.values() for each in names} <= set(REASONS)

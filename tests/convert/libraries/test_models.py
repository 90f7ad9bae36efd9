"""Models of other libraries: converted with parity, and served. The library itself is the oracle."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from handler.settings.model import FILE
from handler.stores import parity
from tests.convert.libraries.zoo import ASKED, CASES, Trained
from tests.support.server import Server, serve_rpc


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server of all models, which come while it runs."""
    log = tmp_path_factory.mktemp("server") / "log"
    with serve_rpc(log, REPOSITORY=str(repository), REPOSITORY_POLL="0.1") as running:
        yield running


def written(data: Any, folder: Path) -> Path:
    """Writes rows as a publisher has them: a table as CSV, an array as .npy."""
    if isinstance(data, pd.DataFrame):
        data.to_csv(folder / "data.csv", index=False)
        return folder / "data.csv"
    np.save(folder / "data.npy", data)
    return folder / "data.npy"


def asked(trained: Trained, inputs: list[str], folder: Path) -> tuple[Path, list[Any]]:
    """Returns a file of a few rows by input, and the same rows as V1 has them."""
    rows = trained.data[ASKED]
    if len(inputs) > 1:
        arrays = {name: rows[[name]].to_numpy() for name in inputs}
        arrays = {
            name: array.astype(str if array.dtype.kind in "OSU" else np.float32) for name, array in arrays.items()
        }
        instances = rows.to_dict("records")
    else:
        matrix = np.asarray(rows)
        arrays = {inputs[0]: matrix if matrix.dtype.kind == "U" else matrix.astype(np.float32)}
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
    assert case.note in " ".join(report["notes"])
    path = repository / name / "1" / FILE
    settings = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    labels = settings.get("signatures", {}).get("classify", {}).get("class_labels", ())
    assert tuple(labels) == case.labels
    _check_served(name, trained, server, run, tmp_path)
    if case.data:
        _check_explained(name, trained, server, tmp_path)


def _get(server: Server, path: str, body: Any = None) -> Any:
    url = f"http://{server.netloc}{path}"
    content = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, content), timeout=100) as answer:
        return json.loads(answer.read())


def _inputs(name: str, server: Server) -> list[str]:
    return [each["name"] for each in _get(server, f"/v2/models/{name}")["inputs"]]


def _check_served(name: str, trained: Trained, server: Server, run: Any, folder: Path) -> None:
    file, _ = asked(trained, _inputs(name, server), folder)
    places = {"v2": f"http://{server.netloc}", "v1": f"http://{server.netloc}", "grpc": server.rpc_netloc}
    for protocol, url in places.items():
        code, out, err = run("infer", name, "--protocol", protocol, "--url", url, "--file", file, "--json")
        assert (code, err) == (0, ""), protocol
        output = json.loads(out)["outputs"][-1]
        found = np.array(output["data"], float).reshape(np.shape(trained.answers))
        np.testing.assert_allclose(found, trained.answers, rtol=1e-3, atol=1e-4, err_msg=protocol)


def _check_explained(name: str, trained: Trained, server: Server, folder: Path) -> None:
    _, instances = asked(trained, _inputs(name, server), folder)
    (found,) = _get(server, f"/v1/models/{name}:explain", {"instances": instances[:1]})["explanations"]
    scores = found["importance_scores"]
    flat = [each for value in scores.values() for each in value] if isinstance(scores, dict) else scores
    total = found["base_value"] + float(np.sum(flat))
    assert total == pytest.approx(found["prediction"], abs=1e-4 * max(1, abs(found["prediction"])))

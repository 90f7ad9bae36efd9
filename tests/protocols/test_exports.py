"""Real exports of scikit-learn, LightGBM, XGBoost and torch, over every protocol, against their libraries' own answers.

`tests/support/exports/make.py` has made them.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support import grps_client, v1_client
from tests.support.server import HOST, Server, serve_rpc
from tests.support.triton import Elsewhere, Triton
from tests.support.wire import Wire, json_input
from tests.support.zoo.models import DATATYPES

ROOT: Final = Path(__file__).parents[1] / "support" / "exports"
NAMES: Final = sorted(path.name for path in ROOT.iterdir() if path.is_dir() and path.name != "__pycache__")
GRPS: Final = {"FP32": "DT_FLOAT32", "FP64": "DT_FLOAT64", "INT64": "DT_INT64", "BYTES": "DT_STRING"}
LARGEST: Final = 20_000
Tensors = Mapping[str, NDArray[Any]]


class Export(NamedTuple):
    """One model: its rows as V1 takes them, its inputs as tensors in the model's types, and the library's outputs."""

    name: str
    rows: list[dict[str, Any]]
    columns: dict[str, list[Any]]
    outputs: dict[str, Any]
    types: dict[str, str]

    def inputs(self) -> dict[str, tuple[str, NDArray[Any]]]:
        """The inputs for V2, with an axis for each scalar."""
        found = {}
        for name, values in self.columns.items():
            array = np.array(values, DATATYPES[self.types[name]].numpy)
            if array.dtype == object:
                array = np.array([text.encode() for text in array.flat], object).reshape(array.shape)
            found[name] = self.types[name], array if array.ndim > 1 else array[:, None]
        return found


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of the exports, where they are."""
    with serve_rpc(tmp_path_factory.mktemp("exports") / "log", REPOSITORY=str(ROOT)) as running:
        yield running


@pytest.fixture
def wire(exports: Server) -> Iterator[Wire]:
    """A connection of this test's own."""
    with exports.wire() as connection:
        yield connection


def read(name: str, wire: Wire) -> Export:
    """Reads an export's rows and answers from its file, and its inputs' types from the server's metadata."""
    told = wire.get(f"/v2/models/{name}").json()
    expected = json.loads((ROOT / name / "expected.json").read_text("utf-8"))
    return Export(name, **expected, types={tensor["name"]: tensor["datatype"] for tensor in told["inputs"]})


def check(found: Mapping[str, Any], expected: Mapping[str, Any]) -> None:
    """Asserts that numbers are those of the library, to FP32's digits, and texts and labels the same."""
    assert set(found) == set(expected)
    for name, values in expected.items():
        wanted, array = np.array(values), np.array(found[name])
        if wanted.dtype.kind == "f":
            np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=1e-6)
        else:
            texts = [value.decode() if isinstance(value, bytes) else value for value in array.ravel().tolist()]
            assert texts == wanted.ravel().tolist()
            assert array.shape == wanted.shape


def by_name(rows: Any, outputs: Mapping[str, Any]) -> dict[str, Any]:
    """V1's predictions by output: rows of objects, or of the only output's values."""
    if len(outputs) == 1:
        return dict.fromkeys(outputs, rows)
    return {name: [row[name] for row in rows] for name in outputs}


def v1_rows(export: Export, wire: Wire, _: Server) -> Any:
    return by_name(v1_client.rows(wire, export.name, export.rows), export.outputs)


def v1_inputs_as_rows(export: Export, wire: Wire, _: Server) -> Any:
    answer = v1_client.read(v1_client.predict(wire, export.name, {"inputs": export.rows}))
    return by_name(answer["predictions"], export.outputs)


def v1_columns(export: Export, wire: Wire, _: Server) -> Any:
    found = v1_client.columns(wire, export.name, export.columns)
    return found if len(export.outputs) > 1 else dict.fromkeys(export.outputs, found)


def grps(export: Export, wire: Wire, server: Server) -> Any:
    tensors = [grps_client.to_json(name, GRPS[kind], scalars(array)) for name, (kind, array) in as_text(export)]
    with grps_client.Http(HOST, server.port) as http:
        return http.infer(export.name, *tensors).tensors()


def grps_rpc(export: Export, wire: Wire, server: Server) -> Any:
    tensors = [grps_client.to_message(name, GRPS[kind], scalars(array)) for name, (kind, array) in as_text(export)]
    with grps_client.Rpc(server.rpc_netloc) as rpc:
        return rpc.infer(export.name, *tensors)


def as_text(export: Export) -> Iterator[tuple[str, tuple[str, NDArray[Any]]]]:
    """The inputs with texts as `str`, which GRPS's strings are."""
    for name, (kind, array) in export.inputs().items():
        texts = np.array([text.decode() for text in array.flat], object) if kind == "BYTES" else array
        yield name, (kind, texts.reshape(array.shape))


def scalars(array: NDArray[Any]) -> NDArray[Any]:
    """A column as its values, without an axis for each."""
    return array[:, 0] if array.shape[1:] == (1,) else array


PLAIN: Final[Mapping[str, Callable[[Export, Wire, Server], Any]]] = {
    "v1-rows": v1_rows,
    "v1-inputs": v1_inputs_as_rows,
    "v1-columns": v1_columns,
    "grps": grps,
    "grps-rpc": grps_rpc,
}


@pytest.mark.parametrize("name", NAMES)
def test_an_export_is_small_and_says_what_it_takes(name: str, wire: Wire) -> None:
    """The files are in the repository of this project; metadata has every output that the library has."""
    assert (ROOT / name / "1" / "model.onnx").stat().st_size < LARGEST
    export = read(name, wire)
    told = wire.get(f"/v2/models/{name}").json()
    assert set(export.columns) == set(export.types)
    assert {tensor["name"] for tensor in told["outputs"]} == set(export.outputs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", PLAIN)
def test_an_export_answers_its_rows_as_its_library_does(name: str, kind: str, wire: Wire, exports: Server) -> None:
    """V1's rows and columns, and GRPS's tensors, in which a column's values are scalars."""
    export = read(name, wire)
    check(PLAIN[kind](export, wire, exports), export.outputs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["json", "binary", "grpc"])
def test_an_export_answers_tritonclient_as_its_library_does(
    name: str, kind: str, wire: Wire, exports: Server, elsewhere: ProcessPoolExecutor
) -> None:
    """V2 over REST with JSON and binary tensors, and over gRPC."""
    export = read(name, wire)
    if kind == "grpc":
        found = Elsewhere(elsewhere, exports.rpc_netloc).infer(name, export.inputs())
    else:
        with closing(Triton("http", exports.netloc, binary=kind == "binary")) as client:
            found = client.infer(name, export.inputs(), *export.outputs)
    check(found.tensors, export.outputs)


@pytest.mark.parametrize("name", NAMES)
def test_an_export_explains_its_answers(name: str, wire: Wire) -> None:
    """Scores lead from the background's mean to the library's own score of the explained class."""
    export = read(name, wire)
    answer = v1_client.read(v1_client.post(wire, f"{name}:explain", {"instances": export.rows}))
    check(by_name(answer["predictions"], export.outputs), export.outputs)
    scores = next(values for values in reversed(export.outputs.values()) if np.array(values).dtype.kind == "f")
    for explained, row in zip(answer["explanations"], scores, strict=True):
        given = explained["importance_scores"]
        parts = list(given.values()) if isinstance(given, dict) else [given]
        prediction = explained["base_value"] + sum(float(np.sum(part)) for part in parts)
        assert prediction == pytest.approx(row[explained.get("target", 0)], abs=1e-4)
    assert len(answer["explanations"]) == len(export.rows)


def test_a_row_of_a_dataframe_is_a_map_of_grps(wire: Wire, exports: Server) -> None:
    """Numbers and text in the maps of their types, for one row."""
    export = read("dataframe", wire)
    first = export.rows[0]
    gmap = {
        "s_i64": {"age": str(first["age"])},
        "s_f": {"fare": first["fare"]},
        "s_s": {name: first[name] for name in ("sex", "port")},
    }
    with grps_client.Http(HOST, exports.port) as http:
        found = http.predict({"model": "dataframe", "gmap": gmap}).tensors()
    check(found, {output: values[:1] for output, values in export.outputs.items()})


def test_v2_takes_a_column_in_its_own_shape_only(wire: Wire) -> None:
    """V2's requests state their shapes."""
    export = read("dataframe", wire)
    inputs = [json_input(name, kind, array[:, 0]) for name, (kind, array) in export.inputs().items()]
    told = wire.infer("dataframe", *inputs)
    assert (told.status, told.json()["error"]) == (400, "input 'age' has shape [4]; the model expects [-1, 1]")


def test_classes_of_maps_are_labels(wire: Wire) -> None:
    """The classification extension names them, best first."""
    export = read("skl_maps", wire)
    inputs = [json_input(name, kind, array) for name, (kind, array) in export.inputs().items()]
    asked = {"name": "output_probability", "parameters": {"classification": 1}}
    best = wire.infer("skl_maps", *inputs, outputs=[asked]).tensor()
    labels = [text.decode().rpartition(":")[2] for text in best.ravel().tolist()]
    assert labels == export.outputs["output_label"]


def test_a_fixed_batch_says_how_to_export_a_free_one(wire: Wire) -> None:
    """As torch exports a module whose example has one row."""
    told = wire.infer("torch_fixed", json_input("x", "FP32", np.ones((2, 4), np.float32)))
    assert told.status == 400
    assert "the model expects [1, 4], one row at a time" in told.json()["error"]
    assert "dynamic_shapes={'x': {0: 'batch'}}" in told.json()["error"]

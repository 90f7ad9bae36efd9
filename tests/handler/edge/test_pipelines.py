"""A pipeline over every protocol: it is a model like any other."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.schema import open_inference as oip
from handler.edge.app import App
from handler.lifecycle.single_flight import Background
from tests.handler.edge.beside import served
from tests.handler.edge.client import ROOT, ask, make
from tests.handler.edge.test_rpc import ask as call
from tests.support.remote import question, raw
from tests.support.s3_stand_in import StandIn

TEXT = ["5.9", "3.0", "5.1", "1.8"]
V2 = {"inputs": [{"name": "text", "shape": [1, 4], "datatype": "BYTES", "data": TEXT}]}
JSON = [(b"content-type", b"application/json")]
INFER = "/v2/models/flowers/infer"


@pytest.fixture(params=[False, True], ids=["threads", "inline"])
def app(request: pytest.FixtureRequest) -> Iterator[App]:
    """The sample models, as on a server and as on Lambda."""
    made = make(inline=request.param)
    yield made
    made.close()


def names(found: Any) -> Any:
    """Where an answer of each protocol has the species."""
    if "predictions" in found:
        return found["predictions"][0]["species"]
    if "gtensors" in found:
        return found["gtensors"]["tensors"][0]["flat_string"][0]
    output = found["outputs"][0]
    return output["data"][0] if "data" in output else output["contents"]["bytesContents"][0]


GTENSOR = {"name": "text", "dtype": "DT_STRING", "shape": [1, 4], "flat_string": TEXT}
CONNECT = {
    "name": "text",
    "datatype": "BYTES",
    "shape": [1, 4],
    "contents": {"bytesContents": ["NS45", "My4w", "NS4x", "MS44"]},
}


@pytest.mark.parametrize(("path", "body", "species"), [
    (INFER, V2, "virginica"),
    ("/v1/models/flowers:predict", {"instances": [TEXT]}, "virginica"),
    ("/v1/models/flowers:predict", {"inputs": [TEXT], "signature_name": "serving_default"}, None),
    ("/grps/v1/infer/predict", {"model": "flowers", "gtensors": {"tensors": [GTENSOR]}}, "virginica"),
    ("/inference.GRPCInferenceService/ModelInfer", {"modelName": "flowers", "inputs": [CONNECT]}, "dmlyZ2luaWNh"),
])  # fmt: skip
def test_every_protocol_has_the_pipelines_answer(app: App, path: str, body: Any, species: str | None) -> None:
    """With the time of each step."""
    status, headers, answer = ask(app, "POST", path, json.dumps(body).encode(), headers=JSON)
    assert status == 200, answer
    found = json.loads(answer)
    assert (names(found) if species else found["outputs"]["species"]) in (species, ["virginica"])
    assert re.findall(r"step-(\w+);dur=\d", headers["server-timing"]) == ["numbers", "iris", "species"]


def test_grpc_has_the_pipelines_answer(app: App) -> None:
    """In raw contents, as it was asked."""
    body = question(
        "flowers", raw("text", "BYTES", np.array([[each.encode() for each in TEXT]], object))
    ).SerializeToString()
    answer = oip.ModelInferResponse.FromString(served(app, call("ModelInfer", body)))
    assert answer.raw_output_contents[0][4:] == b"virginica"


def test_a_pipeline_is_described_as_any_model(app: App) -> None:
    """Its metadata come from its ends."""
    status, _, answer = ask(app, "GET", "/v2/models/flowers")
    assert (status, json.loads(answer)) == (200, {
        "name": "flowers", "versions": ["1"], "platform": "ensemble",
        "inputs": [{"name": "text", "datatype": "BYTES", "shape": [-1, 4]}],
        "outputs": [{"name": "species", "datatype": "BYTES", "shape": [-1]},
                    {"name": "probabilities", "datatype": "FP32", "shape": [-1, 3]}],
    })  # fmt: skip


def test_triton_s_tools_find_the_steps(app: App) -> None:
    """Their configuration has them; perf_analyzer reads those of every ensemble."""
    made = [
        ("numbers", {"text": "text"}, {"x": "x"}),
        ("iris", {"x": "x"}, {"label": "label", "probabilities": "probabilities"}),
        ("species", {"label": "label"}, {"name": "species"}),
    ]
    keys = ("model_name", "input_map", "output_map")
    steps = [{**dict(zip(keys, step, strict=True)), "model_version": -1} for step in made]
    _, _, answer = ask(app, "GET", "/v2/models/flowers/config")
    assert json.loads(answer)["ensemble_scheduling"]["step"] == steps
    body = served(app, call("ModelConfig", oip.ModelConfigRequest(name="flowers").SerializeToString()))
    (*found,) = oip.ModelConfigResponse.FromString(body).config.ensemble_scheduling.step
    assert [(step.model_name, dict(step.input_map), dict(step.output_map)) for step in found] == made


def test_the_first_answer_counts_the_steps_loads(app: App) -> None:
    """One cold start: the time in the models' runtimes is that of the pipeline's load."""
    _, headers, _ = ask(app, "POST", INFER, json.dumps(V2).encode())
    times = {name: float(ms) for name, ms in re.findall(r"(\w+);dur=([\d.]+)", headers["server-timing"])}
    own = {version.name: version.progress.load_ns for version in app.registry.known() if version.progress is not None}
    assert times["load"] * 1e6 >= max(own["numbers"], own["iris"], own["species"]) - 1000


@pytest.mark.parametrize(("text", "status", "message"), [
    (["a", *TEXT[1:]], 400, "step 'numbers': model 'numbers' reads numbers from the texts"),
    (TEXT[1:], 400, "input 'text' has shape [1, 3]; the model expects [-1, 4]"),
])  # fmt: skip
def test_errors_name_the_step(app: App, text: list[str], status: int, message: str) -> None:
    """What the pipeline's own declaration shows is refused before any step."""
    body = {"inputs": [V2["inputs"][0] | {"data": text, "shape": [1, len(text)]}]}
    found, headers, answer = ask(app, "POST", INFER, json.dumps(body).encode())
    assert (found, message in json.loads(answer)["error"]) == (status, True)
    assert "step-" not in headers["server-timing"]


def test_warm_up_and_explainer_are_those_of_any_model(tmp_path: Path) -> None:
    """A numeric pipeline is explained by its background, and warmed up through its steps."""
    for name in ("half_plus_three", "iris"):
        (tmp_path / name).symlink_to(ROOT / "models" / name)
    said = {"steps": [{"model": "half_plus_three", "outputs": {"y": "z"}}, {"model": "iris", "inputs": {"x": "z"}}]}
    settings = {
        "pipeline": said | {"outputs": ["probabilities"]},
        "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}],
        "explainer": {"background": [[1, 2, 3, 4], [0, 1, 0, 1]]},
        "warmup": [{"random": True, "count": 3}],
    }
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "model-settings.json").write_text(json.dumps(settings))
    app = make(tmp_path, inline=True)
    status, _, answer = ask(app, "POST", "/v1/models/p:explain", b'{"instances": [[5, 3, 5, 1]]}')
    assert status == 200
    (found,) = json.loads(answer)["explanations"]
    assert sum(found["importance_scores"]) == pytest.approx(found["prediction"] - found["base_value"])
    counts = {each.name: each.inference_count for each in app.registry.statistics(None, Background())}
    assert counts["iris"] > 3
    app.close()


def test_a_pipeline_in_a_bucket(
    stand_in: StandIn, no_aws: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is found, fetched and loaded with the models of its steps; one in the settings has no object of its own."""
    for path in (ROOT / "models").glob("*/**/*.*"):
        stand_in.put(f"p/{path.relative_to(ROOT / 'models').as_posix()}", path.read_bytes())
    said = json.loads((ROOT / "models/flowers/1/pipeline.json").read_bytes())
    stand_in.put("p/stated/model-settings.json", json.dumps({"pipeline": said}).encode())
    stand_in.put("p/stated/1/", b"")
    app = App(stand_in.settings(monkeypatch, DRAGOMAN_CACHE=str(tmp_path)), inline=True)
    for name in ("flowers", "stated"):
        status, _, answer = ask(app, "POST", f"/v2/models/{name}/infer", json.dumps(V2).encode())
        assert (status, names(json.loads(answer))) == (200, "virginica")
    app.close()

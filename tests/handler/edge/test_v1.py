"""handler.edge.app: requests under /v1."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from handler.edge.app import App
from tests.handler.edge.client import ask, make, watched

ROW = [5.1, 3.5, 1.4, 0.2]
EXAMPLES = json.dumps({"examples": [{"x": ROW}]}).encode()


def test_every_way_to_name_a_version_leads_to_the_same_answer(app: App) -> None:
    """The newest version, a number, a label and another case get the same body."""
    form = [(b"content-type", b"application/x-www-form-urlencoded")]
    answers = set()
    for place in ("", "/versions/1", "/Versions/01", "/versions/0", "/labels/stable"):
        status, headers, body = ask(app, "POST", f"/v1/models/iris{place}:classify", EXAMPLES, headers=form)
        assert (status, headers["content-type"]) == (200, "application/json")
        answers.add(body)
    assert len(answers) == 1
    labels = [label for label, _ in json.loads(answers.pop())["results"][0]]
    assert labels == ["setosa", "versicolor", "virginica"]


@pytest.mark.parametrize("where", ["module", "settings"])
def test_a_model_that_declares_its_inputs_alone_answers_with_all_outputs(tmp_path: Path, where: str) -> None:
    """As under /v2. The declaration may be the module's or the settings'."""
    declared = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}]}
    (tmp_path / "m" / "1").mkdir(parents=True)
    head = f"metadata = {declared}\n" if where == "module" else ""
    body = "def predict(inputs, parameters): return {'y': inputs['x'] * 2, 'z': inputs['x']}\n"
    (tmp_path / "m" / "1" / "model.py").write_text(head + body)
    if where == "settings":
        (tmp_path / "m" / "model-settings.json").write_text(json.dumps(declared))
    with closing(make(tmp_path, inline=True, ALLOW_CODE="true")) as app:
        rows, columns = (ask(app, "POST", "/v1/models/m:predict", json.dumps({key: [1, 2]}).encode())[2]
                         for key in ("instances", "inputs"))  # fmt: skip
    assert json.loads(rows) == {"predictions": [{"y": 2.0, "z": 1.0}, {"y": 4.0, "z": 2.0}]}
    assert json.loads(columns)["outputs"] == {"y": [2.0, 4.0], "z": [1.0, 2.0]}


@pytest.mark.parametrize(("method", "path", "status", "text"), [
    ("POST", "/v1/models/q:predict", 404, "Servable not found for request: Latest(q)"),
    ("POST", "/v1/models/iris/versions/9:predict", 404, "Servable not found for request: Specific(iris, 9)"),
    ("POST", "/v1/models/iris/labels/q:predict", 400, "Unrecognized servable version label: q"),
    ("GET", "/v1/models/iris/labels/q", 400, "Unrecognized servable version label: q"),
    ("GET", "/v1/models/q", 404, "Could not find any versions of model q"),
    ("PUT", "/v1/models/iris", 400, "Malformed request: PUT /v1/models/iris"),
    ("GET", "/V1/nothing", 400, "Malformed request: GET /V1/nothing"),
    ("POST", "/v1/models/half_plus_three:explain", 501, None),
])  # fmt: skip
def test_what_cannot_be_answered_under_v1_is_refused_in_its_words(
    app: App, method: str, path: str, status: int, text: str | None
) -> None:
    """The refusal is an object that has only an error."""
    found, headers, body = ask(app, method, path, b'{"instances": [1.0]}')
    assert (found, headers["content-type"]) == (status, "application/json")
    (error,) = json.loads(body).values()
    assert error == text if text is not None else "explainer" in error


def test_status_follows_what_is_loaded() -> None:
    """A status request loads nothing, and a prediction makes the version AVAILABLE."""
    app = make()
    status, _, body = ask(app, "GET", "/v1/models/half_plus_three")
    assert status == 503
    assert json.loads(body)["model_version_status"][0]["state"] == "START"
    assert ask(app, "POST", "/v1/models/half_plus_three:predict", b'{"instances": [1.0]}')[0] == 200
    status, _, body = ask(app, "GET", "/v1/models/half_plus_three")
    told = json.loads(body)
    assert (status, told["ready"], told["model_version_status"][0]["state"]) == (200, True, "AVAILABLE")
    app.close()


def test_an_explanation_never_runs_where_quick_requests_do(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """An explanation runs in a thread for inference, however quick the model's inferences are."""
    document = {"signature_name": "serving_default", "instances": [ROW, ROW]}
    body = json.dumps(document).encode()
    assert ask(app, "POST", "/v1/models/iris:predict", body)[0] == 200
    changed = watched(app, monkeypatch)
    monkeypatch.setattr(app.registry, "is_quick", lambda ref, size: True)
    assert ask(app, "POST", "/v1/models/iris:predict", body)[0] == 200
    assert changed == []
    status, _, answer = ask(app, "POST", "/v1/models/iris:explain", body)
    assert (status, len(changed)) == (200, 1)
    told = json.loads(answer)
    assert set(told) == {"predictions", "explanations"}
    assert [len(told[key]) for key in told] == [2, 2]
    assert "importance_scores" in told["explanations"][0]


def test_the_server_may_pin_the_form_of_v1_answers() -> None:
    """DRAGOMAN_V1_DIALECT chooses the members of an answer under /v1."""
    for dialect, keys in (("auto", {"predictions", "outputs"}), ("tfs", {"outputs"}), ("kserve", {"predictions"})):
        app = make(V1_DIALECT=dialect)
        _, _, body = ask(app, "POST", "/v1/models/half_plus_three:predict", b'{"inputs": [1.0]}')
        assert set(json.loads(body)) == keys
        app.close()

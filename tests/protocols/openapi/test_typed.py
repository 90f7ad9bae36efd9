"""schemathesis sends models what their typed operations allow and what these forbid."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handler.edge.app import App
from tests.protocols.openapi.test_answers import CONFIG
from tests.support import fuzzer
from tests.support.fuzzer import MODES, requests
from tests.support.openapi import ROOT, ask, serving
from tests.support.zoo.models import identity, total

SAMPLES = ("flowers", "half_plus_three", "iris", "numbers", "passengers", "species", "strings")
MADE = {"matrix": ("FP64", [2, 3]), "flags": ("BOOL", [None, 2]), "scalar": ("INT8", []), "three": ("FP16", [3])}
"""Models of the tests' own: names with datatypes and shapes, of which most sizes are fixed."""
MODELS = (*SAMPLES, *MADE, "total")
SIGNATURES = {
    "named": {"inputs": {"a b": "INPUT0"}, "outputs": {"c_bytes": "OUTPUT0"}},
    "coded": {"inputs": {"file": {"tensor": "INPUT0", "encoding": "bytes"}}, "outputs": {"y": "OUTPUT0"}},
    "usual": {"inputs": {"x": {"tensor": "INPUT0", "default": [7]}}, "outputs": {"y": "OUTPUT0"}},
}
"""Models whose clients under /v1 know other names, texts in the place of bytes, or a default."""
FEATURE = {"tensor": "INPUT0", "shape": [2]}
SEVERAL = {
    "serving_default": {"outputs": {"y": "OUTPUT0"}},
    "both": {"inputs": {"one": "INPUT0"}, "outputs": {"a": "OUTPUT0", "b": "OUTPUT0"}},
    "best/1": {"method": "classify", "inputs": {"f": FEATURE}, "outputs": {"scores": "OUTPUT0"}},
    "best 1": {"method": "classify", "inputs": {"g": FEATURE | {"default": [3, 4]}}, "outputs": {"scores": "OUTPUT0"}},
}
"""The signatures of one model, two of which have names that are alike as identifiers."""
SIGNED = {
    "several": ("FP32", [None, 2]),
    "amount": ("INT64", [None, 1]),
    "named": ("BYTES", [None, 1]),
    "coded": ("UINT8", [None, 3]),
    "usual": ("INT16", [None]),
}
AMOUNT = {"method": "regress", "inputs": {"n": "INPUT0"}, "outputs": {"outputs": "OUTPUT0"}}
SETTINGS = {
    **{name: {"signatures": {"serving_default": signature}} for name, signature in SIGNATURES.items()},
    "several": {"signatures": SEVERAL},
    "amount": {"signatures": {"amount": AMOUNT}},
}


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """Offers an application with all of the models in memory: only those have typed operations."""
    root = tmp_path_factory.mktemp("typed")
    for name in SAMPLES:
        (root / name).symlink_to(ROOT / "models" / name)
    made = {name: identity(*of) for name, of in (MADE | SIGNED).items()} | {"total": total()}
    for name, model in made.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.onnx").write_bytes(model.SerializeToString())
    for name, chosen in SETTINGS.items():
        (root / name / "model-settings.json").write_text(json.dumps(chosen))
    running = serving(root, NON_FINITE="null")  # -Infinity, as TF Serving writes it, is not JSON: no validator reads it
    for name in (*SAMPLES, *made):
        ask(running, f"/v2/models/{name}", method="GET").raise_for_status()
    yield running
    running.close()


@pytest.fixture(scope="module")
def api(app: App) -> Any:
    """Returns schemathesis's view of the application."""
    return fuzzer.described(app, CONFIG)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("path", [
    *(path.format(model) for model in MODELS for path in ("/v2/models/{}/infer", "/v1/models/{}:predict")),
    "/v1/models/several:predict", "/v1/models/several:classify", "/v1/models/amount:regress",
])  # fmt: skip
@given(data=st.data())
@settings(max_examples=10, derandomize=True, suppress_health_check=list(HealthCheck))
def test_every_answer_of_a_model_is_as_described(api: Any, mode: str, path: str, data: st.DataObject) -> None:
    """Wrong names, datatypes, ranks and sizes are refused; whatever else comes, the answer has its described form."""
    operation = api[path]["POST"]
    data.draw(requests(operation, mode)).call_and_validate()


@pytest.mark.parametrize(("model", "shape", "good", "bad"), [
    ("matrix", [2, 3], [[1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]]], [[1, 2, 3], [[1, 2], [3, 4], [5, 6]]]),
    ("flags", [1, 2], [[True, False], [[True, False]]], [[[True]], [[True, False, True]]]),
    ("three", [3], [[1, 2, 3]], [[1, 2], [1, 2, 3, 4], [[1, 2, 3]]]),
    ("scalar", [], [[1]], []),
])  # fmt: skip
def test_fixed_sizes_are_part_of_the_description(
    app: App, model: str, shape: list[int], good: list[Any], bad: list[Any]
) -> None:
    """Each size that is fixed is the only one that a shape may have; elements are as many, flat and nested."""
    document = json.loads(ask(app, "/openapi.json", method="GET").content)
    schema = {"$ref": f"#/components/schemas/{model}_InferRequest", "components": document["components"]}
    valid = jsonschema_rs.validator_for(schema).is_valid
    (known,) = ask(app, f"/v2/models/{model}", method="GET").json()["inputs"]
    tensor = {"name": known["name"], "datatype": known["datatype"], "shape": shape}
    for data in good:
        assert valid({"inputs": [tensor | {"data": data}]})
        assert ask(app, f"/v2/models/{model}/infer", {"inputs": [tensor | {"data": data}]}).status_code == 200
    wrong = [{"data": data} for data in bad] + [{"shape": [*shape[:-1], 7], "data": good[0]}] * bool(shape)
    for change in wrong:
        assert not valid({"inputs": [tensor | change]}), change


@pytest.mark.parametrize(("model", "good", "bad"), [
    ("iris", [{"instances": [[1, 2, 3, 4]]}, {"instances": [{"x": [1, 2, 3, 4]}]}, {"inputs": [{"x": [1, 2, 3, 4]}]},
              {"inputs": {"x": [[1, 2, 3, 4]]}}, {"signature_name": "", "inputs": [[1, 2, 3, 4]]}],
     [{"instances": [[1, 2, 3]]}, {"instances": [{"y": [1, 2, 3, 4]}]}, {"instances": [[1, 2, 3, "4"]]}, {},
      {"instances": [[1, 2, 3, 4]], "inputs": [[1, 2, 3, 4]]}, {"signature_name": "x", "inputs": [[1, 2, 3, 4]]}]),
    ("passengers", [{"instances": [{"age": 1, "fare": [2], "sex": "f", "port": {"b64": "Qw=="}}]},
                    {"inputs": {"age": [1], "fare": [[2]], "sex": ["f"], "port": [["C"]]}}],
     [{"instances": [{"age": 1, "fare": 2, "sex": "f"}]}, {"instances": [[1, 2, "f", "C"]]},
      {"instances": [{"age": [1, 2], "fare": 2, "sex": "f", "port": "C"}]}]),
    ("named", [{"instances": ["x"]}, {"instances": [["x"]]}, {"inputs": {"a b": [["x"]]}}],
     [{"inputs": {"INPUT0": [["x"]]}}]),
    ("coded", [{"instances": ["abc"]}, {"inputs": {"file": [{"b64": "YWJj"}]}}], [{"instances": [[1, 2, 3]]}]),
    ("usual", [{"instances": [1]}, {"instances": [{"x": 32767}]}, {"inputs": {}}],
     [{"instances": [32768]}, {"instances": [1.5]}, {"instances": ["1"]}]),
    ("scalar", [{"inputs": 1}, {"inputs": {"INPUT0": 1}}], [{"instances": [1]}, {"inputs": [1]}]),
    ("half_plus_three", [{"instances": [1e39]}, {"inputs": 1e39}, {"inputs": [[1e39]]}], [{"instances": [None]}]),
    ("several", [{"instances": [[1, 2]]}, {"signature_name": "both", "instances": [{"one": [1, 2]}]},
                 {"signature_name": "best/1", "inputs": {"f": [[1, 2]]}}, {"signature_name": "best 1", "inputs": {}}],
     [{"instances": [{"one": [1, 2]}]},
      {"signature_name": "both", "instances": [{"INPUT0": [1, 2]}]},
      {"signature_name": "none", "instances": [[1, 2]]}]),
    ("amount", [{"signature_name": "amount", "instances": [5]}], [{"instances": [5]}]),
    ("several:classify", [{"signature_name": "best/1", "examples": [{"f": [1, 2.5]}]},
                          {"signature_name": "best/1", "context": {"f": [1, 2.5]}, "examples": [{}, {"f": [3, 4]}]},
                          {"signature_name": "best 1", "examples": [{"other": 1}]}],
     [{"examples": [{"f": [1, 2]}]}, {"signature_name": "best/1", "examples": [{"f": [1, 2, 3]}]},
      {"signature_name": "best/1", "examples": [{"f": [1, 2]}, {}]}, {"signature_name": "both", "examples": [{}]}]),
    ("amount:regress", [{"signature_name": "amount", "examples": [{"n": True}, {"n": [4]}]}],
     [{"signature_name": "amount", "examples": [{"n": 1.5}]}, {"signature_name": "amount", "examples": []}]),
    ("total", [{"inputs": [1, 2]}, {"inputs": {"x": [1]}}], [{"instances": [1, 2]}, {"instances": [{"x": 1}]}]),
    ("iris:classify", [{"examples": [{"x": [1, 2, 3, 4]}]}], [{"examples": [{"x": 1}]}]),
])  # fmt: skip
def test_rows_and_columns_are_described_as_they_are_taken(
    app: App, model: str, good: list[Any], bad: list[Any]
) -> None:
    """A request under /v1 fits the model's type if, and only if, the model answers it."""
    document = json.loads(ask(app, "/openapi.json", method="GET").content)
    path = f"/v1/models/{model}" if ":" in model else f"/v1/models/{model}:predict"
    operation = document["paths"][path]["post"]
    media = operation["requestBody"]["content"]["application/json"]
    answers = operation["responses"]["200"]["content"]["application/json"]["schema"]
    request, response = (
        jsonschema_rs.validator_for({**schema, "components": document["components"]})
        for schema in (media["schema"], answers)
    )
    for body in (*good, *(example["value"] for example in media["examples"].values())):
        answer = ask(app, path, body)
        assert (request.is_valid(body), answer.status_code) == (True, 200), (body, answer.text)
        response.validate(answer.json())
    for body in bad:
        answer = ask(app, path, body)
        assert (request.is_valid(body), answer.status_code) == (False, 400), (body, answer.text)

"""schemathesis sends the application what the published OpenAPI description allows and what it forbids."""

import functools
import json
import math
import shutil
import subprocess
import sys
import tempfile
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.support import fuzzer
from tests.support.asgi import application
from tests.support.fuzzer import MODES, NEGATIVE, requests
from tests.support.openapi import DOCUMENT, ROOT, nested, plain, resolved, validate

INFER = "/v2/models/{model}/infer"
EXPECTED = ["2xx", "4xx", "503"]
CONFIG = {
    "generation": {"max-examples": 25, "deterministic": True, "database": "none"},
    # Readiness answers 503, and so does anything that is busy or missing now; any other 5xx is a bug.
    "checks": {"not_a_server_error": {"expected-statuses": EXPECTED}},
    # Some inferences that JSON Schema allows are 400: it cannot say how many elements a shape needs, or what this very
    # model's inputs are. Those that must be accepted have their own test.
    "operations": [
        {
            "include-path-regex": "/(infer|generate|generate_stream)$|^/v1/.*:|^/v1/embeddings$|^/grps/.*/predict$",
            "checks": {"positive_data_acceptance": {"enabled": False}},
        },
        # A label that the model does not have is 400, as in TF Serving, and so is a method that a path does not have.
        {"include-path-regex": "^/v1/.*/labels/", "checks": {"positive_data_acceptance": {"enabled": False}}},
        {"include-path-regex": "^/v1/", "checks": {"unsupported_method": {"enabled": False}}},
        # A schema is of the whole text, as OpenAPI 3.1 has it; schemathesis takes it for one of each event.
        {"include-path-regex": "/generate_stream$", "checks": {"response_schema_conformance": {"enabled": False}}},
        {
            "include-path-regex": ":explain$",
            "checks": {"not_a_server_error": {"expected-statuses": [*EXPECTED, "501"]}},
        },
    ],
}
VERSIONS = {"half_plus_three": 123, "iris": 1, "strings": 1}
LABEL = "stable"
PATHS = DOCUMENT["paths"]

repository = tempfile.TemporaryDirectory(prefix="dragoman-openapi-")
bounded = settings(max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))


@functools.cache
def api() -> Any:
    """Returns schemathesis's view of the application over the sample models.

    The application has no threads, as on Lambda: schemathesis ends its lifespan with every test and restarts it.
    """
    return fuzzer.described(application(Path(repository.name), inline=True), CONFIG)


@pytest.fixture(scope="module", autouse=True)
def _samples() -> Iterator[None]:
    """Holds the sample models, each with a label."""
    for name, version in VERSIONS.items():
        folder = Path(shutil.copytree(ROOT / "models" / name, Path(repository.name) / name))
        file = folder / "model-settings.json"
        said = json.loads(file.read_text("utf-8")) if file.exists() else {}
        said["version_labels"] = {LABEL: version}
        file.write_text(json.dumps(said), "utf-8")
    yield
    repository.cleanup()


@pytest.mark.timeout(600)  # as long as all of its requests
def test_every_answer_is_as_described() -> None:
    """Walks through all operations: see walk.py."""
    command = [sys.executable, "-m", "pytest", str(Path(__file__).with_name("walk.py")), "-q", "-o", "addopts="]
    walked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert walked.returncode == 0, walked.stdout[-20_000:]
    assert int(walked.stdout.rpartition(" passed")[0].split()[-1]) == sum(map(len, PATHS.values()))
    assert api().raw_schema["paths"] == PATHS


def at(path: str, values: dict[str, str]) -> dict[str, str]:
    """Returns the values that the path has a place for."""
    return {name: value for name, value in values.items() if f"{{{name}}}" in path}


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
@bounded
def test_answers_about_a_model_that_is_there_are_as_described(mode: str, data: st.DataObject) -> None:
    """The same requests get past the name here, to models of the repository."""
    path = data.draw(st.sampled_from([path for path in PATHS if "{model}" in path]))
    operation = next(iter(api()[path].values()))
    if mode == NEGATIVE and operation.method == "get":
        return  # nothing is left to be wrong
    model = data.draw(st.sampled_from(list(VERSIONS)))
    parameters = at(path, {"model": model, "version": str(VERSIONS[model]), "label": LABEL})
    data.draw(requests(operation, mode, path_parameters=parameters)).call_and_validate()


@st.composite
def acceptable(draw: DrawFn) -> tuple[str, dict[str, Any]]:
    """Returns a model's name and an inference that it has to accept."""
    numbers = (
        st.floats(width=32) | st.integers(-(2**24), 2**24) | st.sampled_from(["NaN", "Infinity", "-Infinity", None])
    )
    numbers = numbers.map(lambda x: x if not isinstance(x, float) or math.isfinite(x) else None)
    sizes = st.integers(0, 3)
    name, model_input, output, datatype, shapes, elements = draw(
        st.sampled_from([("half_plus_three", "x", "y", "FP32", st.lists(sizes, max_size=3), numbers),
                         ("iris", "x", "label", "FP32", st.tuples(st.integers(1, 3), st.just(4)).map(list), numbers),
                         ("strings", "text", "text", "BYTES", st.tuples(sizes).map(list), st.text(max_size=5))]),
    )  # fmt: skip
    shape = draw(shapes)
    flat = draw(st.lists(elements, min_size=math.prod(shape), max_size=math.prod(shape)))
    spread = nested(flat, shape) if draw(st.booleans()) else flat
    body = {"inputs": [{"name": model_input, "shape": shape, "datatype": datatype, "data": spread}]}
    optional = {
        "id": st.none() | st.text(max_size=5),
        "parameters": st.none() | st.dictionaries(st.sampled_from(["a", "priority"]), st.integers() | st.booleans()),
        "outputs": st.none() | st.just([]) | st.just([{"name": output}]),
    }
    return name, body | draw(st.fixed_dictionaries({}, optional=optional))


@given(wanted=acceptable())
@bounded
def test_every_proper_inference_is_accepted(wanted: tuple[str, dict[str, Any]]) -> None:
    """Shape, data and names fit the model: the answer is 200, as described, with the request's id."""
    model, body = wanted
    case = api()[INFER]["POST"].Case(path_parameters={"model": model}, body=body, media_type="application/json")
    answer = case.call_and_validate()
    assert answer.status_code == 200, answer.text
    assert answer.json().get("id") == body.get("id")


def examples(node: dict[str, Any]) -> list[Any]:
    """Returns all examples of a media type."""
    return [
        *(example["value"] for example in node.get("examples", {}).values()),
        *([node["example"]] if "example" in node else []),
    ]


def described() -> list[Any]:
    """Returns every example of a body in the description beside its schema."""
    found = []
    for path, methods in PATHS.items():
        for method, operation in methods.items():
            bodies = [("request", operation.get("requestBody", {})), *operation["responses"].items()]
            for status, body in bodies:
                media = resolved(body).get("content", {}).get("application/json", {})
                for index, value in enumerate(examples(media)):
                    found.append(pytest.param(media["schema"], value, id=f"{method} {path} {status} {index}"))
    return found


@pytest.mark.parametrize(("schema", "value"), described())
def test_every_example_obeys_its_schema(schema: dict[str, Any], value: Any) -> None:
    """The description does not contradict itself."""
    validate(schema, value)


V1_PATHS = [path for path in PATHS if path.startswith("/v1/models/{model}")]
V1_ASKED = [path for path in V1_PATHS if ":" in path]


@st.composite
def acceptable_rows(draw: DrawFn) -> tuple[str, dict[str, Any], int]:
    """Returns a model's name, a prediction under /v1 that it has to accept, and the number of its rows."""
    count = draw(st.integers(1, 3))
    numbers = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-(2**24), 2**24)
    binary = st.binary(max_size=5).map(lambda content: {"b64": b64encode(content.hex().encode()).decode()})
    name, model_input, shape, elements = draw(
        st.sampled_from([("half_plus_three", "x", draw(st.lists(st.integers(1, 3), max_size=2)), numbers),
                         ("iris", "x", [4], numbers), ("strings", "text", [], st.text(max_size=5) | binary)]),
    )  # fmt: skip
    flat = draw(st.lists(elements, min_size=count * math.prod(shape), max_size=count * math.prod(shape)))
    tensor = nested(flat, [count, *shape])
    rows = draw(st.sampled_from([tensor, [{model_input: row} for row in tensor]]))
    keys = {"instances": rows, "inputs": draw(st.sampled_from([rows, {model_input: tensor}]))}
    key = draw(st.sampled_from(list(keys)))
    return name, {key: keys[key]}, count


@given(wanted=acceptable_rows(), path=st.sampled_from([path for path in V1_ASKED if path.endswith(":predict")]))
@bounded
def test_every_proper_prediction_is_accepted(wanted: tuple[str, dict[str, Any], int], path: str) -> None:
    """Rows and columns, named or not, of every version and label get 200, as described, with as many results."""
    model, body, count = wanted
    if model == "iris":
        body = {**body, "signature_name": "serving_default"}
    parameters = at(path, {"model": model, "version": str(VERSIONS[model]), "label": LABEL})
    case = api()[path]["POST"].Case(path_parameters=parameters, body=body, media_type="application/json")
    answer = case.call_and_validate()
    assert answer.status_code == 200, answer.text
    assert {len(values) for values in answer.json().values()} == {count}


def shown(path: str) -> list[Any]:
    """Returns the requests that the description gives as examples for a path, with target and body."""
    method, operation = next(iter(PATHS[path].items()))
    values = {p["name"]: p["example"] for p in map(resolved, operation["parameters"])}
    media = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    requests = media.get("examples") or {"": {}}
    return [
        pytest.param(
            path, method, at(path, values | request.get("x-path", {})), request.get("value"), id=f"{path} {name}"
        )
        for name, request in requests.items()
    ]


@pytest.mark.parametrize(("path", "method", "parameters", "body"), [case for path in V1_ASKED for case in shown(path)])
def test_every_example_of_v1_is_answered(path: str, method: str, parameters: dict[str, str], body: Any) -> None:
    """The sample models answer 200, literally with the shown answer for the first of a path's examples."""
    case = api()[path][method.upper()].Case(path_parameters=parameters, body=body, media_type="application/json")
    answer = case.call_and_validate()
    assert answer.status_code == 200, answer.text
    if body == shown(path)[0].values[3]:
        example = PATHS[path][method]["responses"]["200"]["content"]["application/json"]["example"]
        assert plain(answer.json()) == plain(example)


@pytest.mark.parametrize("path", [path for path in V1_PATHS if path not in V1_ASKED])
def test_what_is_told_of_a_loaded_model_is_what_is_shown(path: str) -> None:
    """They are status and metadata of the sample model, once it has predicted."""
    values = {"model": "half_plus_three", "version": "123", "label": LABEL}
    loading = api()["/v1/models/{model}:predict"]["POST"]
    loading.Case(
        path_parameters={"model": values["model"]}, body={"instances": [1]}, media_type="application/json"
    ).call()
    answer = api()[path]["GET"].Case(path_parameters=at(path, values)).call_and_validate()
    assert answer.json() == PATHS[path]["get"]["responses"]["200"]["content"]["application/json"]["example"]


@pytest.mark.parametrize("path", V1_PATHS)
def test_a_wrong_method_under_v1_is_a_malformed_request(path: str) -> None:
    """It is TF Serving's 400 in place of 405, as the description says."""
    values = at(path, {"model": "half_plus_three", "version": "123", "label": LABEL})
    method, operation = next(iter(PATHS[path].items()))
    answer = api()[path][method.upper()].Case(method="PUT", path_parameters=values).call()
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("Malformed request: PUT /v1/models/half_plus_three")
    validate(resolved(operation["responses"]["400"])["content"]["application/json"]["schema"], answer.json())

"""The published OpenAPI description against the application: schemathesis sends what it allows and what it forbids."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig

from handler.app import App
from handler.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hypothesis.strategies import DrawFn
    from schemathesis import Case

ROOT = Path(__file__).parents[2]
INFER = "/v2/models/{model}/infer"
CONFIG = {
    "generation": {"max-examples": 25, "deterministic": True, "database": "none"},
    # 503 is an answer of readiness, and of whatever is busy or not there now; any other 5xx is a bug.
    "checks": {"not_a_server_error": {"expected-statuses": ["2xx", "4xx", "503"]}},
    # Some inferences that JSON Schema allows are 400: it cannot say how many elements a shape needs, or what this very
    # model's inputs are. Those that must be accepted have a test of their own.
    "operations": [{"include-path-regex": "/infer$", "checks": {"positive_data_acceptance": {"enabled": False}}}],
}

# Without threads, as on Lambda: schemathesis ends the application's lifespan with every test and starts it again.
app = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(ROOT / "models")}), inline=True)
api = schemathesis.openapi.from_asgi("/openapi.json", app, config=SchemathesisConfig.from_dict(CONFIG))
bounded = settings(max_examples=60, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck))


@api.parametrize()
def test_every_answer_is_as_described(case: Case) -> None:
    """Statuses, headers, media types and bodies, for valid and invalid requests, wrong methods included."""
    case.call_and_validate()


@pytest.mark.parametrize("mode", list(GenerationMode))
@given(data=st.data())
@bounded
def test_answers_about_a_model_that_is_there_are_as_described(mode: GenerationMode, data: st.DataObject) -> None:
    """The same requests where they get past the name: to models of the repository."""
    path = data.draw(st.sampled_from([path for path in api.raw_schema["paths"] if "{model}" in path]))
    operation = next(iter(api[path].values()))
    if mode is GenerationMode.NEGATIVE and operation.method == "get":
        return  # nothing is left to be wrong
    model, version = data.draw(st.sampled_from([("half_plus_three", "123"), ("iris", "1"), ("strings", "1")]))
    parameters = {"model": model, "version": version} if "{version}" in path else {"model": model}
    data.draw(operation.as_strategy(generation_mode=mode, path_parameters=parameters)).call_and_validate()


def nested(flat: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """The elements as lists in lists."""
    if len(shape) <= 1:
        return list(flat)
    step = math.prod(shape[1:])
    return [nested(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


@st.composite
def acceptable(draw: DrawFn) -> tuple[str, dict[str, Any]]:
    """A model's name and an inference that it has to accept."""
    numbers = (
        st.floats(width=32) | st.integers(-(2**24), 2**24) | st.sampled_from(["NaN", "Infinity", "-Infinity", None])
    )
    numbers = numbers.map(lambda x: x if not isinstance(x, float) or math.isfinite(x) else None)
    sizes = st.integers(0, 3)
    name, model_input, output, datatype, shapes, elements = draw(
        st.sampled_from(
            [
                ("half_plus_three", "x", "y", "FP32", st.lists(sizes, max_size=3), numbers),
                ("iris", "x", "label", "FP32", st.tuples(st.integers(1, 3), st.just(4)).map(list), numbers),
                ("strings", "text", "text", "BYTES", st.tuples(sizes).map(list), st.text(max_size=5)),
            ]
        )
    )
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
    """Shape, data and names that fit the model: 200, as described, with the id that came."""
    model, body = wanted
    case = api[INFER]["POST"].Case(path_parameters={"model": model}, body=body, media_type="application/json")
    answer = case.call_and_validate()
    assert answer.status_code == 200, answer.text
    assert answer.json().get("id") == body.get("id")


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """What a local reference stands for."""
    for step in node.get("$ref", "#").split("/")[1:]:
        node = (node if step != "components" else api.raw_schema)[step]
    return node


def examples(node: dict[str, Any]) -> list[Any]:
    """All examples of a media type."""
    return [
        *(example["value"] for example in node.get("examples", {}).values()),
        *([node["example"]] if "example" in node else []),
    ]


def described() -> list[Any]:
    """Every example of a body in the description beside its schema."""
    found = []
    for path, methods in api.raw_schema["paths"].items():
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
    jsonschema_rs.validate({**schema, "components": api.raw_schema["components"]}, value)

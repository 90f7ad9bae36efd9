"""The published OpenAPI description of GRPS's routes is held against the application over the sample models."""

import functools
import hashlib
import shutil
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from tests.support.fuzzer import MODES, described, requests
from tests.support.openapi import DOCUMENT, JSON, OCTETS, ROOT, ask, nested, plain, resolved, serving

PREFIX: Final = "/grps/v1"
PREDICT: Final = f"{PREFIX}/infer/predict"
MODEL: Final = f"{PREFIX}/metadata/model"
OK: Final = {"code": 200, "msg": "OK", "status": "SUCCESS"}
HALF: Final = ["half_plus_three", "half_plus_three-123"]
CONFIG: Final = {
    # JSON Schema cannot say how many elements a shape needs, or what this very model's inputs are. Messages that must
    # be accepted have their own tests.
    "checks": {"positive_data_acceptance": {"enabled": False}}
}
REFUSALS: Final = {name: node for name, node in DOCUMENT["components"]["responses"].items() if name.startswith("Grps")}
OPERATIONS: Final = [
    (path, method, operation)
    for path, methods in DOCUMENT["paths"].items()
    if path.startswith(PREFIX)
    for method, operation in methods.items()
]


bounded = settings(max_examples=30, derandomize=True, suppress_health_check=list(HealthCheck))


@functools.cache
def predict() -> Any:
    """Returns schemathesis's view of an inference."""
    return described(serving(), CONFIG)[PREDICT]["POST"]


def predicted(body: Any, query: dict[str, str] | None = None, media: str = JSON) -> Any:
    """Returns the answer to an inference, which must be as described."""
    case = predict().Case(query=query or {}, body=body, media_type=media)
    answer = case.call_and_validate()
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("mode", MODES)
@given(data=st.data())
@bounded
def test_answers_of_a_model_that_is_there_are_as_described(mode: str, data: st.DataObject) -> None:
    """The schema allows some of the messages and forbids others; all get past the name, to the sample models."""
    query = {"model": data.draw(st.sampled_from([*HALF, "iris-1", "strings"]))}
    case = data.draw(requests(predict(), mode, query=query))
    case.call_and_validate()


@st.composite
def numbers(draw: DrawFn) -> tuple[list[int], list[Any]]:
    """Returns a shape and as many values of FP32, as numbers and as strings."""
    shape = draw(st.lists(st.integers(1, 3), max_size=3))
    tokens = st.sampled_from(["NaN", "Infinity", "-Infinity"])
    values = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-(2**24), 2**24) | tokens
    count = int(np.prod(shape))
    return shape, draw(st.lists(values, min_size=count, max_size=count))


def tensor(name: str, dtype: Any, shape: list[int], **elements: list[Any]) -> dict[str, Any]:
    """Returns a tensor of gtensors; a name or shape that is empty is left out."""
    return {"dtype": dtype, **({"name": name} if name else {}), **({"shape": shape} if shape else {}), **elements}


def calculated(shape: list[int], flat: list[Any]) -> Any:
    """Returns what half_plus_three makes of FP32."""
    return (np.array([float(value) for value in flat], np.float32) / 2 + 3).reshape(shape)


def of_strings(elements: Any) -> Any:
    """Returns FP32 from JSON, whose NaN and infinities are strings."""
    return np.vectorize(float, otypes=[np.float32])(elements)


@given(asked=numbers(), data=st.data())
@bounded
def test_every_proper_number_is_calculated_with(asked: tuple[list[int], list[Any]], data: st.DataObject) -> None:
    """The shape may be any, the form ndarray or tensor, with a name or without."""
    shape, flat = asked
    spread = nested(flat, shape) if shape else flat[0]
    dtype = data.draw(st.sampled_from(["DT_FLOAT32", 7]))
    texts = [str(value) for value in flat]
    given_tensors = [
        tensor("x", dtype, shape, flat_float32=flat),
        tensor("", dtype, [str(size) for size in shape], flat_float32=texts),
    ]
    body = data.draw(
        st.sampled_from([{"ndarray": spread}, *({"gtensors": {"tensors": [given]}} for given in given_tensors)])
    )
    model = data.draw(st.sampled_from(HALF))
    body, query = data.draw(st.sampled_from([(body | {"model": model}, {}), (body, {"model": model})]))
    told = predicted(body, query).json()["gtensors"]["tensors"]
    assert [(answer["name"], answer["dtype"], answer.get("shape", [])) for answer in told] == [
        ("y", "DT_FLOAT32", shape)
    ]
    np.testing.assert_array_equal(of_strings(told[0]["flat_float32"]).reshape(shape), calculated(shape, flat))
    nesting = predicted(body, query | {"return-ndarray": "True"}).json()["ndarray"]
    np.testing.assert_array_equal(of_strings(nesting), calculated(shape, flat))


@given(value=st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-(2**24), 2**24), data=st.data())
@bounded
def test_every_proper_map_is_answered_with_a_map(value: float, data: st.DataObject) -> None:
    """It has a single number, under every name of a map that holds it."""
    fields = ["s_f", "s_d"] if isinstance(value, float) else ["s_i32", "s_i64", "s_f", "s_d"]
    given_as = data.draw(st.sampled_from([value, str(value)]))
    told = predicted({"model": HALF[0], "gmap": {data.draw(st.sampled_from(fields)): {"x": given_as}}}).json()
    assert told == {"status": OK, "gmap": {"s_f": {"y": pytest.approx(float(calculated([], [value])))}}}


@given(text=st.text(max_size=8))
@bounded
def test_every_text_comes_back_in_the_form_that_it_came_in(text: str) -> None:
    """The forms are str_data, bin_data, s_s, s_b, and flat_string of any number."""
    ask_strings = {"model": "strings-1"}
    assert predicted(ask_strings | {"str_data": text}).json() == {"status": OK, "str_data": text}
    for field, value in (("s_s", text), ("s_b", b64encode(text.encode()).decode())):
        answer = predicted(ask_strings | {"gmap": {field: {"text": value}}})
        assert answer.json() == {"status": OK, "gmap": {"s_s": {"text": text}}}
    strings = tensor("text", "DT_STRING", [2], flat_string=[text, "b"])
    assert predicted(ask_strings | {"gtensors": {"tensors": [strings]}}).json()["gtensors"]["tensors"] == [strings]
    octets = predicted((text or "-").encode(), ask_strings, OCTETS)
    assert octets.headers["content-type"] == [OCTETS]
    assert octets.content == (text or "-").encode()


def examples(body: dict[str, Any]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Returns the media type and the rest of every example, by its name."""
    return {
        name: (media, example)
        for media, content in body["content"].items()
        for name, example in content.get("examples", {}).items()
    }


ASKED: Final = examples(DOCUMENT["paths"][PREDICT]["post"]["requestBody"])
ANSWERED: Final = examples(DOCUMENT["paths"][PREDICT]["post"]["responses"]["200"])


@pytest.mark.parametrize("name", ASKED)
def test_the_answer_shown_for_every_inference_is_what_comes(name: str) -> None:
    """The media type is the shown one, for a stream's bytes as well."""
    media, example = ASKED[name]
    body = example["value"] if media == JSON else example["value"].encode()
    answer = predicted(body, example.get("x-query"), media)
    expected, shown = ANSWERED[name]
    assert answer.headers["content-type"] == [expected]
    if expected == JSON:
        assert plain(answer.json()) == plain(shown["value"])
    else:
        assert answer.text == shown["value"]


def test_no_answer_is_shown_without_its_question() -> None:
    """No question is shown without its answer."""
    assert ASKED.keys() == ANSWERED.keys()


SHAPED: Final = (PREDICT, MODEL, f"{PREFIX}/monitor/series", f"{PREFIX}/monitor/metrics")
"""Those that are asked for something, and a page."""
SINGLE: Final = [(path, method, operation) for path, method, operation in OPERATIONS if path not in SHAPED]


def example(response: dict[str, Any]) -> Any:
    """Returns the only example of an answer in JSON."""
    return response["content"][JSON]["example"]


@pytest.mark.parametrize(("path", "method", "operation"), SINGLE)
def test_the_answer_shown_for_every_other_route_is_what_comes(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    """The server has described one model, and so loaded it."""
    app = serving()
    told = DOCUMENT["paths"][MODEL]["post"]
    answer = ask(app, MODEL, told["requestBody"]["content"][JSON]["example"])
    assert (answer.status_code, answer.json()) == (200, example(told["responses"]["200"]))
    answer = ask(app, path, method=method.upper())
    assert (answer.status_code, answer.json()) == (200, example(operation["responses"]["200"]))


@pytest.mark.parametrize(("path", "method", "operation"), OPERATIONS)
def test_every_refusal_is_described_in_the_form_of_the_protocol(
    path: str, method: str, operation: dict[str, Any]
) -> None:
    """Each is a reference, and its text repeats the status."""
    for status, response in operation["responses"].items():
        if status != "200":
            name = response["$ref"].rpartition("/")[2]
            refused = resolved(response)
            assert name in REFUSALS, (path, method)
            assert refused["content"][JSON]["schema"] == {"$ref": "#/components/schemas/GrpsRefusal"}
            assert example(refused)["status"]["code"] == int(status)


WIDE: Final = """
import numpy as np

metadata = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
    "outputs": [{"name": "y", "datatype": "UINT64", "shape": [1]}],
}

def predict(inputs, parameters):
    return {"y": np.array([2**64 - 1], np.uint64)}
"""


def of_a_wide_integer(folder: Path) -> httpx.Response:
    """Returns the refusal of an output that no type of the protocol holds."""
    (folder / "wide" / "1").mkdir(parents=True)
    (folder / "wide" / "1" / "model.py").write_text(WIDE)
    return ask(serving(folder, ALLOW_CODE="true"), PREDICT, {"ndarray": [1]})


def of_a_broken_model(folder: Path) -> httpx.Response:
    """Returns the refusal for a model whose file is truncated."""
    file = Path(shutil.copytree(ROOT / "models" / "iris", folder / "iris")) / "1" / "model.onnx"
    file.write_bytes(file.read_bytes()[:100])
    return ask(serving(folder), PREDICT, {"ndarray": [1]})


def of_a_server_set_offline(_: Path) -> httpx.Response:
    """Returns the answer of a server that is not ready."""
    app = serving()
    ask(app, f"{PREFIX}/health/offline")
    return ask(app, f"{PREFIX}/health/ready")


KEY: Final = "dgm_of_inference"


def metadata_for(headers: dict[str, str]) -> httpx.Response:
    """Returns the server's metadata for the bearer of a key for inference, or the refusal."""
    keys = f"test sha256:{hashlib.sha256(KEY.encode()).hexdigest()} infer *"
    return ask(serving(AUTH="keys", KEYS=keys), f"{PREFIX}/metadata/server", None, headers, "GET")


CAUSES: Final[dict[str, Callable[[Path], httpx.Response]]] = {
    "GrpsBadRequest": lambda _: ask(serving(), PREDICT, {"model": "iris-1"}),
    "GrpsUnknownModel": lambda _: ask(serving(), PREDICT, {"model": "other", "ndarray": [1]}),
    "GrpsTooLarge": lambda _: ask(serving(), PREDICT, {}, {"content-length": "70000000"}),
    "GrpsUnsupportedEncoding": lambda _: ask(serving(), PREDICT, {}, {"content-type": JSON, "content-encoding": "br"}),
    "GrpsModelFailed": of_a_wide_integer,
    "GrpsNotControlled": lambda _: ask(serving(GRPS_HEALTH_CONTROL="off"), f"{PREFIX}/health/online"),
    "GrpsUnavailable": of_a_broken_model,
    "GrpsNotReady": of_a_server_set_offline,
    "GrpsUnauthenticated": lambda _: metadata_for({}),
    "GrpsNotPermitted": lambda _: metadata_for({"x-api-key": KEY}),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_every_refusal_that_is_shown_is_what_comes(name: str, tmp_path: Path) -> None:
    """The text is literal, and the status is the one in it."""
    answer = CAUSES[name](tmp_path)
    assert answer.json() == example(REFUSALS[name])
    assert answer.status_code == answer.json()["status"]["code"]
    assert answer.headers["content-type"] == JSON

"""core.dialects.v1.http by itself: its routes, refusals, status and metadata, and what all requests with a body share.

What clients see of it through a server is in tests/protocols/v1.
"""

from typing import Any

import numpy as np
import pytest

from core import operations as ops
from core.dialects import V1
from core.dialects.v1.request import LARGEST_VERSION
from core.encoding import jsonio, simd
from core.errors import Fault, InvalidInput, ModelFailed, ModelNotFound, ModelUnavailable, VersionNotFound
from core.operations import IndexEntry, ModelRef, State, StatusResult
from core.router import Router
from core.signature import Method
from core.wire import Call, HttpRequest, HttpResponse, MethodNotAllowed, Options, RouteNotFound, Waits
from tests.support.samples import told
from tests.support.v1_samples import binding, listed, model, output, result, signature

ROUTER = Router(V1)
SPEC = model(serving_default=signature({"x": "x"}, {"y": "y"}))
VERBS = ("predict", "classify", "regress", "explain")


def ask(method: str, path: str, body: bytes = b"", **options: str) -> tuple[Any, Any]:
    """Returns the operation and the reply of a route."""
    route, values = ROUTER.find(method, path)
    return route.decode(Call(HttpRequest(method, path, {}, body, Options(**options)), values))  # type: ignore[arg-type] # the texts among them


def answered(operation: Any, *outputs: Any, spec: Any = SPEC) -> Any:
    """Returns what a client reads once the model has returned its spec and those outputs."""
    _, reply = operation.decode(spec)
    return told(reply(result(*outputs)))


def refusal(error: Exception, method: str = "POST", path: str = "/v1/models/m:predict") -> tuple[int, str]:
    """Returns status and text, and checks that the body has nothing else."""
    response: HttpResponse = V1.refuse(error, method, path)  # type: ignore[arg-type] # a ServingError
    assert (b"content-type", b"application/json") in response.headers
    body = told(response)
    assert set(body) == {"error"}
    return response.status, body["error"]


PLACES = [
    ("/v1/models/m", ModelRef("m")), ("/V1/Models/m", ModelRef("m")), ("/v1/models/Predict", ModelRef("Predict")),
    ("/v1/models/m/versions/123", ModelRef("m", "123")), ("/v1/MODELS/m/VERSIONS/007", ModelRef("m", "7")),
    ("/v1/models/m/versions/0", ModelRef("m", "0", zero_is_newest=True)),
    ("/v1/models/m/versions/00", ModelRef("m", "0", zero_is_newest=True)),
    (f"/v1/models/m/versions/{LARGEST_VERSION}", ModelRef("m", str(LARGEST_VERSION))),
    ("/v1/models/m/versions/" + "0" * 60 + "5", ModelRef("m", "5")),
    ("/v1/models/m/labels/stable", ModelRef("m", None, "stable")), ("/v1/models/m/labels/1", ModelRef("m", None, "1")),
    ("/v1/models/m/Labels/Two words", ModelRef("m", None, "Two words")),
]  # fmt: skip


@pytest.mark.parametrize(("path", "ref"), PLACES)
def test_a_path_names_a_model_a_version_or_a_label(path: str, ref: ModelRef) -> None:
    """Digits, however they are written, are versions and never labels; fixed words match in any case."""
    assert ask("GET", path)[0] == ops.ModelStatus(ref)
    assert ask("GET", f"{path}/metadata")[0] == ops.ModelMetadata(ref)
    for verb in VERBS:
        assert ask("POST", f"{path}:{verb}", b"{}")[0].ref == ref


@pytest.mark.parametrize("version", ["HELLO", "-1", "+1", "1.0", "1e3", "\u0661", "\u00b2", "1 "])
def test_a_version_that_is_no_number_is_no_path(version: str) -> None:
    """TensorFlow Serving's paths have digits there."""
    for method, suffix in (("GET", ""), ("GET", "/metadata"), ("POST", ":predict")):
        with pytest.raises(RouteNotFound):
            ask(method, f"/v1/models/m/versions/{version}{suffix}", b"{}")


@pytest.mark.parametrize("version", [str(LARGEST_VERSION + 1), "9" * 30, "1" * 5000])
def test_a_version_beyond_64_bits_is_refused_by_number(version: str) -> None:
    """Length does not matter, although Python itself reads no more than 4300 digits."""
    with pytest.raises(InvalidInput, match="is beyond 64 bits"):
        ask("GET", f"/v1/models/m/versions/{version}")


@pytest.mark.parametrize(("method", "path"), [
    ("GET", "/v1"),
    ("POST", "/v1/models"),
    ("POST", "/v1/models/m:PREDICT"),
    ("POST", "/v1/models/m:predict/"),
    ("POST", "/v1/models/m:foo"),
    ("POST", "/v1/models/:predict"),
    ("POST", "/v1/models/m"),
    ("POST", "/v1/models/m/metadata"),
    ("POST", "/v1/models/m/versions/1/labels/x:predict"),
    ("POST", "/v1/models/a:b:predict"),
])  # fmt: skip
def test_every_other_path_and_method_is_malformed(method: str, path: str) -> None:
    """The answer is 400 in TensorFlow Serving's words, which has no 404 and no 405 here."""
    with pytest.raises((RouteNotFound, MethodNotAllowed)) as error:
        ask(method, path)
    assert refusal(error.value, method, path) == (400, f"Malformed request: {method} {path}")


def test_the_path_of_a_malformed_request_is_shown_in_part() -> None:
    """It is shown as text, whatever bytes it had."""
    status, text = refusal(RouteNotFound("nothing"), "GET", "/v1/" + "x" * 300)
    assert (status, len(text)) == (400, len("Malformed request: GET ") + 256)
    assert text.endswith("xxx...")
    assert refusal(RouteNotFound("nothing"), "GET", "/v1/\udcff") == (400, "Malformed request: GET /v1/?")


def test_the_names_of_the_models_can_be_listed() -> None:
    """KServe lists them in the same way."""
    operation, reply = ask("GET", "/v1/models")
    assert operation == ops.ListModels()
    assert told(reply(["a", "b"])) == {"models": ["a", "b"]}


def test_the_root_is_alive() -> None:
    """KServe's client asks this path."""
    assert V1.root is not None
    assert told(V1.root) == {"status": "alive"}


def test_what_may_take_long_is_known_by_its_route() -> None:
    """An edge with threads uses it for choosing one."""
    waits = {verb: ROUTER.find("POST", f"/v1/models/m:{verb}")[0].waits for verb in VERBS}
    assert waits == dict.fromkeys(VERBS, Waits.MODEL) | {"explain": Waits.LONG}
    assert ROUTER.find("GET", "/v1/models/m")[0].waits is Waits.STORE


@pytest.mark.parametrize(("path", "error", "text"), [
    ("/v1/models/m:predict", ModelNotFound("no"), "Latest(m)"),
    ("/v1/models/m", ModelNotFound("no"), "Latest(m)"),
    ("/v1/models/m/metadata", ModelNotFound("no"), "Latest(m)"),
    ("/v1/models/a:b/metadata", ModelNotFound("no"), "Latest(a:b)"),
    ("/v1/models/a:b:predict", ModelNotFound("no"), "Latest(a:b)"),
    ("/v1/models/m/versions/7:predict", ModelNotFound("no"), "Specific(m, 7)"),
    ("/v1/models/m/versions/007/metadata", VersionNotFound("no", "7"), "Specific(m, 7)"),
    ("/V1/Models/m/VERSIONS/99:regress", VersionNotFound("no", "99"), "Specific(m, 99)"),
    ("/v1/models/m/labels/gone:predict", VersionNotFound("no", "99"), "Specific(m, 99)"),
    ("/v1/models/m/labels/gone:predict", ModelNotFound("no"), "Latest(m)"),
    ("/v1/models/m", VersionNotFound("no", "3"), "Specific(m, 3)"),
    (f"/v1/models/{'n' * 256}:predict", ModelNotFound("no"), f"Latest({'n' * 256})"),
    (f"/v1/models/{'n' * 30_000}:predict", ModelNotFound("no"), f"Latest({'n' * 253}...)"),
    (f"/v1/models/{'n' * 30_000}/versions/7", ModelNotFound("no"), f"Specific({'n' * 253}..., 7)"),
])  # fmt: skip
def test_what_is_not_there_is_refused_in_tensorflow_servings_words(path: str, error: Exception, text: str) -> None:
    """The text has the version that was asked for, or that a label stands for, and a long name in part."""
    assert refusal(error, "POST", path) == (404, f"Servable not found for request: {text}")


def test_any_other_refusal_has_its_own_text() -> None:
    """It has the time for a retry, where that is known. A path of a model's own does not name the model."""
    for missing in (ModelNotFound("no model 'n'"), VersionNotFound("no version 9", "9")):
        assert refusal(missing, "POST", "/v1/chat/completions") == (404, missing.message)
    assert refusal(InvalidInput("wrong")) == (400, "wrong")
    assert refusal(ModelFailed("broken")) == (500, "broken")
    response = V1.refuse(ModelUnavailable("later", retry_after=3), "POST", "/v1/models/m:predict")
    assert response.status == 503
    assert (b"retry-after", b"3") in response.headers


@pytest.mark.parametrize(("body", "text"), [
    (b"", "JSON Parse error: The document is empty"),
    (b"{", "JSON Parse error: Missing a name for object member. at offset: 1$"),
    (b"{} x", "JSON Parse error: The document root must not be followed by other values. at offset: 3$"),
    (b"\xff", "JSON Parse error: Invalid encoding in string. at offset: 0$"),
    (b'{"a": 1, "a": 2}', "JSON Parse error: the JSON has the member 'a' twice in one object; expected it once$"),
    (b'{"a": "\\ud800"}', ".*lone surrogate"),
    (b"[" * 100_000, ".*nested too deeply"),
    (b"[]", "Is not object"),
    (b"[" + b"1," * 5000 + b"1]", "Is not object"),
    (b'{"signature_name": 5}', "'signature_name' key must be a string value."),
    (b'{"signature_name": [' + b"1," * 5000 + b"1]}", "'signature_name' key must be a string value."),
])  # fmt: skip
@pytest.mark.parametrize("verb", VERBS)
def test_a_document_that_is_none_is_refused_before_the_model_is_asked_for(verb: str, body: bytes, text: str) -> None:
    """The refusal has the place of the mistake."""
    with pytest.raises(InvalidInput, match=f"^{text}"):
        ask("POST", f"/v1/models/m:{verb}", body)


def test_the_document_is_read_in_words_of_the_models_spec() -> None:
    """The path's reference does not matter; the model is asked for the version whose spec read the document."""
    operation, finish = ask("POST", "/v1/models/other:predict", b'{"instances": [1.0, 2.0]}')
    assert operation.ref == ModelRef("other")
    infer, _ = operation.decode(SPEC)
    assert infer.ref == ModelRef("m", "3")
    assert listed(infer.inputs) == {"x": [1, 2]}
    assert finish("anything") == "anything"


@pytest.mark.parametrize("path", ["/v1/models/m", "/v1/models/m/versions/3", "/v1/models/m/labels/x"])
def test_options_and_settings_reach_the_answer(path: str) -> None:
    """A model's own pin precedes the server's. Without a pin, a version or a label means TensorFlow Serving."""
    body = b'{"inputs": [1.0]}'
    y = output("y", "FP32", [np.nan])
    null = ask("POST", f"{path}:predict", body, non_finite="null")[0]
    keys = {"outputs": [None]} if path != "/v1/models/m" else {"outputs": [None], "predictions": [None]}
    assert answered(null, y) == keys
    assert set(answered(ask("POST", f"{path}:predict", body, v1_dialect="kserve")[0], y)) == {"predictions"}
    pinned = SPEC._replace(v1_dialect="tfs")
    assert set(answered(ask("POST", f"{path}:predict", body, v1_dialect="kserve")[0], y, spec=pinned)) == {"outputs"}


LONG = ",".join(["1.5"] * 3000)
NESTED = ['{"instances": [%s]}', '{"instances": [{"x": [%s]}]}', '{"inputs": [%s]}', '{"inputs": {"x": [%s]}}']


@pytest.mark.parametrize("form", NESTED)
def test_a_long_body_is_read_fast_and_one_that_does_not_fit_is_read_again_for_its_message(form: str) -> None:
    """The message is the same as for a short body."""
    body = (form % LONG).encode()
    assert len(body) > simd.WORTH_SIMD
    operation, _ = ask("POST", "/v1/models/m:predict", body)
    infer, _ = operation.decode(SPEC)
    assert infer.inputs[0].array.ravel().tolist() == [1.5] * 3000
    integers = model(serving_default=signature({"x": binding("x", "INT32")}, {"y": "y"}))
    texts = []
    for numbers in (LONG, "1.5"):
        operation, _ = ask("POST", "/v1/models/m:predict", (form % numbers).encode())
        with pytest.raises(InvalidInput) as error:
            operation.decode(integers)
        texts.append(error.value.message)
    assert texts[0] == texts[1]
    assert texts[0].endswith("JSON Value: 1.5 Type: Number is not of expected type: int32")


def test_rows_of_unequal_length_are_named_in_long_bodies_too() -> None:
    """The fast reader accepts only rows of one length."""
    body = f'{{"instances": [{{"x": [{LONG}]}}, {{"x": [{LONG},1]}}]}}'.encode()
    operation, _ = ask("POST", "/v1/models/m:predict", body)
    with pytest.raises(InvalidInput, match="^Failed to process element: 1 .* size: 3000 but got: 3001$"):
        operation.decode(SPEC)


def test_what_has_no_arrays_is_not_read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second reading would refuse it again."""
    operation, _ = ask("POST", "/v1/models/m:predict", b'{"instances": [{"x": ["a"]}], "parameters": {"p": [1]}}')
    monkeypatch.setattr(jsonio, "loads_lists", None)
    with pytest.raises(InvalidInput, match='JSON Value: "a" Type: String'):
        operation.decode(SPEC)


def test_examples_are_read_as_lists() -> None:
    """Their features are checked one by one, however long they are."""
    spec = model(r=signature({"x": binding("x", "FP32", (-1, 3000))}, {"outputs": "y"}, Method.REGRESS))
    body = f'{{"signature_name": "r", "examples": [{{"x": [{LONG}]}}]}}'.encode()
    operation, _ = ask("POST", "/v1/models/m:regress", body)
    infer, _ = operation.decode(spec)
    assert infer.inputs[0].array.shape == (1, 3000)


def entry(version: str, state: State = State.READY, reason: str = "", **said: Any) -> IndexEntry:
    """Returns an entry for a version of model m."""
    return IndexEntry("m", version, state, reason, **said)


def listed_as(version: str, state: str, code: str = "OK", message: str = "") -> dict[str, Any]:
    """Returns a version as TensorFlow Serving lists it."""
    return {"version": version, "state": state, "status": {"error_code": code, "error_message": message}}


@pytest.mark.parametrize(("told_of", "expected"), [
    (entry("1"), listed_as("1", "AVAILABLE")),
    (entry("1", State.LOADING, "loading"), listed_as("1", "LOADING")),
    (entry("1", State.UNAVAILABLE, "not loaded yet", fresh=True), listed_as("1", "START")),
    (entry("1", State.UNAVAILABLE, "unloaded"), listed_as("1", "END")),
    (entry("1", State.UNAVAILABLE, "broken", fault=Fault.FAILED_PRECONDITION),
     listed_as("1", "END", "FAILED_PRECONDITION", "broken")),
    (entry("1", State.LOADING, "again", fault=Fault.UNAVAILABLE), listed_as("1", "LOADING", "UNAVAILABLE", "again")),
])  # fmt: skip
def test_a_versions_state_is_told_in_tensorflow_servings_words(told_of: IndexEntry, expected: Any) -> None:
    """A reason stands there only if something failed."""
    _, reply = ask("GET", "/v1/models/m/versions/1")
    response = reply(StatusResult((told_of,), ready=False))
    assert (response.status, told(response)) == (200, {"model_version_status": [expected]})


@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize(("server", "own", "kserve", "tfs"), [
    ("auto", None, True, True), ("auto", "auto", True, True), ("tfs", None, False, True), ("kserve", None, True, False),
    ("kserve", "tfs", False, True), ("tfs", "kserve", True, False), ("tfs", "auto", True, True),
])  # fmt: skip
def test_a_models_status_has_both_protocols_keys(
    server: str, own: str | None, *, kserve: bool, tfs: bool, ready: bool
) -> None:
    """A setting can choose one protocol. Not ready is 503 for KServe's clients, and 200 for TensorFlow Serving's."""
    _, reply = ask("GET", "/v1/models/m", v1_dialect=server)
    response = reply(StatusResult((entry("1"), entry("10")), ready=ready, v1_dialect=own))
    expected: dict[str, Any] = {"name": "m", "ready": ready} if kserve else {}
    if tfs:
        expected["model_version_status"] = [listed_as("10", "AVAILABLE"), listed_as("1", "AVAILABLE")]
    assert told(response) == expected
    assert (response.status, response.why) == (200 if ready or not kserve else 503, None)
    assert ((b"retry-after", b"1") in response.headers) is (response.status == 503)


def test_a_model_whose_load_failed_is_reported_with_the_newest_failure() -> None:
    """For the log alone: the answer has it where TensorFlow Serving's clients look."""
    broken, worse = (entry(number, State.UNAVAILABLE, f"no {number}", fault=Fault.INTERNAL) for number in "12")
    for versions, newest in (((broken, entry("2")), "1"), ((broken, worse), "2")):
        response = ask("GET", "/v1/models/m")[1](StatusResult(versions))
        assert (response.status, set(told(response))) == (503, {"name", "ready", "model_version_status"})
        assert response.why == (Fault.INTERNAL, f"model 'm' is not ready: no {newest}")


@pytest.mark.parametrize("place", ["versions/1", "labels/stable"])
def test_the_status_of_a_version_or_a_label_is_tensorflow_servings_alone(place: str) -> None:
    """A setting does not change that."""
    _, reply = ask("GET", f"/v1/models/m/{place}", v1_dialect="kserve")
    response = reply(StatusResult((entry("1"),), ready=False, v1_dialect="kserve"))
    assert (response.status, set(told(response))) == (200, {"model_version_status"})


def test_the_status_of_what_is_not_there_says_what() -> None:
    """The refusal says whether the model or the version is missing."""
    _, reply = ask("GET", "/v1/models/m")
    response = reply(StatusResult(()))
    assert response.status == 404
    assert told(response) == {"error": "Could not find any versions of model m"}
    assert response.why == (Fault.NOT_FOUND, "Could not find any versions of model m")
    response = ask("GET", "/v1/models/m/versions/9")[1](StatusResult((), missing="9"))
    assert told(response) == {"error": "Could not find version 9 of model m"}
    long = ask("GET", f"/v1/models/{'n' * 300}")[1](StatusResult(()))
    assert told(long) == {"error": f"Could not find any versions of model {'n' * 253}..."}


def test_metadata_are_those_of_the_spec() -> None:
    """The path names the model; core.dialects.v1.metadata writes the rest."""
    operation, reply = ask("GET", "/v1/models/m/metadata")
    assert operation == ops.ModelMetadata(ModelRef("m"))
    assert told(reply(ops.ModelInfo(SPEC, ("3",))))["model_spec"]["name"] == "m"

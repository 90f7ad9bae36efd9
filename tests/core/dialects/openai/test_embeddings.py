"""core.dialects.openai: requests for embeddings, and answers and refusals in OpenAI's form."""

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from core import errors
from core.dialects import OPENAI
from core.dialects.openai import embeddings
from core.dialects.openai.refusals import KINDS
from core.dtype import DATATYPES
from core.errors import Fault, ModelFailed, ServingError
from core.operations import InferResult, ModelRef, ModelSpec
from core.router import Router
from core.signature import EmbeddingTensors
from core.tensor import Tensor, TensorSpec
from core.wire import Call, HttpRequest, MethodNotAllowed, Options, RouteNotFound


def tensor(name: str, datatype: str, *shape: int, optional: bool = False) -> TensorSpec:
    """Describes a tensor."""
    return TensorSpec(name, DATATYPES[datatype], shape, optional=optional)


TEXT, VECTORS, COUNT = tensor("text", "BYTES", -1), tensor("v", "FP32", -1, 3), tensor("token_count", "INT64", -1)


def spec(
    inputs: Sequence[TensorSpec] | None = (TEXT,),
    outputs: Sequence[TensorSpec] | None = (VECTORS,),
    said: EmbeddingTensors | None = None,
) -> ModelSpec:
    """Describes a model."""
    made = ModelSpec(
        "m", "2", "p", None if inputs is None else tuple(inputs), None if outputs is None else tuple(outputs)
    )
    return made if said is None else made._replace(embeddings=said)


def decoded(body: Any, **options: Any) -> Any:
    """Returns what the route makes of a body."""
    request = HttpRequest("POST", OPENAI.prefix, body=json.dumps(body).encode(), options=Options(**options))
    route, values = Router(OPENAI).find("POST", OPENAI.prefix)
    return route.decode(Call(request, values))


def asked(members: dict[str, Any], model: ModelSpec, *arrays: Any, **options: Any) -> dict[str, Any]:
    """Asks about two texts, unless `members` have others, and returns the answer to outputs of these arrays."""
    deferred, same = decoded({"model": "m", "input": ["a", "b"]} | members, **options)
    assert same(deferred) is deferred
    infer, reply = deferred.decode(model)
    names = [output.name for output in infer.outputs]
    kinds = {each.name: each.datatype for each in model.outputs or ()}
    outputs = [Tensor(name, kinds[name], np.asarray(a)) for name, a in zip(names, arrays, strict=True)]
    answer = reply(InferResult("m", "2", tuple(outputs)))
    return dict(json.loads(b"".join(answer.parts)))


ROWS = np.array([[3, 4, 0], [0, 0, 0.5]], np.float32)


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
def test_each_text_gets_its_vector(encoding: str | None) -> None:
    """As numbers, or as the base64 of little-endian floats; a model that counts no tokens used none."""
    found = asked({"encoding_format": encoding, "user": "u", "more": 1}, spec(), ROWS)
    vectors = [each.pop("embedding") for each in found["data"]]
    if encoding == "base64":
        vectors = [np.frombuffer(base64.b64decode(each), "<f4").tolist() for each in vectors]
    assert vectors == ROWS.tolist()
    assert found == {
        "object": "list", "model": "m", "usage": {"prompt_tokens": 0, "total_tokens": 0},
        "data": [{"object": "embedding", "index": index} for index in range(2)],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "outputs"),
    [
        (spec(outputs=[COUNT, VECTORS]), [ROWS, [5, 2]]),
        (spec(outputs=[tensor("n", "INT32", -1), tensor("w", "FP32", -1, 3), tensor("h", "FP16", -1, 3)],
              said=EmbeddingTensors("text", "h", "n")), [ROWS.astype(np.float16), [3, 4]]),
        (spec([tensor("t", "BYTES", -1, 1), tensor("o", "BYTES", -1, optional=True)], [VECTORS, COUNT]),
         [ROWS, [7, 0]]),
    ],
)  # fmt: skip
def test_tokens_are_counted_by_the_model_that_can(model: ModelSpec, outputs: list[Any]) -> None:
    """Its output is named by the settings, or token_count."""
    found = asked({}, model, *outputs)
    assert found["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
    assert [each["embedding"] for each in found["data"]] == ROWS.tolist()


def test_the_texts_have_the_shape_of_the_input() -> None:
    """A column takes one text a row."""
    for shape, expected in ((-1,), (2,)), ((-1, 1), (2, 1)):
        deferred, _ = decoded({"model": "m", "input": ["a", "b"]})
        infer, _ = deferred.decode(spec([tensor("t", "BYTES", *shape)]))
        assert infer.inputs[0].shape == expected
        assert infer.inputs[0].array.reshape(-1).tolist() == [b"a", b"b"]
        assert (infer.ref.name, infer.ref.version) == ("m", "2")


@pytest.mark.parametrize(
    ("model", "version", "label"), [("m", None, None), ("m:3", "3", None), ("m:best", None, "best")]
)
def test_a_model_may_carry_a_version_or_a_label(model: str, version: str | None, label: str | None) -> None:
    """Behind a colon, which no name holds."""
    ref = decoded({"model": model, "input": "a"})[0].ref
    assert (ref.name, ref.version, ref.label) == ("m", version, label)


OPEN, SHORT = tensor("v", "FP32", -1, -1), EmbeddingTensors(may_shorten=True)


@pytest.mark.parametrize("output", [VECTORS, OPEN])
def test_shorter_vectors_have_length_one(output: TensorSpec) -> None:
    """Where the settings permit them; the own number of dimensions changes nothing, and zeros stay zeros."""
    shorter = asked({"dimensions": 2}, spec(outputs=[output], said=SHORT), ROWS)
    assert np.allclose([each["embedding"] for each in shorter["data"]], [[0.6, 0.8], [0, 0]])
    assert asked({"dimensions": 3}, spec(outputs=[output], said=SHORT), ROWS)["data"][0]["embedding"] == [3, 4, 0]


@pytest.mark.parametrize(
    ("members", "model", "param", "message"),
    [
        ({"model": None}, None, "model", "'model' is missing; expected the name of a model"),
        ({"model": ""}, None, "model", "'model' is ''; expected the name"),
        ({"model": ":1"}, None, "model", "'model' is ':1'; expected name, name:version or name:label"),
        ({"model": "m:"}, None, "model", "expected name, name:version or name:label"),
        ({"input": None}, None, "input", "'input' is missing; expected a text, or an array of texts"),
        ({"input": []}, None, "input", "'input' is []; expected a text, or an array of texts"),
        ({"input": {"a": 1}}, None, "input", "'input' is {'a': 1}; expected a text"),
        ({"input": [1, 2]}, None, "input", "numbers of tokens, which are those of another model: send the texts"),
        ({"input": ["a", [1]]}, None, "input", "numbers of tokens"),
        ({"input": [["a"]]}, None, "input", "'input' has ['a']; expected texts"),
        ({"input": [[]]}, None, "input", "'input' has []; expected texts"),
        ({"input": ["a", None]}, None, "input", "'input' has null; expected texts"),
        ({"input": [True]}, None, "input", "'input' has true; expected texts"),
        ({"input": ["a"] * 2049}, None, "input", "'input' has 2049 texts; at most 2048 are accepted"),
        ({"encoding_format": "hex"}, None, "encoding_format", "'encoding_format' is 'hex'; expected float or base64"),
        ({"dimensions": 0}, None, "dimensions", "'dimensions' is 0; expected a whole number above 0"),
        ({"dimensions": True}, None, "dimensions", "'dimensions' is true; expected a whole number"),
        ({"dimensions": 2}, spec(), "dimensions", "makes vectors of 3 dimensions, and its settings do not permit"),
        ({"dimensions": 2}, spec(outputs=[OPEN]), "dimensions", "model 'm' permits no choice of them"),
        ({"dimensions": 4}, spec(said=SHORT), "dimensions", "model 'm' makes vectors of 3 dimensions"),
        ({}, spec([tensor("x", "FP32", -1)]), "model", "model 'm' makes no embeddings: it needs one input, BYTES, and"),
        ({}, spec([TEXT, tensor("u", "BYTES", -1)]), "model", "makes no embeddings"),
        ({}, spec([TEXT, tensor("x", "FP32", -1)]), "model", "makes no embeddings"),
        ({}, spec(outputs=[tensor("v", "FP32", -1)]), "model", "makes no embeddings"),
        ({}, spec(outputs=[VECTORS, tensor("w", "FP32", -1, 3)]), "model", "makes no embeddings"),
        ({}, spec(None, None), "model", "makes no embeddings"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(members: dict[str, Any], model: ModelSpec | None, param: str, message: str) -> None:
    """By its member, with its value and what was expected."""
    with pytest.raises(errors.InvalidInput) as refused:
        asked(members, model or spec(), ROWS)
    answer = OPENAI.refuse(refused.value, "POST", OPENAI.prefix)
    told = json.loads(b"".join(answer.parts))["error"]
    assert message in told.pop("message")
    assert (answer.status, told) == (400, {"type": "invalid_request_error", "param": param, "code": None})


def test_a_length_that_only_the_answer_shows_is_refused() -> None:
    """Of a model that does not declare it."""
    with pytest.raises(errors.InvalidInput, match="model 'm' makes vectors of 3 dimensions"):
        asked({"dimensions": 4}, spec(outputs=[OPEN], said=SHORT), ROWS)


@pytest.mark.parametrize("array", [ROWS[:1], ROWS[0], ROWS[None]])
def test_an_answer_of_another_form_is_the_models_failure(array: Any) -> None:
    """One vector for each text was expected."""
    with pytest.raises(ModelFailed, match="expected a vector for each of 2 texts"):
        asked({}, spec(), array)


def test_numbers_that_json_does_not_have_are_null_or_an_error() -> None:
    """As the operator has chosen; base64 has them as they are."""
    odd = np.array([[np.nan, 1, 2], [3, np.inf, 4]], np.float32)
    assert asked({}, spec(), odd)["data"][0]["embedding"] == [None, 1, 2]
    with pytest.raises(errors.InvalidInput, match="DRAGOMAN_NON_FINITE=error"):
        asked({}, spec(), odd, non_finite="error")


def test_a_body_that_is_no_object_is_refused() -> None:
    """With what was expected."""
    with pytest.raises(errors.InvalidInput, match="expected an object with 'model' and 'input'"):
        decoded([1])


@pytest.mark.parametrize("fault", Fault)
def test_every_failure_has_a_type_and_a_code(fault: Fault) -> None:
    """The four members are always there."""
    label = OPENAI.refuse(errors.UnknownLabel("no"), "POST", OPENAI.prefix)
    assert json.loads(b"".join(label.parts))["error"]["param"] == "model"
    kind = type("Odd", (ServingError,), {"fault": fault})
    answer = OPENAI.refuse(kind("no", retry_after=2), "POST", OPENAI.prefix)
    told = json.loads(b"".join(answer.parts))["error"]
    assert (told["message"], told["type"], told["code"]) == ("no", *KINDS[fault])
    assert told["param"] == ("model" if fault is Fault.NOT_FOUND else None)
    assert (b"retry-after", b"2") in answer.headers


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [(RouteNotFound("no"), 404, "unknown_url"), (MethodNotAllowed("GET", "/", ["POST"]), 405, "method_not_supported")],
)
def test_a_wrong_path_or_method_has_openais_code(error: ServingError, status: int, code: str) -> None:
    """It names no model."""
    answer = OPENAI.refuse(error, "GET", "/v1/embeddings/x")
    told = json.loads(b"".join(answer.parts))["error"]
    assert (answer.status, told["code"], told["param"]) == (status, code, None)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"model": "m:2", "input": "a" * 70_000}, ModelRef("m", "2")),
        ({"input": ["a" * 70_000], "model": "m"}, None),
        ({"input": "a" * 70_000}, None),
        ({"model": "m", "input": "a"}, None),
    ],
)
def test_a_long_request_that_names_its_model_first_is_not_read_before_it(body: Any, expected: ModelRef | None) -> None:
    """A model that does not exist is 404 whatever follows."""
    names = OPENAI.routes[0].names
    assert names is not None
    assert names(Call(HttpRequest("POST", OPENAI.prefix, body=json.dumps(body).encode()), {})) == expected


def test_it_owns_its_path_alone() -> None:
    """The rest of /v1 is another protocol's."""
    assert [OPENAI.owns(path) for path in ("/v1/embeddings", "/v1/embeddings/x", "/v1/embeddingsx", "/v1/models")] == [
        True, True, False, False,
    ]  # fmt: skip
    assert embeddings.MOST_TEXTS == 2048

"""OpenAI's own client, unmodified, against a server of small models that make embeddings."""

import hashlib
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.schema import open_inference as oip
from tests.support import texts
from tests.support.asgi import Local, application
from tests.support.connect_client import PROTO, Caller
from tests.support.remote import Remote, question, raw, tensors
from tests.support.server import Server, serve_rpc
from tests.support.wire import Wire

KEY, OTHER = "dgm_embeddings", "dgm_nothing"
ASKED = ["the cat sat on the mat", "", "Shares fell, 3 times! größe", "dogs chase the cat " * 20]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The repository."""
    return texts.build(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    """A server that knows two keys, one of them for another model only."""
    keys = folder.with_name("keys.txt")
    hashes = [hashlib.sha256(key.encode()).hexdigest() for key in (KEY, OTHER)]
    keys.write_text(f"a sha256:{hashes[0]} infer,read *\nb sha256:{hashes[1]} infer encoder\n")
    with serve_rpc(folder.with_name("log"), REPOSITORY=str(folder), AUTH="keys", KEYS_FILE=str(keys)) as running:
        yield running


@pytest.fixture(scope="module")
def reference(folder: Path) -> texts.Reference:
    """What the answers should be."""
    return texts.Reference(folder)


def client(server: Server, key: str = KEY) -> openai.OpenAI:
    """OpenAI's client, which tries nothing twice."""
    return openai.OpenAI(api_key=key, base_url=f"http://{server.netloc}/v1", max_retries=0, timeout=60)


def refusal(error: openai.APIStatusError) -> Any:
    """Returns the members of an error's body, as the client has read them."""
    return error.status_code, error.body


@pytest.mark.parametrize("form", [{}, {"encoding_format": "float"}, {"encoding_format": "base64"}])
def test_the_client_gets_the_embeddings(server: Server, reference: texts.Reference, form: dict[str, Any]) -> None:
    """A list of texts, one of them empty and one cut: base64, which it asks for by itself, and numbers; the usage."""
    with client(server) as asking:
        answer = asking.embeddings.create(model="sentences", input=ASKED, user="somebody", **form)
    vectors = [each.embedding for each in answer.data]
    if form.get("encoding_format") == "base64":
        vectors = [openai_floats(each) for each in vectors]
    assert np.allclose(vectors, reference.embeddings(ASKED), atol=1e-6)
    assert [each.index for each in answer.data] == [0, 1, 2, 3]
    assert (answer.object, answer.model, answer.data[0].object) == ("list", "sentences", "embedding")
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == reference.tokens(ASKED)


def openai_floats(text: Any) -> list[float]:
    """Reads base64, which the client leaves as it is when it was asked for."""
    import base64  # noqa: PLC0415 - for this case

    return [float(x) for x in np.frombuffer(base64.b64decode(text), "<f4")]


@pytest.mark.parametrize("model", ["sentences", "sentences:1"])
def test_one_text_is_a_list_of_one(server: Server, reference: texts.Reference, model: str) -> None:
    """With a version or without."""
    with client(server) as asking:
        answer = asking.embeddings.create(model=model, input=ASKED[0])
    assert np.allclose([each.embedding for each in answer.data], reference.embeddings(ASKED[:1]), atol=1e-6)


def test_many_texts_are_answered_in_parts(server: Server, reference: texts.Reference) -> None:
    """In their order; the pipeline runs 32 at a time."""
    wanted = [f"{ASKED[number % 4]} {number}" for number in range(70)]
    with client(server) as asking:
        answer = asking.embeddings.create(model="sentences", input=wanted)
    assert np.allclose([each.embedding for each in answer.data], reference.embeddings(wanted), atol=1e-6)
    assert answer.usage.total_tokens == reference.tokens(wanted)


def test_shorter_vectors_are_made_where_the_settings_permit_them(server: Server, reference: texts.Reference) -> None:
    """Of length one again."""
    with client(server) as asking:
        answer = asking.embeddings.create(model="matryoshka", input=ASKED[0], dimensions=3)
        with pytest.raises(openai.BadRequestError) as refused:
            asking.embeddings.create(model="sentences", input=ASKED[0], dimensions=3)
    (expected,) = reference.embeddings(ASKED[:1])[:, :3]
    assert np.allclose(answer.data[0].embedding, expected / np.linalg.norm(expected), atol=1e-6)
    text = "'dimensions' is 3; model 'sentences' makes vectors of 8 dimensions, and its settings do not permit others"
    assert refusal(refused.value) == (400, {
        "message": text, "type": "invalid_request_error", "param": "dimensions", "code": None,
    })  # fmt: skip


@pytest.mark.parametrize(("asked", "status", "kind", "param", "code", "message"), [
    ({"model": "nothing"}, 404, openai.NotFoundError, "model", "model_not_found", "model 'nothing' is not in"),
    ({"model": "sentences:9"}, 404, openai.NotFoundError, "model", "model_not_found", "version"),
    ({"model": "sentences:best"}, 400, openai.BadRequestError, "model", None, "best"),
    ({"model": "encoder"}, 400, openai.BadRequestError, "model", None, "model 'encoder' makes no embeddings"),
    ({"input": [[1, 2], [3]]}, 400, openai.BadRequestError, "input", None, "numbers of tokens"),
    ({"input": ["a"] * 2049}, 400, openai.BadRequestError, "input", None, "2049 texts; at most 2048"),
])  # fmt: skip
def test_refusals_are_the_clients_own_errors(
    server: Server, asked: dict[str, Any], status: int, kind: type[openai.APIStatusError], param: str | None,
    code: str | None, message: str,
) -> None:  # fmt: skip
    """With the member that is wrong."""
    with client(server) as asking, pytest.raises(kind) as refused:
        asking.embeddings.create(**{"model": "sentences", "input": "a", "encoding_format": "float"} | asked)
    found, body = refusal(refused.value)
    assert message in body.pop("message")
    assert (found, body) == (status, {"type": "invalid_request_error", "param": param, "code": code})


def test_keys_are_asked_for_in_openais_form(server: Server) -> None:
    """A wrong key is 401, and a key for other models 403."""
    with client(server, "wrong") as asking, pytest.raises(openai.AuthenticationError) as refused:
        asking.embeddings.create(model="sentences", input="a")
    assert refused.value.body["code"] == "invalid_api_key"  # type: ignore[index] # parsed JSON
    with client(server, OTHER) as asking, pytest.raises(openai.PermissionDeniedError, match="does not permit"):
        asking.embeddings.create(model="sentences", input="a")


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [("POST", "/v1/embeddings/more", 404, "unknown_url"), ("GET", "/v1/embeddings", 405, "method_not_supported")],
)
def test_a_wrong_path_is_refused_in_openais_form(
    server: Server, method: str, path: str, status: int, code: str
) -> None:
    """And /v1/models is KServe's and TensorFlow Serving's as before."""
    headers = {"authorization": f"Bearer {KEY}"}
    with Wire(server.netloc.partition(":")[0], server.port) as wire:
        answer = wire.call(method, path, headers=headers)
        assert (answer.status, answer.json()["error"]["code"]) == (status, code)
        names = wire.call("GET", "/v1/models", headers=headers).json()
    assert names == {"models": ["encoder", "matryoshka", "pairs", "sentences", "tokens"]}


def test_requests_that_run_together_get_their_own_vectors(server: Server, reference: texts.Reference) -> None:
    """A pipeline of texts has batches as any model, after its warm-up, which has run through its steps."""
    wanted = [f"{text} {number}" for number in range(8) for text in ASKED[:2]]
    with client(server) as asking, ThreadPoolExecutor(8) as clients:
        found = list(clients.map(lambda text: asking.embeddings.create(model="matryoshka", input=text), wanted))
    assert np.allclose([each.data[0].embedding for each in found], reference.embeddings(wanted), atol=1e-6)
    assert [each.usage.prompt_tokens for each in found] == [reference.tokens([text]) for text in wanted]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
MEMBERS = st.fixed_dictionaries({}, optional={
    "model": st.sampled_from(["sentences", "matryoshka:1", "sentences:x", "encoder", "/", "a:b:c", ""]) | JSON,
    "input": st.text(max_size=9) | st.lists(st.text(max_size=9), max_size=4) | JSON,
    "encoding_format": st.sampled_from(["float", "base64"]) | JSON,
    "dimensions": st.integers(-1, 9) | JSON, "user": JSON, "more": JSON,
})  # fmt: skip


@pytest.fixture(scope="module")
def local(folder: Path) -> Iterator[Local]:
    """The application of the same models in this process."""
    made = Local(application(folder, inline=True))
    yield made
    made.close()


@settings(max_examples=150)
@given(body=MEMBERS.map(json.dumps).map(str.encode) | JSON.map(json.dumps).map(str.encode) | st.binary(max_size=60))
def test_any_body_gets_an_answer_of_openais_form(local: Local, body: bytes) -> None:
    """Embeddings, or an error with its four members, and never a failure of the server."""
    answer = local.call("POST", "/v1/embeddings", body)
    found = answer.json()
    if answer.status == 200:
        assert found.keys() == {"object", "data", "model", "usage"}
        return
    assert answer.status in (400, 404), found
    assert found["error"].keys() == {"message", "type", "param", "code"}
    assert found["error"]["type"] == "invalid_request_error"


# -- the same over the other protocols ----------------------------------------------------------------------------


def test_every_protocol_has_the_same_vectors(server: Server, reference: texts.Reference) -> None:
    """V2, V1, gRPC and Connect."""
    asked = np.array([text.encode() for text in ASKED], object)
    headers = {"authorization": f"Bearer {KEY}"}
    found: dict[str, Any] = {}
    with Wire(server.netloc.partition(":")[0], server.port) as wire:
        v2 = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [4], "data": ASKED}]}
        answer = wire.call("POST", "/v2/models/sentences/infer", json.dumps(v2).encode(), headers)
        assert "step-tokenize;dur=" in answer.headers["server-timing"]
        found["v2"] = answer.tensors()["embedding"]
        v1 = wire.call("POST", "/v1/models/sentences:predict", json.dumps({"instances": ASKED}).encode(), headers)
        found["v1"] = np.array([each["embedding"] for each in v1.json()["predictions"]])
    message = question("sentences", raw("text", "BYTES", asked))
    remote = Remote(server.rpc_netloc)
    answered = remote.ask("ModelInfer", message, metadata=[("authorization", f"Bearer {KEY}")])
    found["grpc"] = tensors(answered)["embedding"]
    remote.close()
    caller = Caller(server.netloc)
    (body,) = caller.post("ModelInfer", PROTO, message.SerializeToString(), **headers).messages
    found["connect"] = tensors(oip.ModelInferResponse.FromString(body))["embedding"]
    caller.close()
    assert {
        name for name, each in found.items() if not np.allclose(each, reference.embeddings(ASKED), atol=1e-6)
    } == set()


def test_pairs_are_split_together(server: Server, reference: texts.Reference) -> None:
    """Questions with their answers, as rerankers take them."""
    pairs = [("who slept", "a cat slept on a mat"), ("who fell", "the old dog " * 9)]
    columns = [{"name": name, "datatype": "BYTES", "shape": [2], "data": list(values)}
               for name, values in zip(("question", "answer"), zip(*pairs, strict=True), strict=True)]  # fmt: skip
    with Wire(server.netloc.partition(":")[0], server.port) as wire:
        body = json.dumps({"inputs": columns}).encode()
        answer = wire.call("POST", "/v2/models/pairs/infer", body, {"authorization": f"Bearer {KEY}"})
        (_, metadata) = (
            answer.status,
            wire.call("GET", "/v2/models/pairs", headers={"authorization": f"Bearer {KEY}"}),
        )
    assert np.allclose(answer.tensors()["pooled"], reference.pooled(pairs), atol=1e-6)
    assert metadata.json()["outputs"] == [{"name": "pooled", "datatype": "FP32", "shape": [-1, 8]}]


def test_a_texts_vector_does_not_depend_on_its_neighbours(server: Server) -> None:
    """Padding changes only the last bits."""
    with client(server) as asking:
        together = asking.embeddings.create(model="sentences", input=ASKED).data
        alone = [asking.embeddings.create(model="sentences", input=text).data[0] for text in ASKED]
    assert np.allclose([each.embedding for each in together], [each.embedding for each in alone], atol=1e-6)

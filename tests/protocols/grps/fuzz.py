"""GRPS's attacks send anything to every route and method."""

import json
from http import HTTPStatus
from typing import Any, Final

from hypothesis import strategies as st

from core.dialects.grps.rpc import GRPS_RPC
from tests.support.asgi import Local
from tests.support.checks import INTERNALS
from tests.support.connect_client import PROTO, STREAM, split
from tests.support.grps_client import JSON, OCTETS, Message, Reply
from tests.support.strategies import METHODS, Attack, blanks, codings, quoted, texts, values

PREDICT: Final = "/grps/v1/infer/predict"
MODELS = ["text", "any_add_sub", "identity_fp32", "identity_bytes", "singles", "octets", "untold", "my-model-2", "raw"]
ODD_MODELS = ["nope", "broken", "", "my-model-3", "text-"]
CANARY = json.dumps({"model": "text", "str_data": "alive"}).encode()
ALLOWED = {400, 404, 405, 413, 415, 500, 501, 503}

names = st.one_of(st.sampled_from([*MODELS, *ODD_MODELS]), texts)
queries = st.one_of(
    st.just(""),
    st.builds(lambda model, streaming, ndarray: f"?model={model}&streaming={streaming}&return-ndarray={ndarray}",
              st.one_of(st.sampled_from([*MODELS, *ODD_MODELS]), quoted), st.sampled_from(["true", "false", "1"]),
              st.sampled_from(["true", "false"])),
    quoted.map(lambda text: f"?{text}"),
)  # fmt: skip
paths = st.one_of(
    st.sampled_from(["infer/predict"] * 5),
    st.sampled_from(["metadata/model", "metadata/server", "health/live", "health/ready", "health/x", "", "infer"]),
    quoted,
)
kinds = st.one_of(st.sampled_from([JSON, OCTETS] * 3), codings)
keys = st.sampled_from(
    ["str_data", "strData", "ndarray", "gtensors", "tensors", "gmap", "s_s", "s_b", "s_i32", "s_f", "INPUT0", "INPUT1",
     "name", "dtype", "shape", "flat_int32", "flat_float32", "flat_string", "bin_data", "model"]
)  # fmt: skip
documents = st.recursive(
    st.one_of(values, st.sampled_from(["DT_INT32", "DT_FLOAT32", "DT_STRING", 4, 7, [2], [1, 2], ["a"], "AQ=="])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=4)),
    max_leaves=10,
)
tensors = st.fixed_dictionaries(
    {},
    optional={
        "name": st.one_of(st.sampled_from(["INPUT0", "INPUT1", "x", ""]), texts),
        "dtype": st.one_of(st.integers(-1, 11), st.sampled_from(["DT_INT32", "DT_FLOAT32", "DT_STRING"]), values),
        "shape": st.one_of(st.lists(st.integers(-1, 3), max_size=3), values),
        "flat_int32": st.one_of(st.lists(st.integers(-9, 9), max_size=4), values),
        "flat_float32": st.one_of(st.lists(st.floats(), max_size=4), values),
        "flat_string": st.one_of(st.lists(texts, max_size=4), values),
    },
)
near = st.one_of(
    st.builds(
        lambda model, listed: {"model": model, "gtensors": {"tensors": listed}}, names, st.lists(tensors, max_size=3)
    ),
    st.builds(lambda model, value: {"model": model, "ndarray": value}, names, values),
    st.builds(lambda model, value: {"model": model, "gmap": value}, names, documents),
    st.builds(lambda model, value: {"model": model, "str_data": value}, names, values),
)


def judge(answer: Any, method: str) -> None:
    """Asserts a success, or a failure whose code is the status of HTTP."""
    if method == "HEAD":
        assert answer.body == b""
        return
    if answer.status == HTTPStatus.OK and answer.headers["content-type"] == OCTETS:
        return
    reply = Reply(answer.status, answer.headers, answer.body)
    if answer.status == HTTPStatus.OK:
        assert reply.json()["status"] == {"code": 200, "msg": "OK", "status": "SUCCESS"}
        return
    assert answer.status in ALLOWED, answer.body[:500]
    assert not INTERNALS.search(reply.refusal())


def ask(local: Local, method: str, target: str, body: bytes, kind: str) -> Any:
    """Returns the answer, which is judged; afterwards the application answers correctly."""
    answer = local.call(method, target, body, {"Content-Type": kind}, stays=True)
    judge(answer, method)
    right = local.call("POST", PREDICT, CANARY, {"Content-Type": JSON})
    assert json.loads(right.body)["str_data"] == "alive"
    return answer


def in_both_lengths(local: Local, document: Any, blank: bytes) -> None:
    """Asserts that blank space behind a document changes no status."""
    body = json.dumps(document).encode()
    statuses = {ask(local, "POST", PREDICT, text, JSON).status for text in (body, body + blank)}
    assert len(statuses) == 1


def as_both_kinds(local: Local, model: str, body: bytes) -> None:
    """Sends bytes as bin_data and as a document."""
    for kind in (OCTETS, JSON):
        ask(local, "POST", f"{PREDICT}?model={model}", body, kind)


def pieces() -> Any:
    """Returns parts of messages, which together are one that nearly fits."""
    made = [
        Message(model=model) for model in MODELS
    ] + [
        Message(str_data="a"), Message(bin_data=b"\xff"), Message(ndarray={}), Message(gmap={"s_i32": {"INPUT0": 1}}),
        Message(gtensors={"tensors": [{"name": "INPUT0", "dtype": 7, "shape": [2], "flat_float32": [1, 2]}]}),
        Message(gtensors={"tensors": [{"dtype": 4, "shape": [1], "flat_int32": [1]}] * 2}),
        Message(gtensors={"tensors": [{"name": "INPUT0", "dtype": 9, "shape": [1], "flat_string": ["a"]}]}),
    ]  # fmt: skip
    return st.lists(
        st.one_of(st.sampled_from([m.SerializeToString() for m in made]), st.binary(max_size=20)), max_size=5
    )


def message(local: Local, method: Any, body: bytes, heavy: bytes) -> None:
    """Sends bytes as a message, which is answered or refused in the status; a foreign field makes it a large one."""
    kind = STREAM if method.rpc.name == "PredictStreaming" else PROTO
    framed = heavy + body
    framed = framed if kind == PROTO else b"\0" + len(framed).to_bytes(4) + framed
    answer = local.call("POST", method.path, framed, {"Content-Type": kind}, stays=True)
    assert answer.status == HTTPStatus.OK, answer.body[:500]
    for each in [answer.body] if kind == PROTO else frames(answer.body):
        found = Message.FromString(each)
        assert found.status.status in (1, 2)
        assert (found.status.code == HTTPStatus.OK) == (found.status.status == 1)
        assert not INTERNALS.search(found.status.msg)


def frames(body: bytes) -> list[bytes]:
    """Returns the messages of a stream without its end."""
    found = split(body)
    assert found[-1][0] == END_FLAG
    return [content for _, content in found[:-1]]


near_bytes = st.one_of(st.binary(max_size=200), near.map(lambda document: json.dumps(document).encode()))
END_FLAG: Final = 2
HEAVY: Final = b"\xa2\x06\x80\x80\x02" + bytes(32768)
ATTACKS: Final = {
    "any_request": Attack(st.tuples(
        st.sampled_from(["POST"] * 12 + METHODS),
        st.builds(lambda path, query: f"/grps/v1/{path}{query}", paths, queries), near_bytes, kinds), ask),
    "any_document": Attack(st.tuples(st.one_of(documents, near), blanks), in_both_lengths),
    "any_bytes": Attack(st.tuples(st.sampled_from(MODELS), st.binary(min_size=1, max_size=300)), as_both_kinds),
    "any_message": Attack(st.tuples(
        st.sampled_from([method for method in GRPS_RPC if method.rpc.name not in ("Online", "Offline")]),
        pieces().map(b"".join), st.sampled_from([b"", HEAVY])), message),
}  # fmt: skip
DEEP: Final = {
    "lists": lambda n: b"[" * n,
    "objects": lambda n: b'{"gmap":' * n,
    "ndarray": lambda n: b'{"model":"identity_fp32","ndarray":' + b"[" * n + b"1" + b"]" * n + b"}",
    "data": lambda n: b'{"gtensors":{"tensors":[{"dtype":7,"flat_float32":' + b"[" * n + b"1" + b"]" * n + b"}]}}",
}


def dive(local: Local, body: bytes, depth: int) -> None:
    """Asserts that a document is refused that is deeper than an array may be."""
    answer = ask(local, "POST", PREDICT, body, JSON)
    assert answer.status == HTTPStatus.BAD_REQUEST or (answer.status == HTTPStatus.OK and depth <= 32)

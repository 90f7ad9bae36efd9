"""A client of Connect and gRPC-Web over httpx, written from their documents and without the product's code for them."""

import json
import struct
from typing import Any, Final, NamedTuple
from urllib.parse import unquote

import httpx
import numpy as np

from core.schema import open_inference as oip
from tests.support.remote import question, raw, tensors

OIP: Final = "inference.GRPCInferenceService"
GRPS: Final = "grps.protos.v1.GrpsService"
HEALTH: Final = "grpc.health.v1.Health"
PROTO: Final = "application/proto"
JSON: Final = "application/json"
STREAM: Final = "application/connect+proto"
STREAM_JSON: Final = "application/connect+json"
WEB: Final = "application/grpc-web+proto"
WEB_JSON: Final = "application/grpc-web+json"
TEXT: Final = "application/grpc-web-text+proto"
SECONDS: Final = 60
CODES: Final = {
    "canceled": (499, 1), "unknown": (500, 2), "invalid_argument": (400, 3), "deadline_exceeded": (504, 4),
    "not_found": (404, 5), "already_exists": (409, 6), "permission_denied": (403, 7), "resource_exhausted": (429, 8),
    "failed_precondition": (400, 9), "aborted": (409, 10), "out_of_range": (400, 11), "unimplemented": (501, 12),
    "internal": (500, 13), "unavailable": (503, 14), "data_loss": (500, 15), "unauthenticated": (401, 16),
}  # fmt: skip
"""Connect's table, with gRPC's numbers of the same codes."""
OF_NUMBER: Final = {number: code for code, (_, number) in CODES.items()}
OF_STATUS: Final = {404: "unimplemented", 405: "unknown", 415: "unknown"}
"""The codes that clients derive from an HTTP status without a code."""


class Outcome(NamedTuple):
    """The outcome of a call. `code`: None for success; `messages`: those before the end."""

    status: int
    code: str | None
    text: str
    messages: list[bytes]
    metadata: dict[str, str]


def envelope(*messages: bytes, flags: int = 0) -> bytes:
    """Joins messages in envelopes."""
    return b"".join(struct.pack(">BI", flags, len(message)) + message for message in messages)


def split(body: bytes) -> list[tuple[int, bytes]]:
    """Returns flags and message of each envelope, the last of which must end with the body."""
    found = []
    while body:
        flags, size = struct.unpack_from(">BI", body)
        assert len(body) >= 5 + size
        found.append((flags, body[5 : 5 + size]))
        body = body[5 + size :]
    return found


def judged(status: int, headers: dict[str, str], body: bytes) -> Outcome:
    """Returns what an answer says, checked against its protocol's document."""
    kind = headers["content-type"]
    if kind.startswith("application/connect+"):
        assert status == 200
        return _of_connect_stream(split(body))
    if kind.startswith("application/grpc-web"):
        assert status == 200
        return _of_grpc_web(split(body))
    if status == 200:
        assert kind in (PROTO, JSON)
        return Outcome(200, None, "", [body], headers)
    assert kind == JSON
    error = json.loads(body)
    assert error.keys() == {"code", "message"}
    assert status == CODES[error["code"]][0] or OF_STATUS[status] == error["code"]
    return Outcome(status, error["code"], error["message"], [], headers)


def _of_connect_stream(envelopes: list[tuple[int, bytes]]) -> Outcome:
    *messages, (flags, last) = envelopes
    assert flags == 2
    assert all(flag in (0, 1) for flag, _ in messages)
    end = json.loads(last)
    assert end.keys() <= {"error", "metadata"}
    metadata = {name: ", ".join(values) for name, values in end.get("metadata", {}).items()}
    content = [message for _, message in messages]
    if "error" not in end:
        return Outcome(200, None, "", content, metadata)
    assert end["error"].keys() == {"code", "message"}
    assert end["error"]["code"] in CODES
    return Outcome(200, end["error"]["code"], end["error"]["message"], content, metadata)


def _of_grpc_web(envelopes: list[tuple[int, bytes]]) -> Outcome:
    *messages, (flags, last) = envelopes
    assert flags == 128
    assert all(flag in (0, 1) for flag, _ in messages)
    assert last.endswith(b"\r\n")
    trailers = dict(line.split(": ", 1) for line in last[:-2].decode("ascii").split("\r\n"))
    number = int(trailers.pop("grpc-status"))
    text = unquote(trailers.pop("grpc-message", ""))
    code = OF_NUMBER[number] if number else None
    return Outcome(200, code, text, [message for _, message in messages], trailers)


class Caller:
    """A connection of httpx."""

    def __init__(self, netloc: str) -> None:
        self.client = httpx.Client(base_url=f"http://{netloc}", timeout=SECONDS)
        self.client.headers.pop("accept-encoding")

    def close(self) -> None:
        self.client.close()

    def post(self, method: str, kind: str, body: bytes = b"", service: str = OIP, **headers: str) -> Outcome:
        """Sends one POST, and returns its outcome."""
        return self.ask("POST", f"/{service}/{method}", body, {"content-type": kind, **headers})

    def ask(self, verb: str, target: str, body: bytes, headers: dict[str, str], **more: Any) -> Outcome:
        """Sends one request; underscores in names of headers are hyphens."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        answer = self.client.request(verb, target, content=body, headers=given, **more)
        return judged(answer.status_code, dict(answer.headers), answer.content)


def alive(caller: Caller) -> None:
    """Asserts that the server calculates."""
    left, right = np.arange(16, dtype=np.int32), np.full(16, 3, np.int32)
    message = question("add_sub", raw("INPUT0", "INT32", left), raw("INPUT1", "INT32", right))
    (answer,) = caller.post("ModelInfer", PROTO, message.SerializeToString()).messages
    found = tensors(oip.ModelInferResponse.FromString(answer))
    assert np.array_equal(found["OUTPUT0"], left + right)
    assert np.array_equal(found["OUTPUT1"], left - right)

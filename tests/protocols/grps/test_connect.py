"""The service runs over plain HTTP/1.1: Connect with proto3's JSON, on the port of REST."""

import json
import struct
from typing import Any

import pytest

from tests.support.asgi import Local
from tests.support.grps_client import JSON, SERVICE, SUCCESS

END = 2
"""The flag of a stream's last frame, which is not a message."""


def asked(local: Local, method: str, document: Any) -> Any:
    """Makes a call with one answer."""
    answer = local.call("POST", f"/{SERVICE}/{method}", json.dumps(document).encode(), {"Content-Type": JSON})
    assert answer.status == 200, answer.body
    return json.loads(answer.body)


@pytest.mark.row("GRPS-120")
def test_tensors_go_through_in_lower_camel_case(local: Local) -> None:
    """Bytes travel as base64, integers of 64 bits as strings."""
    tensor = {"name": "x", "dtype": "DT_INT64", "shape": [1], "flatInt64": ["5"]}
    document = {"model": "untold", "gtensors": {"tensors": [tensor]}}
    assert asked(local, "Predict", document) == {"status": SUCCESS, "gtensors": {"tensors": [tensor]}}
    assert asked(local, "Predict", {"model": "octets", "binData": "/w=="}) == {"status": SUCCESS, "binData": "/w=="}
    assert asked(local, "Predict", {"model": "text", "str_data": "a"}) == {"status": SUCCESS, "strData": "a"}


@pytest.mark.row("GRPS-121")
def test_a_refusal_is_an_answer_with_its_status(local: Local) -> None:
    """The status is the one of gRPC."""
    for document, code in (({"model": "nope", "strData": "a"}, 404), ({}, 400), ({"strData": 5}, 400)):
        status = asked(local, "Predict", document)["status"]
        assert (status["code"], status["status"]) == (code, "FAILURE")
    assert asked(local, "CheckLiveness", {}) == {"status": SUCCESS}
    assert "models:" in asked(local, "ServerMetadata", {})["strData"]


@pytest.mark.row("GRPS-122")
def test_a_stream_has_a_frame_for_each_message(local: Local) -> None:
    """The last frame ends it."""
    body = json.dumps({"model": "stream", "strData": "3"}).encode()
    framed = struct.pack(">BI", 0, len(body)) + body
    headers = {"Content-Type": "application/connect+json", "Connect-Protocol-Version": "1"}
    rest = local.call("POST", f"/{SERVICE}/PredictStreaming", framed, headers, stays=True).body
    found = []
    while rest:
        flags, size = struct.unpack_from(">BI", rest)
        found.append((flags, json.loads(rest[5 : 5 + size])))
        rest = rest[5 + size :]
    *messages, (last, end) = found
    assert [(flags, message["strData"]) for flags, message in messages] == [(0, "0"), (0, "1"), (0, "2")]
    assert (last, "error" in end) == (END, False)

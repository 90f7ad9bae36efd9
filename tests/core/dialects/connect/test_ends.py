"""core.dialects.connect.ends: the last messages, trailers and refusals of each protocol."""

import json
from urllib.parse import unquote

from hypothesis import given
from hypothesis import strategies as st

from core.dialects.connect import ends
from core.dialects.connect.codes import DeadlineExceeded
from core.errors import ModelNotFound, ModelUnavailable
from tests.support.connect_client import envelope

LATE = DeadlineExceeded("no answer within 5 ms")


def test_connects_streams_end_with_json() -> None:
    """The JSON has an error, and what comes with it."""
    assert ends.end_stream(None) == envelope(b"{}", flags=2)
    told = ends.end_stream(ModelUnavailable("später", retry_after=2))
    assert told[0] == 2
    assert json.loads(told[5:]) == {
        "error": {"code": "unavailable", "message": "später"},
        "metadata": {"retry-after": ["2"]},
    }
    assert "metadata" not in json.loads(ends.end_stream(LATE)[5:])


def test_a_refusal_is_json_with_a_status_and_headers() -> None:
    """The headers have what comes with it."""
    refusal = ends.refusal(ModelUnavailable("busy", retry_after=2))
    assert (refusal.status, dict(refusal.headers)[b"retry-after"]) == (503, b"2")
    assert json.loads(refusal.parts[0]) == {"code": "unavailable", "message": "busy"}
    assert ends.refusal(LATE).status == 504


def test_a_long_text_fits_into_trailers_and_is_whole_in_an_envelope() -> None:
    """Clients of gRPC refuse more than 8 kB of trailers, and would report that in place of the error."""
    error, own_id = ModelNotFound("日" * 5000), b"x" * 128
    assert sum(len(name) + len(value) for name, value in ends.status(error, own_id, native=True)) < 7000
    assert len(dict(ends.status(error, native=True))[b"grpc-message"]) == ends.LONGEST_DETAILS // 3 * 9
    assert len(dict(ends.status(error))[b"grpc-message"]) == 5000 * 9


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_through_grpc_webs_trailers(text: str) -> None:
    """The text is percent-encoded unless it is printable ASCII."""
    error = ModelNotFound(text)
    told = ends.trailers(error)
    lines = told[5:].split(b"\r\n")
    assert lines[0] == b"grpc-status: 5"
    name, _, value = lines[1].partition(b": ")
    assert name == b"grpc-message"
    assert all(32 <= byte <= 126 for byte in value)
    assert unquote(value.decode()) == error.message
    assert lines[2:] == [b""]


def test_grpc_webs_trailers_tell_when_to_come_back() -> None:
    """The metadata of gRPC do the same."""
    assert b"\r\nretry-after: 1\r\n" in ends.trailers(ModelUnavailable("x", retry_after=1))

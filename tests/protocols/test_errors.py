"""Every bad request of every protocol is sent once, and its refusal keeps all promises about errors."""

import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.protocols.grpc.refused import REFUSED as REFUSED_MESSAGES
from tests.protocols.grpc.refused import X
from tests.protocols.grps.refused import REFUSED as REFUSED_BY_GRPS
from tests.protocols.grps.refused import Refused
from tests.protocols.v1.refused import REFUSED as REFUSED_BY_V1
from tests.protocols.v2.bad_binaries import BAD_BINARIES
from tests.protocols.v2.bad_requests import BAD_REQUESTS
from tests.protocols.v2.refused import REFUSED as REFUSED_BY_V2
from tests.support import remote as over_grpc
from tests.support.checks import INTERNALS, Bad, alive, keeps_every_promise, refusal
from tests.support.connect_client import PROTO, WEB, Caller, envelope
from tests.support.grps_client import Http, Rpc
from tests.support.remote import Remote, question, raw
from tests.support.server import Server
from tests.support.wire import Wire

REFUSED = [*BAD_REQUESTS, *BAD_BINARIES, *REFUSED_BY_V2, *REFUSED_BY_V1]


@pytest.mark.parametrize("bad", REFUSED)
def test_a_bad_request_is_refused_in_the_protocols_form(wire: Wire, bad: Bad) -> None:
    """The status is right, the text names the culprit and shows no internals, and the server calculates afterwards."""
    keeps_every_promise(wire, bad)
    alive(wire)


@pytest.mark.row("R-206")
def test_all_bad_requests_in_a_row_leave_the_server_alive(wire: Wire, server: Server) -> None:
    """One connection carries every bad inference, with the right answer after each."""
    for bad in (case.values[0] for case in (*BAD_REQUESTS, *BAD_BINARIES)):
        assert wire.call(bad.method, bad.target, bad.body, bad.headers).status >= HTTPStatus.BAD_REQUEST
        alive(wire)
    assert server.runs()


@pytest.mark.parametrize("verb", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/v2/models/add_sub/infer", "/v2/repository/index", "/v2/models/add_sub"])
def test_a_bad_body_where_none_belongs_is_harmless(wire: Wire, verb: str, path: str) -> None:
    """The answer is the protocol's, whatever the method."""
    answer = wire.call(verb, path, b"\xff" * 1000, {"Content-Encoding": "nonsense", "Content-Type": "x"})
    if answer.status >= HTTPStatus.BAD_REQUEST:
        refusal(answer)
    alive(wire)


@pytest.mark.parametrize(("message", "code", "culprit"), REFUSED_MESSAGES)
def test_a_bad_message_is_refused_alike_over_grpc_connect_and_grpc_web(
    remote: Remote, caller: Caller, message: bytes, code: str, culprit: str
) -> None:
    """The code is right, and the text names the culprit and shows no internals."""
    with pytest.raises(grpc.RpcError) as refused:
        remote.ask("ModelInfer", message)
    found = [(refused.value.code().name.lower(), refused.value.details())]
    for kind, body in ((PROTO, message), (WEB, envelope(message))):
        outcome = caller.post("ModelInfer", kind, body)
        found.append((outcome.code or "", outcome.text))
    for each, text in found:
        assert each == code, text
        assert text.strip()
        assert re.search(culprit, text), text
        assert not INTERNALS.search(text), text


@pytest.mark.row("G-208")
def test_the_server_lives_after_every_bad_message_in_a_row(remote: Remote) -> None:
    """One connection carries all of them."""
    for message in (case.values[0] for case in REFUSED_MESSAGES):
        with pytest.raises(grpc.RpcError):
            remote.ask("ModelInfer", message)
    over_grpc.alive(remote)


def test_a_refusal_that_may_pass_says_when_to_come_back(launch: Callable[..., Server], zoo: Path) -> None:
    """The trailing metadata have the time, as Retry-After does over HTTP, even when the failure is remembered."""
    remote = Remote(launch(rpc=True, REPOSITORY=str(zoo)).rpc_netloc)
    for _ in range(2):
        with pytest.raises(grpc.RpcError) as refused:
            remote.infer("broken_onnx", X)
        assert int(dict(refused.value.trailing_metadata())["retry-after"]) >= 1
    remote.close()


def test_a_message_beyond_the_limit_is_refused(launch: Callable[..., Server], zoo: Path) -> None:
    """The limit holds before and after it is inflated: a small message may become very large."""
    remote = Remote(launch(rpc=True, REPOSITORY=str(zoo), MAX_BODY_BYTES="1000000").rpc_netloc)
    message = question("vector_fp32", raw("INPUT0", "FP32", np.zeros(1 << 20, np.float32)))
    for coding in (None, grpc.Compression.Gzip, grpc.Compression.Deflate):
        with pytest.raises(grpc.RpcError) as refused:
            remote.ask("ModelInfer", message, compression=coding)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    over_grpc.alive(remote)
    remote.close()


@pytest.mark.parametrize("refused", REFUSED_BY_GRPS)
def test_a_bad_message_of_grps_is_refused_over_http_and_grpc(http: Http, rpc: Rpc, refused: Refused) -> None:
    """The code stands in the status of the answer, with one line of text."""
    for text in refused.texts(http, rpc):
        assert refused.text in text
        assert not INTERNALS.search(text), text

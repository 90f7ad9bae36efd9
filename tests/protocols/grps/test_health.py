"""Online, offline, live and ready share one flag for both ways to ask; only readiness depends on it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.grps_client import SUCCESS, Http, Rpc, ok, refusal
from tests.support.server import HOST, Server

CHECKS = {"live": "CheckLiveness", "ready": "CheckReadiness"}
OFFLINE = "Service Unavailable: set offline"


@pytest.fixture
def own(launch: Callable[..., Server], zoo: Path) -> Iterator[tuple[Http, Rpc]]:
    """Connections to a server whose flag may be changed."""
    server = launch(rpc=True, REPOSITORY=str(zoo))
    with Http(HOST, server.port) as http, Rpc(server.rpc_netloc) as rpc:
        yield http, rpc


@pytest.mark.row("GRPS-001", "GRPS-002")
@pytest.mark.parametrize("body", [b"", b"{}", b"{", b"\xff" * 100])
@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("check", list(CHECKS))
def test_health_is_told_without_looking_at_the_body(http: Http, check: str, method: str, body: bytes) -> None:
    """The whole answer is the status of success."""
    answer = http.call(method, f"health/{check}", body)
    assert answer.json() == {"status": SUCCESS}
    assert answer.status == 200


@pytest.mark.row("GRPS-001")
@pytest.mark.parametrize("check", list(CHECKS.values()))
def test_health_is_told_over_grpc(rpc: Rpc, check: str) -> None:
    """The status of the message says it."""
    assert ok(rpc.ask(check)).WhichOneof("data_oneof") is None
    ok(rpc.ask(check, str_data="whatever"))


@pytest.mark.row("GRPS-003")
@pytest.mark.parametrize("check", list(CHECKS))
def test_head_answers_as_get_without_a_body(http: Http, check: str) -> None:
    """Load balancers ask so."""
    answer = http.call("HEAD", f"health/{check}")
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


@pytest.mark.row("GRPS-004")
def test_a_server_is_ready_without_being_called_online(own: tuple[Http, Rpc]) -> None:
    """A client cannot call an instance online that a gateway made."""
    http, rpc = own
    assert http.call("GET", "health/ready").status == 200
    ok(rpc.ask("CheckReadiness"))


@pytest.mark.row("GRPS-005", "GRPS-006", "GRPS-007")
@pytest.mark.parametrize("over", ["http get", "http post", "grpc"])
def test_offline_and_online_are_one_flag_for_both(own: tuple[Http, Rpc], over: str) -> None:
    """Both may be repeated; an offline server lives and answers predictions."""
    http, rpc = own

    def say(word: str) -> None:
        if over == "grpc":
            ok(rpc.ask(word.capitalize()))
        else:
            answer = http.call(over.split()[1].upper(), f"health/{word}")
            assert (answer.status, answer.json()) == (200, {"status": SUCCESS})

    for _ in range(2):
        say("offline")
        say("offline")
        answer = http.call("GET", "health/ready")
        assert answer.refusal(503) == OFFLINE
        assert refusal(rpc.ask("CheckReadiness"), 503) == OFFLINE
        assert http.call("GET", "health/live").status == 200
        ok(rpc.ask("CheckLiveness"))
        assert http.predict({"model": "text", "str_data": "a"}).content() == {"str_data": "a"}
        assert rpc.ask("Predict", model="text", str_data="a").str_data == "a"
        say("online")
        say("online")
        assert http.call("GET", "health/ready").json() == {"status": SUCCESS}
        ok(rpc.ask("CheckReadiness"))


@pytest.mark.row("GRPS-008")
def test_where_instances_come_and_go_nobody_sets_them_offline(launch: Callable[..., Server], zoo: Path) -> None:
    """501 says why; live and ready are still answered."""
    server = launch(rpc=True, REPOSITORY=str(zoo), GRPS_HEALTH_CONTROL="off")
    with Http(HOST, server.port) as http, Rpc(server.rpc_netloc) as rpc:
        for word in ("online", "offline"):
            for method in ("GET", "POST"):
                assert "instances" in http.call(method, f"health/{word}").refusal(501)
            assert "instances" in refusal(rpc.ask(word.capitalize()), 501)
        assert http.call("GET", "health/ready").json() == {"status": SUCCESS}
        ok(rpc.ask("CheckLiveness"))


@pytest.mark.row("GRPS-009")
def test_a_server_whose_models_do_not_load_is_not_ready(launch: Callable[..., Server], zoo: Path) -> None:
    """The text names the model."""
    server = launch(rpc=True, REPOSITORY=str(zoo), PRELOAD="broken")
    with Http(HOST, server.port) as http, Rpc(server.rpc_netloc) as rpc:
        for text in (http.call("GET", "health/ready").refusal(503), refusal(rpc.ask("CheckReadiness"), 503)):
            assert text.startswith("Service Unavailable: ")
            assert "broken" in text

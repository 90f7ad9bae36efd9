"""V1's routes that do not predict are status, metadata, list and root; the tests cover pinned dialects, too."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.asgi import Local
from tests.support.catalogue import row
from tests.support.checks import refusal
from tests.support.v1_client import MODELS, alive, get, numbers, predict, read, rows, statuses
from tests.support.wire import Wire

PREDICT = f"{MODELS}/half_plus_two:predict"
LIST = [1.0, 2.0, 5.0]
OK = {"error_code": "OK", "error_message": ""}
PINS = [("tfs", "outputs"), ("kserve", "predictions")]
PATHS = ("", "?", "?a=1", "?a=1&b=:regress", "?x=/versions/7")
LISTED = [
    row("V1-002 V1-132", "labelled/versions/1", "labelled/versions/1", ["1"]),
    row("V1-002 V1-132", "labelled/labels/stable", "labelled/labels/stable", ["1"]),
    row("V1-132", "labelled/labels/pre%20release", "labelled/labels/pre%20release", ["10"]),
    row("V1-005", "labelled/labels/c%2Fmetadata", "labelled/labels/c%2Fmetadata", ["10"]),
    row("V1-005", "labelled/labels/b%3Apredict", "labelled/labels/b%3Apredict", ["2"]),
    row("V1-006", "half_plus_two", "half_plus_two/versions/123", ["123"]),
    row("V1-014", "labelled", "labelled/versions/0", ["10"]),
    row("V1-130", "versions_latest", "versions_latest", ["10"]),
    row("V1-130", "versions_latest_two", "versions_latest_two", ["10", "2"]),
    row("V1-130", "versions_specific", "versions_specific", ["2", "1"]),
]


@pytest.mark.parametrize(("asked", "target", "versions"), LISTED)
def test_the_status_lists_the_versions_that_are_meant(wire: Wire, asked: str, target: str, versions: list[str]) -> None:
    """A number, a label and a policy choose them, newest first."""
    rows(wire, asked, [0])
    assert list(statuses(read(get(wire, target)))) == versions


@pytest.mark.row("V1-002", "V1-130")
def test_the_status_of_a_model_lists_its_versions_newest_first(wire: Wire) -> None:
    """Versions are numbers: 10 comes before 2."""
    for version in (2, 10, 1):
        rows(wire, f"versions/versions/{version}", [0])
    assert list(statuses(read(get(wire, "versions"))).items()) == [(v, "AVAILABLE") for v in ("10", "2", "1")]
    rows(wire, "labelled", [0])
    assert set(statuses(read(get(wire, "labelled")))) == {"1", "2", "10"}


@pytest.mark.row("V1-003", "V1-014")
@pytest.mark.parametrize(
    ("place", "version"), [("", "10"), ("/versions/2", "2"), ("/labels/stable", "1"), ("/versions/0", "10")]
)
def test_metadata_is_of_the_version_that_is_meant(wire: Wire, place: str, version: str) -> None:
    """The newest is meant without a version."""
    assert read(get(wire, f"labelled{place}/metadata"))["model_spec"]["version"] == version


@pytest.mark.row("V1-004")
def test_the_word_metadata_may_be_in_any_case(wire: Wire) -> None:
    """It is matched like the other words of a path."""
    assert read(wire.get(f"{MODELS}/labelled/MetaData"))["model_spec"]["name"] == "labelled"


@pytest.mark.row("V1-009")
@pytest.mark.parametrize("query", PATHS[1:])
def test_a_query_changes_nothing(wire: Wire, query: str) -> None:
    """TF Serving would count it as a part of the path."""
    rows(wire, "half_plus_two", [1.0])
    assert "123" in statuses(read(wire.get(f"{MODELS}/half_plus_two{query}")))
    assert read(wire.get(f"{MODELS}/half_plus_two/metadata{query}"))["model_spec"]["name"] == "half_plus_two"


@pytest.mark.row("V1-010", "V1-107", "V1-139")
def test_the_list_of_models(wire: Wire) -> None:
    """It is KServe's, and names models that are not loaded."""
    document = read(wire.get(MODELS))
    assert list(document) == ["models"]
    assert {"half_plus_two", "idle", "py_untyped"} <= set(document["models"])


@pytest.mark.row("V1-011")
@pytest.mark.parametrize("path", ["/v3/models", "/v10/models/half_plus_two", "/nothing/here"])
def test_a_path_beside_v1_is_not_found(wire: Wire, path: str) -> None:
    """The status is 404."""
    assert wire.get(path).status == 404
    alive(wire)


@pytest.mark.row("V1-012")
@pytest.mark.parametrize("path", [MODELS, f"{MODELS}/half_plus_two", f"{MODELS}/half_plus_two/metadata"])
def test_head_is_get_without_the_body(wire: Wire, path: str) -> None:
    """Status and headers are the same."""
    alive(wire)
    full, head = wire.get(path), wire.call("HEAD", path)
    assert (head.status, head.body) == (full.status, b"")
    assert head.headers["content-type"] == full.headers["content-type"]
    assert head.headers["content-length"] == str(len(full.body))


@pytest.mark.row("V1-012")
@pytest.mark.parametrize("path", [f"{MODELS}/unheard_of", PREDICT])
def test_head_of_what_get_refuses_has_its_status(wire: Wire, path: str) -> None:
    """It has no body, so that the connection stays open."""
    assert wire.call("HEAD", path).status == wire.get(path).status
    alive(wire)


@pytest.mark.row("V1-013")
@pytest.mark.parametrize("path", [PREDICT, f"{MODELS}/half_plus_two"])
def test_no_cors_header_is_sent(wire: Wire, path: str) -> None:
    """CORS is off, as in TF Serving without its flag."""
    for origin in ({}, {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}):
        answer = wire.call("OPTIONS", path, headers=origin)
        assert not [name for name in answer.headers if name.startswith("access-control-")]


@pytest.mark.row("V1-014")
def test_version_zero_is_the_newest_where_there_is_none(wire: Wire) -> None:
    """OpenVINO's client names it in every call."""
    assert numbers(predict(wire, "labelled/versions/0", {"inputs": {"x": [0]}})) == ["10"]


@pytest.mark.row("V1-106", "V1-139")
@pytest.mark.parametrize("accept", [None, "*/*", "application/json", "application/json, */*;q=0.5"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_root_says_that_the_server_is_alive(wire: Wire, accept: str | None, method: str) -> None:
    """KServe's clients ask there."""
    answer = wire.call(method, "/", headers={} if accept is None else {"Accept": accept})
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert method == "HEAD" or answer.json() == {"status": "alive"}


@pytest.mark.row("V1-106")
def test_the_root_is_the_site_for_a_browser(wire: Wire) -> None:
    """The types that the client accepts decide."""
    answer = wire.get("/", {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.row("V1-106")
def test_the_root_is_alive_without_the_site(local_with: Callable[..., Local]) -> None:
    """The types that the client accepts do not matter."""
    assert local_with(SITE="false").call("GET", "/").json() == {"status": "alive"}


@pytest.mark.row("V1-110")
@pytest.mark.parametrize(("dialect", "key"), PINS)
def test_a_server_can_be_pinned_to_one_of_the_two(local_with: Callable[..., Local], dialect: str, key: str) -> None:
    """A model's own setting takes precedence over the server's."""
    local = local_with(V1_DIALECT=dialect)
    assert read(predict(local, "half_plus_two", {"inputs": LIST})) == {key: [2.5, 3.0, 4.5]}
    for own, its in PINS:
        assert read(predict(local, f"pinned_{own}", {"inputs": LIST})) == {its: LIST}


@pytest.mark.row("V1-110")
@pytest.mark.parametrize("dialect", ["auto", "tfs", "kserve"])
def test_what_is_clear_is_answered_alike_however_pinned(local_with: Callable[..., Local], dialect: str) -> None:
    """Rows are predictions, and named columns are outputs."""
    local = local_with(V1_DIALECT=dialect)
    assert rows(local, "half_plus_two", LIST) == [2.5, 3.0, 4.5]
    assert read(predict(local, "half_plus_two", {"inputs": {"x": LIST}})) == {"outputs": [2.5, 3.0, 4.5]}


@pytest.mark.row("V1-111", "V1-130")
def test_a_ready_model_is_described_for_both(wire: Wire) -> None:
    """It has KServe's two members and TF Serving's one; a version has TF Serving's alone."""
    alive(wire)
    listed = {"model_version_status": [{"version": "123", "state": "AVAILABLE", "status": OK}]}
    assert read(get(wire, "half_plus_two")) == {"name": "half_plus_two", "ready": True, **listed}
    assert read(get(wire, "half_plus_two/versions/123")) == listed
    rows(wire, "labelled/versions/1", [0])
    for place in ("versions/1", "labels/stable"):
        assert list(read(get(wire, f"labelled/{place}"))) == ["model_version_status"]


@pytest.mark.row("V1-111")
@pytest.mark.parametrize(("dialect", "keys"), [("tfs", {"model_version_status"}), ("kserve", {"name", "ready"})])
def test_the_status_of_a_pinned_model_is_its_protocols_alone(
    wire: Wire, local_with: Callable[..., Local], dialect: str, keys: set[str]
) -> None:
    """The model or the server may be pinned."""
    rows(wire, f"pinned_{dialect}", LIST)
    assert set(read(get(wire, f"pinned_{dialect}"))) == keys
    local = local_with(V1_DIALECT=dialect)
    alive(local)
    assert set(read(get(local, "half_plus_two"))) == keys


@pytest.mark.row("V1-112", "V1-133")
@pytest.mark.parametrize(
    "model", ["broken_onnx", "broken_empty", "py_broken_import", "py_broken_syntax", "py_broken_exit"]
)
def test_a_model_that_cannot_load_is_not_ready(wire: Wire, model: str) -> None:
    """503 is for KServe's clients; the list has a code and a text without a path of this machine."""
    refusal(predict(wire, model, {"instances": [1.0]}), 503)
    document = read(get(wire, model), 503)
    assert set(document) == {"name", "ready", "model_version_status"}
    assert (document["name"], document["ready"]) == (model, False)
    assert statuses(document) == {"1": "END"}
    (entry,) = read(get(wire, f"{model}/versions/1"))["model_version_status"]
    assert (entry["state"], entry["status"]["error_code"]) == ("END", "FAILED_PRECONDITION")
    assert entry["status"]["error_message"].strip()
    assert "/" not in entry["status"]["error_message"]


@pytest.mark.row("V1-112")
@pytest.mark.parametrize(("dialect", "status"), [("tfs", 200), ("kserve", 503)])
def test_a_model_that_cannot_load_has_its_dialects_status(
    local_with: Callable[..., Local], dialect: str, status: int
) -> None:
    """TF Serving lists its version as ended."""
    local = local_with(V1_DIALECT=dialect)
    refusal(predict(local, "broken_onnx", {"instances": [1.0]}), 503)
    answer = get(local, "broken_onnx")
    assert answer.status == status
    if dialect == "tfs":
        assert list(answer.json()) == ["model_version_status"]
        assert statuses(answer.json()) == {"1": "END"}


@pytest.mark.row("V1-133")
def test_a_version_that_failed_to_load_is_ended_with_its_reason(wire: Wire) -> None:
    """The answer is 200, and the model's other versions are as they were."""
    refusal(predict(wire, "some_broken/versions/2", {"instances": [0]}), 503)
    rows(wire, "some_broken/versions/1", [0])
    document = read(get(wire, "some_broken/versions/2"))
    assert statuses(document) == {"2": "END"}
    (entry,) = document["model_version_status"]
    assert entry["status"]["error_code"] == "FAILED_PRECONDITION"
    assert "some_broken" in entry["status"]["error_message"]
    assert statuses(read(get(wire, "some_broken/versions/1"))) == {"1": "AVAILABLE"}


def state(wire: Wire, model: str) -> Any:
    """Returns the state of version 1; the request changes nothing."""
    document = read(get(wire, f"{model}/versions/1"))
    assert document == read(get(wire, f"{model}/versions/1"))
    (entry,) = document["model_version_status"]
    assert entry["status"] == OK
    return entry["state"]


@pytest.mark.row("V1-130")
def test_a_version_is_available_after_its_first_request(wire: Wire) -> None:
    """A status request loads nothing."""
    assert state(wire, "idle") == "START"
    assert state(wire, "idle_then_asked") == "START"
    assert rows(wire, "idle_then_asked", [0]) == [1]
    assert state(wire, "idle_then_asked") == "AVAILABLE"


@pytest.mark.row("V1-130")
def test_an_unloaded_version_stays_listed_as_ended(wire: Wire) -> None:
    """It is available again after the request that loads it."""
    rows(wire, "idle_then_gone", [0])
    assert wire.post("/v2/repository/models/idle_then_gone/unload").status == 200
    assert state(wire, "idle_then_gone") == "END"
    assert wire.post("/v2/repository/models/idle_then_gone/load").status == 200
    assert rows(wire, "idle_then_gone", [0]) == [1]
    assert state(wire, "idle_then_gone") == "AVAILABLE"

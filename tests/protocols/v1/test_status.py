"""Catalogue section 10: the status of versions, in the words of TF Serving."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checks import refusal
from tests.support.v1_client import alive, get, predict, read, rows, statuses

if TYPE_CHECKING:
    from tests.support.wire import Wire

OK = {"error_code": "OK", "error_message": ""}


@pytest.mark.row("V1-130")
def test_an_available_version_is_described_as_the_specification_shows(wire: Wire) -> None:
    """The version is text."""
    alive(wire)
    document = read(get(wire, "half_plus_two/versions/123"))
    assert document == {"model_version_status": [{"version": "123", "state": "AVAILABLE", "status": OK}]}


@pytest.mark.row("V1-130")
def test_versions_are_listed_newest_first(wire: Wire) -> None:
    """As numbers: 10 before 2."""
    for version in (2, 10, 1):
        rows(wire, f"versions/versions/{version}", [0])
    assert list(statuses(read(get(wire, "versions"))).items()) == [
        ("10", "AVAILABLE"),
        ("2", "AVAILABLE"),
        ("1", "AVAILABLE"),
    ]


@pytest.mark.row("V1-130")
@pytest.mark.parametrize(
    ("model", "served"),
    [("versions_latest", ["10"]), ("versions_latest_two", ["10", "2"]), ("versions_specific", ["2", "1"])],
)
def test_versions_that_the_policy_leaves_out_are_not_listed(wire: Wire, model: str, served: list[str]) -> None:
    """They are not served."""
    rows(wire, model, [0])
    assert list(statuses(read(get(wire, model)))) == served


def state(wire: Wire, model: str) -> str:
    """Of version 1, and asking changes nothing."""
    document = read(get(wire, f"{model}/versions/1"))
    assert document == read(get(wire, f"{model}/versions/1"))
    (entry,) = document["model_version_status"]
    assert entry["status"] == OK
    found: str = entry["state"]
    return found


@pytest.mark.row("V1-130")
def test_a_version_that_nobody_asked_is_at_its_start(wire: Wire) -> None:
    """Models load with the first request, and looking is none."""
    assert state(wire, "idle") == "START"


@pytest.mark.row("V1-130")
def test_a_version_is_available_after_its_first_request(wire: Wire) -> None:
    """START, then AVAILABLE."""
    assert state(wire, "idle_then_asked") == "START"
    assert rows(wire, "idle_then_asked", [0]) == [1]
    assert state(wire, "idle_then_asked") == "AVAILABLE"


@pytest.mark.row("V1-130")
def test_an_unloaded_version_stays_listed_as_ended(wire: Wire) -> None:
    """And is available again after the next request that loads it."""
    rows(wire, "idle_then_gone", [0])
    assert wire.post("/v2/repository/models/idle_then_gone/unload").status == 200
    assert state(wire, "idle_then_gone") == "END"
    assert wire.post("/v2/repository/models/idle_then_gone/load").status == 200
    assert rows(wire, "idle_then_gone", [0]) == [1]
    assert state(wire, "idle_then_gone") == "AVAILABLE"


@pytest.mark.row("V1-131")
def test_an_unknown_version_has_no_status(wire: Wire) -> None:
    """404 that names both."""
    assert refusal(get(wire, "labelled/versions/9"), 404) == "Could not find version 9 of model labelled"
    assert refusal(get(wire, "versions_latest/versions/1"), 404) == "Could not find version 1 of model versions_latest"


@pytest.mark.row("V1-131")
def test_an_unknown_model_has_no_status(wire: Wire) -> None:
    """404 that names it, and the version if one was asked for."""
    assert refusal(get(wire, "unheard_of"), 404) == "Could not find any versions of model unheard_of"
    assert refusal(get(wire, "unheard_of/versions/1"), 404).endswith(" of model unheard_of")


@pytest.mark.row("V1-132")
@pytest.mark.parametrize(("label", "version"), [("stable", "1"), ("pre%20release", "10")])
def test_the_status_of_a_label_is_its_versions_alone(wire: Wire, label: str, version: str) -> None:
    """TF Serving lists every version."""
    rows(wire, f"labelled/labels/{label}", [0])
    assert statuses(read(get(wire, f"labelled/labels/{label}"))) == {version: "AVAILABLE"}


@pytest.mark.row("V1-132")
@pytest.mark.parametrize("label", ["canary", "1"])
def test_an_unknown_label_has_no_status(wire: Wire, label: str) -> None:
    """400, as on every other route."""
    assert refusal(get(wire, f"labelled/labels/{label}"), 400) == f"Unrecognized servable version label: {label}"


@pytest.mark.row("V1-132")
def test_a_label_of_no_served_version_has_no_status(wire: Wire) -> None:
    """404."""
    assert "99" in refusal(get(wire, "labelled/labels/gone"), 404)


@pytest.mark.row("V1-133")
def test_a_version_that_failed_to_load_is_ended_with_its_reason(wire: Wire) -> None:
    """200: the code in gRPC's words and the text; the model's other versions are as they were."""
    refusal(predict(wire, "some_broken/versions/2", {"instances": [0]}), 503)
    rows(wire, "some_broken/versions/1", [0])
    document = read(get(wire, "some_broken/versions/2"))
    assert statuses(document) == {"2": "END"}
    (entry,) = document["model_version_status"]
    assert entry["status"]["error_code"] == "FAILED_PRECONDITION"
    assert "some_broken" in entry["status"]["error_message"]
    assert statuses(read(get(wire, "some_broken/versions/1"))) == {"1": "AVAILABLE"}


@pytest.mark.row("V1-133")
@pytest.mark.parametrize("model", ["broken_onnx", "broken_empty", "py_broken_syntax", "py_broken_exit"])
def test_every_way_to_fail_has_a_code_and_a_text(wire: Wire, model: str) -> None:
    """And no path of this machine in it."""
    refusal(predict(wire, model, {"instances": [0]}), 503)
    (entry,) = read(get(wire, f"{model}/versions/1"))["model_version_status"]
    assert (entry["state"], entry["status"]["error_code"]) == ("END", "FAILED_PRECONDITION")
    assert entry["status"]["error_message"].strip()
    assert "/" not in entry["status"]["error_message"]

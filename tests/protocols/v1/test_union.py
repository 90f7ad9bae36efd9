"""Catalogue section 9: one answer for KServe's clients and TF Serving's, and pinning it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.checks import refusal
from tests.support.v1_client import MODELS, alive, get, post, predict, read, rows, statuses

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.support.asgi import Local
    from tests.support.wire import Wire

LIST = [1.0, 2.0, 5.0]


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
    """What it accepts tells."""
    answer = wire.get("/", {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"})
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/html")


@pytest.mark.row("V1-106")
def test_the_root_is_alive_without_the_site(local_with: Callable[..., Local]) -> None:
    """Whatever the client accepts."""
    local = local_with(SITE="false")
    assert local.call("GET", "/").json() == {"status": "alive"}


@pytest.mark.row("V1-108", "V1-110")
def test_a_list_of_objects_under_inputs_is_rows_for_both(wire: Wire) -> None:
    """Predictions alone: nobody else has it."""
    assert read(predict(wire, "half_plus_two", {"inputs": [{"x": 1.0}]})) == {"predictions": [2.5]}


@pytest.mark.row("V1-110")
@pytest.mark.parametrize("inputs", [LIST, [[1.0, 2.0], [3.0, 4.0]]])
def test_a_list_under_inputs_is_answered_under_both_names(wire: Wire, inputs: list[Any]) -> None:
    """The same numbers for KServe's clients and TF Serving's."""
    document = read(predict(wire, "identity_fp32", {"inputs": inputs}))
    assert document == {"predictions": inputs, "outputs": inputs}


@pytest.mark.row("V1-110")
@pytest.mark.parametrize("place", ["/versions/1", "/labels/stable"])
def test_a_path_with_a_version_or_label_is_tf_servings(wire: Wire, place: str) -> None:
    """KServe has no such path."""
    assert read(predict(wire, f"labelled{place}", {"inputs": [0]})) == {"outputs": [1]}


@pytest.mark.row("V1-110")
def test_a_document_with_a_signature_is_tf_servings(wire: Wire) -> None:
    """KServe has none."""
    document = {"signature_name": "serving_default", "inputs": LIST}
    assert read(predict(wire, "half_plus_two", document)) == {"outputs": [2.5, 3.0, 4.5]}


PINS = [("tfs", "outputs"), ("kserve", "predictions")]


@pytest.mark.row("V1-110")
@pytest.mark.parametrize(("dialect", "key"), PINS)
def test_a_model_can_be_pinned_to_one_of_the_two(wire: Wire, dialect: str, key: str) -> None:
    """By its own settings."""
    assert read(predict(wire, f"pinned_{dialect}", {"inputs": LIST})) == {key: LIST}


@pytest.mark.row("V1-110")
@pytest.mark.parametrize(("dialect", "key"), PINS)
def test_a_server_can_be_pinned_to_one_of_the_two(local_with: Callable[..., Local], dialect: str, key: str) -> None:
    """For every model that says nothing; a model's own word counts more."""
    local = local_with(V1_DIALECT=dialect)
    assert read(predict(local, "half_plus_two", {"inputs": LIST})) == {key: [2.5, 3.0, 4.5]}
    for own, its in PINS:
        assert read(predict(local, f"pinned_{own}", {"inputs": LIST})) == {its: LIST}


@pytest.mark.row("V1-110")
@pytest.mark.parametrize("dialect", ["auto", "tfs", "kserve"])
def test_what_is_clear_is_answered_alike_however_pinned(local_with: Callable[..., Local], dialect: str) -> None:
    """Rows are predictions, named columns are outputs."""
    local = local_with(V1_DIALECT=dialect)
    assert rows(local, "half_plus_two", LIST) == [2.5, 3.0, 4.5]
    assert read(predict(local, "half_plus_two", {"inputs": {"x": LIST}})) == {"outputs": [2.5, 3.0, 4.5]}


@pytest.mark.row("V1-111")
def test_a_ready_model_is_described_for_both(wire: Wire) -> None:
    """KServe's two members and TF Serving's one."""
    alive(wire)
    document = read(get(wire, "half_plus_two"))
    assert set(document) == {"name", "ready", "model_version_status"}
    assert (document["name"], document["ready"]) == ("half_plus_two", True)
    assert statuses(document) == {"123": "AVAILABLE"}


@pytest.mark.row("V1-111")
def test_the_status_of_a_version_is_tf_servings_alone(wire: Wire) -> None:
    """By number and by label."""
    rows(wire, "labelled/versions/1", [0])
    assert list(read(get(wire, "labelled/versions/1"))) == ["model_version_status"]
    assert list(read(get(wire, "labelled/labels/stable"))) == ["model_version_status"]


@pytest.mark.row("V1-111")
@pytest.mark.parametrize(("dialect", "keys"), [("tfs", {"model_version_status"}), ("kserve", {"name", "ready"})])
def test_the_status_of_a_pinned_model_is_its_protocols_alone(
    wire: Wire, local_with: Callable[..., Local], dialect: str, keys: set[str]
) -> None:
    """Pinned by the model, or by the server."""
    rows(wire, f"pinned_{dialect}", LIST)
    assert set(read(get(wire, f"pinned_{dialect}"))) == keys
    local = local_with(V1_DIALECT=dialect)
    alive(local)
    assert set(read(get(local, "half_plus_two"))) == keys


@pytest.mark.row("V1-112")
@pytest.mark.parametrize("model", ["broken_onnx", "broken_empty", "py_broken_import"])
def test_a_model_that_cannot_load_is_not_ready(wire: Wire, model: str) -> None:
    """503 without `error`: KServe's client reads the status, TF Serving's the list."""
    refusal(predict(wire, model, {"instances": [1.0]}), 503)
    document = read(get(wire, model), 503)
    assert set(document) == {"name", "ready", "model_version_status"}
    assert (document["name"], document["ready"]) == (model, False)
    assert statuses(document) == {"1": "END"}


@pytest.mark.row("V1-112")
def test_a_model_that_cannot_load_is_ended_for_tf_serving(local_with: Callable[..., Local]) -> None:
    """200 and the list."""
    local = local_with(V1_DIALECT="tfs")
    refusal(predict(local, "broken_onnx", {"instances": [1.0]}), 503)
    document = read(get(local, "broken_onnx"))
    assert list(document) == ["model_version_status"]
    assert statuses(document) == {"1": "END"}


@pytest.mark.row("V1-112")
def test_a_model_that_cannot_load_is_unavailable_for_kserve(local_with: Callable[..., Local]) -> None:
    """503."""
    local = local_with(V1_DIALECT="kserve")
    refusal(predict(local, "broken_onnx", {"instances": [1.0]}), 503)
    assert get(local, "broken_onnx").status == 503


@pytest.mark.row("V1-114")
def test_a_model_that_is_unknown_has_tf_servings_text(wire: Wire) -> None:
    """The specification shows it."""
    assert refusal(post(wire, "half:predict", {"instances": [1.0]}), 404) == (
        "Servable not found for request: Latest(half)"
    )
    assert "Could not find any versions of model half" in refusal(get(wire, "half"), 404)


@pytest.mark.row("V1-123", "V1-124")
@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "half_plus_two:foo"),
        ("PUT", "half_plus_two:predict"),
        ("GET", "half_plus_two:predict"),
        ("GET", "a/b/c"),
    ],
)
def test_what_does_not_exist_is_malformed(wire: Wire, method: str, target: str) -> None:
    """400 and `error`, where KServe has 404, 405 and `detail`."""
    assert refusal(wire.call(method, f"{MODELS}/{target}"), 400) == f"Malformed request: {method} {MODELS}/{target}"


@pytest.mark.row("V1-127")
@pytest.mark.parametrize("count", [1, 2, 33, 1000, 5000])
def test_as_many_predictions_as_instances(wire: Wire, count: int) -> None:
    """KServe's batcher divides them."""
    assert len(rows(wire, "half_plus_two", [0.5] * count)) == count
    assert len(rows(wire, "seeds", [{"tag": "a", "signal": [1.0], "sensor": 2.0}] * count)) == count


@pytest.mark.row("V1-129")
def test_a_failing_model_closes_no_connection(wire: Wire) -> None:
    """Whatever it raises, the next request has the same socket."""
    alive(wire)
    socket = wire.connection.sock
    for kind in ("exception", "system_exit", "recursion", "base"):
        refusal(predict(wire, "py_raises", {"instances": [kind]}), 500)
    alive(wire)
    assert wire.connection.sock is socket


UNTYPED: list[tuple[dict[str, Any], list[str]]] = [
    ({"inputs": {"a": [1.5, 2.5], "b": [[1], [2]]}}, ["a <f8 [2]", "b <i8 [2, 1]"]),
    ({"inputs": {"flags": [True, False], "text": ["x"]}}, ["flags |b1 [2]", "text |O [1]"]),
    ({"inputs": {"one": 1}}, ["one <i8 []"]),
    ({"inputs": {"mixed": [1, 2.5]}}, ["mixed <f8 [2]"]),
    ({"inputs": {"coded": [{"b64": "/w=="}]}}, ["coded |O [1]"]),
    ({"inputs": [[1.5, 2.5]]}, ["input-0 <f8 [1, 2]"]),
]


@pytest.mark.parametrize(("document", "seen"), UNTYPED)
def test_a_model_that_says_nothing_gets_what_the_values_are(
    wire: Wire, document: dict[str, Any], seen: list[str]
) -> None:
    """FP64, INT64, BOOL and BYTES; a plain list is input-0."""
    assert read(predict(wire, "py_untyped", document))["outputs"] == seen


@pytest.mark.parametrize(
    ("instances", "seen"),
    [([[1.5], [2.5]], "input-0 <f8 [2, 1]"), ([{"a": 1}, {"a": 2}], "a <i8 [2]"), (["x", "y"], "input-0 |O [2]")],
)
def test_a_model_that_says_nothing_takes_rows_too(wire: Wire, instances: list[Any], seen: str) -> None:
    """Objects by their keys."""
    assert rows(wire, "py_untyped", instances) == [seen]

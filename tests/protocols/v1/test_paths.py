"""Catalogue section 1: which paths there are, how they are written, and what the others answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.checks import refusal
from tests.support.v1_client import MODELS, alive, get, numbers, post, predict, read, rows, statuses

if TYPE_CHECKING:
    from tests.support.wire import Wire

ROWS = {"instances": [1.0, 2.0, 5.0]}
EXAMPLES = {"examples": [{"x": 1.0}]}
PLACES = ["", "/versions/123"]
PREDICT = f"{MODELS}/half_plus_two:predict"


@pytest.mark.row("V1-001")
@pytest.mark.parametrize("place", PLACES)
def test_predict(wire: Wire, place: str) -> None:
    """Of the newest version, and of one by its number."""
    assert rows(wire, f"half_plus_two{place}", [1.0, 2.0, 5.0]) == [2.5, 3.0, 4.5]


@pytest.mark.row("V1-001")
@pytest.mark.parametrize(("label", "version"), [("stable", 1), ("pre%20release", 10)])
def test_predict_by_a_label(wire: Wire, label: str, version: int) -> None:
    """The version that the settings give the label to."""
    assert rows(wire, f"labelled/labels/{label}", [0]) == [version]


@pytest.mark.row("V1-001")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(("verb", "results"), [("regress", [2.5]), ("classify", [[["", 2.5]]])])
def test_classify_and_regress(wire: Wire, place: str, verb: str, results: list[object]) -> None:
    """With and without a version."""
    document = {"signature_name": f"{verb}_x_to_y", **EXAMPLES}
    assert read(post(wire, f"half_plus_two{place}:{verb}", document)) == {"results": results}


@pytest.mark.row("V1-002")
@pytest.mark.parametrize("place", ["/versions/1", "/labels/stable"])
def test_status_of_one_version(wire: Wire, place: str) -> None:
    """By number and by label."""
    rows(wire, f"labelled{place}", [0])
    assert statuses(read(get(wire, f"labelled{place}"))) == {"1": "AVAILABLE"}


@pytest.mark.row("V1-002")
def test_status_of_all_versions(wire: Wire) -> None:
    """Every served version of the model."""
    rows(wire, "labelled", [0])
    assert set(statuses(read(get(wire, "labelled")))) == {"1", "2", "10"}


@pytest.mark.row("V1-003")
@pytest.mark.parametrize(("place", "version"), [("", "10"), ("/versions/2", "2"), ("/labels/stable", "1")])
def test_metadata(wire: Wire, place: str, version: str) -> None:
    """Of the newest version, and of one by its number or label."""
    assert read(get(wire, f"labelled{place}/metadata"))["model_spec"]["version"] == version


@pytest.mark.row("V1-004")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/MODELS/labelled/versions/1:predict",
        "/v1/models/labelled/Versions/1:predict",
        "/v1/models/labelled/LABELS/stable:predict",
        "/V1/models/labelled/versions/1:predict",
    ],
)
def test_the_words_of_a_path_may_be_in_any_case(wire: Wire, path: str) -> None:
    """TF Serving matches them so."""
    assert read(wire.post(path, {"instances": [0]})) == {"predictions": [1]}


@pytest.mark.row("V1-004")
def test_the_word_metadata_may_be_in_any_case(wire: Wire) -> None:
    """As the others."""
    assert read(wire.get(f"{MODELS}/labelled/MetaData"))["model_spec"]["name"] == "labelled"


@pytest.mark.row("V1-004")
@pytest.mark.parametrize("target", ["half_plus_two:PREDICT", "half_plus_two:Predict"])
def test_a_verb_is_in_lower_case(wire: Wire, target: str) -> None:
    """400 as for any other verb."""
    refusal(post(wire, target, ROWS), 400)


@pytest.mark.row("V1-004")
@pytest.mark.parametrize("target", ["Half_plus_two", "labelled/labels/Stable"])
def test_names_and_labels_keep_their_case(wire: Wire, target: str) -> None:
    """No other model, no other label."""
    refusal(predict(wire, target, ROWS), 400, 404)


@pytest.mark.row("V1-005")
@pytest.mark.parametrize(
    "target",
    [
        "half_plus_two%3Apredict",
        "half_plus_two%3apredict",
        "half%5Fplus%5ftwo:predict",
        "half_plus_two/versions/123%3Apredict",
    ],
)
def test_a_path_may_be_percent_encoded(wire: Wire, target: str) -> None:
    """The colon, too: KServe takes it, and gateways write it."""
    assert read(post(wire, target, ROWS)) == {"predictions": [2.5, 3.0, 4.5]}


@pytest.mark.row("V1-006")
@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("labelled/versions/01", 1),
        ("labelled/versions/0000000010", 10),
        ("labelled", 10),
        ("versions_padded/versions/7", 7),
        ("versions_padded/versions/0007", 7),
    ],
)
def test_versions_are_numbers(wire: Wire, target: str, answer: int) -> None:
    """In the path, in the repository's folders, and in their order."""
    assert rows(wire, target, [0]) == [answer]


@pytest.mark.row("V1-006")
def test_a_folder_with_leading_zeros_is_shown_as_its_number(wire: Wire) -> None:
    """00000123 is version 123."""
    assert set(statuses(read(get(wire, "half_plus_two/versions/123")))) == {"123"}


MALFORMED = [
    ("POST", f"{MODELS}/half_plus_two/versions/HELLO:predict"),
    ("POST", f"{MODELS}/half_plus_two/versions/-1:predict"),
    ("POST", f"{MODELS}/half_plus_two/versions/1.0:predict"),
    ("POST", f"{MODELS}/half_plus_two/versions/:predict"),
    ("POST", f"{MODELS}/half_plus_two/version/50:predict"),
    ("POST", f"{MODELS}/half_plus_two/label/x:predict"),
    ("POST", f"{MODELS}/half_plus_two/versions/123/labels/x:predict"),
    ("POST", f"{MODELS}/half_plus_two:foo"),
    ("POST", f"{MODELS}/half_plus_two:"),
    ("POST", f"{MODELS}/half_plus_two"),
    ("POST", f"{MODELS}/half_plus_two:predict/"),
    ("POST", f"{MODELS}/half_plus_two/metadata"),
    ("POST", f"{MODELS}"),
    ("GET", f"{MODELS}/half_plus_two/versions/HELLO"),
    ("GET", f"{MODELS}/half_plus_two/version/50"),
    ("GET", f"{MODELS}/half_plus_two/label/x"),
    ("GET", f"{MODELS}/half_plus_two/nonsense"),
    ("GET", PREDICT),
    ("GET", f"{MODELS}/half_plus_two:regress"),
    ("PUT", PREDICT),
    ("DELETE", PREDICT),
    ("PATCH", PREDICT),
    ("PUT", f"{MODELS}/half_plus_two"),
    ("DELETE", f"{MODELS}/half_plus_two"),
    ("DELETE", MODELS),
    ("GET", "/v1/nonsense"),
    ("POST", "/v1"),
]


@pytest.mark.row("V1-007", "V1-124")
@pytest.mark.parametrize(("method", "path"), MALFORMED)
def test_any_other_path_or_method_is_a_malformed_request(wire: Wire, method: str, path: str) -> None:
    """400 that says both; below /v1 there is no 404 of a path and no 405."""
    text = refusal(wire.call(method, path, b'{"instances": [1.0]}'), 400)
    assert text == f"Malformed request: {method} {path}"
    alive(wire)


@pytest.mark.row("V1-008")
@pytest.mark.parametrize("version", [str(2**63), "9" * 40, "0" * 300 + "9" * 19])
@pytest.mark.parametrize("verb", [":predict", ":regress", "", "/metadata"])
def test_a_version_beyond_64_bits_is_refused_with_a_body(wire: Wire, version: str, verb: str) -> None:
    """TF Serving sends none."""
    target = f"half_plus_two/versions/{version}{verb}"
    refusal(post(wire, target, ROWS) if ":" in verb else get(wire, target), 400)
    alive(wire)


@pytest.mark.row("V1-009")
@pytest.mark.parametrize("query", ["?", "?a=1", "?a=1&b=:regress", "?x=/versions/7"])
def test_a_query_changes_nothing(wire: Wire, query: str) -> None:
    """TF Serving takes it for a part of the path."""
    assert read(wire.post(PREDICT + query, ROWS)) == {"predictions": [2.5, 3.0, 4.5]}
    assert "123" in statuses(read(wire.get(f"{MODELS}/half_plus_two{query}")))
    assert read(wire.get(f"{MODELS}/half_plus_two/metadata{query}"))["model_spec"]["name"] == "half_plus_two"


@pytest.mark.row("V1-010", "V1-107", "V1-139")
def test_the_list_of_models(wire: Wire) -> None:
    """KServe's, loaded or not."""
    document = read(wire.get(MODELS))
    assert list(document) == ["models"]
    assert {"half_plus_two", "idle", "py_untyped"} <= set(document["models"])


@pytest.mark.row("V1-011")
@pytest.mark.parametrize("path", ["/v3/models", "/v10/models/half_plus_two", "/nothing/here"])
def test_a_path_beside_v1_is_not_found(wire: Wire, path: str) -> None:
    """404 of whoever owns it."""
    assert wire.get(path).status == 404
    alive(wire)


@pytest.mark.row("V1-012")
@pytest.mark.parametrize("path", [MODELS, f"{MODELS}/half_plus_two", f"{MODELS}/half_plus_two/metadata"])
def test_head_is_get_without_the_body(wire: Wire, path: str) -> None:
    """The same status and headers."""
    alive(wire)
    full, head = wire.get(path), wire.call("HEAD", path)
    assert (head.status, head.body) == (full.status, b"")
    assert head.headers["content-type"] == full.headers["content-type"]
    assert head.headers["content-length"] == str(len(full.body))


@pytest.mark.row("V1-012")
@pytest.mark.parametrize("path", [f"{MODELS}/unheard_of", PREDICT])
def test_head_of_what_get_refuses_has_its_status(wire: Wire, path: str) -> None:
    """And no body, so that the connection goes on."""
    assert wire.call("HEAD", path).status == wire.get(path).status
    alive(wire)


@pytest.mark.row("V1-013")
@pytest.mark.parametrize("origin", [{}, {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}])
@pytest.mark.parametrize("path", [PREDICT, f"{MODELS}/half_plus_two"])
def test_options_is_malformed_and_no_cors_header_is_sent(wire: Wire, origin: dict[str, str], path: str) -> None:
    """CORS is off, as in TF Serving without its flag."""
    answer = wire.call("OPTIONS", path, headers=origin)
    assert refusal(answer, 400) == f"Malformed request: OPTIONS {path}"
    assert not [name for name in answer.headers if name.startswith("access-control-")]
    alive(wire)


@pytest.mark.row("V1-014")
def test_version_zero_is_the_newest_where_there_is_none(wire: Wire) -> None:
    """OpenVINO's client names it in every call."""
    assert numbers(predict(wire, "labelled/versions/0", {"inputs": {"x": [0]}})) == ["10"]
    assert read(get(wire, "labelled/versions/0/metadata"))["model_spec"]["version"] == "10"
    assert list(statuses(read(get(wire, "labelled/versions/0")))) == ["10"]


@pytest.mark.row("V1-014")
def test_version_zero_is_itself_where_there_is_one(wire: Wire) -> None:
    """A folder 0 is a version as any other."""
    assert rows(wire, "version_zero/versions/0", [0]) == [0]
    assert rows(wire, "version_zero", [0]) == [3]

"""Every rule that the published OpenAPI description states in words about GRPS's routes has an example here."""

import json
import re
import shutil
from pathlib import Path
from typing import Final

import pytest

from core.dialects.grps.content import CARRIERS, MAP_FIELDS, TYPES
from core.dtype import BY_GRPS
from tests.support.openapi import DOCUMENT, JSON, OCTETS, ROOT, SCHEMAS, ask, serving, validate

PREFIX: Final = "/grps/v1"
PREDICT: Final = f"{PREFIX}/infer/predict"
MODEL: Final = f"{PREFIX}/metadata/model"
HALF: Final = "half_plus_three"
BODILESS: Final = [
    (path, method)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if path.startswith(PREFIX) and "requestBody" not in operation and "parameters" not in operation
]


@pytest.mark.parametrize(("method", "path", "status"), [
    ("GET", PREDICT, 405), ("PUT", f"{PREFIX}/health/live", 405), ("GET", f"{PREFIX}/other", 404), ("GET", PREFIX, 404),
])  # fmt: skip
def test_a_path_or_method_that_there_is_not_is_refused_in_the_same_form(method: str, path: str, status: int) -> None:
    """The tag of the description says so."""
    answer = ask(serving(), path, method=method)
    assert answer.status_code == answer.json()["status"]["code"] == status
    validate(SCHEMAS["GrpsRefusal"], answer.json())


@pytest.mark.parametrize(("path", "method"), BODILESS)
def test_a_body_is_not_looked_at_where_none_is_described(path: str, method: str) -> None:
    """Its content and its type do not matter."""
    answer = ask(serving(), path, b"{", {"content-type": "text/html", "content-encoding": "br"}, method.upper())
    assert answer.status_code == 200


@pytest.mark.parametrize("path", [PREDICT, MODEL])
@pytest.mark.parametrize("media", [None, "text/plain"])
def test_a_message_without_one_of_the_media_types_is_refused(path: str, media: str | None) -> None:
    """The server does not guess one."""
    headers = {} if media is None else {"content-type": media}
    assert ask(serving(), path, b'{"str_data": "strings"}', headers).status_code == 400


def test_members_may_be_written_in_lower_camel_case() -> None:
    """flat_float64 may be written as flat_double."""
    app = serving()
    given_tensor = {"dtype": "DT_FLOAT32", "shape": [1], "flatFloat32": [1]}
    for body in (
        {"model": "strings", "strData": "a"},
        {"model": HALF, "gmap": {"sF": {"x": 1}}},
        {"model": HALF, "gtensors": {"tensors": [given_tensor]}},
    ):
        assert ask(app, PREDICT, body).status_code == 200
    doubles = {"dtype": "DT_FLOAT64", "shape": [1], "flat_double": [1]}
    refused = ask(app, PREDICT, {"model": HALF, "gtensors": {"tensors": [doubles]}})
    assert refused.json()["status"]["msg"] == "input 'x' is FP64; the model expects FP32"


def test_null_in_a_member_means_that_it_is_absent() -> None:
    """The rule holds at every level; unknown members are ignored."""
    given_tensor = {
        "name": None, "dtype": "DT_FLOAT32", "shape": None, "flat_float32": [1], "flat_int8": "?", "other": 1,
    }  # fmt: skip
    body = {"model": None, "str_data": None, "gtensors": {"tensors": [given_tensor]}, "other": 1}
    assert ask(serving(), f"{PREDICT}?model={HALF}", body).status_code == 200


def test_the_model_of_the_message_comes_before_that_of_the_query() -> None:
    """An empty name counts as absent."""
    app = serving()
    assert ask(app, f"{PREDICT}?model=other", {"model": "strings", "str_data": "a"}).status_code == 200
    assert ask(app, f"{PREDICT}?model=strings", {"model": "", "str_data": "a"}).status_code == 200
    assert ask(app, f"{PREDICT}?model=strings", {"model": "other", "str_data": "a"}).status_code == 404


def test_a_request_without_a_model_is_for_the_default(tmp_path: Path) -> None:
    """The default is the one that is set, else the repository's only one, else there is none."""
    assert ask(serving(DEFAULT_MODEL="strings-1"), PREDICT, b"a").content == b"a"
    shutil.copytree(ROOT / "models" / "strings", tmp_path / "strings")
    assert ask(serving(tmp_path), PREDICT, b"a").content == b"a"
    assert ask(serving(), PREDICT, b"a").status_code == 400


@pytest.mark.parametrize("wish", ["streaming", "return-ndarray"])
def test_anything_but_true_in_the_query_is_no(wish: str) -> None:
    """In GRPS's own servers, 1 is not true either."""
    app = serving()
    body = {"model": HALF, "ndarray": [1]}
    usual = ask(app, PREDICT, body)
    for no in ("", "1", "false", "yes"):
        answer = ask(app, f"{PREDICT}?{wish}={no}", body)
        assert (answer.headers["content-type"], answer.content) == (JSON, usual.content)
    wished = ask(app, f"{PREDICT}?{wish}=TRUE", body)
    assert (wished.headers["content-type"], wished.content) != (JSON, usual.content)


def test_nested_numbers_need_a_single_output_of_fp32_and_no_stream() -> None:
    """Each of the others is 400."""
    app = serving()
    for query, body in (
        ("return-ndarray=true", {"model": "strings", "str_data": "a"}),
        ("return-ndarray=true", {"model": "iris", "ndarray": [[1, 2, 3, 4]]}),
        ("return-ndarray=true&streaming=true", {"model": HALF, "ndarray": [1]}),
    ):
        assert ask(app, f"{PREDICT}?{query}", body).status_code == 400


FAILING: Final = """
metadata = {
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1]}],
}

def predict(inputs, parameters):
    yield {"y": inputs["x"]}
    yield {"y": inputs["x"] + 1}
    raise ValueError("no more")
"""


def test_a_stream_tells_in_its_last_message_what_failed(tmp_path: Path) -> None:
    """Messages follow each other without anything between, each as described."""
    (tmp_path / "failing" / "1").mkdir(parents=True)
    (tmp_path / "failing" / "1" / "model.py").write_text(FAILING)
    answer = ask(serving(tmp_path, ALLOW_CODE="true"), f"{PREDICT}?streaming=true", {"ndarray": [1]})
    assert (answer.status_code, answer.headers["content-type"]) == (200, OCTETS)
    messages, rest = [], answer.text
    while rest:
        message, end = json.JSONDecoder().raw_decode(rest)
        messages.append(message)
        rest = rest[end:]
    *told, last = messages
    for message in told:
        validate(SCHEMAS["GrpsAnswer"], message)
    assert [message["gtensors"]["tensors"][0]["flat_float32"] for message in told] == [[1], [2]]
    validate(SCHEMAS["GrpsRefusal"], last)
    assert last["status"]["code"] == 500


def test_a_server_set_offline_is_not_ready_for_anybody_and_answers_all_the_same() -> None:
    """The rule holds until it is set online."""
    app = serving()
    for order, status in (("offline", 503), ("online", 200)):
        ask(app, f"{PREFIX}/health/{order}")
        assert ask(app, f"{PREFIX}/health/ready").status_code == status
        assert ask(app, "/v2/health/ready", method="GET").status_code == status
        assert ask(app, f"{PREDICT}?model=strings", b"a").content == b"a"


def test_the_element_types_are_those_of_the_protocol() -> None:
    """Names, numbers and fields of the input's tensors agree, names and fields of the output's, and the maps."""
    given_types = {
        tuple(kind["properties"]["dtype"]["enum"]): [name for name in kind["properties"] if name != "dtype"]
        for kind in SCHEMAS["GrpsInputTensor"]["anyOf"]
    }
    fields = {name: BY_GRPS[name].grps_field for name in TYPES[1:]}
    expected = {(name, TYPES.index(name), str(TYPES.index(name))): [field] for name, field in fields.items()}
    assert given_types == expected
    told = SCHEMAS["GrpsOutputTensor"]["properties"]
    assert told["dtype"]["enum"] == list(TYPES[1:])
    assert told.keys() == {"name", "dtype", "shape", *fields.values()}
    for maps in (SCHEMAS["GrpsGmap"], SCHEMAS["GrpsAnswer"]):
        assert maps["properties"]["gmap"]["properties"].keys() == MAP_FIELDS.keys()


def test_what_stands_for_the_other_types_is_told() -> None:
    """Each is listed with the type that it travels in."""
    text = SCHEMAS["GrpsInputTensor"]["description"]
    assert dict(re.findall(r"(\w+) is (DT_\w+)", text)) == {name: wide.grps for name, wide in CARRIERS.items()}

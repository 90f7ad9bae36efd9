"""Every datatype passes an identity model in every form and shape, with values that hypothesis chooses."""

import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as numbers
from numpy.typing import NDArray

from tests.support.asgi import Local
from tests.support.wire import COMPRESS, HEADER_LENGTH, Answer, binary_input, json_input, pack, same
from tests.support.zoo.models import DATATYPES, JSON_DATATYPES

SHAPES: list[Any] = [(), (0,), "n", (2, 0), (2, 3)]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8).map(str.encode)
CHECKS = list(HealthCheck)
"""No health check applies: on a busy machine generating is slow, and the fixture is of the session."""

Form = tuple[bytes, dict[str, str]]


def as_json(datatype: str, values: NDArray[Any]) -> Form:
    """Sends flat JSON data."""
    return json.dumps({"inputs": [json_input("INPUT0", datatype, values)]}).encode(), {}


def as_nested_json(datatype: str, values: NDArray[Any]) -> Form:
    """Sends JSON data nested like the shape."""
    return json.dumps({"inputs": [json_input("INPUT0", datatype, values, nested=True)]}).encode(), {}


def as_binary(datatype: str, values: NDArray[Any]) -> Form:
    """Sends binary data behind the JSON, and asks for such an answer."""
    head, part = binary_input("INPUT0", datatype, values)
    return pack({"inputs": [head], "parameters": {"binary_data_output": True}}, [part])


def as_long_json(datatype: str, values: NDArray[Any]) -> Form:
    """Sends nested JSON data and blank space: long texts have different readers."""
    body, headers = as_nested_json(datatype, values)
    return body.replace(b"[", b"[" + b" " * 20_000, 1), headers


def compressed(form: Callable[[str, NDArray[Any]], Form], coding: str) -> Callable[[str, NDArray[Any]], Form]:
    """Compresses the request, and the answer if it is long enough."""

    def made(datatype: str, values: NDArray[Any]) -> Form:
        body, headers = form(datatype, values)
        return COMPRESS[coding](body), {**headers, "Content-Encoding": coding, "Accept-Encoding": coding}

    return made


FORMS = {
    "json": as_json, "nested": as_nested_json, "long": as_long_json, "binary": as_binary,
    "gzip_json": compressed(as_json, "gzip"), "deflate_binary": compressed(as_binary, "deflate"),
}  # fmt: skip


def arrays(datatype: str, shape: Any) -> st.SearchStrategy[NDArray[Any]]:
    """Arrays of a type; the shape "n" is a vector of any length, long enough at times to be compressed."""
    if shape == "n":
        return st.one_of(st.integers(1, 9), st.just(6000)).flatmap(lambda length: arrays(datatype, (length,)))
    size = int(np.prod(shape, dtype=int))
    if datatype == "BYTES":
        return st.lists(TEXT, min_size=min(size, 9), max_size=min(size, 9)).map(
            lambda some: np.resize(np.array([*some, None], object)[:-1], shape) if some else np.empty(shape, object)
        )
    if datatype == "BF16":
        bits = numbers.arrays(np.uint16, shape)
        return bits.map(lambda array: array.view(ml_dtypes.bfloat16))
    return numbers.arrays(DATATYPES[datatype].numpy, shape, fill=st.nothing() if size < 10 else None)


def check(local: Local, datatype: str, values: NDArray[Any], form: Form) -> None:
    """Sends the array, and compares the answer to the bit."""
    body, headers = form
    answer: Answer = local.call("POST", f"/v2/models/{DATATYPES[datatype].model}/infer", body, headers)
    assert answer.status == 200, answer.content[:500]
    assert same(answer.tensor(), values)
    if "Accept-Encoding" in headers and len(answer.content) > 2000:
        assert answer.headers["content-encoding"] == headers["Accept-Encoding"]


@pytest.mark.row("R-111", "R-116", "R-117", "R-308", "R-310", "R-311", "R-317", "R-318")
@pytest.mark.parametrize("datatype", JSON_DATATYPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_every_datatype_round_trips_in_every_form_and_shape(local: Local, datatype: str, form: str, shape: Any) -> None:
    """Shape and bits are the same, except that any NaN equals any NaN."""

    @settings(max_examples=3, suppress_health_check=CHECKS)
    @given(arrays(datatype, shape))
    def holds(values: NDArray[Any]) -> None:
        check(local, datatype, values, FORMS[form](datatype, values))

    holds()


@pytest.mark.row("N-01")
@pytest.mark.parametrize("form", ["binary", "deflate_binary"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_bf16_round_trips_as_binary_data(local: Local, form: str, shape: Any) -> None:
    """Any of the 65,536 patterns may come; payloads of NaNs are not compared."""

    @settings(max_examples=5, suppress_health_check=CHECKS)
    @given(arrays("BF16", shape))
    def holds(values: NDArray[Any]) -> None:
        check(local, "BF16", values, FORMS[form]("BF16", values))

    holds()


def test_every_bf16_pattern_is_untouched(local: Local) -> None:
    """NaN payloads are included."""
    patterns = np.arange(1 << 16, dtype=np.uint16)
    body, headers = as_binary("BF16", patterns.view(ml_dtypes.bfloat16))
    answer = local.call("POST", "/v2/models/identity_bf16/infer", body, headers)
    assert answer.split()[1] == patterns.tobytes()


def test_every_fp16_number_survives_json(local: Local) -> None:
    """All 65,536 patterns are tried."""
    values = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    check(local, "FP16", values, as_json("FP16", values))


def test_every_answer_says_how_long_its_json_is(local: Local) -> None:
    """The header of a binary answer counts bytes, not characters."""
    head, part = binary_input("INPUT0", "INT32", np.arange(3, dtype=np.int32))
    body, headers = pack({"id": "日本", "inputs": [head], "parameters": {"binary_data_output": True}}, [part])
    answer = local.call("POST", "/v2/models/identity_int32/infer", body, headers)
    length = int(answer.headers[HEADER_LENGTH.lower()])
    assert json.loads(answer.content[:length])["id"] == "日本"
    assert answer.content[length:] == part

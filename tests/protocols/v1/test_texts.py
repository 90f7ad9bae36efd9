"""Texts of errors that TF Serving's users know, as its own tests and sources have them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.checks import LENGTHS, refusal
from tests.support.v1_client import post

if TYPE_CHECKING:
    from tests.support.wire import Wire

AT = "Failed to process element: "
KNOWN = [
    pytest.param(
        "half_plus_two:predict", "", "JSON Parse error: The document is empty", marks=pytest.mark.row("V1-022")
    ),
    pytest.param(
        "half_plus_two:predict",
        '{"instances": [1.0',
        r"JSON Parse error: .+ at offset: \d+",
        marks=pytest.mark.row("V1-023"),
    ),
    pytest.param("half_plus_two:predict", "[1.0]", ".*Is not object", marks=pytest.mark.row("V1-024")),
    pytest.param(
        "half_plus_two:predict",
        '{"signature_name": 5}',
        "'signature_name' key must be a string value.",
        marks=pytest.mark.row("V1-035"),
    ),
    pytest.param(
        "half_plus_two:predict",
        '{"signature_name": "X", "instances": [1.0]}',
        'Serving signature name: "X" not found in signature def.*',
        marks=pytest.mark.row("V1-036"),
    ),
    pytest.param(
        "half_plus_two:predict",
        '{"instances": [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0, 3.0]]}',
        f"{AT}2 of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 2 but got: 3",
        marks=pytest.mark.row("V1-047"),
    ),
    pytest.param(
        "half_plus_two:predict",
        '{"instances": [1.0, [1.0]]}',
        rf"{AT}1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting shape \[\] but got: \[1\]",
        marks=pytest.mark.row("V1-047"),
    ),
    pytest.param(
        "half_plus_two:predict",
        '{"instances": [[[1.0, 2.0], [3.0]]]}',
        ".*Encountered list at unexpected size: 1 at level: 1 expected size: 2",
        marks=pytest.mark.row("V1-048"),
    ),
    pytest.param(
        "seeds:predict",
        '{"instances": [{"tag": "a", "signal": 1.0}]}',
        ".*keys must be equal to: sensor,signal,tag",
        marks=pytest.mark.row("V1-049"),
    ),
    pytest.param(
        "seeds:predict",
        '{"instances": [{"tag": "a", "signal": 1.0, "z": 1.0}]}',
        ".*JSON object: does not have named input: .*",
        marks=pytest.mark.row("V1-049"),
    ),
    pytest.param(
        "seeds:predict",
        '{"instances": [1.0]}',
        "instances is a plain list, but expecting list of objects as multiple input tensors required .*",
        marks=pytest.mark.row("V1-050"),
    ),
    pytest.param(
        "seeds:predict",
        '{"inputs": {"tag": ["a"], "signal": 1.0}}',
        r"Missing named input: sensor in 'inputs' object\.",
        marks=pytest.mark.row("V1-063"),
    ),
    pytest.param(
        "half_plus_two:predict",
        '{"instances": ["a"]}',
        '.*JSON Value: "a" Type: String is not of expected type: float',
        marks=pytest.mark.row("V1-067"),
    ),
    pytest.param(
        "identity_int64:predict",
        '{"instances": [1.0]}',
        ".*JSON Value: 1.0 Type: Number is not of expected type: int64.*",
        marks=pytest.mark.row("V1-068"),
    ),
    pytest.param(
        "identity_bytes:predict",
        '{"instances": [{"b64": "*"}]}',
        ".*Unable to base64 decode.*",
        marks=pytest.mark.row("V1-073"),
    ),
    pytest.param(
        "person:classify",
        '{"signature_name": "classify"}',
        "When method is classify, key 'examples' is expected.*",
        marks=pytest.mark.row("V1-104"),
    ),
    pytest.param(
        "person:classify",
        '{"signature_name": "nope", "examples": [{"weight": 1.0}]}',
        "No signature was found with the name: nope",
        marks=pytest.mark.row("V1-094"),
    ),
    pytest.param(
        "person:regress",
        '{"signature_name": "regress", "examples": [{"weight": [1.0, 2.0]}]}',
        r".*Number of float values != expected. Values size: 2 but output shape: \[1\].*",
        marks=pytest.mark.row("V1-102"),
    ),
]


@pytest.mark.parametrize(("target", "body", "text"), KNOWN)
@pytest.mark.parametrize("blank", LENGTHS)
def test_a_known_text(wire: Wire, target: str, body: str, text: str, blank: str) -> None:
    """Short body or long."""
    found = refusal(post(wire, target, (body + blank).encode()), 400)
    assert re.fullmatch(text, found, re.DOTALL), found

"""core.encoding.peek: short members of long texts."""

from __future__ import annotations

import json

import pytest

from core.encoding.peek import MOST_ESCAPES, member


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"model": "a", "x": [1]}', "a"),
        (' {"id" : "1", "m" : "b" }', "b"),
        ('{"x": [1], "model": "late"}', None),
        ('{"model": "a", "model": "b"}', None),
        ('{"model": "a", "m": "b"}', None),
        ('{"model": 1}', None),
        ('{"model": "a\\u0062"}', None),
        ('{"mod\\u0065l": "a"}', None),
        ('{"x": "model"}', None),
        ('{"x": "a model"}', ""),
        ('{"x": {"model": "inner"}}', None),
        ('{"model": "\udcff"}', None),
        ("", ""),
    ],
)
def test_a_member_is_found_among_texts_at_the_start(text: str, found: str | None) -> None:
    """It occurs once, in one of its spellings; anything unusual is left to a parser."""
    assert member(text.encode(errors="surrogateescape"), ("model", "m")) == found


@pytest.mark.parametrize("name", [
    "\\u006dodel", "mode\\u006c", "\\u006D\\u006F\\u0064\\u0065\\u006C", "model\\u005Fname", "\\u006dodelName",
])  # fmt: skip
@pytest.mark.parametrize("first", ["", '"model": "a", '])
def test_a_name_with_escapes_is_left_to_a_parser_wherever_it_stands(name: str, first: str) -> None:
    """It may also be the second one of a text, which counts."""
    late = f'{{{first}"x": {[1] * 3000}, "{name}": "b"}}'
    assert member(late.encode(), ("model", "model_name", "modelName")) is None
    assert json.loads(late)[json.loads(f'"{name}"')] == "b"


@pytest.mark.parametrize(
    "text", ["caf\\u00e9", "m\\u00f6del", "\\u6d4b\\u8bd5", "remode\\u006c", "mode\\u006cs", "\\u004dodel"]
)
def test_escapes_of_other_texts_do_not_matter(text: str) -> None:
    """Writers of JSON escape everything that is not ASCII."""
    assert member(f'{{"model": "a", "x": ["{text}"]}}'.encode(), ("model",)) == "a"
    assert member(f'{{"x": ["{text}"]}}'.encode(), ("model",)) == ""


def test_more_escapes_than_are_looked_at_are_left_to_a_parser() -> None:
    """The look is bounded."""
    assert member(b'{"model": "a", "x": "%b"}' % (b"\\u00e9" * MOST_ESCAPES), ("model",)) == "a"
    assert member(b'{"model": "a", "x": "%b"}' % (b"\\u00e9" * (MOST_ESCAPES + 1)), ("model",)) is None


def test_only_the_start_is_matched() -> None:
    """A member after a long text is left to a parser."""
    assert member(b'{"x": "' + b" " * 10_000 + b'", "model": "a"}', ("model",)) is None

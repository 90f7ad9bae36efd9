"""core.encoding.peek: short members of long texts."""

from __future__ import annotations

import pytest

from core.encoding.peek import member


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


def test_only_the_start_is_matched() -> None:
    """A member after a long text is left to a parser."""
    assert member(b'{"x": "' + b" " * 10_000 + b'", "model": "a"}', ("model",)) is None

"""Tests of handler.commands.convert.text_format."""

from __future__ import annotations

import pytest
from google.protobuf import text_format as google

from handler.commands.convert.runtime import tf
from handler.commands.convert.text_format import Word, parse
from handler.commands.refused import Refused


def test_scalars_messages_and_lists_in_every_spelling() -> None:
    """Colons before messages, < >, separators, comments and repetition are all optional."""
    text = """
        # a comment with "quotes" and { braces
        name: 'half' ; path: "a" "b"   # adjacent strings join
        inner { number: -1, flag: true }
        inner: < number: 1.5e-3 >
        numbers: [1, 2] numbers: 3
        inners: [{ a: 1 }, { }]
    """
    assert parse(text) == {
        "name": ["half"],
        "path": ["ab"],
        "inner": [{"number": ["-1"], "flag": ["true"]}, {"number": ["1.5e-3"]}],
        "numbers": ["1", "2", "3"],
        "inners": [{"a": ["1"]}, {}],
    }
    assert parse("") == {}


def test_text_and_words_are_told_apart() -> None:
    """A number in quotes is text."""
    fields = parse("a: '1' b: 1")
    assert not isinstance(fields["a"][0], Word)
    assert isinstance(fields["b"][0], Word)


@pytest.mark.parametrize(
    "literal",
    [
        r'"plain"',
        r'"\a\b\f\n\r\t\v\\\'\""',
        r"'it\'s \"so\"'",
        r'"\x41\x4a\101\7z"',
        r'"caf\303\251 caf\xc3\xa9"',
        r'"\u00e9 \U0001F600"',
        '"é # no comment { }"',
    ],
)
def test_escapes_read_as_protobufs_own_reader_does(literal: str) -> None:
    """An independent oracle: any message with a string field."""
    node = google.Parse(f"name: {literal}", tf.compat.v1.NodeDef())
    assert parse(f"name: {literal}")["name"] == [node.name]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\nb: {", "line 2: expected a field's name, not the end of the file"),
        ("a: 1 }", "line 1: expected a field's name, not }"),
        ("\n\na 1", "line 3: expected a colon or { after 'a', not 1"),
        ("a: ", "line 1: expected a value for 'a', not the end of the file"),
        ("a: [1 2]", "line 1: expected a comma or ], not 2"),
        ('a: "open', "line 1: '\"open' is no text format"),
        ("a: 'open\n'", 'line 1: "\'open" is no text format'),
        (r'a: "\xff"', "line 1: .* has an escape that is no text"),
        (r'a: "\q"', "line 1: .* has an escape that is no text"),
        (r'a: "\777"', "line 1: .* has an escape that is no text"),
        (r'a: "\ud800"', "line 1: .* has an escape that is no text"),
        ("[type.googleapis.com/x] { }", "line 1: .* is no text format"),
        ("[x] { }", "line 1: expected a field's name, not ["),
        ("a {" * 100, "line 1: more than 64 messages inside each other"),
        ("a: [" + "{a: [" * 100, "line 1: more than 64 messages inside each other"),
    ],
)
def test_mistakes_are_named_with_their_line(text: str, reason: str) -> None:
    """One line each."""
    with pytest.raises(Refused) as refusal:
        parse(text)
    assert "\n" not in str(refusal.value)
    pattern = reason.replace("[", r"\[") if ".*" in reason else None
    if pattern is None:
        assert str(refusal.value) == reason
    else:
        assert refusal.match(pattern)

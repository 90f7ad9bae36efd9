"""handler.settings.checked: what is wrong in a publisher's JSON is named by the path of its key."""

from __future__ import annotations

from typing import Any

import pytest

from handler.settings.checked import Wrong, a_shape, an_object, members_of, number, texts


def test_what_is_as_expected_is_handed_on() -> None:
    """Text becomes a tuple, and anything else is unchanged."""
    members = {"a": 1}
    assert an_object(members, "p") is members
    assert an_object(members, "p", "a", "b") is members
    assert an_object({}, "p", "a") == {}
    assert texts(["x", ""], "p") == ("x", "")
    assert texts([], "p") == ()
    assert number(3, "p", 3) == 3
    assert members_of(b'{"a": %d, "b": %d}' % (2**63 - 1, 1 - 2**63)) == {"a": 2**63 - 1, "b": 1 - 2**63}


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: an_object([1], "a.b"), "a.b is [1]; expected an object"),
        (lambda: an_object(None, "a.b"), "a.b is null; expected an object"),
        (
            lambda: an_object({"x": 1, "typo": 2}, "a.b", "x", "y"),
            "a.b.typo is 2; expected no such key; the keys are x, y",
        ),
        (lambda: texts("ab", "a.b"), "a.b is 'ab'; expected an array of text"),
        (lambda: texts(["a", 1], "a.b"), "a.b is ['a', 1]; expected an array of text"),
        (lambda: number(-1, "a.b", 0), "a.b is -1; expected a whole number from 0 up"),
        (lambda: number(True, "a.b", 0), "a.b is true; expected a whole number from 0 up"),  # noqa: FBT003 - JSON's true
        (lambda: number(1.0, "a.b", 0), "a.b is 1.0; expected a whole number from 0 up"),
        (lambda: number("1", "a.b", 0), "a.b is '1'; expected a whole number from 0 up"),
    ],
)
def test_what_is_not_is_named_with_its_value_and_what_was_expected(check: Any, message: str) -> None:
    """The message has one line."""
    with pytest.raises(Wrong) as wrong:
        check()
    assert str(wrong.value) == message


@pytest.mark.parametrize("value", [2**63, -(2**63), 10**400])
def test_numbers_of_more_than_64_bits_are_refused(value: int) -> None:
    """No answer could have them, wherever they stand in the file."""
    with pytest.raises(Wrong, match=rf"the file is not JSON: the number {value!s:.16}\.\.\. has more than 64 bits"):
        members_of(b'{"a": [%d]}' % value)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"tok\n\ten": s3cret}', "line 1, column 6: invalid control character at"),
        (b'{\n "token": s3cret}', "line 2, column 11: expected value"),
        (b'{"token": "s3cret"} x', "line 1, column 21: extra data"),
    ],
)
def test_what_is_not_json_is_named_by_its_place(text: bytes, reason: str) -> None:
    """The file is not quoted: it may hold a secret."""
    with pytest.raises(Wrong) as wrong:
        members_of(text)
    assert str(wrong.value) == f"the file is not JSON: {reason}"


@pytest.mark.parametrize("text", [b'{"a": 1, "b": 2, "a": 1}', b'{"c": [{"a": 1, "a": 2}]}'])
def test_a_key_stands_once_in_an_object(text: bytes) -> None:
    """Only one of its values could have an effect."""
    with pytest.raises(Wrong, match="^the key 'a' is there twice in one object; expected it once$"):
        members_of(text)
    assert members_of(b'{"a": {"a": 1}, "b": {"a": 1}}') == {"a": {"a": 1}, "b": {"a": 1}}


def test_long_values_are_shown_in_part() -> None:
    """A file may contain anything."""
    with pytest.raises(Wrong) as wrong:
        an_object("x" * 10_000, "p")
    assert len(str(wrong.value)) < 300


@pytest.mark.parametrize("value", [[], [-1, 0, 3], [2**48], [2**48, -1, 0], [1] * 32])
def test_a_shape_is_an_array_of_sizes(value: Any) -> None:
    """-1 is any size."""
    assert a_shape(value, "p") == tuple(value)


@pytest.mark.parametrize("value", [[-2], [True], [1.0], "12", None])
def test_what_is_not_an_array_of_sizes_is_not_a_shape(value: Any) -> None:
    """The message says what else could stand there."""
    with pytest.raises(Wrong, match="^p is .*; expected an array of whole numbers from -1 up, or null$"):
        a_shape(value, "p", otherwise=", or null")
    with pytest.raises(Wrong, match="from 0 up$"):
        a_shape([-1], "p", least=0)


@pytest.mark.parametrize("value", [[2**48 + 1], [2**63], [2**24, -1, 2**25], [0, 2**49], [1] * 33, [1] * 100_000])
def test_a_shape_that_no_tensor_can_have_is_refused(value: Any) -> None:
    """Numpy would fail later, at each request and in the description of the API. An axis of 0 does not help it."""
    with pytest.raises(Wrong, match=r"^p is .*; expected at most 32 sizes, and at most 2\*\*48 elements$") as wrong:
        a_shape(value, "p")
    assert len(str(wrong.value)) < 400

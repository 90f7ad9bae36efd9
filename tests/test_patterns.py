"""Every regular expression of the server takes time in proportion to the text, whatever a client sends."""

import importlib
import pkgutil
import re
from functools import cache
from itertools import permutations, product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import core
import handler
from tests.support.regex_steps import Steps, characters, classes, cut, loses_its_place

OTHERS = ("handler.asgi", "handler.commands.convert")
"""One builds a server, the other reads publishers' files; neither reads what clients send."""
FEW, MANY = 10, 80
"""Repetitions. A text that took too many steps with few is tried with many: bounded ones grow up to their bound."""


@cache
def patterns() -> dict[str, re.Pattern[Any]]:
    """Returns the patterns of all modules by the name of where they stand."""
    found: dict[re.Pattern[Any], str] = {}
    for package in (core, handler):
        for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not module.name.startswith(OTHERS):
                members = vars(importlib.import_module(module.name))
                found |= {it: f"{module.name}.{name}" for name, it in members.items() if isinstance(it, re.Pattern)}
    return {name: pattern for pattern, name in found.items()}


def steps(pattern: re.Pattern[Any], text: str) -> int:
    """Returns the steps of all matches in the text and of a match of the whole text."""
    counter = Steps(pattern, cut(pattern))
    counter.fullmatch(text)
    counter.matches(text)
    return counter.taken


def growth(pattern: re.Pattern[Any], first: str, pump: str, last: str, times: int) -> float:
    """Returns how many times as many steps twice the repetitions take; a few steps do not count."""
    once, twice = (steps(pattern, first + pump * each + last) for each in (times, 2 * times))
    return (twice - 50) / once


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """Returns beginnings, pumps and ends of one of all characters that the pattern treats alike.

    A pump behind its own last character is another pump before that character.
    """
    letters = classes(pattern)
    pumps = [*letters, *map("".join, permutations(letters, 2))]
    return [each for each in product(["", *letters], pumps, ["", letters[-1]]) if each[0] != each[1][-1]]


@pytest.mark.parametrize("name", patterns())
def test_a_text_of_twice_the_length_takes_at_most_about_twice_the_steps(name: str) -> None:
    """Any character or pair of characters is repeated, behind any first and before an end that matches or does not."""
    pattern = patterns()[name]
    for attack in attacks(pattern):
        assert growth(pattern, *attack, FEW) <= 2.5 or growth(pattern, *attack, MANY) <= 2.5, attack


def test_the_measure_finds_what_takes_the_square_of_the_length() -> None:
    """The patterns once read JSON's strings, paths and origins; repetitions overlap, alone and beside cut ones."""
    quadratic = (
        *(r'"(?:[^"\\]|\\.)*"', r"/.*/.*\.[a-z]+(:\d+)?", r"\*|[a-z][a-z0-9+.-]*://[a-z0-9.]+"),
        *(r"(?:a|b)*a*c", r"(?:[0-9]{64}|a)a*a*c", r"[ab]{1,20}a*a*c", r"(?:localhost|a)[a-z]*:"),
    )
    for text in quadratic:
        pattern = re.compile(text)
        assert any(growth(pattern, *attack, FEW) > 2.5 for attack in attacks(pattern)), text


def test_possessive_groups_are_those_that_every_supported_python_repeats_correctly() -> None:
    """Debian 12 has Python 3.11.2: certificates were not found in their files there, and malformed hosts passed."""
    assert [name for name, pattern in patterns().items() if loses_its_place(pattern)] == []
    wrong = (r"(?:[^-]++|-(?!--))*+", r"(?:,'[^']*+')*+", r"(?:a|%[0-9]{2})*+")
    assert all(loses_its_place(re.compile(text)) for text in wrong)
    right = (r"(?:[^-]++|-(?!--)|(?!))*+", r"(?:[^']++|'')*+", r"[a-z]*+")
    assert not any(loses_its_place(re.compile(text)) for text in right)


@given(st.sampled_from(sorted(patterns())), st.data())
def test_the_measure_matches_what_the_standard_library_matches(name: str, data: st.DataObject) -> None:
    """Otherwise it would count the steps of another expression."""
    pattern = patterns()[name]
    text = "".join(data.draw(st.lists(st.sampled_from(characters(pattern)), max_size=12)))
    whole: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1")
    assert Steps(pattern).matches(text) == [found.span() for found in pattern.finditer(whole)]
    assert Steps(pattern).fullmatch(text) == bool(pattern.fullmatch(whole))

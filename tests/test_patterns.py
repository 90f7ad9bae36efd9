"""Every regular expression of the server takes time in proportion to the text, whatever a client sends."""

from __future__ import annotations

import importlib
import pkgutil
import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import core
import handler
from tests.support.regex_steps import Steps, characters

OTHERS = ("handler.asgi", "handler.commands.convert")
"""The one builds a server, the other reads what publishers have; neither reads what clients send."""
FEW, MANY = 10, 80
"""Repetitions. A text that took too many steps with few is tried with many: bounded ones grow up to their bound."""


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
    counter = Steps(pattern)
    counter.fullmatch(text)
    counter.matches(text)
    return counter.taken


def growth(pattern: re.Pattern[Any], first: str, pump: str, last: str, times: int) -> float:
    """Returns how many times as many steps twice the repetitions take; a few steps count for none."""
    once, twice = (steps(pattern, first + pump * each + last) for each in (times, 2 * times))
    return (twice - 50) / once


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """Returns beginnings, pumps and ends of every character that the pattern tells apart."""
    letters = characters(pattern)
    pumps = [*letters, *map("".join, product(letters, repeat=2))]
    return list(product(["", *letters], pumps, ["", letters[-1]]))


@pytest.mark.parametrize("name", patterns())
def test_a_text_of_twice_the_length_takes_at_most_about_twice_the_steps(name: str) -> None:
    """Any character or pair of characters, repeated, behind any first and before an end that matches or does not."""
    pattern = patterns()[name]
    for attack in attacks(pattern):
        assert growth(pattern, *attack, FEW) <= 2.5 or growth(pattern, *attack, MANY) <= 2.5, attack


def test_the_measure_finds_what_takes_the_square_of_the_length() -> None:
    """The pattern that once read JSON's strings, and one whose repetitions overlap."""
    for text in (r'"(?:[^"\\]|\\.)*"', r"(?:a|b)*a*c"):
        pattern = re.compile(text)
        assert max(growth(pattern, *attack, FEW) for attack in attacks(pattern)) > 2.5


@settings(deadline=None)  # the matcher is slow, and its time proves nothing
@given(st.sampled_from(sorted(patterns())), st.data())
def test_the_measure_matches_what_the_standard_library_matches(name: str, data: st.DataObject) -> None:
    """Otherwise it would count the steps of another expression."""
    pattern = patterns()[name]
    text = "".join(data.draw(st.lists(st.sampled_from(characters(pattern)), max_size=12)))
    whole: Any = text if isinstance(pattern.pattern, str) else text.encode("latin-1")
    assert Steps(pattern).matches(text) == [found.span() for found in pattern.finditer(whole)]
    assert Steps(pattern).fullmatch(text) == bool(pattern.fullmatch(whole))

"""core.encoding.spellings: the words are found wherever a window ends, and in no string."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.encoding import spellings
from core.encoding.spellings import SPELLINGS, spelled, words

TEXTS = st.lists(st.sampled_from(["Inf", "-NaN", "-Inf", "Info", "In", "-Na", '"', "\\", ",", "1", "é"])).map("".join)


@settings(deadline=None)
@given(text=TEXTS, window=st.integers(1, 12))
def test_the_words_are_those_of_one_search(text: str, window: int) -> None:
    """A window can end in a word, in a string and in an escape."""
    expected = [found.span() for found in spellings.WORD.finditer(text) if found[0] in SPELLINGS]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spellings, "WINDOW", window)
        assert [found.span() for found in words(text)] == expected


def test_no_search_is_longer_than_a_window_outside_of_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other thread runs during a search: it once took seconds for 60 MB."""
    searched: list[int] = []

    class Counted:
        def finditer(self, text: str, start: int, end: int) -> object:
            searched.append(end - start)
            return pattern.finditer(text, start, end)

    pattern: re.Pattern[str] = spellings.WORD
    monkeypatch.setattr(spellings, "WORD", Counted())
    blank = " " * 10 * spellings.WINDOW
    assert spelled(f"[Inf{blank}") == f"[Infinity{blank}"
    assert max(searched) == spellings.WINDOW
    assert sum(searched) < 2 * len(blank)

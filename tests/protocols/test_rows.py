"""The catalogues are complete, and every row has its tests."""

from pathlib import Path

import pytest

from tests.support.catalogue import listed, marked, short

HERE = Path(__file__).parent
LAST_V1_ROW = 145


def test_every_row_has_a_test_and_every_test_names_listed_rows() -> None:
    """The ids in rows.txt are the ids of the markers."""
    assert marked(HERE).keys() == listed(HERE).keys()


def test_every_row_has_as_many_cases_as_the_catalogue_counts(pytestconfig: pytest.Config) -> None:
    """A row with 47 cases has at least 47, if all modules that mark it were read."""
    assert not short(HERE, pytestconfig)


def test_the_catalogue_of_v1_is_complete() -> None:
    """It has every behaviour from the first to the last, in order."""
    rows = [row for row in listed(HERE) if row.startswith("V1-")]
    assert rows == [f"V1-{number:03}" for number in range(1, LAST_V1_ROW + 1)]

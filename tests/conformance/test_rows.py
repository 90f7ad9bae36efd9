"""The catalogue against the tests: no row without a test, no test of an unknown row, no case too few."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tests.conformance.catalogue import listed, marked, short

if TYPE_CHECKING:
    import pytest

HERE = Path(__file__).parent


def test_every_row_has_a_test_and_every_test_names_listed_rows() -> None:
    """The ids in rows.txt are the ids of the markers."""
    assert marked(HERE).keys() == listed(HERE).keys()


def test_every_row_has_as_many_cases_as_the_catalogue_counts(pytestconfig: pytest.Config) -> None:
    """Parametrisation is real: a row with 47 cases has at least 47."""
    assert not short(HERE, pytestconfig)

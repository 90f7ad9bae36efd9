"""The catalogues are complete, and every row has its tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conformance.catalogue import listed, marked, short

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.rglob("rows.txt"))
LAST_V1_ROW = 139

each_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)


@each_folder
def test_every_row_has_a_test_and_every_test_names_listed_rows(folder: Path) -> None:
    """The ids in rows.txt are the ids of the markers."""
    assert marked(folder).keys() == listed(folder).keys()


@each_folder
def test_every_row_has_as_many_cases_as_the_catalogue_counts(folder: Path, pytestconfig: pytest.Config) -> None:
    """Parametrisation is real: a row with 47 cases has at least 47."""
    assert not short(folder, pytestconfig)


def test_the_catalogue_of_v1_is_complete() -> None:
    """Every behaviour from the first to the last, in order."""
    assert list(listed(HERE / "v1")) == [f"V1-{number:03}" for number in range(1, LAST_V1_ROW + 1)]

"""The catalogue of GRPS against its tests: no row without a test, no test of an unknown row, no case too few."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.conformance.grps.conftest import COLLECTED, FILES

HERE = Path(__file__).parent
MODULES = sorted(HERE.glob("test_*.py"))


def listed() -> dict[str, int]:
    """Row -> number of cases, from rows.txt."""
    lines = (HERE / "rows.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=3) for line in lines if line and not line.startswith("#")]
    assert len({row for row, *_ in rows}) == len(rows)
    return {row: int(cases) for row, _, cases, _ in rows}


def marked() -> set[str]:
    """Every row that a test names, read from the text of the tests, whatever part of them runs now."""
    calls = [n for m in MODULES for n in ast.walk(ast.parse(m.read_text(encoding="utf-8"))) if isinstance(n, ast.Call)]
    marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.row"]
    return {ast.literal_eval(argument) for mark in marks for argument in mark.args}


def test_every_row_has_a_test_and_every_test_names_listed_rows() -> None:
    """The ids in rows.txt are the ids of the markers."""
    assert marked() == set(listed())


def test_every_row_has_as_many_cases_as_the_catalogue_counts(request: pytest.FixtureRequest) -> None:
    """Parametrisation is real: a row with 47 cases has at least 47."""
    if not {module.name for module in MODULES if module != Path(__file__)} <= request.config.stash[FILES]:
        pytest.skip("only a part of this folder was collected")
    counted = request.config.stash[COLLECTED]
    short = {row: (counted[row], cases) for row, cases in listed().items() if counted[row] < cases}
    assert not short

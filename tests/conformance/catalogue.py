"""Each folder's catalogue, rows.txt, against the tests there: the rows that they mark, and how many cases each has."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

CASES: Final = pytest.StashKey[dict[pytest.Item, list[str]]]()


def note(config: pytest.Config, cases: Iterable[pytest.Item]) -> None:
    """Keep the rows of what a module was found to have, whatever part of it is to run."""
    noted = config.stash.setdefault(CASES, {})
    noted.update({case: [row for mark in case.iter_markers("row") for row in mark.args] for case in cases})


def listed(folder: Path) -> dict[str, int]:
    """Row -> number of cases, from rows.txt."""
    lines = (folder / "rows.txt").read_text(encoding="utf-8").splitlines()
    rows = [line.split(maxsplit=3) for line in lines if line and not line.startswith("#")]
    assert len({row for row, *_ in rows}) == len(rows)
    return {row: int(cases) for row, _, cases, _ in rows}


def marked(folder: Path) -> dict[str, set[Path]]:
    """Row -> the modules that mark it, read from their text, whatever part of them runs now."""
    found = defaultdict(set)
    for module in folder.glob("test_*.py"):
        calls = [node for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        marks = [call for call in calls if ast.unparse(call.func) == "pytest.mark.row"]
        for row in (ast.literal_eval(argument) for mark in marks for argument in mark.args):
            found[row].add(module)
    return dict(found)


def short(folder: Path, config: pytest.Config) -> dict[str, tuple[int, int]]:
    """Row -> cases that were found and cases that are listed, where there are too few.

    Only rows of which every module has been read: a run of one module counts those that are its alone.
    """
    noted = {case: rows for case, rows in config.stash[CASES].items() if case.path.parent == folder}
    modules = {case.path for case in noted}
    counted = Counter(row for rows in noted.values() for row in rows)
    whole = {row for row, needed in marked(folder).items() if needed <= modules}
    return {row: (counted[row], n) for row, n in listed(folder).items() if row in whole and counted[row] < n}

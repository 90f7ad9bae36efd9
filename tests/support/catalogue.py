"""Compares rows.txt, the catalogues of behaviours, with the tests: the rows that they mark, and each row's cases."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import pytest

ROWS: Final = re.compile(r"(?:(?:R|N|V1|GRPS|G)-\d+ ?)+")
CASES: Final = pytest.StashKey[dict[pytest.Item, list[str]]]()


def row(rows: str, *values: Any, name: str = "") -> Any:
    """Returns a case of a table that covers these rows; `name` stands in its id behind the rows."""
    return pytest.param(*values, marks=pytest.mark.row(*rows.split()), id="-".join([*rows.split(), *name.split()]))


def note(config: pytest.Config, cases: Iterable[pytest.Item]) -> None:
    """Keeps the rows of the cases that a module has, whatever part of it is to run."""
    noted = config.stash.setdefault(CASES, {})
    noted.update({case: [row for mark in case.iter_markers("row") for row in mark.args] for case in cases})


def listed(root: Path) -> dict[str, int]:
    """Returns row -> number of cases, from every rows.txt."""
    lines = [line for path in sorted(root.rglob("rows.txt")) for line in path.read_text("utf-8").splitlines()]
    rows = [line.split(maxsplit=3) for line in lines if line and not line.startswith("#")]
    assert len({row for row, *_ in rows}) == len(rows)
    return {row: int(cases) for row, _, cases, _ in rows}


def marked(root: Path) -> dict[str, set[Path]]:
    """Returns row -> the modules that name it as a text, whatever part of them runs now."""
    found = defaultdict(set)
    for module in root.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text("utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and ROWS.fullmatch(node.value):
                for each in node.value.split():
                    found[each].add(module)
    return dict(found)


def short(root: Path, config: pytest.Config) -> dict[str, tuple[int, int]]:
    """Returns row -> cases that were found and cases that are listed, where there are too few.

    It has only rows whose modules have all been read: a run of one module counts the rows that no other module marks.
    """
    noted = config.stash[CASES]
    modules = {case.path for case in noted}
    if modules >= set(root.rglob("test_*.py")):
        modules |= set(root.rglob("*.py"))  # the tables are read with the tests
    counted = Counter(row for rows in noted.values() for row in rows)
    whole = {row for row, needed in marked(root).items() if needed <= modules}
    return {row: (counted[row], n) for row, n in listed(root).items() if row in whole and counted[row] < n}

"""The examples in docstrings print what they show."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SHOWING = [
    ".".join(file.relative_to(ROOT).with_suffix("").parts)
    for package in ("core", "dragoman", "handler")
    for file in sorted((ROOT / package).rglob("*.py"))
    if ">>> " in file.read_text("utf-8")
]


@pytest.mark.parametrize("module", SHOWING)
def test_the_examples_of_a_module_print_what_they_show(module: str) -> None:
    """Each module with examples is tried in a namespace of its own."""
    result = doctest.testmod(importlib.import_module(module))
    assert result.attempted
    assert not result.failed

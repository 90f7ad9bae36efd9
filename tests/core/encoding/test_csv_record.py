"""core.encoding.csv_record: where a record ends."""

import csv

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.encoding.csv_record import RECORD


@pytest.mark.parametrize(("text", "record"), [
    ("a,b\nc", "a,b"), ('5" pipe,b\nc', '5" pipe,b'), ('"a\nb",c\nd', '"a\nb",c'), ('"a""\n",b\nc', '"a""\n",b'),
    ('"a"b,c\nd', '"a"b,c'), ("", ""), ("\na", ""), ('a,"b\nc', "a"),
])  # fmt: skip
def test_a_record_ends_with_its_line_outside_of_quoted_cells(text: str, record: str) -> None:
    """A record whose last cell is not closed ends before that cell, and so before a comma."""
    found = RECORD.match(text.encode())
    assert found is not None
    assert found[0] == record.encode()


@given(st.lists(st.text('a,"\n '), min_size=1))
def test_what_pythons_writer_writes_is_one_record(cells: list[str]) -> None:
    """Whatever is in its cells."""
    row = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    assert RECORD.fullmatch(row.encode())
    assert next(csv.reader(row.splitlines(keepends=True))) == cells

"""The end of a CSV record, by RFC 4180. As for Python's csv, a quote inside of a plain cell is a character."""

import re
from typing import Final

CELL: Final = rb'(?:"(?:[^"]++|"")*+"[^,\n]*+|(?!")[^,\n]*+)'
RECORD: Final = re.compile(CELL + rb"(?:," + CELL + rb"|(?!))*+")
"""Matches a record whose quoted cells are closed. A quote inside of a plain cell, as in 5" pipe, opens nothing.

`|(?!)` never matches, and Python before 3.11.5 needs it: see CONTRIBUTING.md."""

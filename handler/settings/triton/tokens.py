"""Tokens of protobuf's text format, as far as its reader in Python needs help: brackets, and the escapes of strings."""

import re
from typing import Final

TOKEN: Final = re.compile(r"""#[^\n]*+|"(?:\\.|[^"\\\n])*+"?|'(?:\\.|[^'\\\n])*+'?|[0-9A-Za-z_]++|[^\s]""")
ESCAPE: Final = re.compile(r"""\\(?:([^abfnrtvxuUN0-7'"\\]|[4-7][0-7]{2})|.)""")
"""An escape. Its group is there if Python's decoder does not have it: an unknown letter, or a number above \\377."""


def check_escapes(text: str) -> None:
    """Raises ValueError for an escape that the format does not have.

    Python's decoder keeps such an escape and warns. A filter that turned the warning into an error would change the
    whole process: the threads that import and load models meanwhile, too.
    """
    for token in TOKEN.finditer(text) if "\\" in text else ():
        if token[0][0] in "\"'":
            for escape in ESCAPE.finditer(token[0]):
                if escape[1] is not None:
                    raise ValueError(f"invalid escape sequence '{escape[0]}'")

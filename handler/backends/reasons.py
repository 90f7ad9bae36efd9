"""Texts of runtimes' errors for clients: one line of bounded length, without the paths of this machine."""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from core.errors import shown

LONGEST: Final = 256
READ: Final = 4096
"""The characters of a text that are read: a file can name a node with millions."""
HIDDEN: Final = "<path>"
OWN: Final = "[ONNXRuntimeError]"
"""The beginning of the texts of ONNX Runtime's own errors, whose classes have no common base."""
_PATH: Final = re.compile(
    r"""'(?P<single>(?:(?:\.\.)?/|[A-Za-z]:[\\/]|\\\\)[^']*+)'"""
    r"""|"(?P<double>(?:(?:\.\.)?/|[A-Za-z]:[\\/]|\\\\)[^"]*+)\""""
    r"""|(?<![\w./\\-])(?P<bare>(?:(?:\.\.)?/|[A-Za-z]:[\\/]|\\\\)[^\s"'<>|,;()\[\]{}]*+)"""
)
"""A path that is absolute or leads upwards, quoted or not: POSIX, a drive's, or a server's."""
_EXTENSION: Final = re.compile(r"\.[a-z]++(?::\d++)?\Z")
"""The end of a source file's name, with a line's number or without one."""

_SOURCE: Final = re.compile(
    r"(?<!\S)\S{1,512}\.(?:cc|cpp|cuh?|h|hpp):\d{1,9} "
    r"(?:(?:[\w:<>&*,]{1,128} ){0,4}[\w~<>]{1,128}(?:::[\w~<>]{1,128}){1,8}\([^()]{0,1024}\) (?:const )?"
    r"(?:\[with [^\[\]]{0,2048}\] )?|[A-Z]\w{0,128} )"
)
"""A file and a line of ONNX Runtime's sources, and the function there, with its parameters or without."""
_ABOUT: Final = re.compile(r"shape|dim|rank|axis|axes|broadcast|channels|features|same length", re.IGNORECASE)
_READERS: Final = frozenset(("stof", "stod", "stold", "stoi", "stol", "stoll", "stoul", "stoull"))
"""The functions of C++ that read a number from a text."""
_OF_NODE: Final = "Status Message: "
"""The part of ONNX Runtime's text in front of a node's own words. The node's name can be any text."""


def is_about_shapes(error: BaseException) -> bool:
    """Decides whether ONNX Runtime has refused the shapes of a request's inputs.

    Its codes do not say so: most nodes answer FAIL to inputs that do not fit each other, and to a lack of memory.

    >>> is_about_shapes(Exception("... running Add node. Name:'' Status Message: ... broadcast an axis ... 2 by 3"))
    True
    """
    words = _words(error)
    return "allocate" not in words and _ABOUT.search(words) is not None


def is_about_numbers(error: BaseException) -> bool:
    """Decides whether a text in a request's inputs is not a number, or too great a one, where the graph reads numbers.

    All that ONNX Runtime says is the name of the C++ function that refused the text.

    >>> is_about_numbers(Exception("... running Cast node. Name:'' Status Message: stod"))
    True
    """
    return _words(error) in _READERS


def _words(error: BaseException) -> str:
    """Returns a node's own words; the whole text if it has none."""
    text = str(error)[:READ]
    return text.partition(_OF_NODE)[2] or text


def shapes(feed: Mapping[str, Any]) -> str:
    """Returns the names and shapes of a request's inputs, which ONNX Runtime does not have in its text.

    `feed`: arrays, or values of ONNX Runtime, whose shape is a method.
    """
    found = ((name, each.shape() if callable(each.shape) else each.shape) for name, each in feed.items())
    text = ", ".join(f"{shown(name)} {list(shape)}" for name, shape in found)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def reason(error: BaseException, folder: Path) -> str:
    """Returns the text of an error of the version in this folder."""
    text = str(error)[:READ]
    for own in sorted({str(folder), os.path.realpath(folder)}, key=len, reverse=True):
        text = text.replace(f"{own}/", "").replace(own, ".")
    return one_line(text)


def for_log(error: BaseException) -> tuple[str, BaseException | None]:
    """Returns an error's text for the log, in a line with its paths, and the error itself if its traceback says more.

    ONNX Runtime's own texts have all the facts. Any client can cause one, with an index that is out of range.
    """
    text = " ".join(str(error)[:READ].split())
    return text, None if text.startswith(OWN) else error


def one_line(text: object) -> str:
    """Returns a text with this machine's absolute paths hidden, and without file names of the runtime's sources.

    The names of a graph's nodes may look like paths.
    """
    line = _SOURCE.sub("", " ".join(str(text)[:READ].split()))
    return _PATH.sub(lambda found: _shown(found[0], found["single"] or found["double"], found["bare"]), line)[:LONGEST]


def _shown(whole: str, quoted: str | None, bare: str | None) -> str:
    path = quoted or bare or ""
    first = path.lstrip("/").partition("/")[0]
    is_here = path[0] != "/" or (first != "" and os.path.lexists(f"/{first}"))
    if is_here or (bare is not None and _is_file(bare)):  # the second: of the machine that built the runtime
        return HIDDEN
    return whole


def _is_file(path: str) -> bool:
    """Decides whether an absolute path names a source file in a folder, such as /build/ops/conv.cc:17."""
    end = _EXTENSION.search(path)
    return end is not None and "/" in path[1 : end.start()]

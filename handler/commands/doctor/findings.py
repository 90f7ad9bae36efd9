"""A finding: what is wrong, where, and how to cure it. `Visit` collects them, with what was not examined, and why."""

from collections.abc import Iterable
from typing import Any, Final

from core.errors import escaped
from core.records import NamedTuple

ERROR: Final = "error"
WARNING: Final = "warning"
NOTE: Final = "note"
SEVERITIES: Final = (ERROR, WARNING, NOTE)
"""The worst first. An error makes a request, a load or a deployment fail; a warning is probably a mistake."""
LONGEST: Final = 400
"""The most characters of a text. Names in a repository can be any text."""


class Finding(NamedTuple):
    """`code`: a word that programs may compare. `where`: a file, a variable or a part of the set-up."""

    severity: str
    code: str
    where: str
    what: str
    cure: str


class Visit:
    """What one run of doctor has found. `examined`: parts. `skipped`: the others, with the reasons."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.examined: list[str] = []
        self.skipped: list[str] = []
        self.measured: dict[str, Any] = {}
        """The loads and what follows from them, by name, as `--json` prints them."""

    def add(self, found: Iterable[Finding]) -> bool:
        """Adds findings. Returns whether an error is among them."""
        before = len(self.findings)
        self.findings += found
        return any(each.severity == ERROR for each in self.findings[before:])

    @property
    def sorted(self) -> list[Finding]:
        """The findings, the worst first, each once."""
        return sorted(dict.fromkeys(self.findings), key=lambda each: SEVERITIES.index(each.severity))

    @property
    def failed(self) -> bool:
        """Whether an error was found."""
        return any(each.severity == ERROR for each in self.findings)


def error(code: str, where: str, what: str, cure: str) -> Finding:
    return _finding(ERROR, code, where, what, cure)


def warning(code: str, where: str, what: str, cure: str) -> Finding:
    return _finding(WARNING, code, where, what, cure)


def note(code: str, where: str, what: str, cure: str) -> Finding:
    return _finding(NOTE, code, where, what, cure)


def _finding(severity: str, code: str, where: str, what: str, cure: str) -> Finding:
    """Makes a finding of texts in one line each."""
    lines = (" ".join(text.split()) for text in (what, cure))
    return Finding(severity, code, *(escaped(text)[:LONGEST] for text in (where, *lines)))


def expected(message: str) -> tuple[str, str]:
    """Splits a message of this project: what is wrong, and what was expected, "" where it does not say that."""
    what, _, rest = message.partition("; expected ")
    return what, rest

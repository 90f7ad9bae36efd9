"""The one way into every command: from its work to an exit code. A refusal is one line."""

import sys
from collections.abc import Callable

from core.errors import ServingError, escaped
from handler.commands import output
from handler.commands.refused import Refused, WrongOption
from handler.settings import InvalidSettings

REFUSED, WRONG = 1, 2
"""The exit code of a refusal, and that of wrong settings and options. click returns 2 for an unknown option, too."""


def run(work: Callable[[], int | None]) -> int:
    """Does a command's work, and prints why it does not do what its arguments ask for."""
    try:
        code = work() or 0
        sys.stdout.flush()  # a reader that has left shows here, and not when the interpreter ends
    except (WrongOption, InvalidSettings) as error:
        return _say(str(error), WRONG)
    except (Refused, ServingError) as refusal:
        return _say(refusal.message if isinstance(refusal, ServingError) else str(refusal), REFUSED)
    return code


def fail(error: OSError) -> int:
    """Says what the system refuses to a command that has no better word for it, such as a full disk behind stdout."""
    what = error.strerror or str(error)
    if error.filename is not None:
        what = f"{error.filename}: {what}"
    elif isinstance(error, FileNotFoundError):
        what = f"the current folder cannot be found: {what}"
    return _say(f"the output cannot be written: {what}" if output.is_lost() else what, REFUSED)


def _say(text: str, code: int) -> int:
    print(f"dragoman: {escaped(text)}", file=sys.stderr)  # noqa: T201 - a command's error line
    return code

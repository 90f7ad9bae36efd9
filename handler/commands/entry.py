"""The one way into every command: from its work to an exit code. A refusal is one line.

SIGTERM, and SIGHUP of a closed terminal, end a command as Ctrl-C does: it removes its half-written files and ends its
own processes.
"""

import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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


@contextmanager
def ends_by_signal() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP exceptions in the work, with the exit codes that shells report.

    A signal that something else handles, or that `nohup` ignores, stays as it is.
    """
    is_main = threading.current_thread() is threading.main_thread()
    ours = [each for each in (signal.SIGTERM, signal.SIGHUP) if is_main and signal.getsignal(each) is signal.SIG_DFL]
    for each in ours:
        signal.signal(each, _terminate)
    try:
        yield
    finally:
        for each in ours:
            signal.signal(each, signal.SIG_DFL)


def _terminate(number: int, _: Any) -> None:
    for each in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(each, signal.SIG_IGN)  # a second one would break off the cleaning up
    raise SystemExit(128 + number)


def fail(error: OSError) -> int:
    """Says what the system refuses to a command that has no better word for it, such as a full disk behind stdout."""
    what = error.strerror or str(error)
    if error.filename is not None:
        what = f"{error.filename}: {what}"
    elif isinstance(error, FileNotFoundError) and what == os.strerror(errno.ENOENT):  # tempfile has words of its own
        what = f"the current folder cannot be found: {what}"
    return _say(f"the output cannot be written: {what}" if output.is_lost() else what, REFUSED)


def _say(text: str, code: int) -> int:
    print(f"dragoman: {escaped(text)}", file=sys.stderr)  # noqa: T201 - a command's error line
    return code

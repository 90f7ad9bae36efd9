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
from typing import Any, Final

from core.errors import ServingError, escaped
from handler.commands import output
from handler.commands.refused import Refused, WrongOption
from handler.settings import InvalidSettings

REFUSED, WRONG = 1, 2
"""The exit code of a refusal, and that of wrong settings and options. click returns 2 for an unknown option, too."""
AGAIN_SECONDS: Final = 0.1
"""A signal whose exception was lost comes again after so long."""


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


class EndedBySignal(SystemExit):
    """The end of a command by a signal."""


@contextmanager
def ends_by_signal() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP exceptions in the work, with the exit codes that shells report.

    A signal that something else handles, or that `nohup` ignores, stays as it is.
    """
    is_main = threading.current_thread() is threading.main_thread()
    ours = [each for each in (signal.SIGTERM, signal.SIGHUP) if is_main and signal.getsignal(each) is signal.SIG_DFL]
    end = _End()
    for each in ours:
        signal.signal(each, end.begin)
    try:
        yield
    finally:
        end.finish()
        for each in ours:
            signal.signal(each, signal.SIG_DFL)
        if end.number and not _is_ending():
            raise EndedBySignal(128 + end.number)


class _End:
    """The end of one command's work.

    Python drops an exception that a signal raises in a `__del__`, or in a callback of a weak reference, and libraries
    in C may make another one of it. The signal therefore comes again until the work ends.
    """

    def __init__(self) -> None:
        self.number = 0
        self._is_over = False
        self._over = threading.Event()
        self._lock = threading.Lock()

    def begin(self, number: int, _: Any) -> None:
        """Handles a signal."""
        if self._is_over or _is_ending():  # another exception would break off the cleaning up
            return
        if not self.number:
            self.number = number
            threading.Thread(target=self._insist, daemon=True).start()
        raise EndedBySignal(128 + self.number)

    def _insist(self) -> None:
        main = threading.main_thread().ident or 0
        while not self._over.wait(AGAIN_SECONDS):
            with self._lock:
                if not self._is_over:
                    signal.pthread_kill(main, self.number)

    def finish(self) -> None:
        """Ends the handling of signals. From then on none comes again: it would kill the process."""
        self._is_over = True
        with self._lock:
            self._over.set()


def _is_ending() -> bool:
    """Decides whether the exception of a signal is being handled, by itself or as the context of another one."""
    error = sys.exception()
    while error is not None and not isinstance(error, EndedBySignal):
        error = error.__context__
    return error is not None


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

"""The one way into every command: from its options to an exit code. A refusal is one line."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable

from core.errors import ServingError, escaped
from handler.commands.refused import Refused
from handler.settings import InvalidSettings

REFUSED, WRONG, INTERRUPTED = 1, 2, 130
"""Exit codes: of a refusal, of wrong settings (argparse's own), and the one that shells report after Ctrl-C."""


def run(command: Callable[[Namespace], int | None], options: Namespace) -> int:
    """Runs a command, and prints why it does not do what its arguments ask for."""
    try:
        code = command(options) or 0
        sys.stdout.flush()  # a reader that has left shows here, and not when the interpreter ends
    except (Refused, ServingError) as refusal:
        return _say(refusal.message if isinstance(refusal, ServingError) else str(refusal), REFUSED)
    except InvalidSettings as error:
        return _say(str(error), WRONG)
    except BrokenPipeError:  # the reader of a pipe has left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    return code


def _say(text: str, code: int) -> int:
    print(f"dragoman: {escaped(text)}", file=sys.stderr)  # noqa: T201 - a command's error line
    return code

"""The one way into every command: from arguments to an exit code. A refusal is one line."""

import logging
import sys
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager

from core.errors import ServingError, escaped
from handler.commands import keys
from handler.commands.convert import command as convert
from handler.commands.publish import listing, pull, push, signing
from handler.commands.refused import Refused
from handler.commands.replay import command as replay
from handler.settings import Settings

COMMANDS = {
    "convert": convert.run,
    "push": push.run,
    "pull": pull.run,
    "list": listing.run,
    "sign": signing.sign,
    "verify": signing.verify,
    "keys": keys.run,
    "replay": replay.run,
}
INTERRUPTED = 130
"""The exit code that shells report for a command that Ctrl-C has ended."""


def run(options: Namespace, settings: Settings) -> int:
    try:
        with _without_warnings():
            COMMANDS[options.command](options, settings)
    except (Refused, ServingError) as refusal:
        text = refusal.message if isinstance(refusal, ServingError) else str(refusal)
        # A server's message names its setting; here the place stands in the command.
        line = escaped(text.replace("DRAGOMAN_REPOSITORY", "its name"))
        print(f"dragoman: {line}", file=sys.stderr)  # noqa: T201 - a command's error line
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    return 0


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Hides the log lines of the stores. Servers need them beside an error; here the error itself is printed."""
    logger, nowhere = logging.getLogger("handler"), logging.NullHandler()
    logger.addHandler(nowhere)
    try:
        yield
    finally:
        logger.removeHandler(nowhere)

"""The warnings that a part of the server logs while doctor uses it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager


class Ear(logging.Handler):
    """Keeps the texts of warnings and errors, without tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def listening(logger: logging.Logger) -> Iterator[list[str]]:
    """Yields the texts that this logger and those below it log meanwhile. They are not printed."""
    ear, propagates = Ear(), logger.propagate
    logger.addHandler(ear)
    logger.propagate = False
    try:
        yield ear.lines
    finally:
        logger.removeHandler(ear)
        logger.propagate = propagates

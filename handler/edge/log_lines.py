"""The form of the log, one for all of it: text or JSON. Whatever a message quotes, its line cannot be taken for two.

Each handler of the root logger gets the form, and those of uvicorn, so that every line on the screen looks alike.
"""

import logging
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from core.errors import escaped

SECONDS: Final = 10.0
MOST: Final = 10
"""LineLimit admits so many lines in so many seconds."""
INDENT: Final = "  "
"""The prefix of each line of a traceback, whose error can have a text of many lines."""
TEXT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"
OTHERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.access")
"""Loggers that have handlers of their own under uvicorn's own command."""
RECORD: "Final[ContextVar[Any]]" = ContextVar("record")
"""The record of the current task's request, which knows its `request_id`; see edge.observe.record."""


class LineLimit:
    """Keeps a flood of lines short: at most MOST of them in SECONDS. The next one says how many were left out."""

    def __init__(self) -> None:
        self._since = float("-inf")
        self._count = 0

    def admits(self, tell: Callable[[str], None]) -> bool:
        """Decides whether one more line may be written. `tell`: writes the line about those that were left out."""
        now = time.monotonic()
        if now - self._since >= SECONDS:
            if self._count > MOST:
                tell(f"{self._count - MOST} further requests were refused")
            self._since, self._count = now, 0
        self._count += 1
        return self._count <= MOST


class OneLine(logging.Filter):
    """Escapes a record's message before a handler writes it."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            record.msg, record.args = escaped(record.getMessage()), None
        except (TypeError, ValueError, KeyError):  # a mistake in the call, which the handler reports
            return True
        if record.exc_info and not record.exc_text:
            lines = logging.Formatter().formatException(record.exc_info).split("\n")
            record.exc_text = "\n".join(INDENT + escaped(line) for line in lines)
        return True


ONE_LINE: Final = OneLine()


class JsonLines(logging.Formatter):
    """A line of JSON for each record, with the names that Lambda's own JSON lines have."""

    def format(self, record: logging.LogRecord) -> str:
        import orjson  # noqa: PLC0415 - imported by now wherever requests are served

        found = head(record.levelname, record.name, record.getMessage(), record.created)
        request = RECORD.get(None)
        if request is not None:
            found["request_id"] = request.request_id.decode()
        if record.exc_info and record.exc_info[0] is not None:
            found["exception"] = record.exc_text or self.formatException(record.exc_info)
            found["exception_name"] = record.exc_info[0].__name__
        return orjson.dumps(found).decode()


def head(level: str, logger: str, message: str, at: float | None = None) -> dict[str, Any]:
    """Returns what every line of JSON begins with. `at`: seconds since the epoch, now by default."""
    at = time.time() if at is None else at
    stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    return {"timestamp": f"{stamp}.{int(at % 1 * 1000):03d}Z", "level": level, "logger": logger, "message": message}


def guard(form: str = "text") -> None:
    """Guards the handlers of all loggers that have none of their own, and writes JSON if the form is "json"."""
    # A handler reports its own failure on stderr. If a model's code has closed stderr, the report raises.
    logging.raiseExceptions = False
    for handler in logging.getLogger().handlers:
        handler.addFilter(ONE_LINE)
        if form == "json":
            handler.setFormatter(JsonLines())


def begin(level: str, form: str) -> None:
    """Gives a server's log its level and form. uvicorn's loggers lose handlers of their own: one form on one screen."""
    logging.basicConfig(level=level, format=TEXT)
    guard(form)
    for name in OTHERS:
        logger = logging.getLogger(name)
        if logger.handlers:
            logger.handlers.clear()
            logger.propagate = True

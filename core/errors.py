"""The failures of serving, independent of the protocol.

    ServingError
    |-- InvalidInput        INVALID_ARGUMENT     the client's mistake
    |   |-- TooMany         INVALID_ARGUMENT     more inputs, outputs or other parts than a request may have
    |   `-- UnknownLabel    INVALID_ARGUMENT     a version's label that the model's settings do not have
    |-- TooLarge            RESOURCE_EXHAUSTED   more bytes than this server or its platform carries
    |-- ModelNotFound       NOT_FOUND
    |-- VersionNotFound     NOT_FOUND
    |-- ModelNotLoadable    FAILED_PRECONDITION  permanent until the model or the configuration is repaired
    |   `-- NeverFits       FAILED_PRECONDITION  more memory than there is, whatever else is unloaded
    |-- ModelUnavailable    UNAVAILABLE          may pass by itself: the store did not answer
    |   `-- StillLoading    UNAVAILABLE          the load needs more time than it has; the next request continues it
    |-- ServerBusy          UNAVAILABLE          more requests wait than can be answered in time
    |   `-- MemoryShort     UNAVAILABLE          models in use leave no room for another one
    |-- TimedOut            DEADLINE_EXCEEDED    the model took longer than an inference may
    |-- NotSupported        UNIMPLEMENTED
    |-- Unauthenticated     UNAUTHENTICATED      no credential, or a wrong one
    |-- NotPermitted        PERMISSION_DENIED    a caller without the right, or from a place that is not permitted
    `-- ModelFailed         INTERNAL             the model itself, or this server

Each protocol maps a Fault to its own number (HTTP status, gRPC code); this module has none.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from functools import cache
from typing import Any, ClassVar, Final

SHOWN_CHARACTERS = 256
JSON_WORDS: Final = {
    "None": "null",
    "True": "true",
    "False": "false",
    "nan": "NaN",
    "inf": "Infinity",
    "-inf": "-Infinity",
}
"""Words that a client has sent, by those that Python has for them."""
MOST_NAMED: Final = 16
COMPARED: Final = 64
"""Characters of a mistyped word: the work grows with their square."""
UNPRINTABLE: Final = (
    r"\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb"
    r"\U000e0000-\U000e007f"
)
"""The inside of a class of a regular expression: characters that end a line, steer a terminal, reorder or hide text,
and lone surrogates."""
INVISIBLE: Final = (
    r"\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0080-\U000e0fff"
)
"""The same of further characters that nobody sees, by which two names can look alike: Unicode's
Default_Ignorable_Code_Point, and the blank of Braille."""


@cache
def _unprintable() -> re.Pattern[str]:
    return re.compile(f"[{UNPRINTABLE}]")  # 1 ms, and few texts need it


@cache
def _hidden() -> re.Pattern[str]:
    return re.compile(f"[{UNPRINTABLE}{INVISIBLE}]")  # the same


class Fault(Enum):
    """Kinds of failure, under the names of gRPC's status codes."""

    INVALID_ARGUMENT = auto()
    NOT_FOUND = auto()
    FAILED_PRECONDITION = auto()
    RESOURCE_EXHAUSTED = auto()
    UNAVAILABLE = auto()
    DEADLINE_EXCEEDED = auto()
    UNIMPLEMENTED = auto()
    UNAUTHENTICATED = auto()
    PERMISSION_DENIED = auto()
    INTERNAL = auto()


def nearest(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Returns the known word that was probably meant by a mistyped one, "" if none is near.

    `alike`: how near it must be, from 0 to 1. Only the first characters of a long word are compared.

    >>> nearest("predcit", ("predict", "explain"))
    'predict'
    """
    from difflib import get_close_matches  # noqa: PLC0415 - for a mistake

    return next(iter(get_close_matches(word[:COMPARED], list(known), 1, alike)), "")


def some(names: Sequence[str], most: int = MOST_NAMED, between: str = ", ") -> str:
    """Returns the first names as a message lists them, and how many more there are.

    >>> some(["a", "b", "c"], most=2), some([])
    ('a, b and 1 more', 'none')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return f"{between.join(names[:most])}{more}" or "none"


def counted(count: int, noun: str) -> str:
    """Returns a number with its noun.

    >>> counted(1, "row"), counted(0, "row")
    ('1 row', '0 rows')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def shown(value: Any, limit: int = SHOWN_CHARACTERS) -> str:
    """Returns the value as a message quotes it: one line, at most `limit` characters.

    >>> shown("x" * 300, limit=8)
    "'xxxx..."
    """
    text = ""
    for piece in _pieces(value, limit):
        text += piece
        if len(text) > limit:
            break
    text = " ".join(text.removeprefix("b").split())  # the b of b'...' is Python's, not the client's
    return text if len(text) <= limit else text[: limit - 3].rstrip("'\"") + "..."


def given(value: Any) -> str:
    """Returns a member's value as `shown` does, "missing" for null, which is as good as none."""
    return "missing" if value is None else shown(value)


def _pieces(value: Any, limit: int) -> Iterator[str]:
    """Yields the repr of a value in pieces, with JSON's words for Python's.

    `limit`: the characters that are taken; the rest is never made.

    An array is shown as the lists that a parser has made it of: numpy would show up to six elements of each axis.
    Each level yields a character before the next one, so that the limit bounds the depth, too.
    """
    if isinstance(value, dict):
        yield "{"
        for index, (key, member) in enumerate(value.items()):
            yield ", " if index else ""
            yield from _pieces(key, limit)
            yield ": "
            yield from _pieces(member, limit)
        yield "}"
    elif isinstance(value, list) or _rank(value):
        yield "["
        for index, member in enumerate(value[:limit].tolist() if _rank(value) == 1 else value):
            yield ", " if index else ""
            yield from _pieces(member, limit)
        yield "]"
    else:
        text = repr(value[:limit] if isinstance(value, str | bytes | tuple) else value)
        yield JSON_WORDS.get(text, text)


def _rank(value: Any) -> int:
    return len(getattr(value, "shape", None) or ())


def escaped(text: str) -> str:
    r"""Returns the text as a log line or a terminal can show it.

    >>> escaped("a\nb\u202ec")
    'a\\nb\\u202ec'
    """
    if text.isprintable():
        return text
    return _unprintable().sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def is_harmless(text: str) -> bool:
    """Decides whether a text breaks no line of a log, and whether everything in it can be seen."""
    return (text.isascii() and text.isprintable()) or not _hidden().search(text)


class ServingError(Exception):
    """A failure whose message is sent to the client: one line, without traceback, path or credential."""

    fault: ClassVar[Fault] = Fault.INTERNAL
    caller: tuple[str, str] | None = None
    """The name and the address of a caller that is refused behind the gate, for the log."""
    is_logged: bool = False
    """Whether the log has the message already."""

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        """`retry_after`: seconds after which a retry makes sense, None if unknown."""
        super().__init__(message)
        # Model code and parsed JSON may contain lone surrogates, which cannot be encoded in an answer.
        text = message.encode(errors="replace").decode()
        self.message = text if text.isprintable() else "\n".join(map(escaped, text.split("\n")))
        self.retry_after = retry_after


def copied(error: ServingError, retry_after: float | None = None) -> ServingError:
    """Returns the error anew, without its traceback, which keeps whole requests alive."""
    made = type(error).__new__(type(error))
    made.args = error.args
    vars(made).update(vars(error), retry_after=retry_after)
    return made


def located(error: ServingError, place: str) -> ServingError:
    """Returns a copy of the error whose message names a place first: the error itself can be raised again elsewhere.

    >>> located(VersionNotFound("gone", "7"), "step 'x'").message
    "step 'x': gone"
    """
    made = copied(error, error.retry_after)
    made.message = f"{place}: {error.message}"
    made.args = (made.message,)
    return made


class InvalidInput(ServingError):
    fault = Fault.INVALID_ARGUMENT


class TooMany(InvalidInput):
    pass


class UnknownLabel(InvalidInput):
    pass


class TooLarge(ServingError):
    fault = Fault.RESOURCE_EXHAUSTED


class ModelNotFound(ServingError):
    """`model`: the name that is missing, for a protocol with words of its own. `hint`: what else the message says."""

    fault = Fault.NOT_FOUND

    def __init__(self, message: str, *, model: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.model = model
        self.hint = hint


class VersionNotFound(ServingError):
    """`version`: the missing number; the request may have named it by a label. `model`, `hint`: as ModelNotFound's."""

    fault = Fault.NOT_FOUND

    def __init__(self, message: str, version: str = "", *, model: str | None = None, hint: str = "") -> None:
        super().__init__(message)
        self.version = version
        self.model = model
        self.hint = hint


class ModelNotLoadable(ServingError):
    fault = Fault.FAILED_PRECONDITION


class ModelUnavailable(ServingError):
    fault = Fault.UNAVAILABLE


class StillLoading(ModelUnavailable):
    pass


class NeverFits(ModelNotLoadable):
    pass


class ServerBusy(ServingError):
    fault = Fault.UNAVAILABLE


class MemoryShort(ServerBusy):
    pass


class TimedOut(ServingError):
    fault = Fault.DEADLINE_EXCEEDED


class NotSupported(ServingError):
    fault = Fault.UNIMPLEMENTED


class Unauthenticated(ServingError):
    fault = Fault.UNAUTHENTICATED


class NotPermitted(ServingError):
    fault = Fault.PERMISSION_DENIED


class ModelFailed(ServingError):
    fault = Fault.INTERNAL

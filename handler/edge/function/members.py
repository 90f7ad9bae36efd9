"""THE tables of the members of Lambda's HTTP events, by form: the values that each may have, and what null means."""

import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from itertools import chain
from typing import Any, Final

from core.errors import InvalidInput, shown
from core.records import NamedTuple
from core.wire import REQUEST_ID, Header


class EventForm(Enum):
    """The forms of an HTTP event. Its answer has the same form."""

    V2 = auto()
    """Payload 2.0, of HTTP APIs and Function URLs."""
    V1 = auto()
    """Payload 1.0 of HTTP APIs."""
    REST = auto()
    """REST APIs. Only their gateway inflates requests and compresses answers."""
    ALB = auto()


class Member(NamedTuple):
    """One member. `read`: returns the checked value; raises TypeError, ValueError or AttributeError for another one.

    `default`: stands for null, and for a member that is missing; REQUIRED refuses the event.
    """

    expected: str
    read: Callable[[Any], Any]
    default: Any


Table = Mapping[str, Member]
REQUIRED: Final = object()
TELLING: Final = frozenset((REQUEST_ID, b"content-type", b"origin"))
"""The headers on which a refusal's form depends: its id, its protocol, and the page that may read it."""
LISTS: Final = frozenset((list, type(None)))
LINE_END: Final = re.compile("[\r\n\0]")
KINDS: Final[Mapping[type, str]] = {dict: "an object", list: "an array"}


def form_of(event: Mapping[str, Any]) -> EventForm:
    """Returns the form of an HTTP event."""
    context = event.get("requestContext")
    inner = context if isinstance(context, dict) else {}
    if "elb" in inner and "http" not in inner:
        return EventForm.ALB
    if "http" in inner or "rawPath" in event:
        return EventForm.V2
    return EventForm.V1 if event.get("version") == "1.0" else EventForm.REST


def telling(event: Mapping[str, Any]) -> list[Header]:
    """Returns those headers of an event, whatever it is, that its refusal depends on.

    Several of one name are one list, as in a request: `headers` has the last of them alone.
    """
    found: dict[bytes, bytes] = {}
    for headers in (event.get("headers"), event.get("multiValueHeaders")):
        for name, value in headers.items() if isinstance(headers, dict) else ():
            text = ", ".join(map(str, value)) if isinstance(value, list) and value else value
            key = name.lower().encode("utf-8", "replace") if isinstance(name, str) else b""
            if key in TELLING and isinstance(text, str):
                found[key] = text.encode("utf-8", "replace")
    return [*found.items()]


def checked(event: Mapping[str, Any], form: EventForm) -> dict[str, Any]:
    """Returns a copy of an HTTP event whose members are as its table says. Raises InvalidInput."""
    return _checked(TABLES[form], event)


def _checked(table: Table, value: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    members = {**value}
    for name, (expected, read, default) in table.items():
        found = members.get(name)
        if found is None:
            if default is not REQUIRED:
                members[name] = default
                continue
            raise InvalidInput(f"the event's {place}{name} is missing; expected {expected}")
        try:
            members[name] = read(found)
        except (TypeError, ValueError, AttributeError):
            kind = KINDS.get(type(found)) or shown(found)
            raise InvalidInput(f"the event's {place}{name} is {kind}; expected {expected}") from None
    return members


def _text(value: str) -> str:
    str.encode(value)  # lone surrogates raise: no request can hold them
    return value


def _content(value: str | bytes) -> str | bytes:
    if not isinstance(value, str | bytes):
        raise TypeError
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _joined(*texts: Iterable[str | None]) -> str:
    """Returns all texts as one, which checks them at once. Null counts for nothing. Each argument is read twice."""
    try:
        text = "".join(chain(*texts))  # type: ignore[arg-type] # null raises
    except TypeError:
        text = "".join(each for each in chain(*texts) if each is not None)
    return text if text.isascii() else _text(text)


def _texts(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the members, null ones among them."""
    _joined(value, value.values())
    return value


def _query(value: Mapping[str, Any]) -> Mapping[str, str]:
    """Returns a query's parameters. Null means an empty value."""
    return {name: "" if text is None else text for name, text in _texts(value).items()}


def _list(value: list[str]) -> list[str]:
    if not isinstance(value, list):
        raise TypeError
    _text("".join(value))
    return value


def _lists(value: Mapping[str, Any]) -> Mapping[str, list[str]]:
    """Returns the members that have a text."""
    if not LISTS.issuperset(map(type, value.values())):
        raise TypeError
    _joined(value, [*chain.from_iterable(filter(None, value.values()))])
    if all(value.values()) and not any(None in each for each in value.values()):
        return value
    lists = {name: [text for text in each or () if text is not None] for name, each in value.items()}
    return {name: texts for name, texts in lists.items() if texts}


def _headers(value: Mapping[str, Any]) -> Mapping[str, Any]:
    _check_lines(_joined(value, value.values()))
    return value


def _many_headers(value: Mapping[str, Any]) -> Mapping[str, list[str]]:
    lists = _lists(value)
    _check_lines("".join(chain.from_iterable(lists.values())))
    return lists


def _check_lines(text: str) -> None:
    """Raises ValueError for a text that HTTP cannot carry in headers."""
    if not text.isprintable() and LINE_END.search(text):
        raise ValueError


def _nested(place: str, table: Table, default: object = None) -> Member:
    """Returns the row of an object with a table of its own. Its default is of their defaults, unless it is REQUIRED."""
    if default is not REQUIRED:
        default = _checked(table, {})
    return Member("an object", lambda value: _checked(table, value, f"{place}."), default)


TEXT: Final = Member("text", _text, "")
PATH: Final = Member("text", _text, "/")
OF_TEXT: Final = "an object of text"
OF_LISTS: Final = "an object of arrays of text"
HTTP: Final = {"method": TEXT, "path": PATH, "sourceIp": TEXT}
EVERY: Final = {
    "headers": Member(OF_TEXT, _headers, {}),
    "body": Member("text", _content, b""),
    "isBase64Encoded": Member("true or false", _flag, default=False),
}
V2: Final = {
    "requestContext": _nested(
        "requestContext",
        {"http": _nested("requestContext.http", HTTP, REQUIRED), "stage": TEXT},
        REQUIRED,
    ),
    "rawQueryString": TEXT,
    "cookies": Member("an array of text", _list, None),
    **EVERY,
}
OLDER: Final = {
    "httpMethod": TEXT,
    "path": PATH,
    "multiValueHeaders": Member(OF_LISTS, _many_headers, None),
    "queryStringParameters": Member(OF_TEXT, _query, {}),
    "multiValueQueryStringParameters": Member(OF_LISTS, _lists, None),
    **EVERY,
}
CALLER: Final = _nested("requestContext.identity", {"sourceIp": TEXT})
PLACE: Final = {"stage": TEXT, "path": TEXT}
GATEWAY: Final = OLDER | {"requestContext": _nested("requestContext", PLACE | {"identity": CALLER})}
TABLES: Final[Mapping[EventForm, Table]] = {
    EventForm.V2: V2,
    EventForm.V1: GATEWAY,
    EventForm.REST: GATEWAY,
    EventForm.ALB: OLDER | {"requestContext": _nested("requestContext", PLACE, REQUIRED)},
}

"""Protobuf's text format, read without a schema (protobuf.dev, "Text Format Language Specification").

    name: "half"            a scalar; single quotes too, adjacent strings join
    latest { num_versions: 2 }   a message; the colon before it is optional, < > stand for { }
    versions: [1, 2]        the same as the field written twice; fields may end with , or ;

Extensions and google.protobuf.Any ([names in brackets]) are refused: no file of TensorFlow Serving's has them.
"""

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from handler.commands.refused import Refused

Message = dict[str, list[Any]]
"""Field -> its values in order: str for quoted text, Word for the rest, Message for messages."""

TOKEN: Final = re.compile(
    r"""(?P<space>[\s]+|\#[^\n]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<word>[-+]?[\w.]+(?:(?<=[eE])[-+]\d+)?)
    |(?P<mark>[][{}<>:,;])""",
    re.VERBOSE,
)
ESCAPE: Final = re.compile(
    rb"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
SIMPLE: Final = {
    b"a": b"\a", b"b": b"\b", b"f": b"\f", b"n": b"\n", b"r": b"\r", b"t": b"\t", b"v": b"\v",
    b"\\": b"\\", b"'": b"'", b'"': b'"', b"?": b"?",
}  # fmt: skip
CLOSING: Final = {"{": "}", "<": ">"}
DEEPEST: Final = 64


class Word(str):
    """A value without quotes: a number, an enumerator, true or false."""

    __slots__ = ()


class Token(NamedTuple):
    kind: str
    text: str
    line: int


def parse(text: str) -> Message:
    """The whole file. Raises Refused with the line."""
    return _Reader([*_tokens(text), Token("end", "the end of the file", text.count("\n") + 1)]).message("", 0)


def _tokens(text: str) -> Iterator[Token]:
    position, line = 0, 1
    while position < len(text):
        match = TOKEN.match(text, position)
        if match is None:
            raise Refused(f"line {line}: {text[position : position + 20].splitlines()[0]!r} is no text format")
        if match.lastgroup != "space":
            yield Token(str(match.lastgroup), match.group(), line)
        line += match.group().count("\n")
        position = match.end()


class _Reader:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0

    def message(self, closing: str, depth: int) -> Message:
        """Fields up to the `closing` mark, which is taken; "" is the end of the file."""
        if depth > DEEPEST:
            raise Refused(f"line {self._next.line}: more than {DEEPEST} messages inside each other")
        fields: Message = {}
        while not self._ends(closing):
            name = self._take("word", "a field's name")
            values = fields.setdefault(name.text, [])
            colon = self._skip(":")
            if self._skip("["):
                values += self._list(depth)
            else:
                values.append(self._value(name, depth, scalar=colon))
            self._skip(",") or self._skip(";")
        return fields

    def _ends(self, closing: str) -> bool:
        if closing:
            return self._skip(closing)
        return self._next.kind == "end"

    def _list(self, depth: int) -> Iterator[Any]:
        while not self._skip("]"):
            yield self._value(self._next, depth, scalar=True)
            if not self._skip(",") and self._next.text != "]":
                raise self._unexpected("a comma or ]")

    def _value(self, name: Token, depth: int, *, scalar: bool) -> Any:
        for opening, closing in CLOSING.items():
            if self._skip(opening):
                return self.message(closing, depth + 1)
        if not scalar:
            raise self._unexpected(f"a colon or {{ after {name.text!r}")
        if self._next.kind == "word":
            return Word(self._take("word", "a value").text)
        pieces = [self._take("text", f"a value for {name.text!r}")]
        while self._next.kind == "text":
            pieces.append(self._take("text", ""))
        return "".join(_unquoted(piece) for piece in pieces)

    @property
    def _next(self) -> Token:
        return self._tokens[self._position]

    def _skip(self, mark: str) -> bool:
        found = self._next.kind == "mark" and self._next.text == mark
        self._position += found
        return found

    def _take(self, kind: str, expected: str) -> Token:
        token = self._next
        if token.kind != kind:
            raise self._unexpected(expected)
        self._position += 1
        return token

    def _unexpected(self, expected: str) -> Refused:
        return Refused(f"line {self._next.line}: expected {expected}, not {self._next.text[:80]}")


def _unquoted(token: Token) -> str:
    try:
        return ESCAPE.sub(_unescaped, token.text[1:-1].encode()).decode()
    except (UnicodeDecodeError, ValueError, KeyError):
        raise Refused(f"line {token.line}: {token.text[:80]} has an escape that is no text") from None


def _unescaped(match: re.Match[bytes]) -> bytes:
    hexadecimal, octal, short, long, simple = match.groups()
    if hexadecimal is not None:
        return bytes([int(hexadecimal, 16)])
    if octal is not None:
        return bytes([int(octal, 8)])
    if short is not None or long is not None:
        return chr(int(short or long, 16)).encode()
    return SIMPLE[simple]

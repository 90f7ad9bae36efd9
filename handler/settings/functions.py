"""The steps of a pipeline that this server does itself: texts to tokens, and a model's vectors to one for each text.

    {"tokenizer": {"file": path, "max_length": number, "padding": text, "truncation": text, "pad_token": text,
                   "padding_side": text, "max_tokens": number}}
    {"pooling": "mean", "cls", "max" or "last"}
    {"normalize": "l2"}

handler.backends.pipeline.functions runs them, and says what each takes and makes.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from core.records import NamedTuple
from handler.settings.checked import Wrong, an_object, is_below, number

FILE: Final = "tokenizer.json"
PADDINGS: Final = ("longest", "max_length")
TRUNCATIONS: Final = ("longest_first", "only_first", "only_second", "none")
SIDES: Final = ("right", "left")
POOLINGS: Final = ("mean", "cls", "max", "last")
NORMS: Final = ("l2",)
LONGEST_SEQUENCE: Final = 1_000_000
MOST_TOKENS: Final = 65_536
"""The most tokens at once by default: 128 texts of 512. An encoder of 12 heads keeps 24 kB of scores for each."""


class TokenizerSettings(NamedTuple):
    """`max_length`, `pad_token`, `padding_side` None: as the file has it. `max_tokens`: at once, with padding."""

    file: str = FILE
    max_length: int | None = None
    padding: str = PADDINGS[0]
    truncation: str = TRUNCATIONS[0]
    pad_token: str | None = None
    padding_side: str | None = None
    max_tokens: int = MOST_TOKENS


class PoolingSettings(NamedTuple):
    how: str


class NormalizeSettings(NamedTuple):
    how: str


SaidFunction = TokenizerSettings | PoolingSettings | NormalizeSettings


def _tokenizer(value: Any, path: str) -> TokenizerSettings:
    members = an_object(value, path, *TokenizerSettings._fields)
    file = members.get("file", FILE)
    if not is_below(file):
        raise Wrong(f"{path}.file", file, "a path in the version's folder")
    longest = members.get("max_length")
    if longest is not None and number(longest, f"{path}.max_length", 1) > LONGEST_SEQUENCE:
        raise Wrong(f"{path}.max_length", longest, f"at most {LONGEST_SEQUENCE}")
    token = members.get("pad_token")
    if token is not None and not isinstance(token, str):
        raise Wrong(f"{path}.pad_token", token, "the text of a token")
    return TokenizerSettings(
        file,
        longest,
        _one_of(members.get("padding", PADDINGS[0]), f"{path}.padding", PADDINGS),
        _one_of(members.get("truncation", TRUNCATIONS[0]), f"{path}.truncation", TRUNCATIONS),
        token,
        None
        if members.get("padding_side") is None
        else _one_of(members["padding_side"], f"{path}.padding_side", SIDES),
        number(members.get("max_tokens", MOST_TOKENS), f"{path}.max_tokens", 1),
    )


def _one_of(value: Any, path: str, words: tuple[str, ...]) -> str:
    if value not in words:
        raise Wrong(path, value, f"one of {', '.join(words)}")
    return str(value)


FUNCTIONS: Final[Mapping[str, Callable[[Any, str], SaidFunction]]] = {
    "tokenizer": _tokenizer,
    "pooling": lambda value, path: PoolingSettings(_one_of(value, path, POOLINGS)),
    "normalize": lambda value, path: NormalizeSettings(_one_of(value, path, NORMS)),
}
"""THE table of these steps: the key that marks each, and what reads its value."""

"""Strategies that all protocols' fuzzers share: texts, numbers, JSON values, and correct requests with a change."""

import copy
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from hypothesis import strategies as st

from tests.support.checks import INTERNALS

METHODS: Final = ["GET", "POST"] * 6 + ["HEAD", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "BREW"]
MODELS: Final = [
    "add_sub", "identity_fp32", "vector_bytes", "versions", "classifier", "three_types", "zero_dims", "scalar",
]  # fmt: skip
BROKEN: Final = ["broken_onnx", "broken_settings", "py_broken_import"]
DEPTHS: Final = (10, 100, 500, 990, 1010, 5000, 200_000)
MEMBER_DEPTH: Final = 3
"""("inputs", 0, "shape")"""


class Attack(NamedTuple):
    """Examples of requests, and the function that sends one and judges its answer."""

    examples: st.SearchStrategy[Any]
    strike: Callable[..., None]


def of_clients(text: str) -> bool:
    """Decides whether a refusal that quotes a text has nothing that the fuzzers take for a part of a traceback.

    Hypothesis draws words of the project's modules, too, such as ".py".
    """
    return not INTERNALS.search(text)


texts = st.text(max_size=12).filter(of_clients)
quoted = texts.map(lambda text: "".join(f"%{byte:02x}" for byte in text.encode("utf-8", "replace")))
odd_names = st.text("abc./%-_\\~:@", max_size=9)
numbers = st.one_of(
    st.integers(), st.floats(),
    st.sampled_from([0, -1, 2**31, 2**32, 2**53 + 1, 2**63, 2**64, 10**30, 1.0, 1e300, -0.0]),
)  # fmt: skip
odd_words = st.sampled_from(["NaN", "\ud800", "\0", "x" * 3000])
latin = st.characters(codec="latin-1")
lengths = st.one_of(
    st.integers(-2, 3000).map(str), st.integers().map(str), st.text(latin, max_size=8).filter(of_clients)
)
codings = st.one_of(
    st.sampled_from(["gzip", "deflate", "identity", "br", "gzip, gzip", "", "*", "gzip;q=0", "gzip;q=0.5, *;q=0.1"]),
    st.text(latin, max_size=12).filter(of_clients),
)
blanks = st.sampled_from([b"", b" " * 10_000])
"""Blank space to put behind a document: long texts have their own readers."""


def json_values(words: Any, keys: Any, *more: Any) -> st.SearchStrategy[Any]:
    """Returns JSON values of these words, with these keys among others."""
    return st.recursive(
        st.one_of(st.none(), st.booleans(), numbers, words),
        lambda inner: st.one_of(
            st.lists(inner, max_size=5), st.dictionaries(st.one_of(keys, texts), inner, max_size=5), *more
        ),
        max_leaves=12,
    )


v2_keys = st.sampled_from(
    ["inputs", "outputs", "name", "shape", "datatype", "data", "parameters", "id", "binary_data_size"]
)
v2_words = st.one_of(texts, odd_words, st.sampled_from(["INPUT0", "OUTPUT0", "INT32", "FP32", "BYTES", "BF16"]))
values = json_values(v2_words, v2_keys)


def nodes(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Returns the paths to every part of a document except itself."""
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return [found for key, value in items for found in ((*path, key), *nodes(value, (*path, key)))]


def parent_of(document: Any, way: Sequence[Any]) -> Any:
    """Returns the part of a document that a path leads to."""
    for step in way:
        document = document[step]
    return document


@st.composite
def mutants(draw: st.DrawFn, valid: Sequence[tuple[str, Any]], own: Any, keys: Any) -> tuple[str, Any]:
    """A target and its correct document, up to three parts of which are replaced, removed, doubled or joined."""
    target, document = copy.deepcopy(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(1, 3))):
        places = nodes(document)
        if not places:
            break
        # The members are more interesting than each of many elements.
        members = [place for place in places if len(place) <= MEMBER_DEPTH]
        *way, last = draw(st.sampled_from(draw(st.sampled_from([places, members, members]))))
        parent = parent_of(document, way)
        change = draw(st.sampled_from(["replace", "replace", "remove", "double", "add"]))
        if change == "replace":
            parent[last] = draw(own)
        elif change == "remove":
            del parent[last]
        elif isinstance(parent, list):
            parent.append(parent[last] if change == "double" else draw(own))
        else:
            parent[draw(keys)] = draw(own) if change == "add" else parent[last]
    return target, document


@st.composite
def damaged(draw: st.DrawFn, contents: Any) -> bytes:
    """Bytes, one of which may be flipped, and whose end may be cut off."""
    packed = bytearray(draw(contents))
    if draw(st.booleans()):
        packed[draw(st.integers(0, len(packed) - 1))] ^= draw(st.integers(1, 255))
        packed = packed[: draw(st.integers(0, len(packed)))]
    return bytes(packed)


@st.composite
def byte_mutants(draw: st.DrawFn, valid: Sequence[bytes], least: int = 0) -> bytes:
    """Bytes, some of which are changed, removed, or doubled."""
    body = bytearray(draw(st.sampled_from(valid)))
    for _ in range(draw(st.integers(least, 4))):
        at = draw(st.integers(0, len(body)))
        length = draw(st.integers(0, 4))
        body[at : at + length] = draw(st.one_of(st.binary(max_size=4), st.just(bytes(body[at : at + 12]))))
    return bytes(body)

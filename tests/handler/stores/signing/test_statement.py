"""handler.stores.signing.statement: what a manifest may list."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.stores.checksums import Checksum
from handler.stores.signing import envelope, statement
from handler.stores.signing.documents import Unverified
from tests.support.signing import SIGNED, digests

FILES = {"a b/c.txt": b"1", "model.onnx": b"2"}
GOOD = statement.write("m", digests(FILES), ["extra"])
HEX = "0" * 64


def payload(*resources: Any, method: str = "files", **predicate: Any) -> bytes:
    """Returns a statement that lists these resources, under the digest that they have."""
    read = json.loads(GOOD)
    read["predicate"]["resources"] = list(resources)
    read["predicate"]["serialization"]["method"] = method
    read["predicate"]["serialization"].update(predicate)
    found = {
        str(index): Checksum("", each.get("digest", ""))
        for index, each in enumerate(resources)
        if isinstance(each, dict)
    }
    with contextlib.suppress(ValueError, TypeError):
        read["subject"][0]["digest"]["sha256"] = statement._root(found.values())
    return json.dumps(read).encode()


def resource(name: Any = "x", algorithm: Any = "sha256", digest: Any = HEX) -> dict[str, Any]:
    return {"name": name, "algorithm": algorithm, "digest": digest}


def test_a_statement_lists_files_with_digests() -> None:
    """It also lists the paths that may be there beside them."""
    manifest = statement.read(GOOD)
    assert manifest.files == {path: Checksum("sha256", value) for path, value in digests(FILES).items()}
    ignored = ("model.sig", ".git/config", ".gitignore", "extra", "extra/x")
    assert [path for path in (*ignored, "extras", "x.git", "sub/model.sig") if manifest.ignores(path)] == list(ignored)


@pytest.mark.parametrize(
    "name", ["", "/x", "../x", "x/../y", "./x", "x/.", "x//y", "x/", "..", "a\\b", "a\0b", "a\nb", "\u202e", "\ud800"]
)
def test_a_path_that_leaves_the_folder_is_refused(name: str) -> None:
    """So is a path that can be written in another way, and one that a log line cannot contain."""
    with pytest.raises(Unverified, match="not a path inside the version's folder"):
        statement.read(payload(resource(name)))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"{", "the payload of model.sig is not JSON"),
        (b'{"_type": "x"}', "_type of model.sig is 'x'"),
        (GOOD.replace(b"signature/v1.0", b"Digests/v0.1"), "predicateType of model.sig is"),
        (GOOD.replace(b'"subject": [', b'"subject": [{}, '), "model.sig has 2 subjects"),
        (payload(), "model.sig lists no files"),
        (payload(resource(), resource()), "model.sig lists 'x' twice"),
        (payload("x"), "model.sig has no name"),
        (payload(resource(7)), "model.sig has no name"),
        (payload(resource(digest=7)), "model.sig has no digest"),
        (payload(resource(digest="ab")), "model.sig has the sha256 digest 'ab' of 'x'"),
        (payload(resource(digest=HEX.replace("0", "A"))), "model.sig has the sha256 digest"),
        (payload(resource(algorithm="md5", digest="0" * 32)), "by 'md5'; expected sha256 or blake2b"),
        (payload(resource(), method="shards"), "serialization method of model.sig is 'shards'; expected 'files'"),
        (payload(resource(), ignore_paths="x"), "ignore_paths of model.sig is not a list"),
        (payload(resource(), ignore_paths=[7]), "ignore_paths of model.sig is not a list"),
        (GOOD.replace(digests(FILES)["model.onnx"].encode(), HEX.encode()), "is not that of the files that it lists"),
    ],
)
def test_another_statement_is_refused(text: bytes, reason: str) -> None:
    """The refusal is one line that names the member."""
    with pytest.raises(Unverified) as refused:
        statement.read(text)
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shards", "serialization method of model.sig is 'shards'"),
        ("blake3", "by 'blake3'; expected sha256 or blake2b"),
    ],
)
def test_what_the_formats_own_tool_can_do_besides_is_refused(name: str, reason: str) -> None:
    """The refusal says what is expected instead."""
    with pytest.raises(Unverified, match=reason):
        statement.read(envelope.read((SIGNED / f"{name}.sig").read_bytes()).payload)


@given(
    st.sampled_from(["_type", "subject", "predicateType", "predicate"]),
    st.recursive(st.none() | st.integers() | st.text(), lambda v: st.lists(v) | st.dictionaries(st.text(), v)),
)
def test_any_member_is_read_or_refused(name: str, value: Any) -> None:
    """No other exception is raised."""
    with pytest.raises(Unverified):
        statement.read(json.dumps({**json.loads(GOOD), name: value}).encode())


@given(st.lists(st.fixed_dictionaries({}, optional={"name": st.text(), "algorithm": st.text(), "digest": st.text()})))
def test_any_resources_are_read_or_refused(resources: list[dict[str, str]]) -> None:
    """No other exception is raised."""
    with pytest.raises(Unverified):
        statement.read(payload(*resources))

"""handler.stores.signing.policy: what DRAGOMAN_VERIFY trusts, with versions that the format's own tool has signed."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from handler.settings import InvalidSettings, Settings
from handler.stores import open_store
from handler.stores.signing.documents import Unverified
from handler.stores.signing.policy import VerifyPolicy
from handler.stores.signing.store import prove
from tests.support.signing import SIGNED, key, private, public

if TYPE_CHECKING:
    from pathlib import Path

KEY = {"DRAGOMAN_VERIFY_KEY": str(SIGNED / "key.pem")}
ROOTS = {"DRAGOMAN_VERIFY_ROOTS": str(SIGNED / "root.pem")}
RELEASE = {"DRAGOMAN_VERIFY_IDENTITY": "release@example.com"}
SUBJECT = {"DRAGOMAN_VERIFY_IDENTITY": "CN=release,O=Models"}


def policy(verify: str = "signature", **variables: str) -> VerifyPolicy:
    return VerifyPolicy.of(Settings.from_env({"DRAGOMAN_VERIFY": verify, **variables}))


def version(folder: Path, signature: str) -> Path:
    """Returns a copy of the version with one of its signatures."""
    shutil.copytree(SIGNED / "1", folder / "1")
    shutil.copy(SIGNED / f"{signature}.sig", folder / "1" / "model.sig")
    return folder / "1"


@pytest.mark.parametrize(
    ("signature", "variables", "signer"),
    [
        ("key", KEY, "key:"),
        ("key", KEY | ROOTS, "key:"),
        ("blake2", KEY, "key:"),
        ("certificate", ROOTS, "certificate:CN=release,O=Models"),
        ("certificate", ROOTS | RELEASE, "certificate:CN=release,O=Models"),
        ("certificate", ROOTS | SUBJECT, "certificate:CN=release,O=Models"),
    ],
)
def test_what_the_formats_own_tool_has_signed_is_verified(
    tmp_path: Path, signature: str, variables: dict[str, str], signer: str
) -> None:
    """The signatures have keys and certificates, and each supported hash."""
    proof = prove(version(tmp_path, signature), policy(**variables))
    assert proof.signer.startswith(signer)
    assert len(proof.digest) == 64


@pytest.mark.parametrize(
    ("signature", "variables", "reason"),
    [
        ("key", {"DRAGOMAN_VERIFY_KEY": public(key())}, "is signed by the key"),
        ("key", ROOTS, "is signed with a key"),
        ("certificate", KEY, "is signed with a certificate"),
        ("certificate", {"DRAGOMAN_VERIFY_IDENTITY": "x", **ROOTS}, "is not an expected identity"),
        ("certificate", {"DRAGOMAN_VERIFY_IDENTITY": "CN=release;O=Models", **ROOTS}, "is not an expected identity"),
        ("shards", KEY, "serialization method"),
        ("blake3", KEY, "by 'blake3'"),
    ],
)
def test_what_it_has_signed_otherwise_is_refused(
    tmp_path: Path, signature: str, variables: dict[str, str], reason: str
) -> None:
    """The refusal has the reason."""
    with pytest.raises(Unverified, match=reason):
        prove(version(tmp_path, signature), policy(**variables))


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ("a@x.org, b.x.org,,release", ("a@x.org", "b.x.org", "release")),
        ("CN=release, O=Models", ("CN=release,O=Models",)),
        ("a@x.org,CN=release,O=Models,https://x.org/?q=1", ("a@x.org", "CN=release,O=Models", "https://x.org/?q=1")),
        ("CN=a,O=M; CN=b,O=M;c", ("CN=a,O=M", "CN=b,O=M", "c")),
        (r"CN=a,O=Models\, Inc.,2.5.4.11=x\;y", (r"CN=a,O=Models\, Inc.,2.5.4.11=x\;y",)),
        ("https://ci.example/job;v=1,CN = a, O = M", ("https://ci.example/job;v=1", "CN=a,O=M")),
        ("a@x.org;CN=b,O=c", ("a@x.org", "CN=b,O=c")),
        ("", ()),
    ],
)
def test_a_subject_is_one_name_with_its_commas(value: str, names: tuple[str, ...]) -> None:
    """Otherwise each of its parts would be trusted by itself."""
    assert Settings.from_env({"DRAGOMAN_VERIFY_IDENTITY": value}).verify_identity == names


def test_a_folder_without_a_signature_is_refused(tmp_path: Path) -> None:
    """A huge file in its place is not read to its end."""
    folder = version(tmp_path, "key")
    with (folder / "model.sig").open("r+b") as file:
        file.truncate(2**33)
    with pytest.raises(Unverified, match="has more than 8388608 bytes"):
        prove(folder, policy(**KEY))
    (folder / "model.sig").unlink()
    with pytest.raises(Unverified, match="it has no model.sig: sign it"):
        prove(folder, policy(**KEY))


@pytest.mark.parametrize(
    ("variables", "reason"),
    [
        ({}, "DRAGOMAN_VERIFY is 'signature'; expected DRAGOMAN_VERIFY_KEY"),
        ({"DRAGOMAN_VERIFY_KEY": "/none"}, "DRAGOMAN_VERIFY_KEY is '/none', which cannot be read: No such file"),
        ({"DRAGOMAN_VERIFY_KEY": str(SIGNED / "1" / "model.onnx")}, "DRAGOMAN_VERIFY_KEY .*(not PEM|no PEM block)"),
        ({"DRAGOMAN_VERIFY_KEY": private(key()).decode()}, "DRAGOMAN_VERIFY_KEY holds a PEM block 'PRIVATE KEY'"),
        ({"DRAGOMAN_VERIFY_KEY": str(SIGNED / "root.pem")}, "DRAGOMAN_VERIFY_KEY holds a PEM block 'CERTIFICATE'"),
        ({"DRAGOMAN_VERIFY_ROOTS": str(SIGNED / "key.pem")}, "DRAGOMAN_VERIFY_ROOTS holds a PEM block 'PUBLIC KEY'"),
        ({"DRAGOMAN_VERIFY": "yes"}, "DRAGOMAN_VERIFY is 'yes'; expected one of off, digest, code, signature"),
    ],
)
def test_wrong_settings_end_the_start(variables: dict[str, str], reason: str) -> None:
    """The error is one line without the key."""
    with pytest.raises(InvalidSettings, match=reason) as refused:
        open_store(Settings.from_env({"DRAGOMAN_VERIFY": "signature", **variables}))
    assert "\n" not in str(refused.value)


def test_a_key_may_be_text_on_one_line(tmp_path: Path) -> None:
    """Consoles keep a key so."""
    text = (SIGNED / "key.pem").read_text()
    for variant in (text, text.replace("\n", "\\n"), text + public(key())):
        assert prove(version(tmp_path / str(len(variant)), "key"), policy(DRAGOMAN_VERIFY_KEY=variant)).signer


def test_digests_need_neither_key_nor_library(tmp_path: Path) -> None:
    """The manifest counts, whoever has signed it."""
    assert prove(version(tmp_path, "key"), policy("digest")).signer == ""

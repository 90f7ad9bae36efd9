"""handler.stores.signing.envelope and documents: the permitted forms of a signature file."""

from __future__ import annotations

import contextlib
import json
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler.stores.signing import envelope
from handler.stores.signing.documents import Unverified
from handler.stores.signing.envelope import Envelope
from tests.support.signing import SIGNED, sign

FILES = {"model.onnx": b"x"}
GOOD = json.loads(sign(FILES))


def changed(path: str, value: Any) -> bytes:
    """Returns a correct file with another member. `path`: separated by dots."""
    document = json.loads(json.dumps(GOOD))
    *outer, last = path.split(".")
    inner = document
    for name in outer:
        inner = inner[name]
    inner[last] = value
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", "model.sig is not JSON"),
        (b"\xff{}", "model.sig is not JSON"),
        (b"[" * 100_000, "model.sig is not JSON"),
        (b"1" * 5000, "model.sig is not JSON|model.sig has no mediaType"),
        (b"[]", "model.sig has no mediaType"),
        (b'{"a": 1, "a": 2}', "model.sig has the member 'a' twice"),
        (b" " * (envelope.LARGEST + 1), "model.sig has more than 8388608 bytes"),
        (changed("mediaType", "x" * 999), "mediaType of model.sig is 'xxx"),
        (changed("dsseEnvelope", None), "model.sig has no dsseEnvelope"),
        (changed("dsseEnvelope.payloadType", "text/plain"), "payloadType of model.sig is 'text/plain'"),
        (changed("dsseEnvelope.payload", "?"), "payload of model.sig is not base64"),
        (changed("dsseEnvelope.payload", "é"), "payload of model.sig is not base64"),
        (changed("dsseEnvelope.signatures", [{}, {}]), "model.sig has 2 signatures; expected one"),
        (changed("dsseEnvelope.signatures", [7]), "model.sig has no sig"),
        (changed("verificationMaterial", {}), "model.sig has no publicKey"),
        (changed("verificationMaterial.publicKey", {"hint": 7}), "hint of model.sig is not text"),
        (changed("verificationMaterial.tlogEntries", [{}]), "is a keyless signature of Sigstore"),
        (changed("verificationMaterial", {"certificate": {"rawBytes": "eA=="}}), "is a keyless signature of Sigstore"),
        (
            changed("verificationMaterial", {"x509CertificateChain": {"certificates": []}}),
            "model.sig has 0 certificates",
        ),
        (
            changed("verificationMaterial", {"x509CertificateChain": {"certificates": [{}] * 9}}),
            "model.sig has 9 certificates; expected 1 to 8",
        ),
    ],
    ids=map(str, count()),
)
def test_another_form_is_refused(text: bytes, reason: str) -> None:
    """The refusal is one bounded line that names the member."""
    with pytest.raises(Unverified) as refused:
        envelope.read(text)
    assert any(each in str(refused.value) for each in reason.split("|"))
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(
    "written", [Envelope(b"p", None, "h"), Envelope(b"p", b"s", "h"), Envelope(b"", b"s", None, (b"c", b"d"))]
)
def test_what_is_written_can_be_read(written: Envelope) -> None:
    """The cases are a key, certificates, and no signature."""
    assert envelope.read(envelope.write(written)) == written


def test_the_formats_own_files_have_this_form() -> None:
    """Each member is as model_signing 1.1.1 writes it."""
    for name in ("key.sig", "certificate.sig"):
        text = (SIGNED / name).read_bytes()
        assert json.loads(envelope.write(envelope.read(text))) == json.loads(text)


VALUES: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(),
    lambda v: st.lists(v) | st.dictionaries(st.text(), v),
    max_leaves=5,
)
PATHS = [
    "mediaType",
    "dsseEnvelope",
    "verificationMaterial",
    "verificationMaterial.publicKey",
    "dsseEnvelope.signatures",
]


@given(st.sampled_from([*PATHS, "dsseEnvelope.payload", "dsseEnvelope.payloadType"]), VALUES)
def test_any_member_is_read_or_refused(path: str, value: Any) -> None:
    """No other exception is raised."""
    with contextlib.suppress(Unverified):
        envelope.read(changed(path, value))


@given(st.binary())
def test_any_bytes_are_refused(text: bytes) -> None:
    """No other exception is raised."""
    with pytest.raises(Unverified):
        envelope.read(text)

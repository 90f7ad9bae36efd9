"""handler.stores.signing.keys: which keys and certificates are trusted."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given
from hypothesis import strategies as st

from handler.stores.signing.documents import Unverified
from handler.stores.signing.envelope import Envelope
from handler.stores.signing.keys import PrivateSigner, TrustedSigners, WrongKey, private_key
from tests.support.signing import DIGITAL, certificate, key, pem, private, public

ROOT = certificate("root", "root", ca=True)
MIDDLE = certificate("middle", "root", ca=True)
MAIL = x509.SubjectAlternativeName([x509.RFC822Name("a@b.example")])
LEAF = certificate("leaf", "middle", more=(DIGITAL, MAIL))
CHAIN = (LEAF, MIDDLE)


def by_certificates(*chain: x509.Certificate, signer: str = "leaf") -> Envelope:
    return PrivateSigner(key(signer), chain).sign(b"payload")


def trusting(*roots: x509.Certificate, names: tuple[str, ...] = ()) -> TrustedSigners:
    return TrustedSigners.of("", pem(*roots), names)


@pytest.mark.parametrize("curve", [ec.SECP256R1, ec.SECP384R1, ec.SECP521R1])
def test_a_key_signs_for_its_public_key(curve: type[ec.EllipticCurve]) -> None:
    """The rule holds on each curve of the format, with that curve's hash; one of several trusted keys is enough."""
    signed = PrivateSigner(private_key(private(key("k", curve)))).sign(b"payload")
    trusted = TrustedSigners.of(public(key("other")) + public(key("k", curve)), "", ())
    assert trusted.verify(signed) == f"key:{signed.hint}"
    for wrong in (signed._replace(payload=b"Payload"), signed._replace(signature=b"")):
        with pytest.raises(Unverified, match="is not one of its content by its signer"):
            trusted.verify(wrong)


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        (PrivateSigner(key("another")).sign(b""), "is signed by the key '.*', which is not trusted"),
        (PrivateSigner(key()).sign(b"")._replace(hint=None), "does not name its key"),
        (Envelope(b"", None, "x"), "has digests and no signature"),
        (by_certificates(*CHAIN), "is signed with a certificate; expected a key"),
    ],
)
def test_other_signers_are_refused(envelope: Envelope, reason: str) -> None:
    """The refusal has what was expected."""
    with pytest.raises(Unverified, match=reason):
        TrustedSigners.of(public(key()), "", ()).verify(envelope)


RSA = rsa.generate_private_key(65537, 2048)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", ""),
        ("nothing", "holds no PEM block PUBLIC KEY"),
        (private(key()).decode(), "holds a PEM block 'PRIVATE KEY'; expected PUBLIC KEY"),
        (pem(ROOT), "holds a PEM block 'CERTIFICATE'; expected PUBLIC KEY"),
        (public(RSA), "holds a key of the kind RSA; expected an ECDSA key"),
        (public(ed25519.Ed25519PrivateKey.generate()), "holds a key of the kind Ed25519; expected an ECDSA key"),
        (public(key("k1", ec.SECP256K1)), "holds a key on the curve secp256k1; expected an ECDSA key"),
        (public(key()).replace("MFkw", "MFkx"), "holds a PUBLIC KEY that cannot be read"),
        ("-----BEGIN PUBLIC KEY-----\nMFkw\n-----END PUBLIC KEY-----", "holds a PUBLIC KEY that cannot be read"),
    ],
    ids=map(str, count()),
)
def test_other_keys_are_refused(text: str, reason: str) -> None:
    """The refusal is one line that does not quote them."""
    if not reason:
        assert TrustedSigners.of(text, "", ()).keys == {}
        return
    with pytest.raises(WrongKey, match=reason) as refused:
        TrustedSigners.of(text, "", ())
    assert "MFkw" not in str(refused.value)


@pytest.mark.parametrize(
    "content", [b"", b"x", public(key()).encode(), private(key())[:100], private(RSA)], ids=map(str, count())
)
def test_other_private_keys_are_refused(content: bytes) -> None:
    """Truncated files are refused, too."""
    with pytest.raises(WrongKey, match="holds (no private key|a key of the kind)"):
        private_key(content)


def test_a_certificate_below_a_trusted_root_signs() -> None:
    """Its validity has ended since: a model does not stop loading on that day."""
    assert trusting(ROOT).verify(by_certificates(*CHAIN)) == "certificate:CN=leaf"
    assert trusting(LEAF).verify(by_certificates(LEAF)) == "certificate:CN=leaf"


@pytest.mark.parametrize("name", ["a@b.example", "leaf", "CN=leaf"])
def test_the_signer_can_be_one_of_expected_names(name: str) -> None:
    """The name is an alternative name, the common name, or the whole subject."""
    trusting(ROOT, names=("x", name)).verify(by_certificates(*CHAIN))
    with pytest.raises(Unverified, match="is signed by 'CN=leaf', which is not an expected identity"):
        trusting(ROOT, names=(f"{name}x",)).verify(by_certificates(*CHAIN))


LATER = datetime.now(UTC) + timedelta(days=1)


@pytest.mark.parametrize(
    ("chain", "reason"),
    [
        ((LEAF,), "is not issued below a trusted root"),
        ((certificate("leaf", "middle", key("forger"), more=(DIGITAL,)), MIDDLE), "is not issued below a trusted root"),
        ((LEAF, certificate("middle", "root")), "is not issued below a trusted root"),
        ((LEAF, certificate("middle", "root", ca=True, more=(DIGITAL,))), "is not issued below a trusted root"),
        ((certificate("leaf", "leaf", more=(DIGITAL,)),), "is not issued below a trusted root"),
        ((certificate("leaf", "root"),), "is not one for digital signatures or for signing code"),
        ((certificate("leaf", "root", more=(DIGITAL,), begins=LATER),), "is not valid yet"),
    ],
    ids=["no issuer", "forged", "not a CA", "not for issuing", "its own", "not for signing", "not yet"],
)
def test_other_certificates_are_refused(chain: tuple[x509.Certificate, ...], reason: str) -> None:
    """Each step of the chain counts."""
    with pytest.raises(Unverified, match=reason):
        trusting(ROOT).verify(by_certificates(*chain))


def test_a_certificate_signs_only_for_its_own_key() -> None:
    """Another key cannot use it, either."""
    signed = by_certificates(*CHAIN)
    forged = PrivateSigner(key("forger")).sign(b"payload")
    with pytest.raises(Unverified, match="is not one of its content by its signer"):
        trusting(ROOT).verify(signed._replace(signature=forged.signature))
    with pytest.raises(WrongKey, match="is the certificate of another key"):
        by_certificates(*CHAIN, signer="forger")


@pytest.mark.parametrize("subject", [RSA, ed25519.Ed25519PrivateKey.generate(), key("k1", ec.SECP256K1)])
def test_a_certificate_of_another_kind_of_key_is_refused(subject: Any) -> None:
    """The format has three curves."""
    der = certificate("leaf", "root", subject=subject, more=(DIGITAL,))
    envelope = Envelope(b"", b"x", None, (der.public_bytes(Encoding.DER),))
    with pytest.raises(Unverified, match="the certificate of model.sig holds a key"):
        trusting(ROOT).verify(envelope)


@given(st.data())
def test_any_damage_to_a_certificate_is_refused(data: st.DataObject) -> None:
    """It may be truncated or changed anywhere; no other exception is raised."""
    signed = by_certificates(*CHAIN)
    der = bytearray(signed.certificates[0])
    position = data.draw(st.integers(0, len(der) - 1))
    der[position] ^= data.draw(st.integers(1, 255))
    cut = bytes(der[: data.draw(st.integers(0, len(der)))])
    for wrong in (bytes(der), cut):
        with pytest.raises(Unverified):
            trusting(ROOT).verify(signed._replace(certificates=(wrong, *signed.certificates[1:])))


def test_without_the_library_the_message_says_what_to_install() -> None:
    """A server that does not verify does not import it."""
    program = (
        "import sys; sys.modules['cryptography'] = None\n"
        "from handler.stores.signing import keys\n"
        "try: keys.public_key(b'')\n"
        "except keys.WrongKey as wrong: print(wrong)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "signatures need cryptography: pip install 'dragoman[signing]'\n"

"""Keys, signatures and certificates for tests, and a version that the format's own tool has signed."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from handler.stores.signing import envelope, statement
from handler.stores.signing.envelope import Envelope
from handler.stores.signing.keys import PrivateSigner

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

SIGNED: Final = Path(__file__).parent / "signed"
"""model_signing 1.1.1 has signed the version 1: key.sig by key.pem, certificate.sig by a chain below root.pem."""
DIGITAL: Final = x509.KeyUsage(True, *[False] * 8)  # noqa: FBT003 - digital_signature, and no other


@cache
def key(name: str = "publisher", curve: type[ec.EllipticCurve] = ec.SECP256R1) -> EllipticCurvePrivateKey:
    """Returns the key of that name, the same one for a run of the tests."""
    return ec.generate_private_key(curve())


def public(private: Any) -> str:
    """Returns a public key as PEM."""
    spki = serialization.PublicFormat.SubjectPublicKeyInfo
    text: bytes = private.public_key().public_bytes(serialization.Encoding.PEM, spki)
    return text.decode()


def private(key: Any) -> bytes:
    """Returns a private key as PEM."""
    form = serialization.PrivateFormat.PKCS8
    text: bytes = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    return text


def digests(files: dict[str, bytes]) -> dict[str, str]:
    """Returns the SHA-256 of each."""
    return {path: hashlib.sha256(content).hexdigest() for path, content in files.items()}


def sign(files: dict[str, bytes], signer: EllipticCurvePrivateKey | None = None, chain: Any = ()) -> bytes:
    """Returns the signature file of a version with these files."""
    made = PrivateSigner(signer or key(), chain)
    return envelope.write(made.sign(statement.write("1", digests(files), ())))


def unsigned(files: dict[str, bytes]) -> bytes:
    """Returns a signature file with digests and no signature."""
    return envelope.write(Envelope(statement.write("1", digests(files), ()), None))


def encoded(content: bytes) -> str:
    """Returns base64."""
    return b64encode(content).decode()


def certificate(
    name: str,
    issuer: str,
    signer: Any = None,
    *,
    subject: Any = None,
    ca: bool = False,
    more: tuple[Any, ...] = (),
    begins: datetime = datetime(2024, 1, 1, tzinfo=UTC),
) -> x509.Certificate:
    """Returns a certificate. The keys are those of the names unless others are passed."""
    distinguished = [x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (name, issuer)]
    builder = (
        x509.CertificateBuilder()
        .subject_name(distinguished[0])
        .issuer_name(distinguished[1])
        .public_key((subject or key(name)).public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=30))
    )
    for each in (*((x509.BasicConstraints(ca=True, path_length=None),) if ca else ()), *more):
        builder = builder.add_extension(each, critical=False)
    return builder.sign(signer or key(issuer), hashes.SHA256())


def pem(*certificates: x509.Certificate) -> str:
    """Returns certificates as PEM."""
    return "".join(each.public_bytes(serialization.Encoding.PEM).decode() for each in certificates)

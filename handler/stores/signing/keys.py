"""Keys and certificates: the signers that are trusted, and the one that signs. All of `cryptography` is used here.

The format has ECDSA keys on three curves, each with its own hash. A certificate's chain is verified as of the
beginning of the signing certificate's validity, as the format's own tool does: a signature has no trusted time, and
a model must not stop loading on the day that a certificate expires.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from core.errors import shown
from core.records import NamedTuple
from handler.stores.signing.documents import Unverified
from handler.stores.signing.envelope import FILE, Envelope

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey, EllipticCurvePublicKey
    from cryptography.x509 import Certificate
    from cryptography.x509.verification import ClientVerifier

BLOCK: Final = re.compile(r"-----BEGIN ([A-Z0-9 ]++)-----(?:[^-]++|-(?!----)|(?!))*+-----END ([A-Z0-9 ]++)-----")
"""A PEM block. `|(?!)` never matches, and Python before 3.11.5 needs it: see CONTRIBUTING.md."""
CURVES: Final = {"secp256r1": "SHA256", "secp384r1": "SHA384", "secp521r1": "SHA512"}
"""The hash that goes with each curve."""
EXPECTED: Final = "an ECDSA key on P-256, P-384 or P-521"


class WrongKey(Exception):
    """A key or certificate cannot be used. The message is one line that quotes nothing of it."""


@cache
def library() -> Any:
    """Returns the modules of `cryptography`. Raises WrongKey if it is not installed."""
    try:
        from cryptography import x509  # noqa: PLC0415 - 22 ms of cold start for servers that verify
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm  # noqa: PLC0415
        from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
        from cryptography.x509 import verification  # noqa: PLC0415
    except ImportError:
        raise WrongKey("signatures need cryptography: pip install 'dragoman[signing]'") from None
    return SimpleNamespace(
        x509=x509,
        ec=ec,
        hashes=hashes,
        serialization=serialization,
        verification=verification,
        InvalidSignature=InvalidSignature,
        refusals=(ValueError, TypeError, UnsupportedAlgorithm),
    )


def blocks(text: str, label: str) -> list[bytes]:
    """Returns the PEM blocks of a text. `label`: of each, such as PUBLIC KEY. Raises WrongKey for others, and none."""
    found = [(match[1], match[0]) for match in BLOCK.finditer(text) if match[1] == match[2]]
    for other, _ in found:
        if other != label:
            raise WrongKey(f"holds a PEM block {shown(other, 32)}; expected {label}")
    if not found:
        raise WrongKey(f"holds no PEM block {label}")
    return [f"{block}\n".encode() for _, block in found]


def public_key(pem: bytes) -> "EllipticCurvePublicKey":
    """Reads a public key. Raises WrongKey."""
    try:
        key: EllipticCurvePublicKey = library().serialization.load_pem_public_key(pem)
    except library().refusals:
        raise WrongKey("holds a PUBLIC KEY that cannot be read") from None
    _check_curve(key, library().ec.EllipticCurvePublicKey)
    return key


def private_key(pem: bytes, password: bytes | None = None) -> "EllipticCurvePrivateKey":
    """Reads a private key. Raises WrongKey."""
    try:
        key: EllipticCurvePrivateKey = library().serialization.load_pem_private_key(pem, password)
    except library().refusals as error:
        encrypted = isinstance(error, TypeError) and password is None
        raise WrongKey("is encrypted" if encrypted else "holds no private key that can be read") from None
    _check_curve(key, library().ec.EllipticCurvePrivateKey)
    return key


def _check_curve(key: Any, kind: type) -> None:
    if not isinstance(key, kind):
        found = type(key).__name__.strip("_").removesuffix("PublicKey").removesuffix("PrivateKey")
        raise WrongKey(f"holds a key of the kind {found}; expected {EXPECTED}")
    curve = getattr(key, "curve").name  # noqa: B009 - `kind` is imported late, and mypy does not know it
    if curve not in CURVES:
        raise WrongKey(f"holds a key on the curve {curve}; expected {EXPECTED}")


def certificates(text: str) -> list["Certificate"]:
    """Reads certificates in PEM. Raises WrongKey."""
    try:
        return [library().x509.load_pem_x509_certificate(pem) for pem in blocks(text, "CERTIFICATE")]
    except library().refusals:
        raise WrongKey("holds a CERTIFICATE that cannot be read") from None


def fingerprint(key: "EllipticCurvePublicKey") -> str:
    """Returns the format's name of a key, its hint: the SHA-256 of its PEM text."""
    serialization = library().serialization
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(pem).hexdigest()


def _algorithm(key: Any) -> Any:
    return library().ec.ECDSA(getattr(library().hashes, CURVES[key.curve.name])())


class TrustedSigners(NamedTuple):
    """The signers whose versions are loaded. `keys`: by fingerprint. `names`: of certificates; none for any."""

    keys: dict[str, "EllipticCurvePublicKey"]
    roots: Sequence["Certificate"] = ()
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, keys: str, roots: str, names: Iterable[str]) -> "TrustedSigners":
        """Reads keys and roots in PEM; an empty text has none. Raises WrongKey."""
        read = [public_key(pem) for pem in blocks(keys, "PUBLIC KEY")] if keys else []
        return cls({fingerprint(key): key for key in read}, certificates(roots) if roots else (), frozenset(names))

    def verify(self, envelope: Envelope) -> str:
        """Returns the name of the signer. Raises Unverified if it is not trusted, or did not sign these bytes."""
        if envelope.signature is None:
            raise Unverified(f"{FILE} has digests and no signature")
        if envelope.certificates:
            certificate = self._trusted(envelope.certificates)
            key: Any = certificate.public_key()
            name = f"certificate:{_subject(certificate)}"
        else:
            key = self._key(envelope.hint)
            name = f"key:{fingerprint(key)}"
        try:
            key.verify(envelope.signature, envelope.signed_bytes, _algorithm(key))
        except library().InvalidSignature:
            raise Unverified(f"the signature in {FILE} is not one of its content by its signer") from None
        return name

    def _key(self, hint: str | None) -> "EllipticCurvePublicKey":
        if not self.keys:
            raise Unverified(f"{FILE} is signed with a key; expected a certificate")
        if hint is None:
            raise Unverified(f"{FILE} does not name its key: sign it again with model_signing 1.0 or later")
        if hint not in self.keys:
            raise Unverified(f"{FILE} is signed by the key {shown(hint, 80)}, which is not trusted")
        return self.keys[hint]

    def _trusted(self, chain: Sequence[bytes]) -> "Certificate":
        """Returns the signer's certificate."""
        if not self.roots:
            raise Unverified(f"{FILE} is signed with a certificate; expected a key")
        try:
            signer, *others = [_certificate(each) for each in chain]
            _check_curve(signer.public_key(), library().ec.EllipticCurvePublicKey)
            permitted, names = _may_sign(signer), _names(signer)
        except WrongKey as wrong:
            raise Unverified(f"the certificate of {FILE} {wrong}") from None
        except Exception:  # noqa: BLE001 - the library's refusals have no common base, and the bytes are anybody's
            raise Unverified(f"{FILE} has a certificate that cannot be read") from None
        if not permitted:
            raise Unverified(f"the certificate of {FILE} is not one for digital signatures or for signing code")
        begins = signer.not_valid_before_utc
        if begins > datetime.now(UTC):
            raise Unverified(f"the certificate of {FILE} is not valid yet")
        self._chained(signer, others, begins)
        if self.names and not self.names & names:
            raise Unverified(f"{FILE} is signed by {shown(_subject(signer), 128)}, which is not an expected identity")
        found: Certificate = signer
        return found

    def _chained(self, signer: "Certificate", others: Sequence["Certificate"], at: datetime) -> None:
        try:
            _verifier(self.roots, at).verify(signer, list(others))
        except library().verification.VerificationError:
            raise Unverified(f"the certificate of {FILE} is not issued below a trusted root") from None
        except Exception:  # noqa: BLE001 - as above
            raise Unverified(f"{FILE} has a certificate that cannot be read") from None


def _certificate(der: bytes) -> Any:
    """Reads a certificate from its only encoding: the last bits of its signature could be written in other ways."""
    certificate = library().x509.load_der_x509_certificate(der)
    if not der.endswith(b"\0" + certificate.signature):
        raise ValueError("unused bits")
    return certificate


def _verifier(roots: Sequence["Certificate"], at: datetime) -> "ClientVerifier":
    """Returns what verifies a chain. A signer needs no name that TLS knows; every issuer must be a CA."""
    x509, verification = library().x509, library().verification
    agnostic = verification.Criticality.AGNOSTIC
    issuer = (
        verification.ExtensionPolicy.permit_all()
        .require_present(x509.BasicConstraints, agnostic, _is_ca)
        .may_be_present(x509.KeyUsage, agnostic, _may_issue)
    )
    builder = verification.PolicyBuilder().store(verification.Store(list(roots))).time(at.replace(tzinfo=None))
    policies = builder.extension_policies(ca_policy=issuer, ee_policy=verification.ExtensionPolicy.permit_all())
    verifier: ClientVerifier = policies.build_client_verifier()
    return verifier


def _is_ca(_policy: Any, _certificate: Any, constraints: Any) -> None:
    if not constraints.ca:
        raise ValueError("not a CA")


def _may_issue(_policy: Any, _certificate: Any, usage: Any) -> None:
    if usage is not None and not usage.key_cert_sign:
        raise ValueError("not for certificates")


def _may_sign(certificate: Any) -> bool:
    x509, extensions = library().x509, certificate.extensions
    for extension in extensions:
        if isinstance(extension.value, x509.KeyUsage) and extension.value.digital_signature:
            return True
        if (
            isinstance(extension.value, x509.ExtendedKeyUsage)
            and x509.ExtendedKeyUsageOID.CODE_SIGNING in extension.value
        ):
            return True
    return False


def _names(certificate: Any) -> frozenset[str]:
    """Returns the names of a certificate: alternative names, common names, and the whole subject (RFC 4514)."""
    x509 = library().x509
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    names = {certificate.subject.rfc4514_string(), *(str(each.value) for each in common)}
    for extension in certificate.extensions:
        if isinstance(extension.value, x509.SubjectAlternativeName):
            for kind in (x509.RFC822Name, x509.UniformResourceIdentifier, x509.DNSName):
                names |= set(extension.value.get_values_for_type(kind))
    return frozenset(names)


def _subject(certificate: Any) -> str:
    """Returns a certificate's subject for logs and answers: printable, and bounded."""
    text = certificate.subject.rfc4514_string() or f"serial number {certificate.serial_number}"
    return "".join(each if each.isprintable() else "?" for each in text)[:256]


class PrivateSigner(NamedTuple):
    """Signs. `chain`: the signer's certificate and those up to a root, if it signs with one."""

    key: "EllipticCurvePrivateKey"
    chain: Sequence["Certificate"] = ()

    @property
    def name(self) -> str:
        """The signer's name, as `TrustedSigners.verify` returns it."""
        return f"certificate:{_subject(self.chain[0])}" if self.chain else f"key:{fingerprint(self.key.public_key())}"

    def sign(self, payload: bytes) -> Envelope:
        """Returns the signed envelope. Raises WrongKey if the certificate is another key's."""
        public, encoding = self.key.public_key(), library().serialization.Encoding.DER
        if self.chain and self.chain[0].public_key() != public:
            raise WrongKey("is the certificate of another key")
        chain = tuple(each.public_bytes(encoding) for each in self.chain)
        envelope = Envelope(payload, None, None if chain else fingerprint(public), chain)
        return envelope._replace(signature=self.key.sign(envelope.signed_bytes, _algorithm(self.key)))

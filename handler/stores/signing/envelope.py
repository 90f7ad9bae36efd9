"""The outer half of a signature file: a Sigstore bundle around a DSSE envelope.

    {"mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
     "verificationMaterial": {"publicKey": {"hint": ...}}
                          or {"x509CertificateChain": {"certificates": [{"rawBytes": ...}, ...]}},
     "dsseEnvelope": {"payload": ..., "payloadType": ..., "signatures": [{"sig": ..., "keyid": ""}]}}

Bytes are in base64. The hint is the SHA-256 of the public key's PEM text. The signature is that of `signed_bytes`
(https://github.com/secure-systems-lab/dsse, "protocol.md"), and not of the payload itself.
"""

import json
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from typing import Any, Final

from core.records import NamedTuple
from handler.stores.signing.documents import Unverified, member, parse, same

FILE: Final = "model.sig"
"""The name that the format's own tool gives a signature file. It lies in the version's folder."""
LARGEST: Final = 8 * 1024 * 1024
"""Bytes of a signature file: enough for 30,000 files in a version."""
MOST_CERTIFICATES: Final = 8
BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
IN_TOTO: Final = "application/vnd.in-toto+json"


class Envelope(NamedTuple):
    """A signature file as it was read. Nothing in it is trusted yet.

    `signature`: None if the file was not signed. `hint`: names the public key; `certificates`: DER, the signer's first.
    """

    payload: bytes
    signature: bytes | None
    hint: str | None = None
    certificates: tuple[bytes, ...] = ()

    @property
    def signed_bytes(self) -> bytes:
        """Returns the bytes that the signer has signed (DSSE's pre-authentication encoding)."""
        return b"DSSEv1 %d %s %d %s" % (len(IN_TOTO), IN_TOTO.encode(), len(self.payload), self.payload)


def read(text: bytes) -> Envelope:
    """Reads a signature file. Raises Unverified."""
    if len(text) > LARGEST:
        raise Unverified(f"{FILE} has more than {LARGEST} bytes")
    bundle = parse(text, FILE)
    same(member(bundle, "mediaType", str, FILE), BUNDLE, f"mediaType of {FILE}")
    envelope = member(bundle, "dsseEnvelope", dict, FILE)
    same(member(envelope, "payloadType", str, FILE), IN_TOTO, f"payloadType of {FILE}")
    payload = _bytes(envelope, "payload")
    signatures = member(envelope, "signatures", list, FILE)
    if len(signatures) > 1:
        raise Unverified(f"{FILE} has {len(signatures)} signatures; expected one")
    signature = _bytes(signatures[0], "sig") if signatures else None
    return Envelope(payload, signature, *_material(member(bundle, "verificationMaterial", dict, FILE)))


def _material(material: dict[str, Any]) -> tuple[str | None, tuple[bytes, ...]]:
    """Returns the hint and the certificates."""
    if material.get("certificate") or material.get("tlogEntries"):
        raise Unverified(f"{FILE} is a keyless signature of Sigstore; expected one with a key or a certificate chain")
    if "x509CertificateChain" in material:
        chain = member(material["x509CertificateChain"], "certificates", list, FILE)
        if not 0 < len(chain) <= MOST_CERTIFICATES:
            raise Unverified(f"{FILE} has {len(chain)} certificates; expected 1 to {MOST_CERTIFICATES}")
        return None, tuple(_bytes(each, "rawBytes") for each in chain)
    hint = member(material, "publicKey", dict, FILE).get("hint")
    if hint is not None and not isinstance(hint, str):
        raise Unverified(f"hint of {FILE} is not text")
    return hint or None, ()


def _bytes(document: Any, name: str) -> bytes:
    try:
        return b64decode(member(document, name, str, FILE), validate=True)
    except (NotBase64, ValueError):
        raise Unverified(f"{name} of {FILE} is not base64") from None


def write(envelope: Envelope) -> bytes:
    """Returns the text of a signature file."""
    material: dict[str, Any] = {"publicKey": {"hint": envelope.hint or ""}}
    if envelope.certificates:
        chain = [{"rawBytes": b64encode(each).decode()} for each in envelope.certificates]
        material = {"x509CertificateChain": {"certificates": chain}}
    signature = envelope.signature
    signatures = [] if signature is None else [{"sig": b64encode(signature).decode(), "keyid": ""}]
    bundle = {
        "mediaType": BUNDLE,
        "verificationMaterial": {**material, "tlogEntries": []},
        "dsseEnvelope": {
            "payload": b64encode(envelope.payload).decode(),
            "payloadType": IN_TOTO,
            "signatures": signatures,
        },
    }
    return json.dumps(bundle, separators=(",", ":")).encode()

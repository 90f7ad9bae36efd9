"""Makes the signature file of a version from its files, and checks one that is there."""

import json
from collections.abc import Iterator, Mapping, Sequence
from getpass import getpass
from pathlib import Path
from sys import stdin
from typing import TYPE_CHECKING, Final

from handler.commands.refused import Refused
from handler.settings.model import unsigned
from handler.stores.paths import expanded
from handler.stores.signing import envelope, statement
from handler.stores.signing.documents import Unverified
from handler.stores.signing.envelope import FILE, Envelope
from handler.stores.signing.keys import PrivateSigner, WrongKey, certificates, private_key
from handler.stores.signing.statement import GIT

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import Certificate

SKIPPED: Final = "__pycache__"
CURE: Final = f"sign it again, or remove {FILE}"


def signer(key: str | None, chain: Sequence[str]) -> PrivateSigner | None:
    """Reads a private key, and the files of its certificate and those above it. Raises Refused."""
    if key is None:
        if chain:
            raise Refused(f"{chain[0]} is a certificate without its private key")
        return None
    content = _read(key)
    try:
        private = private_key(content)
    except WrongKey as wrong:
        if str(wrong) != "is encrypted" or not stdin.isatty():
            raise Refused(f"{key} {wrong}") from None
        private = _decrypted(key, content)
    return PrivateSigner(private, _chain(private, chain))


def _chain(private: "EllipticCurvePrivateKey", paths: Sequence[str]) -> "list[Certificate]":
    found: list[Certificate] = []
    for path in paths:
        try:
            found += certificates(_read(path).decode(errors="replace"))
            PrivateSigner(private, found).sign(b"")
        except WrongKey as wrong:
            raise Refused(f"{path} {wrong}") from None
    return found


def _decrypted(key: str, content: bytes) -> "EllipticCurvePrivateKey":
    try:
        return private_key(content, getpass(f"password of {key}: ").encode())
    except WrongKey as wrong:
        raise Refused(f"{key} {wrong}") from None


def _read(path: str) -> bytes:
    try:
        return expanded(path).read_bytes()
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None


def make(name: str, digests: Mapping[str, str], signs: PrivateSigner | None, ignored: Sequence[str] = ()) -> bytes:
    """Returns the text of a signature file. `digests`: SHA-256 by path. `signs`: None for digests alone."""
    payload = statement.write(name, {path: digests[path] for path in digests if path != FILE}, ignored)
    return envelope.write(Envelope(payload, None) if signs is None else signs.sign(payload))


def check(text: bytes, digests: Mapping[str, str]) -> None:
    """Raises Refused if a signature file is not one of these files. Does not look at its signer."""
    try:
        manifest = statement.read(envelope.read(text).payload)
    except Unverified as refusal:
        raise Refused(f"{refusal}: {CURE}") from None
    listed = {path: checksum.value for path, checksum in manifest.files.items() if checksum.algorithm == "sha256"}
    there = {path: digests[path] for path in digests if path != FILE and not manifest.ignores(path)}
    if differing := sorted(path for path in {*listed, *there} if listed.get(path) != there.get(path)):
        raise Refused(f"{FILE} does not list {differing[0]!r} as it is: {CURE}")


def hidden(folder: Path) -> Iterator[str]:
    """Yields the paths that are not pushed, and not signed: hidden ones, and what Python has compiled."""
    for path in sorted(folder.rglob("*")):
        relative = path.relative_to(folder)
        if any(part.startswith(".") or part == SKIPPED for part in relative.parts[:-1]):
            continue
        if relative.name not in GIT and (relative.name.startswith(".") or relative.name == SKIPPED):
            yield relative.as_posix()


def with_settings(model: bytes | None, own: bytes | None) -> bytes | None:
    """Returns a version's own settings with those of its model that a signature has to cover; None if they have them.

    Raises ServingError for settings that are not an object.
    """
    members = unsigned(model, own)
    if not members:
        return None
    return json.dumps({**members, **(json.loads(own) if own is not None else {})}, indent=2).encode() + b"\n"

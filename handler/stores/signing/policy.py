"""Decides whether a version's signature file has what DRAGOMAN_VERIFY asks for."""

from collections.abc import Callable
from typing import Final

from core.records import NamedTuple
from handler.settings import InvalidSettings, Settings
from handler.stores import Proof
from handler.stores.paths import expanded
from handler.stores.signing import envelope, statement
from handler.stores.signing.documents import Unverified
from handler.stores.signing.envelope import FILE
from handler.stores.signing.keys import TrustedSigners, WrongKey
from handler.stores.signing.statement import Manifest

DATA: Final = "model.onnx"
"""A version with this file, and without CODE, runs nothing of its own."""
CODE: Final = "model.py"
UNSIGNED: Final = f"it has no {FILE}: sign it with `dragoman sign`, or push it with --sign-key"


def _is_code(manifest: Manifest) -> bool:
    return DATA not in manifest.files or CODE in manifest.files


SIGNED: Final[dict[str, Callable[[Manifest], bool]]] = {
    "digest": lambda _: False,
    "code": _is_code,
    "signature": lambda _: True,
}
"""Whether a version with these files needs a trusted signature, by DRAGOMAN_VERIFY. Every version needs its digests."""


class VerifyPolicy(NamedTuple):
    """`signers`: None if no signature is verified."""

    needs_signer: Callable[[Manifest], bool]
    signers: TrustedSigners | None

    @classmethod
    def of(cls, settings: Settings) -> "VerifyPolicy":
        """Reads the keys and certificates that the settings name. Raises InvalidSettings."""
        if settings.verify == "digest":
            return cls(SIGNED[settings.verify], None)
        return cls(SIGNED[settings.verify], trusted(settings))

    def judge(self, text: bytes | None) -> tuple[Manifest, Proof]:
        """Returns the files that a version must have. `text`: its signature file. Raises Unverified."""
        if text is None:
            raise Unverified(UNSIGNED)
        read = envelope.read(text)
        manifest = statement.read(read.payload)
        signer = ""
        if self.signers is not None and self.needs_signer(manifest):
            signer = self.signers.verify(read)
        return manifest, Proof(manifest.digest, signer)


def trusted(settings: Settings) -> TrustedSigners:
    """Returns the signers that the settings trust. Raises InvalidSettings."""
    if not settings.verify_key and not settings.verify_roots:
        raise InvalidSettings(
            f"DRAGOMAN_VERIFY is {settings.verify!r}; expected DRAGOMAN_VERIFY_KEY (public keys) or "
            "DRAGOMAN_VERIFY_ROOTS (certificates) beside it"
        )
    keys = pem(settings.verify_key, "DRAGOMAN_VERIFY_KEY")
    roots = pem(settings.verify_roots, "DRAGOMAN_VERIFY_ROOTS")
    for variable, some in (("DRAGOMAN_VERIFY_KEY", (keys, "", ())), ("DRAGOMAN_VERIFY_ROOTS", ("", roots, ()))):
        try:
            TrustedSigners.of(*some)
        except WrongKey as wrong:
            raise InvalidSettings(_refusal(variable, wrong)) from None
    return TrustedSigners.of(keys, roots, settings.verify_identity)


def _refusal(variable: str, wrong: WrongKey) -> str:
    text = str(wrong)
    return f"{variable} {text}" if text.startswith("holds") else text


def pem(setting: str, variable: str) -> str:
    """Returns the PEM text of a setting, which is the text itself or its file. Raises InvalidSettings."""
    if not setting or "-----BEGIN" in setting:
        return setting.replace("\\n", "\n")  # a shell or a console can have put the text on one line
    try:
        return expanded(setting).read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not PEM"
        raise InvalidSettings(f"{variable} is {setting[:256]!r}, which cannot be read: {reason}") from None

"""`dragoman sign` and `dragoman verify`, and the signature that `dragoman push --sign-key` adds to a version."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from core.errors import ServingError, counted
from handler.backends import PIPELINE
from handler.commands import results, signature, staging
from handler.commands.options import CommandOptions
from handler.commands.publish import places, shelf, targets, versions
from handler.commands.publish.files import LocalFile, digest, local_file
from handler.commands.publish.versions import LocalVersion
from handler.commands.refused import Refused
from handler.lifecycle.repository import VERSION
from handler.settings import InvalidSettings, Settings
from handler.settings.model import FILE as SETTINGS
from handler.settings.model import unsigned
from handler.stores import Proof, open_store, paths
from handler.stores.progress import Progress
from handler.stores.signing.documents import Unverified
from handler.stores.signing.envelope import FILE
from handler.stores.signing.keys import PrivateSigner
from handler.stores.signing.policy import VerifyPolicy
from handler.stores.signing.store import prove


def sign(options: CommandOptions, _: Settings) -> None:
    """Writes the signature file of each version. Raises Refused, ServingError."""
    signs = signature.signer(options.key, options.cert)
    for version, text in _local(options):
        assert version.folder is not None  # noqa: S101 - _local has none without
        for file in version.files:
            if file.source.is_symlink():
                raise Refused(f"{file.source} is a symbolic link, which a signature does not cover")
        made = signed(version, text, signs, version.folder)
        digest, files = _digest_of(version.folder), len(made.files) - 1
        by = "digests only" if signs is None else f"signed by {signs.name}"
        line = f"{version.folder}: {by}, digest sha256:{digest}, {counted(files, 'file')}"
        facts = {"place": str(version.folder), "signer": None if signs is None else signs.name, "sha256": digest}
        results.tell(options, line, **facts, files=files)


def _digest_of(folder: Path) -> str:
    return VerifyPolicy(lambda _: False, None).judge((folder / FILE).read_bytes())[1].digest


def signed(version: LocalVersion, model_settings: bytes | None, signs: PrivateSigner | None, to: Path) -> LocalVersion:
    """Returns a version with a new signature file, written into the folder `to`.

    Its own settings take over what its model's settings say: a signature covers the version's files only.
    """
    files = {file.path: file for file in version.files}
    own = version.source(SETTINGS)
    if merged := signature.with_settings(model_settings, None if own is None else own.read_bytes()):
        files[SETTINGS] = _write(to, SETTINGS, merged)
    files.pop(FILE, None)
    hidden = [] if version.folder is None else list(signature.hidden(version.folder))
    name = "model" if version.folder is None else version.folder.resolve().name
    text = signature.make(name, {path: digest(file) for path, file in files.items()}, signs, hidden)
    files[FILE] = _write(to, FILE, text)
    return version._replace(files=tuple(files.values()))


def _write(folder: Path, name: str, text: bytes) -> LocalFile:
    staging.write(folder / name, text)
    return local_file(name, folder / name)


def _local(options: CommandOptions) -> Iterator[tuple[LocalVersion, bytes | None]]:
    """Yields the versions of a folder, each with its model's settings. Raises Refused."""
    path = paths.local(options.model)
    if paths.is_file(path):
        raise Refused(f"{path} is a file; expected the folder of a version, or a model's")
    found = versions.find(path, versions.number(options.version))
    if found.versions[0].folder == path:
        places.check_folder(path)
        _check_covered(found.versions[0], path)
    settings = found.settings
    if settings is None and VERSION.fullmatch(path.resolve().name):
        settings = path.resolve().parent / SETTINGS
    text = settings.read_bytes() if settings is not None and settings.is_file() else None
    for version in found.versions:
        yield version, text


def _check_covered(version: LocalVersion, path: Path) -> None:
    """Raises Refused for a model's folder without a version, whose pipeline is in the model's own settings."""
    if version.last in versions.MARKERS or VERSION.fullmatch(path.resolve().name):
        return
    if (outside := versions.pipeline_outside(path)) is not None:
        raise Refused(
            f"{outside} has the pipeline outside a version, where no signature covers it: put the pipeline into "
            f"{path / '1' / PIPELINE}, and sign {path}"
        )


def verify(options: CommandOptions, settings: Settings) -> None:
    """Verifies each version as a server would, and prints its signer. Raises Refused, ServingError."""
    settings = _trusting(options, settings)
    proofs = _in_bucket(options, settings) if targets.is_remote(options.model) else _on_disk(options, settings)
    for name, proof in proofs:
        facts = {"place": name, "signer": proof.signer or None, "sha256": proof.digest}
        results.tell(options, f"{name}: verified, {proof}", **facts)


def _trusting(options: CommandOptions, settings: Settings) -> Settings:
    """Returns the settings with the keys that the command line names in the place of all others."""
    if options.digest:
        return settings._replace(verify="digest")
    if options.key or options.roots:
        settings = settings._replace(verify_key=options.key or "", verify_roots=options.roots or "")
    if options.identity:
        settings = settings._replace(verify_identity=tuple(options.identity))
    if not settings.verify_key and not settings.verify_roots:
        raise Refused(
            "no signer is trusted: name a public key with --key or certificates with --roots, or use --digest"
        )
    return settings._replace(verify="signature")


def _on_disk(options: CommandOptions, settings: Settings) -> Iterator[tuple[str, Proof]]:
    policy = _policy(options, settings)
    for version, text in _local(options):
        assert version.folder is not None  # noqa: S101 - _local has none without
        try:
            proof = prove(version.folder, policy)
        except Unverified as refusal:
            raise Refused(f"{version.folder} is not verified: {refusal}") from None
        own = version.source(SETTINGS)
        _check_settings(str(version.folder), text, None if own is None else own.read_bytes(), proof)
        yield str(version.folder), proof


def _policy(options: CommandOptions, settings: Settings) -> VerifyPolicy:
    """Returns the policy of the flags. Raises InvalidSettings, Refused: a message about a flag names the flag."""
    try:
        return VerifyPolicy.of(settings)
    except InvalidSettings as error:
        if not options.key and not options.roots:
            raise
        text = str(error).replace("DRAGOMAN_VERIFY_KEY", "--key").replace("DRAGOMAN_VERIFY_ROOTS", "--roots")
        raise Refused(text) from None


def _in_bucket(options: CommandOptions, settings: Settings) -> Iterator[tuple[str, Proof]]:
    _policy(options, settings)
    source = targets.model(options.model)
    there = shelf.model(settings, source)
    number = versions.number(options.version)
    wanted = [each for each in there.versions if number in (None, each.number)]
    if not wanted:
        raise Refused(f"there is no {'version' if number is None else f'version {number}'} of a model at {source}")
    for version in sorted(wanted):
        with TemporaryDirectory(prefix="verify-") as folder:
            here = settings._replace(repository=source.repository, cache=Path(folder, "cache"), cache_bytes=None)
            store = open_store(here._replace(cache_is_default=False, cache_shared=True))
            fetched = store.fetch(source.name, version.folder, version.files, Progress())
            assert fetched.proof is not None  # noqa: S101 - such a store has verified it
            own = fetched.path / SETTINGS
            name = f"{source}/{version.folder}"
            _check_settings(name, there.settings, own.read_bytes() if own.is_file() else None, fetched.proof)
            yield name, fetched.proof


def _check_settings(name: str, model: bytes | None, own: bytes | None, proof: Proof) -> None:
    """Raises Refused where a server would refuse the model's settings, which are not signed."""
    if proof.signer and (members := unsigned(model, own)):
        raise Refused(f"{name} is signed, and {next(iter(members))!r} in its model's {SETTINGS} is not: sign it again")


def prepared(
    version: LocalVersion, model_settings: bytes | None, signs: PrivateSigner | None, folder: Path
) -> LocalVersion:
    """Returns a version as it is pushed: signed anew, or with the signature that it has, if that is one of its files.

    `folder`: a temporary one. Raises Refused.
    """
    if signs is not None:
        try:
            return signed(version, model_settings, signs, folder)
        except ServingError as error:
            raise Refused(error.message) from None
    check(version)
    return version


def check(version: LocalVersion) -> None:
    """Raises Refused if a version has a signature file, and it is not one of the version's files."""
    if (path := version.source(FILE)) is not None:
        signature.check(path.read_bytes(), _digests(version.files))


def _digests(files: Sequence[LocalFile]) -> dict[str, str]:
    return {file.path: digest(file) for file in files}

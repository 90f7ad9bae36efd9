"""The inner half of a signature file: an in-toto statement, which lists a version's files with their digests.

    {"_type": "https://in-toto.io/Statement/v1",
     "subject": [{"name": <folder>, "digest": {"sha256": <of the files' digests, one after the other>}}],
     "predicateType": "https://model_signing/signature/v1.0",
     "predicate": {"serialization": {"method": "files", "hash_type": "sha256", "allow_symlinks": false,
                                     "ignore_paths": ["model.sig", ".git", ...]},
                   "resources": [{"name": "model.onnx", "algorithm": "sha256", "digest": <hexadecimal>}, ...]}}

The subject's digest does not cover the names: the signature does.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from core.errors import shown
from core.records import NamedTuple
from handler.stores.checksums import Checksum
from handler.stores.signing.documents import SHOWN, Unverified, member, parse, same
from handler.stores.signing.envelope import FILE

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://model_signing/signature/v1.0"
GIT: Final = (".git", ".gitattributes", ".github", ".gitignore")
"""The paths that the format's own tool ignores in every folder that it signs or verifies."""
DIGITS: Final = {"sha256": 64, "blake2b": 128}
"""The hash algorithms that can be verified, with the hexadecimal digits of a digest."""


class Manifest(NamedTuple):
    """The files that a version must have. `digest`: the subject's, SHA-256 in hexadecimal.

    `ignored`: paths that are permitted beside the files, each with everything below. `links`: files may be symbolic
    links.
    """

    files: Mapping[str, Checksum]
    digest: str
    ignored: tuple[str, ...] = ()
    links: bool = False

    def ignores(self, path: str) -> bool:
        """Decides whether a file is permitted although the manifest does not list it."""
        return any(PurePosixPath(path).is_relative_to(each) for each in (FILE, *GIT, *self.ignored))


def read(payload: bytes) -> Manifest:
    """Reads a statement. Raises Unverified."""
    statement = parse(payload, f"the payload of {FILE}")
    same(member(statement, "_type", str, FILE), STATEMENT, f"_type of {FILE}")
    same(member(statement, "predicateType", str, FILE), PREDICATE, f"predicateType of {FILE}")
    subjects = member(statement, "subject", list, FILE)
    if len(subjects) != 1:
        raise Unverified(f"{FILE} has {len(subjects)} subjects; expected one")
    digest = member(member(subjects[0], "digest", dict, FILE), "sha256", str, FILE)
    predicate = member(statement, "predicate", dict, FILE)
    serialization = member(predicate, "serialization", dict, FILE)
    same(member(serialization, "method", str, FILE), "files", f"serialization method of {FILE}")
    files = _files(member(predicate, "resources", list, FILE))
    if digest != _root(files.values()):
        raise Unverified(f"the digest in {FILE} is not that of the files that it lists")
    return Manifest(files, digest, _ignored(serialization), serialization.get("allow_symlinks") is True)


def _ignored(serialization: dict[str, Any]) -> tuple[str, ...]:
    paths = serialization.get("ignore_paths", [])
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise Unverified(f"ignore_paths of {FILE} is not a list of paths")
    return tuple(paths)


def _files(resources: list[Any]) -> dict[str, Checksum]:
    files: dict[str, Checksum] = {}
    for resource in resources:
        name = member(resource, "name", str, FILE)
        if not is_canonical(name):
            raise Unverified(f"{FILE} lists {shown(name, SHOWN)}, which is not a path inside the version's folder")
        if name in files:
            raise Unverified(f"{FILE} lists {shown(name, SHOWN)} twice")
        files[name] = _checksum(resource, name)
    if not files:
        raise Unverified(f"{FILE} lists no files")
    return files


def is_canonical(path: str) -> bool:
    """Decides whether a path is one of a file below the folder, written in the one way that it can be written.

    transfer.fetching.is_plain permits unprintable characters, too: a store's file may have any name.
    """
    segments = path.split("/")
    return path.isprintable() and "\\" not in path and not any(each in ("", ".", "..") for each in segments)


def _checksum(resource: Any, name: str) -> Checksum:
    algorithm = member(resource, "algorithm", str, FILE)
    if algorithm not in DIGITS:
        known = " or ".join(DIGITS)
        raise Unverified(f"{FILE} has a digest of {name!r} by {shown(algorithm, SHOWN)}; expected {known}")
    value = member(resource, "digest", str, FILE)
    if not re.fullmatch(f"[0-9a-f]{{{DIGITS[algorithm]}}}", value):
        raise Unverified(f"{FILE} has the {algorithm} digest {shown(value, SHOWN)} of {name!r}, which is not one")
    return Checksum(algorithm, value)


def _root(checksums: Iterable[Checksum]) -> str:
    return hashlib.sha256(b"".join(bytes.fromhex(each.value) for each in checksums)).hexdigest()


def write(name: str, digests: Mapping[str, str], ignored: Iterable[str]) -> bytes:
    """Returns a statement. `digests`: SHA-256, in hexadecimal, by path. `ignored`: paths besides FILE and GIT."""
    files = {
        path: Checksum("sha256", digests[path]) for path in sorted(digests, key=lambda each: PurePosixPath(each).parts)
    }
    statement = {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": _root(files.values())}}],
        "predicateType": PREDICATE,
        "predicate": {
            "serialization": {
                "method": "files",
                "hash_type": "sha256",
                "allow_symlinks": False,
                "ignore_paths": [FILE, *GIT, *ignored],
            },
            "resources": [
                {"name": path, "algorithm": checksum.algorithm, "digest": checksum.value}
                for path, checksum in files.items()
            ],
        },
    }
    return json.dumps(statement).encode()

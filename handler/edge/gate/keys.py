"""The keys that an operator has issued, as SHA-256 digests, each with a name, rights and models.

Keys stand in DRAGOMAN_KEYS, one in a line (or between semicolons), or in DRAGOMAN_KEYS_FILE, as lines or as JSON:

    ci sha256:9f86d081... infer,read iris*,wine

    [{"name": "ci", "sha256": "9f86d081...", "rights": ["infer", "read"], "models": ["iris*", "wine"]}]

Models are patterns; a key without them may use every model. A # begins a comment.

A key is found by the digest of the client's text. That comparison need not take a constant time: a client that
measures how many bytes of a digest are equal learns nothing, because it cannot choose the digest of its next guess.
A digest without a salt is enough, because a key is 32 random bytes: no dictionary holds it.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from core.errors import counted
from handler.edge.gate.identity import EVERY, Caller, patterns, rights_of
from handler.edge.gate.key_file import KeyFile
from handler.settings import InvalidSettings

log = logging.getLogger(__name__)
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
DIGEST: Final = re.compile(r"(?:sha256:)?([0-9a-fA-F]{64})")
LARGEST_FILE: Final = 4 * 1024 * 1024
COLUMNS: Final = range(3, 5)
MEMBERS: Final = frozenset(("name", "sha256", "rights", "models"))
ENCODING: Final = "utf-8-sig"
"""UTF-8, with or without the mark with which editors on Windows begin a file."""


class InvalidKeys(ValueError):
    """One line that names the entry and what was expected. It never quotes a value, which could be a key."""


class KeyRing:
    """The keys of this process. No other object holds them."""

    def __init__(self, text: str, file: str) -> None:
        """`text`: DRAGOMAN_KEYS. `file`: DRAGOMAN_KEYS_FILE, read again when it changes. Raises InvalidSettings."""
        self._file = KeyFile(Path(file), LARGEST_FILE) if file else None
        self._own = _settled("DRAGOMAN_KEYS", text)
        if text and not self._own:
            raise InvalidSettings("DRAGOMAN_KEYS: expected at least one key")
        self._keys = self._own
        if self._file is not None:
            try:
                content = self._file.read().decode(ENCODING)
            except (OSError, ValueError) as error:
                raise InvalidSettings(f"DRAGOMAN_KEYS_FILE cannot be read: {_reason(error)}") from None
            self._keys = self._own | _settled("DRAGOMAN_KEYS_FILE", content)

    def identity(self, digest: bytes) -> Caller | None:
        """Returns the owner of the key with a digest."""
        if self._file is not None:
            self._renew(self._file)
        return self._keys.get(digest)

    def _renew(self, file: KeyFile) -> None:
        """Reads the file again if it has changed. An unreadable one leaves the keys unchanged."""
        try:
            content = file.changed()
            if content is None:
                return
            self._keys = self._own | parsed(content.decode(ENCODING))
        except (OSError, ValueError) as error:
            log.error("DRAGOMAN_KEYS_FILE: %s; the keys that were read before stay valid", _reason(error))  # noqa: TRY400 - the message has all the facts
        else:
            log.info("DRAGOMAN_KEYS_FILE has changed; it has %s", counted(len(self._keys) - len(self._own), "key"))


def _settled(variable: str, text: str) -> dict[bytes, Caller]:
    try:
        return parsed(text)
    except ValueError as error:
        raise InvalidSettings(f"{variable}: {error}") from None


def _reason(error: Exception) -> str:
    return str(error.strerror or type(error).__name__) if isinstance(error, OSError) else str(error)


def parsed(text: str) -> dict[bytes, Caller]:
    """Returns the keys of a text, by digest. Raises InvalidKeys."""
    is_json = text.lstrip()[:1] in ("[", "{")
    keys: dict[bytes, Caller] = {}
    for place, entry in _documents(text) if is_json else _lines(text):
        digest, identity = _entry(place, entry)
        if digest in keys:
            raise InvalidKeys(f"{place}: a second entry for the same key")
        keys[digest] = identity
    return keys


def _lines(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, line in enumerate(re.split(r"[\n;]", text), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        if len(words) not in COLUMNS:
            raise InvalidKeys(f"line {number}: expected NAME sha256:DIGEST RIGHTS [MODELS]")
        name, digest, rights, *models = words
        split = {"rights": rights.split(","), "models": models[0].split(",") if models else [EVERY]}
        yield f"line {number}", {"name": name, "sha256": digest, **split}


def _documents(text: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidKeys("it is not JSON, and not lines of NAME sha256:DIGEST RIGHTS [MODELS]") from None
    entries = document.get("keys") if isinstance(document, dict) else document
    if not isinstance(entries, list):
        raise InvalidKeys("expected a list of keys")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict) or entry.keys() - MEMBERS:  # a mistyped "models" must not permit every model
            raise InvalidKeys(f"entry {number}: expected an object with only name, sha256, rights and models")
        yield f"entry {number}", {"models": [EVERY], **entry}


def _entry(place: str, entry: Mapping[str, Any]) -> tuple[bytes, Caller]:
    name, digest = str(entry.get("name", "")), DIGEST.fullmatch(str(entry.get("sha256", "")))
    if not NAME.fullmatch(name):
        raise InvalidKeys(f"{place}: expected a name of letters, digits, dots, dashes, underscores and @")
    if digest is None:
        raise InvalidKeys(f"{place}: expected the SHA-256 digest of the key, in 64 hexadecimal digits")
    words = {column: entry.get(column) for column in ("rights", "models")}
    for column, each in words.items():
        if not isinstance(each, list) or not each or not all(isinstance(word, str) and word for word in each):
            raise InvalidKeys(f"{place}: expected a list of {column}")
    try:
        rights = rights_of(words["rights"] or ())
    except ValueError as error:
        raise InvalidKeys(f"{place}: {error}") from None
    return bytes.fromhex(digest[1]), Caller(f"key {name}", rights, patterns(words["models"] or ()))

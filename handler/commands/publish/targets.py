"""Reads the target of a command line: a model in a repository, or a repository."""

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from core.records import NamedTuple
from handler.commands.publish.buckets import BUCKETS, READ_ONLY
from handler.commands.refused import Refused
from handler.settings import InvalidSettings
from handler.stores.directory import is_name
from handler.stores.paths import path_of

MISTYPED: Final = re.compile(rf"(?:{'|'.join(BUCKETS)}|http|file)(?::|//)")
"""Addresses with a slash or a colon too few, which would be folders here."""
EXPECTED = "expected s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, https://host/path or a path"


class Target(NamedTuple):
    """A model in a repository. `repository`: a folder's path or a bucket's URI, like DRAGOMAN_REPOSITORY."""

    repository: str
    name: str

    def __str__(self) -> str:
        return self.repository + self.name if self.repository.endswith("/") else f"{self.repository}/{self.name}"


def is_remote(uri: str) -> bool:
    """Decides whether a repository is in a bucket or on a web server."""
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and scheme in BUCKETS


def is_writable(uri: str) -> bool:
    """Decides whether versions can be published there."""
    return uri.partition("://")[0] not in READ_ONLY


def repository(text: str) -> str:
    """Reads a REPOSITORY. Raises Refused if it is neither in a store that is known nor on this machine."""
    scheme, separator, _ = text.partition("://")
    if is_remote(text):
        _locate(text, f"{text!r} names no {_noun(text)}; expected {_example(text)}")
        return text.rstrip("/")
    if scheme == "file" and separator:
        try:
            return path_of(text, "the repository")
        except InvalidSettings as wrong:
            raise Refused(str(wrong)) from None
    if separator or (MISTYPED.match(text) and not Path(text).exists()):
        raise Refused(f"{text!r} is neither a folder nor the address of a known store; {EXPECTED}")
    return text


def model(text: str, default: str = "") -> Target:
    """Reads REPOSITORY/NAME, or a NAME in the repository `default`. Raises Refused."""
    whole = repository(text)
    if default and is_same(whole, repository(default)):
        raise Refused(f"{text} is the repository: add the model's name, {text.rstrip('/')}/NAME")
    if default and is_name(text):
        return Target(repository(default), text)
    if not is_remote(whole):
        whole = os.path.abspath(whole) if whole in (".", "..") else os.path.normpath(whole)  # noqa: PTH100 - keeps relative paths as typed
    parent, separator, name = whole.rpartition("/")
    if not is_name(name) or (is_remote(whole) and not is_remote(parent + "/")):
        raise Refused(f"{text!r} does not end in a model's name; expected s3://bucket/prefix/NAME or REPOSITORY/NAME")
    if is_remote(whole):
        _locate(parent, f"{text!r} names a {_noun(text)} and no model; expected {_example(text)}/NAME")
        return Target(parent, name)
    return Target(parent or separator or ".", name)


def is_same(one: str, other: str) -> bool:
    if is_remote(one) or is_remote(other):
        return one == other
    return os.path.abspath(one) == os.path.abspath(other)  # noqa: PTH100 - as above


def _noun(uri: str) -> str:
    return "bucket" if is_writable(uri) else "host"


def _example(uri: str) -> str:
    scheme = uri.partition("://")[0]
    return f"{scheme}://bucket/prefix" if is_writable(uri) else f"{scheme}://host/path"


def _locate(uri: str, refusal: str) -> None:
    """Raises Refused for a URI without a bucket or host. What else is wrong is for the store to say."""
    scheme = uri.partition("://")[0]
    try:
        if scheme == "s3":
            from handler.stores.s3.location import locate  # noqa: PLC0415 - one store's parser is enough

            locate(uri, {}, "the repository")  # the variables that name an endpoint are not the URI's fault
        elif not urlsplit(uri).netloc:
            raise Refused(refusal)
    except InvalidSettings as wrong:
        # A text with a URI has another one for clients: the refusal, which shows the URI, may stand for that one only.
        raise Refused(refusal if wrong.public != str(wrong) else str(wrong)) from None
    except ValueError:
        raise Refused(refusal) from None

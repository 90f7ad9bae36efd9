"""Reads the target of a command line: a model in a repository, or a repository."""

import os
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from handler.commands.refused import Refused
from handler.lifecycle.repository import NAME
from handler.settings import InvalidSettings
from handler.stores.s3.location import locate

S3 = "s3://"


class Target(NamedTuple):
    """A model in a repository. `repository`: a folder's path or s3://bucket/prefix, like DRAGOMAN_REPOSITORY."""

    repository: str
    name: str

    def __str__(self) -> str:
        return self.repository + self.name if self.repository.endswith("/") else f"{self.repository}/{self.name}"


def is_s3(uri: str) -> bool:
    return uri.startswith(S3)


def repository(text: str) -> str:
    """Reads a REPOSITORY. Raises Refused if it is neither in S3 nor on this machine."""
    scheme, separator, _ = text.partition("://")
    if is_s3(text):
        try:
            locate(text, os.environ)
        except InvalidSettings:
            raise Refused(f"{text!r} names no bucket; expected s3://bucket/prefix") from None
        return text.rstrip("/")
    if scheme == "file" and separator:
        return unquote(urlsplit(text).path)
    if separator:
        raise Refused(f"{text!r} is neither a folder nor in S3; expected s3://bucket/prefix or a path")
    return text


def model(text: str, default: str = "") -> Target:
    """Reads REPOSITORY/NAME, or a NAME in the repository `default`. Raises Refused."""
    if default and NAME.fullmatch(text):
        return Target(repository(default), text)
    whole = repository(text)
    if default and _same(whole, repository(default)):
        raise Refused(f"{text} is the repository: add the model's name, {text.rstrip('/')}/NAME")
    if not is_s3(whole):
        whole = os.path.abspath(whole) if whole in (".", "..") else os.path.normpath(whole)  # noqa: PTH100 - keeps relative paths as typed
    parent, separator, name = whole.rpartition("/")
    if not NAME.fullmatch(name) or (is_s3(whole) and not is_s3(parent + "/")):
        raise Refused(f"{text!r} does not end in a model's name; expected s3://bucket/prefix/NAME or REPOSITORY/NAME")
    if is_s3(whole):
        return Target(_with_bucket(parent, text), name)
    return Target(parent or separator or ".", name)


def _same(one: str, other: str) -> bool:
    if is_s3(one) or is_s3(other):
        return one == other
    return os.path.abspath(one) == os.path.abspath(other)  # noqa: PTH100 - as above


def _with_bucket(parent: str, text: str) -> str:
    try:
        locate(parent, os.environ)
    except InvalidSettings:
        raise Refused(f"{text!r} names a bucket and no model; expected s3://bucket/prefix/NAME") from None
    return parent

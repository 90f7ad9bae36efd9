"""A page of ListObjectsV2's document (Amazon S3 API reference), as far as servers and publishers need it."""

import re
from collections.abc import Callable
from datetime import datetime
from typing import Final
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from core.records import NamedTuple
from handler.stores import checksums

NAMESPACE: Final = "{*}"
SIZE: Final = re.compile(r"[0-9]{1,18}")
ETAG: Final = re.compile(r"[ -~\xa0-\xff]+")
"""What a header can hold, as a condition of a later request does."""


class Unreadable(Exception):
    """The document is not a page of a listing. The message says why."""


class ListedObject(NamedTuple):
    """An object as a listing has it.

    `key`: the whole key. `size`: in bytes. `etag`: without quotes, None if the store lists none. `checked`: the store
    has a checksum of the whole content, which this machine can compute. `modified`: ISO 8601, empty if there is none.
    """

    key: str
    size: int
    etag: str | None
    checked: bool
    modified: str

    @property
    def time(self) -> datetime:
        """The time of the last change, with its zone. Raises Unreadable."""
        try:
            return datetime.fromisoformat(self.modified)
        except ValueError as error:
            raise Unreadable("the listing has an object without a date") from error


class Page(NamedTuple):
    """`folders`: common prefixes, each with a slash at its end. `following`: the next page's token, None at the end.

    `date`: when the store answered, by its own clock, in HTTP's format; empty if it does not say.
    """

    objects: list[ListedObject]
    folders: list[str]
    following: str | None
    date: str


def page(document: bytes, date: str = "") -> Page:
    """Parses a page. Raises Unreadable."""
    try:
        root = ET.fromstring(document)  # noqa: S314 - expat bounds entities
    except (ET.ParseError, ValueError, LookupError) as error:  # the last two: of an encoding
        raise Unreadable("the listing is not XML") from error
    # An <Error>, or a gateway's page for browsers, is not an empty bucket.
    if not root.tag.rpartition("}")[2].startswith("ListBucket"):
        raise Unreadable("the answer is not a listing")
    # Not every store that is asked for URL encoding has it.
    decoded = unquote_plus if _text(root, "EncodingType") == "url" else str
    objects = [_object(each, decoded) for each in root.iterfind(f"{NAMESPACE}Contents")]
    folders = [decoded(_text(each, "Prefix")) for each in root.iterfind(f"{NAMESPACE}CommonPrefixes")]
    return Page(objects, folders, _following(root), date)


def _following(root: ET.Element) -> str | None:
    if _text(root, "IsTruncated") != "true":
        return None
    if token := _text(root, "NextContinuationToken"):
        return token
    raise Unreadable("the listing does not say where it continues")  # of ListObjects, the first version, for instance


def _object(found: ET.Element, decoded: Callable[[str], str]) -> ListedObject:
    size = _text(found, "Size")
    if not SIZE.fullmatch(size):
        raise Unreadable("the listing has an object without a size")
    listed = _text(found, "ETag").strip('"')
    etag = listed if ETAG.fullmatch(listed) else None
    checked = checksums.is_whole(_text(found, "ChecksumType"), etag or "")
    checked = checked and checksums.is_known(_text(found, "ChecksumAlgorithm"))
    return ListedObject(decoded(_text(found, "Key")), int(size), etag, checked, _text(found, "LastModified"))


def _text(element: ET.Element, name: str) -> str:
    return element.findtext(f"{NAMESPACE}{name}") or ""

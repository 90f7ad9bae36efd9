"""A page of ListObjectsV2's document (Amazon S3 API reference), as far as a store needs it."""

import re
from typing import Final, NamedTuple
from urllib.parse import unquote_plus
from xml.etree import ElementTree as ET

from handler.stores import File, checksums

NAMESPACE: Final = "{*}"
SIZE: Final = re.compile(r"[0-9]{1,18}")


class Unreadable(Exception):
    """What came is no page of a listing; says why."""


class Page(NamedTuple):
    """`files`: with whole keys as paths; `folders`: with a slash at their end; `following`: token of the next page."""

    files: list[File]
    folders: list[str]
    following: str | None


def page(document: bytes) -> Page:
    """Raises Unreadable."""
    try:
        root = ET.fromstring(document)  # noqa: S314 - expat bounds entities
    except (ET.ParseError, ValueError, LookupError) as error:  # the last two: of an encoding
        raise Unreadable("the listing is no XML") from error
    files = [_file(each) for each in root.iterfind(f"{NAMESPACE}Contents")]
    folders = [unquote_plus(_text(each, "Prefix")) for each in root.iterfind(f"{NAMESPACE}CommonPrefixes")]
    return Page(files, folders, _following(root))


def _following(root: ET.Element) -> str | None:
    if _text(root, "IsTruncated") != "true":
        return None
    if token := _text(root, "NextContinuationToken"):
        return token
    raise Unreadable("the listing does not say how it goes on")  # of ListObjects, the first version, for instance


def _file(found: ET.Element) -> File:
    size = _text(found, "Size")
    if not SIZE.fullmatch(size):
        raise Unreadable("the listing has an object without a size")
    checked = _text(found, "ChecksumType") != "COMPOSITE" and checksums.is_known(_text(found, "ChecksumAlgorithm"))
    return File(unquote_plus(_text(found, "Key")), int(size), _text(found, "ETag").strip('"') or None, checked)


def _text(element: ET.Element, name: str) -> str:
    return element.findtext(f"{NAMESPACE}{name}") or ""

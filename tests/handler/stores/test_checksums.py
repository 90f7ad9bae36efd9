"""handler.stores.checksums: which statements of a store about content can be checked."""

import base64
import hashlib
import zlib
from email.message import Message
from types import SimpleNamespace

import pytest

from handler.stores import checksums
from handler.stores.checksums import Checksum

CONTENT = b"content"
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


def headers(**named: str) -> Message:
    made = Message()
    for name, value in named.items():
        made[name.replace("_", "-")] = value
    return made


def coded(digest: bytes) -> str:
    """Returns the checksum as S3 writes it."""
    return base64.b64encode(digest).decode()


CRC = coded(zlib.crc32(CONTENT).to_bytes(4))


@pytest.mark.parametrize(
    ("found", "algorithm"),
    [
        (headers(x_amz_checksum_crc32=CRC), "crc32"),
        (headers(x_amz_checksum_sha256=coded(hashlib.sha256(CONTENT).digest()), ETag=f'"{MD5}"'), "sha256"),
        (headers(x_amz_checksum_sha1=coded(hashlib.sha1(CONTENT, usedforsecurity=False).digest())), "sha1"),
        (headers(x_amz_checksum_crc32=CRC, x_amz_checksum_type="FULL_OBJECT"), "crc32"),
        (headers(x_amz_checksum_crc32=CRC, x_amz_checksum_type="FULL_OBJECT", ETag=f'"{MD5}-3"'), "crc32"),
        (headers(ETag=f'"{MD5}"'), "md5"),
        (headers(ETag=f'"{MD5}"', x_amz_server_side_encryption="AES256"), "md5"),
        (headers(x_amz_checksum_crc32="===", ETag=f'"{MD5}"'), "md5"),
    ],
)
def test_what_a_store_says_of_the_whole_content_is_checked(found: Message, algorithm: str) -> None:
    """Only the right content passes."""
    checksum = checksums.of_answer(found)
    assert checksum is not None
    assert checksum.algorithm == algorithm
    for content, same in ((CONTENT, True), (b"contenT", False)):
        computed = checksums.begin(checksum)
        assert computed is not None
        computed.update(content[:3])
        computed.update(content[3:])
        assert (computed.hexdigest() == checksum.value) is same


@pytest.mark.parametrize(
    "found",
    [
        headers(),
        headers(ETag=f'"{MD5}-2"'),
        headers(ETag='"not hexadecimal, and 32 characters"'),
        headers(ETag=f'"{MD5}"', x_amz_server_side_encryption="aws:kms"),
        headers(ETag=f'"{MD5}"', x_amz_server_side_encryption="aws:kms:dsse"),
        headers(ETag=f'"{MD5}"', x_amz_server_side_encryption_customer_algorithm="AES256"),
        headers(x_amz_checksum_crc32=CRC, x_amz_checksum_type="COMPOSITE"),
        headers(x_amz_checksum_sha256=f"{CRC}-3"),
        headers(x_amz_checksum_crc32=CRC, ETag=f'"{MD5}-3"'),
        headers(x_amz_checksum_crc64nvme=coded(bytes(8))),
    ],
)
def test_what_says_nothing_of_the_whole_content_is_not_checked(found: Message, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cases are checksums of parts, ETags that are not MD5, and algorithms that this machine does not have."""
    monkeypatch.setitem(__import__("sys").modules, "awscrt", None)
    assert checksums.of_answer(found) is None


def test_awss_library_is_used_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in takes its place, because most machines do not have it. Functions that it lacks are not used."""
    crc64 = SimpleNamespace(checksums=SimpleNamespace(crc64nvme=lambda data, before: before + len(data)))
    monkeypatch.setitem(__import__("sys").modules, "awscrt", crc64)
    checksum = checksums.of_answer(headers(x_amz_checksum_crc64nvme=coded((7).to_bytes(8))))
    assert checksum == Checksum("crc64nvme", "0000000000000007")
    computed = checksums.begin(checksum)
    assert computed is not None
    computed.update(b"1234")
    computed.update(b"567")
    assert computed.hexdigest() == checksum.value
    assert checksums.is_known("CRC64NVME")
    assert not checksums.is_known("CRC32C")
    assert checksums.is_known("SHA256")
    assert not checksums.is_known("")

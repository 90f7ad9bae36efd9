"""A wheel of this installation: a folder that holds it can be installed and deployed where no registry has Dragoman."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import handler
from handler.commands.refused import Refused

HOME: Final = Path(handler.__file__).parents[1]
PACKAGES: Final = ("core", "dragoman", "handler")
METADATA: Final = {
    "METADATA": ("METADATA", "PKG-INFO"),  # the latter of a checkout that setuptools has built
    "entry_points.txt": ("entry_points.txt",),
    "top_level.txt": ("top_level.txt",),
}
"""The files of a wheel's metadata, and where an installation has them."""
FORM: Final = "Wheel-Version: 1.0\nGenerator: dragoman init\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
UNDATED: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that an archive can hold. The same installation makes the same bytes."""
READABLE: Final = 0o100644 << 16


def installed() -> Distribution:
    """Returns the metadata of this installation. Raises Refused."""
    try:
        return distribution("dragoman")
    except PackageNotFoundError:
        raise Refused("dragoman is not installed for this Python: pip install its wheel, or the checkout") from None


def wheel(of: Distribution) -> tuple[str, bytes]:
    """Returns the file name and the content of a wheel with the code and the metadata of this installation."""
    record, content = [], io.BytesIO()
    folder = f"dragoman-{of.version}.dist-info"
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in (*_code(), *_metadata(of, folder)):
            archive.writestr(_entry(name), data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{name},sha256={digest},{len(data)}\n")
        record.append(f"{folder}/RECORD,,\n")
        archive.writestr(_entry(f"{folder}/RECORD"), "".join(record))
    return f"dragoman-{of.version}-py3-none-any.whl", content.getvalue()


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, UNDATED)
    entry.external_attr, entry.compress_type = READABLE, zipfile.ZIP_DEFLATED
    return entry


def _code() -> Iterator[tuple[str, bytes]]:
    for package in PACKAGES:
        for path in sorted((HOME / package).rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts:
                yield path.relative_to(HOME).as_posix(), path.read_bytes()


def _metadata(of: Distribution, folder: str) -> Iterator[tuple[str, bytes]]:
    for name, sources in METADATA.items():
        text = next(filter(None, map(of.read_text, sources)), None)
        if text is not None:
            yield f"{folder}/{name}", text.encode()
    yield f"{folder}/WHEEL", FORM.encode()

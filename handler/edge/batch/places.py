"""Where a function's results go: a folder, or a bucket's prefix. A result appears whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Protocol

from core.errors import ModelUnavailable
from handler.settings import Settings

NAME: Final = "DRAGOMAN_BATCH_OUTPUT"


class ResultPlace(Protocol):
    def put(self, key: str, content: bytes) -> None:
        """Writes a result, in place of one that is there. Raises ModelUnavailable."""
        ...

    def names(self, folder: str) -> list[str]:
        """Returns the names of the results in a folder, which ends in a slash. Raises ModelUnavailable."""
        ...


def place_of(settings: Settings) -> ResultPlace:
    """Returns the place of DRAGOMAN_BATCH_OUTPUT. Raises InvalidSettings."""
    if settings.batch_output.startswith("s3://"):
        return ResultBucket(settings)
    return ResultFolder(Path(settings.batch_output.removeprefix("file://")))


class ResultFolder:
    """Files below a folder, such as a mount that functions share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def put(self, key: str, content: bytes) -> None:
        path = self._folder / key
        # All instances of a function have the same process numbers, and two can write one result at a time.
        new = path.with_name(f"{path.name}.{os.urandom(8).hex()}.new")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new.write_bytes(content)
            new.replace(path)
        except OSError as error:
            with suppress(OSError):
                new.unlink(missing_ok=True)
            raise ModelUnavailable(f"{NAME} cannot be written: {error.strerror}") from error

    def names(self, folder: str) -> list[str]:
        try:
            return [each.name for each in (self._folder / folder).iterdir()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise ModelUnavailable(f"{NAME} cannot be listed: {error.strerror}") from error


class ResultBucket:
    """Objects below a prefix. The first one makes the client."""

    def __init__(self, settings: Settings) -> None:
        """Raises InvalidSettings."""
        from handler.stores.s3 import location  # noqa: PLC0415 - for results in buckets

        self._settings = settings
        self._place = location.locate(settings.batch_output, os.environ, NAME)
        self._made: Any = None

    @property
    def _client(self) -> Any:
        if self._made is None:
            from handler.stores.s3.botocore_client import connect  # noqa: PLC0415 - a third of a second

            self._made = connect(self._settings, self._place)
        return self._made

    def put(self, key: str, content: bytes) -> None:
        place = {"Bucket": self._place.bucket, "Key": self._place.prefix + key}
        with answered(NAME, "s3:PutObject"):
            self._client.put_object(**place, Body=content, ContentType="application/x-ndjson")

    def names(self, folder: str) -> list[str]:
        prefix = self._place.prefix + folder
        with answered(NAME, "s3:ListBucket"):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._place.bucket, Prefix=prefix)
            return [found["Key"].removeprefix(prefix) for page in pages for found in page.get("Contents", ())]


@contextmanager
def answered(setting: str, permission: str) -> Iterator[None]:
    """Makes ModelUnavailable of a bucket's refusals. `setting`: names the bucket."""
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - imported with the client

    try:
        yield
    except ClientError as error:
        code = str(error.response.get("Error", {}).get("Code", ""))
        cure = f": grant {permission}" if code in ("AccessDenied", "403") else ""
        raise ModelUnavailable(f"{setting}: the bucket has refused a request ({code}){cure}") from error
    except BotoCoreError as error:
        raise ModelUnavailable(f"{setting}: the bucket does not answer ({type(error).__name__})") from error

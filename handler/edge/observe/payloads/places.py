"""Where payloads go: files in a folder, objects in a bucket, or a receiver of CloudEvents over HTTP."""

import http.client
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import SplitResult, urlsplit

from handler.edge.observe.payloads.events import CloudEvent
from handler.settings import InvalidSettings, Settings

FILE_BYTES: Final = 64 * 2**20
"""A file that has so many gets no further lines."""
SECONDS: Final = 5.0
"""The most that a receiver may take for one event."""
LAMBDA_SECONDS: Final = 1.0
"""The same for a function, whose answer waits for it."""
LAMBDA_CLIENT: Final = {"connect_timeout": 1, "read_timeout": 2, "retries": {"total_max_attempts": 1}}
OK: Final = range(200, 300)
OF_THE_EVENT: Final = (400, 413, 415, 422)
"""The statuses that concern one event. Others concern the receiver, or everything that is sent to it."""


class Interrupted(OSError):
    """The first `done` events were written, or refused, and need not be written again. `refused`: some of them."""

    def __init__(self, reason: str, done: int, refused: Sequence[CloudEvent]) -> None:
        super().__init__(reason)
        self.done = done
        self.refused = refused


class EventPlace(Protocol):
    """One thread at a time writes. `pause`: seconds in which events gather before they are written together."""

    pause: float

    def write(self, events: Sequence[CloudEvent]) -> Sequence[CloudEvent]:
        """Writes the events. Returns those that the place will never take.

        Raises Interrupted, OSError, or an error of its client's, if some of the others may be lost.
        """
        ...


def place_of(settings: Settings) -> EventPlace:
    """Returns the place of DRAGOMAN_PAYLOAD_LOG. Raises InvalidSettings."""
    target = settings.payload_log
    if target.startswith(("http://", "https://")):
        return Receiver(target, LAMBDA_SECONDS if settings.platform == "lambda" else SECONDS)
    if target.startswith("s3://"):
        return EventBucket(settings)
    scheme, separator, _ = target.removeprefix("file://").partition("://")
    if separator:  # else a store that is not supported would be a folder of its name here
        expected = "a folder, s3://bucket/prefix, http:// or https://"
        raise InvalidSettings(f"DRAGOMAN_PAYLOAD_LOG begins with {f'{scheme[:64]}://'!r}; expected {expected}")
    return EventFolder(Path(target.removeprefix("file://")))


def lines(events: Sequence[CloudEvent]) -> bytes:
    return b"".join(event.line() + b"\n" for event in events)


def name_of(number: int) -> str:
    """Returns the name of a file that no other process has: by time, process, and the number of its files."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}-{os.urandom(3).hex()}-{number}.jsonl"


class EventFolder:
    """Files that only their owner can read."""

    pause = 1.0

    def __init__(self, folder: Path) -> None:
        """Makes the folder. Raises InvalidSettings."""
        self._folder = self._path = folder
        try:
            self._make()
        except OSError as error:
            text = f"DRAGOMAN_PAYLOAD_LOG: {folder} cannot be made: {error.strerror}"
            raise InvalidSettings(text, "DRAGOMAN_PAYLOAD_LOG cannot be made") from None
        self._file = -1
        self._room = self._number = 0

    def write(self, events: Sequence[CloudEvent]) -> Sequence[CloudEvent]:
        """Appends the events to the current file.

        Begins another one if that is large, if the last write failed, or if somebody has moved or deleted the file.
        """
        if self._room <= 0 or not self._is_there():
            self._begin()
        left = memoryview(lines(events))
        try:
            while left:
                written = os.write(self._file, left)
                self._room -= written
                left = left[written:]
        except OSError:
            self._room = 0  # a line can be cut off: the next one must not follow on the same line
            raise
        return ()

    def _make(self) -> None:
        self._folder.mkdir(0o700, parents=True, exist_ok=True)

    def _is_there(self) -> bool:
        """Decides whether the open file still has its name. A job that cleans up the folder may have removed it."""
        try:
            return os.path.samestat(self._path.stat(), os.fstat(self._file))
        except FileNotFoundError:
            return False

    def _begin(self) -> None:
        if self._file >= 0:
            is_empty = not os.fstat(self._file).st_size
            os.close(self._file)
            self._file = -1
            if is_empty:  # a full disk would collect them
                self._path.unlink(missing_ok=True)
        self._make()
        self._path = self._folder / name_of(self._number)
        self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._number += 1
        self._room = FILE_BYTES


class EventBucket:
    """Objects of many lines each, below a folder for each day."""

    pause = 10.0

    def __init__(self, settings: Settings) -> None:
        """Raises InvalidSettings."""
        from handler.stores.s3 import location  # noqa: PLC0415 - for logs in buckets

        self._place = location.locate(settings.payload_log, os.environ, "DRAGOMAN_PAYLOAD_LOG")
        self._settings = settings
        self._client: Any = None
        self._number = 0

    def write(self, events: Sequence[CloudEvent]) -> Sequence[CloudEvent]:
        """Puts one object. The first one makes the client."""
        if self._client is None:
            from handler.stores.s3.botocore_client import connect  # noqa: PLC0415 - a third of a second

            more = LAMBDA_CLIENT if self._settings.platform == "lambda" else {}
            self._client = connect(self._settings, self._place, **more)
        key = f"{self._place.prefix}{time.strftime('%Y/%m/%d/', time.gmtime())}{name_of(self._number)}"
        self._number += 1
        self._client.put_object(
            Bucket=self._place.bucket, Key=key, Body=lines(events), ContentType="application/x-ndjson"
        )
        return ()


class Receiver:
    """An HTTP service that takes an event with each POST, as KServe's own receivers do."""

    pause = 0.1

    def __init__(self, url: str, seconds: float) -> None:
        """`seconds`: the most that it may take for one event. Raises InvalidSettings."""
        self._seconds = seconds
        self._url = _parsed(url)
        self._connection: http.client.HTTPConnection | None = None

    def write(self, events: Sequence[CloudEvent]) -> Sequence[CloudEvent]:
        """Posts the events. If the receiver refuses one for a client's mistake, the others are still sent."""
        refused: list[CloudEvent] = []
        for done, event in enumerate(events):
            try:
                if not self._post(event):
                    refused.append(event)
            except (OSError, http.client.HTTPException) as error:
                self._drop()
                reason = f"{self._url.hostname}: {type(error).__name__} {error}"
                raise Interrupted(reason, done, refused) from None
        return refused

    def _post(self, event: CloudEvent) -> bool:
        """Sends an event, over a new connection if the receiver has closed the old one meanwhile.

        Returns False if the receiver refuses the event itself. Raises OSError.
        """
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        body, headers = bytes(event.payload), event.headers()
        is_new = self._connection is None
        try:
            answer = self._asked(path, body, headers)
        except (http.client.HTTPException, OSError):
            self._drop()
            if is_new:
                raise
            answer = self._asked(path, body, headers)
        answer.read(2**16)
        if not answer.isclosed():
            self._drop()
        if answer.status in OF_THE_EVENT:
            return False
        if answer.status not in OK:
            raise OSError(f"status {answer.status}")
        return True

    def _asked(self, path: str, body: bytes, headers: dict[str, str]) -> http.client.HTTPResponse:
        connection = self._connection
        if connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            host, port = self._url.hostname or "", self._url.port
            connection = self._connection = kind(host, port, timeout=self._seconds)
        connection.request("POST", path, body, headers)
        return connection.getresponse()

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _parsed(url: str) -> SplitResult:
    """Raises InvalidSettings."""
    with suppress(ValueError):
        parts = urlsplit(url)
        if parts.hostname and "@" not in parts.netloc and parts.port != 0:  # asking for the port checks it
            return parts
    raise InvalidSettings("DRAGOMAN_PAYLOAD_LOG: expected a URL such as http://collector:8080/, without credentials")

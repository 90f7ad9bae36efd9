"""The requests of a payload log, each with its answer: lines of CloudEvents in JSON."""

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from sys import maxsize
from typing import Any, Final

import orjson

from core.dialects.connect.requests import from_text
from core.encoding.compression import inflate
from core.errors import ServingError
from core.records import NamedTuple
from handler.commands.refused import Refused
from handler.edge.observe.payloads.events import JSON, REQUEST, RESPONSE
from handler.stores import paths

MOST_BYTES: Final = 2**30
DATA: Final = b',"data":'
"""What is before the payload. It cannot be a part of a text, whose quotes have backslashes."""
WEB: Final = "grpc-web"
TEXT: Final = "application/grpc-web-text"
HEAD: Final = 5
LAST: Final = 0x80
"""The flag of gRPC-Web's envelope whose content is the trailers."""
CALLS: Final = frozenset(("grpc", WEB, "connect"))


class Payload(NamedTuple):
    """What was sent, inflated. `kind`: its media type. `length`: of a V2 body's JSON, which tensors follow, or "".

    `accept`, `query`: of a request; what the log has of them.
    """

    content: bytes
    kind: str = JSON
    length: str = ""
    accept: str = ""
    query: str = ""


class Reached(NamedTuple):
    """An answer. `status`: of HTTP as text, or gRPC's code. `is_good`: it is not a refusal."""

    status: str
    is_good: bool
    body: Payload


class Exchange(NamedTuple):
    """A request of the log, and its answer. `model`, `version`: those that answered. `protocol`: of the request."""

    id: str
    protocol: str
    path: str
    model: str
    version: str
    request: Payload
    answer: Reached


def read(files: Iterable[str]) -> Iterator[Exchange]:
    """Yields the exchanges of the files, and of the folders' files *.jsonl. Raises Refused for other files.

    What is written after the first exchange is left out: the server may log the requests of the replay in these files.
    """
    for file, size in [*_listed(files)]:
        yield from _exchanges(file, size)


def _listed(files: Iterable[str]) -> Iterator[tuple[Path, int]]:
    """Yields the files with their sizes; a pipe does not have one. Raises Refused."""
    for text in files:
        path = Path(text)
        if not paths.exists(path):
            raise Refused(f"there is no file {text}")
        if path.is_dir():
            yield from ((file, file.stat().st_size) for file in sorted(path.rglob("*.jsonl")) if file.is_file())
        else:
            yield path, path.stat().st_size if path.is_file() else maxsize


def _exchanges(file: Path, size: int) -> Iterator[Exchange]:
    waiting: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(_lines(file, size), 1):
        if not line.strip():
            continue
        where = f"{file}:{number}"
        event = _event(line, where)
        if event is None:
            return
        if event["type"] == REQUEST:
            waiting[event["id"]] = event
        elif event["type"] == RESPONSE and event["id"] in waiting:
            yield _exchange(waiting.pop(event["id"]), event, where)


def _lines(file: Path, size: int) -> Iterator[bytes]:
    """Yields the lines of so many bytes. A file that has gone meanwhile has none: a timer may clean its folder."""
    with suppress(FileNotFoundError), file.open("rb") as lines:
        for line in lines:
            yield line[:size]
            size -= len(line)
            if size <= 0:
                return


def _event(line: bytes, where: str) -> dict[str, Any] | None:
    """Returns an event; None for a last line that was cut off by a full disk, or a kill. Raises Refused."""
    try:
        event = _parsed(line)
        if isinstance(event, dict) and isinstance(event["type"], str) and isinstance(event["id"], str):
            return event
    except orjson.JSONDecodeError:
        if not line.endswith(b"\n"):
            return None
    except KeyError:
        pass
    raise Refused(f"{where} is not a CloudEvent in JSON with a type and an id")


def _parsed(line: bytes) -> Any:
    """Returns the JSON of a line. `data` stays bytes if it is the last member, as servers write it.

    A payload that is read and written again loses the digits of large numbers, and members that it has twice.
    """
    head, found, rest = line.strip().partition(DATA)
    with suppress(orjson.JSONDecodeError):
        if found and rest.endswith(b"}"):
            orjson.loads(rest[:-1])
            return orjson.loads(head + b"}") | {"data": rest[:-1]}
    return orjson.loads(line)


def _exchange(request: Mapping[str, Any], answer: Mapping[str, Any], where: str) -> Exchange:
    try:
        asked, answered = _body(request), _body(answer)
        model, version = str(request.get("inferenceservicename", "")), str(request.get("modelversion", ""))
        protocol, path = str(request.get("protocol", "")), str(request.get("path", ""))
        if not protocol:  # an event of KServe's own logger names the service alone
            protocol, path = _guessed(asked, model)
        reached = reached_by(protocol, str(answer.get("status", "200")), answered)
    except (ValueError, KeyError, TypeError, AttributeError, ServingError) as error:
        raise Refused(f"{where}: the payload cannot be read: {error}") from None
    return Exchange(request["id"], protocol, path, model, version, asked, reached)


def _body(event: Mapping[str, Any]) -> Payload:
    """Raises ValueError, TypeError, ServingError."""
    content, text = event.get("data"), event.get("data_base64")
    if text is not None:
        content = b64decode(text, validate=True)
    elif not isinstance(content, bytes):
        content = orjson.dumps(content)
    for coding in reversed(str(event.get("contentencoding", "")).replace(" ", "").lower().split(",")):
        if coding not in ("", "identity"):
            content = inflate(content, coding.encode(), MOST_BYTES)
    length, accept, query = (str(event.get(name, "")) for name in ("headerlength", "accept", "query"))
    return Payload(content, str(event.get("datacontenttype", JSON)), length, accept, query)


def _guessed(body: Payload, model: str) -> tuple[str, str]:
    is_v2 = isinstance(found := orjson.loads(body.content), dict) and isinstance(found.get("inputs"), list)
    return ("v2", f"/v2/models/{model}/infer") if is_v2 else ("v1", f"/v1/models/{model}:predict")


def reached_by(protocol: str, status: str, body: Payload) -> Reached:
    """Returns a received answer. gRPC-Web's message is taken out of its envelope, and its trailers have the status.

    Raises ServingError for an answer of gRPC-Web that cannot be read.
    """
    if protocol != WEB or not body.kind.startswith("application/grpc-web"):
        return Reached(status, status == "OK" or status.startswith("2"), body)
    content, rest = from_text(body.content) if body.kind.startswith(TEXT) else body.content, b""
    if content[:1] in (b"\0", b"\1"):
        is_compressed, end = content[0], HEAD + int.from_bytes(content[1:HEAD])
        content, rest = content[HEAD:end], content[end:]
        if is_compressed:
            content = bytes(inflate(content, b"gzip", MOST_BYTES))  # the only coding of answers
    trailers = (rest or content)[HEAD:] if (rest or content)[:1] == bytes((LAST,)) else b""
    fields = {
        name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in trailers.splitlines())
    }
    code = fields.get(b"grpc-status", b"?").decode("latin-1")
    return Reached(code, code == "0", Payload(content if code == "0" else fields.get(b"grpc-message", b""), body.kind))

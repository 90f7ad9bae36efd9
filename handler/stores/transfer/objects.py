"""The objects of a fetch: files of a version, how much of each is there, and which answers fit."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from core.records import NamedTuple
from handler.stores import checksums
from handler.stores.checksums import Checksum
from handler.stores.journal import Identity, Part, gaps
from handler.stores.transfer.answers import Answer, Broken
from handler.stores.transfer.ranges import Work, worth
from handler.stores.transfer.retries import Damaged, Replaced, Tampered


class Known(NamedTuple):
    """A file in the store. `first`: the answer to a GET of the whole, where one was needed to learn size and ETag.

    `digest`: the checksum that the content must have, whatever the store sends.
    """

    path: str
    key: str
    size: int
    etag: str
    checked: bool
    first: Answer | None = None
    digest: Checksum | None = None


@dataclass(slots=True, eq=False)
class Transfer:
    """A file in flight. `first`: an answer that has not been used yet. `damaged`: it failed its checksum once."""

    file: Known
    part: Part
    work: Work
    first: Answer | None = None
    damaged: bool = False


def resume(item: Transfer, most: int) -> None:
    """Continues a file where the journal has parts of the same content. `most`: streams that may share its work."""
    part, file = item.part, item.file
    if part.ranges:
        part.resume()
        item.work.resume(gaps(part.ranges, file.size), most)
    elif file.etag and file.first is None and worth(file.size) > 1:
        # All streams begin at once: a GET of the whole would continue to send what others fetch.
        part.begin(Identity(file.size, file.etag, None))
        item.work.resume([(0, file.size)], most)


def missing(item: Transfer) -> int:
    """Returns the bytes that no stream has fetched yet."""
    return sum(region.rest for region in item.work.free) if item.work.opened else item.work.size


def wrong(item: Transfer, pieces: Callable[[], Iterable[bytes]]) -> Damaged | Tampered | None:
    """Returns the fault of a content, None without one. `pieces`: reads it from its beginning.

    A content with the wanted digest is read once. The store's checksum then only says whether a wrong one was damaged.
    """
    path, digest, identity = item.file.path, item.file.digest, item.part.identity
    if digest is not None and checksums.of_content(digest, pieces()) == digest.value:
        return None
    sent = None if identity is None else identity.checksum
    arrived = sent is None or checksums.of_content(sent, pieces()) in (sent.value, None)
    if digest is not None:
        return Tampered(path, final=arrived and sent is not None)
    return None if arrived or sent is None else Damaged(path, sent.algorithm)


def fitting(answer: Answer, start: int, end: int, identity: Identity) -> Answer:
    """Returns the answer if it is the range or the whole object (200). Raises Replaced, Broken, and closes it then."""
    asked = start, end - start
    if not answer.ranged and answer.length == asked[1] != identity.size:
        answer.start, answer.size = start, identity.size  # the range, although its head does not say so
    whole = answer.start == 0 and answer.length == identity.size
    same = identity.etag in ("", answer.etag) and answer.size == identity.size
    if same and (whole or (answer.start, answer.length) == asked):
        return answer
    answer.body.close()
    if not same:
        raise Replaced
    raise Broken(f"{answer.length} bytes from {answer.start} for {asked[1]} from {start}")

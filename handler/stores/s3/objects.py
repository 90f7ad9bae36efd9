"""What is fetched: a file of a version, what there is of it, and which answers bring more of it."""

from dataclasses import dataclass
from typing import NamedTuple

from handler.stores.journal import Identity, Part
from handler.stores.s3.answers import Answer, Broken
from handler.stores.s3.ranges import Work
from handler.stores.s3.retries import Replaced


class Known(NamedTuple):
    """A file in the store. `first`: the answer to a GET of it all, where one was needed to know size and ETag."""

    path: str
    key: str
    size: int
    etag: str
    checked: bool
    first: Answer | None = None


@dataclass(slots=True, eq=False)
class Item:
    """A file on its way. `first`: an answer that has not been used yet."""

    file: Known
    part: Part
    work: Work
    first: Answer | None = None
    damaged: bool = False


def missing(item: Item) -> int:
    return sum(region.rest for region in item.work.free) if item.work.opened else item.work.size


def fitting(answer: Answer, start: int, end: int, identity: Identity) -> Answer:
    """The answer to a range: the range, or (200) the whole object from its beginning. Raises Replaced, Broken."""
    asked = start, end - start
    if not answer.ranged and answer.length == asked[1] != identity.size:
        answer.start, answer.size = start, identity.size  # the range, though it does not say so
    whole = answer.start == 0 and answer.length == identity.size
    same = identity.etag in ("", answer.etag) and answer.size == identity.size
    if same and (whole or (answer.start, answer.length) == asked):
        return answer
    answer.body.close()
    if not same:
        raise Replaced
    raise Broken(f"{answer.length} bytes from {answer.start} for {asked[1]} from {start}")

"""Decides whether a reader has dropped a member of a JSON text: of two equal keys, readers keep one and say nothing.

A text with a key twice in one object means two things, and a checker in front of this server may have read the other
one. So every reader refuses it. Each member has a colon behind its key, which makes members quick to count.
"""

from itertools import chain
from typing import Any, Final

import orjson

LONG: Final = 2**18
"""Bytes of a text above which members are counted by a walk: orjson ends the process if it cannot allocate the memory
for a long text."""
SHORT: Final = 1024
"""Bytes of a text up to which writing it again takes less time than a walk."""
TOGETHER: Final = 1024
"""Texts that are joined to be searched, in a third of the time that each by itself takes."""
NESTED: Final = frozenset({dict, list})


def has_all_members(body: bytes | memoryview, value: Any) -> bool:
    """Decides whether a parsed text surely has all members of its text.

    A text with an escaped colon leaves doubt, and so does one with more levels than orjson writes.

    >>> has_all_members(b'{"a": 1, "a": 2}', {"a": 2}), has_all_members(b'{"a": "::"}', {"a": "::"})
    (False, True)
    """
    content = bytes(body)
    colons = content.count(b":")
    if len(content) > SHORT and _members(value, colons) == colons:
        return True
    if b"\\u003a" in content or b"\\u003A" in content:  # it would stand for the colon of a member that was dropped
        return False
    if len(content) > LONG:
        return _colons(value) == colons
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY).count(b":") == colons
    except orjson.JSONEncodeError:  # it writes 254 levels, and reads 1024
        return False


def _members(value: Any, most: int) -> int:
    """Counts the members of objects, level by level, up to `most`: most texts have none in their long arrays.

    A list whose first element is neither an object nor a list is not read.
    """
    count, level = 0, [value]
    while level:
        objects = [each for each in level if type(each) is dict]
        count += sum(map(len, objects))
        if count >= most:
            break
        lists = (each for each in level if type(each) is list and each and type(each[0]) in NESTED)
        level = [*chain.from_iterable(lists), *chain.from_iterable(each.values() for each in objects)]
    return count


def _colons(value: Any) -> int:
    """Counts the members of objects, and the colons in keys and texts, level by level."""
    count, level = 0, [value]
    while level:
        kinds = set(map(type, level))
        objects = [each for each in level if type(each) is dict] if dict in kinds else []
        lists = [each for each in level if type(each) is list] if list in kinds else []
        texts = [each for each in level if type(each) is str] if str in kinds else []
        texts += chain.from_iterable(objects)
        found = ("".join(texts[at : at + TOGETHER]).count(":") for at in range(0, len(texts), TOGETHER))
        count += sum(map(len, objects)) + sum(found)
        level = [*chain.from_iterable(lists), *chain.from_iterable(each.values() for each in objects)]
    return count

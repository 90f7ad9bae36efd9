"""`NamedTuple` as in typing, whose classes are made in a third of the time.

About ninety are made in the init phase of a Lambda function. typing compiles a constructor from text for each of them
and copies its body; here the constructors of all classes with as many fields share one compiled text. Everything that
a named tuple has is the same, except for the text that typing writes where a class has no docstring.
"""

import sys
import typing
from collections import _tuplegetter  # type: ignore[attr-defined]  # the getter of named tuples, written in C
from collections.abc import Iterable
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self

PLACE: Final = "<named tuple>"
"""The file of all constructors in tracebacks: the fault is in the call."""
_make: Final = tuple.__new__
_CONSTRUCTORS: Final[dict[int, CodeType]] = {
    each.__code__.co_argcount - 1: each.__code__
    for each in (
        lambda _cls, a: _make(_cls, (a,)),
        lambda _cls, a, b: _make(_cls, (a, b)),
        lambda _cls, a, b, c: _make(_cls, (a, b, c)),
        lambda _cls, a, b, c, d: _make(_cls, (a, b, c, d)),
        lambda _cls, a, b, c, d, e: _make(_cls, (a, b, c, d, e)),
        lambda _cls, a, b, c, d, e, f: _make(_cls, (a, b, c, d, e, f)),
        lambda _cls, a, b, c, d, e, f, g: _make(_cls, (a, b, c, d, e, f, g)),
    )
}
"""By the number of fields; the others are compiled from text when a class needs them, in 100 us."""


class _Record(tuple[Any, ...]):
    """What all named tuples have."""

    __slots__ = ()
    if TYPE_CHECKING:  # an annotation here would be one of every named tuple
        _fields: ClassVar[tuple[str, ...]]

    @classmethod
    def _make(cls, values: Iterable[Any]) -> Self:
        """Makes one from the values of all fields. Raises TypeError for another number of them."""
        made = tuple.__new__(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **changes: Any) -> Self:
        """Returns a copy with other values. Raises TypeError for a field that does not exist."""
        made = self._make(map(changes.pop, self._fields, self))
        if changes:
            raise TypeError(f"got unexpected field names: {list(changes)!r}")
        return made

    __replace__ = _replace

    def _asdict(self) -> dict[str, Any]:
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        pairs = ", ".join(f"{name}={value!r}" for name, value in zip(self._fields, self, strict=True))
        return f"{type(self).__name__}({pairs})"

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


class _Maker(type):
    """The metaclass of the name in the class statement. What it makes is a plain class."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(cls, name, bases, body)
        types = body.get("__annotations__", {})
        fields = tuple(types)
        defaults = {field: body.pop(field) for field in fields if field in body}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default follows one with a default")
        body |= {field: _tuplegetter(number, None) for number, field in enumerate(fields)}
        body |= {"__slots__": (), "__match_args__": fields, "_fields": fields, "_field_defaults": defaults}
        body["__new__"] = _constructor(name, fields, tuple(defaults.values()), types)
        return type(name, (_Record, *bases[1:]), body)


def _constructor(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...], types: dict[str, Any]) -> FunctionType:
    """Returns `__new__` with these parameters after the class."""
    count = len(fields)
    code = _CONSTRUCTORS.get(count)
    if code is None:
        names = "".join(f"_{number}, " for number in range(count))
        whole = compile(f"lambda _cls, {names}: _make(_cls, ({names}))", PLACE, "eval")
        code = _CONSTRUCTORS[count] = whole.co_consts[0]
    code = code.replace(co_varnames=("_cls", *fields), co_qualname=f"{name}.__new__", co_filename=PLACE)
    function = FunctionType(code, globals(), "__new__", defaults)
    function.__annotations__ = types
    return function


if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple  # noqa: PLC0414 - an export
else:
    # 3.14 does not read annotations before they are asked for, and typing keeps it so.
    NamedTuple = typing.NamedTuple if sys.version_info >= (3, 14) else _Maker("NamedTuple", (), {})

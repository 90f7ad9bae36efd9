"""core.records: named tuples that are made quickly, and are like typing's. typing is the oracle."""

import copy
import inspect
import pickle
import typing
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import pytest

from core.records import NamedTuple

T = TypeVar("T")


class Ours(NamedTuple):
    """A place."""

    name: str
    size: int = 3
    tags: tuple[str, ...] = ()

    KIND = "place"

    @property
    def twice(self) -> int:
        return 2 * self.size

    def named(self, name: str) -> "Ours":
        return self._replace(name=name)

    def __str__(self) -> str:
        return self.name

    @classmethod
    def of(cls, text: str) -> "Ours":
        return cls(text)


class Theirs(typing.NamedTuple):
    """A place."""

    name: str
    size: int = 3
    tags: tuple[str, ...] = ()


class Empty(NamedTuple):
    """A class without a field."""


class Boxed(NamedTuple, Generic[T]):
    """A class with a parameter."""

    value: T


def outcome(call: Callable[[], Any], cls: Any) -> Any:
    """Returns the result, or the error's type and text. Names and types of the class read alike for both."""
    try:
        result = call()
    except (TypeError, ValueError, AttributeError) as error:
        return type(error), str(error).replace(cls.__name__, "Class")
    if isinstance(result, str):
        return result.replace(cls.__name__, "Class")
    return tuple(result) if isinstance(result, tuple) else result


@pytest.mark.parametrize(
    "use",
    [
        lambda cls: cls("a"),
        lambda cls: cls("a", 1, ("x",)),
        lambda cls: cls(name="a", tags=("y",)),
        lambda cls: cls(),
        lambda cls: cls("a", 1, (), 4),
        lambda cls: cls("a", other=1),
        lambda cls: cls("a", name="b"),
        lambda cls: repr(cls("a")),
        lambda cls: cls("a")._replace(size=9),
        lambda cls: cls("a")._asdict(),
        lambda cls: cls._make(["a", 2, ()]),
        lambda cls: cls._make(["a"]),
        lambda cls: cls._fields,
        lambda cls: cls._field_defaults,
        lambda cls: cls.__match_args__,
        lambda cls: cls.__annotations__,
        lambda cls: cls.__doc__,
        lambda cls: str(inspect.signature(cls)),
        typing.get_type_hints,
        lambda cls: cls("a") == ("a", 3, ()),
        lambda cls: hash(cls("a")) == hash(("a", 3, ())),
        lambda cls: pickle.loads(pickle.dumps(cls("a", 7))),  # noqa: S301 - bytes of the line itself
        lambda cls: copy.deepcopy(cls("a", 7)),
        lambda cls: cls("a").__dict__,
        lambda cls: setattr(cls("a"), "name", "b"),
        lambda cls: setattr(cls("a"), "other", "b"),
        lambda cls: cls.__new__.__qualname__,
        lambda cls: cls.__module__,
        lambda cls: isinstance(cls("a"), tuple),
    ],
)
def test_a_class_does_as_typings_do(use: Callable[[Any], Any]) -> None:
    """What one has to know of a named tuple is what one knows of typing's, errors included."""
    assert outcome(lambda: use(Ours), Ours) == outcome(lambda: use(Theirs), Theirs)


def test_a_field_that_does_not_exist_is_not_replaced() -> None:
    """The error's class differs between typing's of Python 3.12 and of 3.13."""
    with pytest.raises((TypeError, ValueError), match="unexpected field names: \\['other'\\]"):
        Ours("a")._replace(other=1)


def test_what_else_stands_in_the_body_stays() -> None:
    """Properties, methods and constants are the class's own."""
    place = Ours("a", 4)
    assert (place.twice, place.KIND, str(place), Ours.of("b").size) == (8, "place", "a", 3)
    assert place.named("c") == ("c", 4, ())


def test_a_pattern_takes_the_fields_in_their_order() -> None:
    """`__match_args__` has all of them."""
    match Ours("a", 5):
        case Ours(name, size):
            assert (name, size) == ("a", 5)


def test_a_class_may_have_a_parameter_or_no_field() -> None:
    """Other bases stand behind the tuple's."""
    assert Boxed(3).value == 3
    assert Boxed[int].__args__ == (int,)
    assert Empty() == ()


def test_a_default_before_a_field_without_one_is_refused() -> None:
    """So does typing, at the class statement."""
    with pytest.raises(TypeError, match=r"(?i)non-default|a field without a default follows"):

        class Wrong(NamedTuple):
            first: int = 1
            second: str  # type: ignore[misc]


def test_classes_with_as_many_fields_keep_their_own_names_apart() -> None:
    """They share the text of their constructor."""

    class Other(NamedTuple):
        left: int
        middle: int = 1
        right: int = 2

    assert Other(left=5, right=6) == (5, 1, 6)
    assert Ours(name="a", size=1).size == 1
    with pytest.raises(TypeError, match=r"Other\.__new__\(\) got an unexpected keyword argument 'name'"):
        Other(name="a")  # type: ignore[call-arg]

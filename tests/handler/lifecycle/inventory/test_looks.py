"""handler.lifecycle.inventory: how often a store is looked at, and what is remembered of it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from core.deadline import NEVER, within
from core.errors import ModelNotFound, ModelUnavailable, StillLoading
from handler.lifecycle.inventory.bounds import BURST, LONGEST_TEXT, MOST, Allowance, Remembered, Texts
from handler.lifecycle.inventory.looks import FEW, PAUSE, Inventory
from handler.stores import File, Forbidden
from handler.stores.directory import DirectoryStore

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.handler.lifecycle.samples import Clock


class Counted:
    """A store of another package, which counts requests. `fails`: raised by the next request."""

    uri = "counted://"

    def __init__(self, *names: str) -> None:
        self.held = list(names)
        self.asked: list[str] = []
        self.fails: Exception | None = None
        self.gate: Callable[[], Any] = lambda: None

    def _ask(self, what: str) -> None:
        self.asked.append(what)
        self.gate()
        if self.fails is not None:
            raise self.fails

    def check(self, _: Any = None) -> None:
        self._ask("check")

    def models(self, _: Any = None) -> list[str]:
        self._ask("models")
        return list(self.held)

    def files(self, model: str, _: Any = None) -> list[File]:
        self._ask(model)
        return [File("1/model.onnx", 1, "e")] if model in self.held else []

    def read(self, *_: Any) -> bytes | None:
        raise AssertionError

    fetch: Any = read


@pytest.fixture
def store() -> Counted:
    """A store that holds two models."""
    return Counted("a", "b")


@pytest.fixture
def inventory(store: Counted, clock: Clock) -> Inventory:
    """The inventory of the store, on a clock that is moved by hand."""
    return Inventory(store)


def test_a_look_serves_lesser_questions_until_its_pause_is_over(
    inventory: Inventory, store: Counted, clock: Clock
) -> None:
    """A look at all files also answers for the names, and shows that the store answers."""
    assert inventory.files(NEVER).keys() == {"a", "b"}
    for _ in range(3):
        assert list(inventory.names(NEVER)) == ["a", "b"]
        inventory.check(NEVER)
    assert store.asked == ["models", "a", "b"]
    clock.now += PAUSE
    inventory.check(NEVER)
    assert store.asked[3:] == ["check"]


def test_requests_that_wait_for_a_look_share_it(store: Counted) -> None:
    """There is one request, however many wait."""
    inventory, gate = Inventory(store), threading.Event()
    store.gate = lambda: gate.wait(30)
    with ThreadPoolExecutor(8) as crowd:
        asked = [crowd.submit(inventory.names, NEVER) for _ in range(8)]
        gate.set()
        assert {each.result(30) for each in asked} == {("a", "b")}
    assert store.asked == ["models"]


def test_a_request_waits_for_anothers_look_until_its_own_deadline(store: Counted) -> None:
    """It is refused then, and may be retried."""
    inventory, gate, begun = Inventory(store), threading.Event(), threading.Event()
    store.gate = lambda: (begun.set(), gate.wait(30))
    with ThreadPoolExecutor(1) as other:
        asked = other.submit(inventory.names, NEVER)
        assert begun.wait(30)
        with pytest.raises(StillLoading):
            inventory.names(within(0.0))
        gate.set()
        assert asked.result(30) == ("a", "b")


def test_a_look_that_fails_is_not_repeated_at_once(inventory: Inventory, store: Counted, clock: Clock) -> None:
    """Every request gets its error until the next look. A look that ran out of time reveals nothing about the store."""
    store.fails = ModelUnavailable("down")
    for _ in range(3):
        with pytest.raises(ModelUnavailable, match="down"):
            inventory.names(NEVER)
    assert len(store.asked) == 1
    clock.now += PAUSE
    store.fails = StillLoading("slow")
    for _ in range(2):
        with pytest.raises(StillLoading):
            inventory.names(NEVER)
    assert len(store.asked) == 3


def test_a_name_that_was_seen_needs_no_other_look(inventory: Inventory, store: Counted, clock: Clock) -> None:
    """An unseen name is missing until the next look, which is due after the pause."""
    inventory.require("a", None, NEVER)
    clock.now += 10 * PAUSE
    assert inventory.admits("a", None)
    assert inventory.admits("c", None) is None
    with pytest.raises(ModelNotFound):
        inventory.require("c", None, NEVER)
    store.held.append("c")
    assert inventory.admits("c", None) is False
    clock.now += PAUSE
    inventory.require("c", None, NEVER)
    assert store.asked == ["models"] * 3


def test_any_listing_that_shows_a_model_admits_it(inventory: Inventory, store: Counted) -> None:
    """The rule includes a look at the model alone; a look that does not find it makes it unknown again."""
    with pytest.raises(ModelNotFound):
        inventory.require("c", None, NEVER)
    inventory.found("c")
    assert inventory.admits("c", None)
    inventory.missed("c", None, ModelNotFound("gone"))
    with pytest.raises(ModelNotFound, match="gone"):
        inventory.require("c", None, NEVER)
    assert store.asked == ["models"]


def test_an_error_of_one_version_is_no_others(inventory: Inventory) -> None:
    """A made-up version must not make the real version unavailable."""
    inventory.found("m")
    inventory.missed("m", 7, ModelUnavailable("missing or forbidden"))
    assert [inventory.admits("m", wanted) for wanted in (7, 1, None)] == [False, True, True]


def test_names_that_cannot_be_listed_are_tried_within_an_allowance(
    inventory: Inventory, store: Counted, clock: Clock
) -> None:
    """Beyond it, the answer is the error of the listing. Time restores the allowance."""
    store.fails = Forbidden("listing is not permitted")
    inventory.check(NEVER)
    for number in range(BURST):
        inventory.require(f"m{number}", None, NEVER)
    with pytest.raises(ModelUnavailable, match="listing is not permitted") as refusal:
        inventory.require("more", None, NEVER)
    assert refusal.value.retry_after == PAUSE
    inventory.require("m0", None, NEVER)  # it is being tried
    clock.now += PAUSE
    inventory.require("more", None, NEVER)


def test_a_small_directory_is_scanned_for_each_request_and_a_large_one_is_not(tmp_path: Path, clock: Clock) -> None:
    """A scan of few folders costs less than what a client may notice."""
    inventory = Inventory(DirectoryStore.__new__(DirectoryStore))
    inventory._store._root = tmp_path  # type: ignore[attr-defined]
    (tmp_path / "a").mkdir()
    assert list(inventory.names(NEVER)) == ["a"]
    for number in range(FEW):
        (tmp_path / f"m{number}").mkdir()
    assert len(inventory.names(NEVER)) == FEW + 1
    (tmp_path / "b").mkdir()
    assert len(inventory.names(NEVER)) == FEW + 1
    clock.now += PAUSE
    assert len(inventory.names(NEVER)) == FEW + 2


def test_few_things_are_remembered_and_for_a_while(clock: Clock) -> None:
    """The oldest one makes room."""
    remembered = Remembered(1.0)
    for number in range(MOST + 1):
        remembered.put(number, number)
    assert (remembered.get(0), remembered.get(1)) == (None, 1)
    clock.now += 1.0
    assert remembered.get(1) is None


def test_an_allowance_fills_up_with_time(clock: Clock) -> None:
    """It never holds more than its burst."""
    allowance = Allowance(rate=1.0, burst=2)
    assert [allowance.take() for _ in range(3)] == [True, True, False]
    clock.now += 100.0
    assert [allowance.take() for _ in range(3)] == [True, True, False]


def test_long_texts_and_those_without_an_etag_are_not_kept() -> None:
    """Their number is bounded, too."""
    texts = Texts(most=2)
    for key, text in (("a", b"1"), ("long", bytes(LONGEST_TEXT + 1)), (None, b"2"), ("b", b"3"), ("c", b"4")):
        texts.put(key, text)
    assert [texts.get(key) for key in ("a", "long", "b", "c")] == [None, None, b"3", b"4"]

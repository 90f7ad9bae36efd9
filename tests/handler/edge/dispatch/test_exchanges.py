"""handler.edge.dispatch.exchanges."""

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any

import pytest

from core.errors import InvalidInput
from handler.edge.dispatch.exchanges import Plan, answered


class Stage:
    """A stream whose messages are worked on when their gate is open. A message is an id and a letter.

    Its answers are the message twice; `fail` is answered by an error, and `none` has no answer.
    """

    def __init__(self, *messages: str, most: int = 2, fits: Callable[[str], bool] = lambda _: True) -> None:
        self.gates = {message: asyncio.Event() for message in messages}
        self.begun: list[str] = []
        self.ended: list[str] = []
        self.read = 0
        self.held: list[str] = []
        self.answers = answered(self._messages(), Plan(self._work, lambda message: message[0], most, fits, self._holds))

    async def _messages(self) -> AsyncIterator[str]:
        for message in self.gates:
            if message == "unread":
                raise InvalidInput("cannot be read")
            self.read += 1
            yield message

    @contextmanager
    def _holds(self, message: str) -> Iterator[None]:
        self.held.append(message)
        yield
        self.held.remove(message)

    async def _work(self, message: str) -> AsyncGenerator[str]:
        self.begun.append(message)
        try:
            await self.gates[message].wait()
            if message.endswith("fail"):
                raise InvalidInput(message)
            if not message.endswith("none"):
                yield message
                yield message
        finally:
            self.ended.append(message)

    def open(self, *messages: str) -> None:
        for message in messages:
            self.gates[message].set()

    async def take(self, count: int) -> list[str]:
        return [await anext(self.answers) for _ in range(count)]

    async def rest(self) -> list[str]:
        return [answer async for answer in self.answers]


def run(work: Callable[[], Awaitable[Any]]) -> Any:
    """Runs a test that must not hang."""

    async def main() -> Any:
        async with asyncio.timeout(30):
            return await work()

    return asyncio.run(main())


async def settle() -> None:
    """Lets all tasks go on as far as they can."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_answers_come_when_they_are_ready() -> None:
    """The second of two messages is answered while the first one is under way."""

    async def work() -> None:
        stage = Stage("1a", "2b")
        stage.open("2b")
        assert await stage.take(2) == ["2b", "2b"]
        stage.open("1a")
        assert await stage.rest() == ["1a", "1a"]

    run(work)


def test_messages_of_one_id_are_answered_in_their_order() -> None:
    """They are worked on side by side all the same."""

    async def work() -> None:
        stage = Stage("1a", "1b", "2c", most=3)
        stage.open("1b", "2c")
        assert await stage.take(2) == ["2c", "2c"]
        assert stage.begun == ["1a", "1b", "2c"]
        stage.open("1a")
        assert await stage.rest() == ["1a", "1a", "1b", "1b"]

    run(work)


def test_a_message_without_an_answer_keeps_the_order_of_the_others() -> None:
    """A decoupled model may yield nothing. The message behind it still waits for the one before it."""

    async def work() -> None:
        stage = Stage("1a", "1none", "1c", most=3)
        stage.open("1none", "1c")
        for _ in range(10):
            await asyncio.sleep(0)
        stage.open("1a")
        assert await stage.rest() == ["1a", "1a", "1c", "1c"]

    run(work)


@pytest.mark.parametrize(("most", "fits", "begun"), [
    (1, lambda _: True, ["1a"]),
    (2, lambda _: True, ["1a", "2b"]),
    (3, lambda message: message != "2b", ["1a"]),
])  # fmt: skip
def test_few_messages_are_under_way(most: int, fits: Callable[[str], bool], begun: list[str]) -> None:
    """A further one is begun when one has ended, and one that does not fit beside others is begun alone."""

    async def work() -> None:
        stage = Stage("1a", "2b", "3c", most=most, fits=fits)
        stage.open("1a", "2b", "3c")
        first = await anext(stage.answers)
        await settle()
        assert stage.begun == begun
        assert stage.held == ([] if fits("2b") else ["2b"])  # its memory counts while it waits
        assert sorted([first, *await stage.rest()]) == ["1a", "1a", "2b", "2b", "3c", "3c"]
        assert stage.held == []

    run(work)


def test_an_answer_is_made_when_the_one_before_was_taken() -> None:
    """A client that does not read gets no second answer made, and no further message read."""

    async def work() -> None:
        stage = Stage("1a", "2b", "3c")
        stage.open("1a", "2b", "3c")
        await anext(stage.answers)
        await settle()
        assert (stage.read, stage.ended) == (2, [])
        await stage.answers.aclose()

    run(work)


@pytest.mark.parametrize("waiting", [False, True], ids=["while it takes an answer", "while it waits for one"])
def test_a_caller_that_leaves_ends_what_is_under_way(waiting: bool) -> None:  # noqa: FBT001 - both ways
    """All work has ended when it has left."""

    async def work() -> None:
        stage = Stage("1a", "2b", "3c")
        stage.open("2b")
        if waiting:
            caller = asyncio.create_task(stage.rest())
            await settle()
            caller.cancel()
            await asyncio.wait((caller,))
        else:
            await anext(stage.answers)
        await stage.answers.aclose()
        assert sorted(stage.ended) == sorted(stage.begun)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run(work)


def test_an_error_of_an_answer_ends_the_stream() -> None:
    """Other messages that are under way end, too."""

    async def work() -> None:
        stage = Stage("1a", "2fail", "3c")
        stage.open("2fail")
        with pytest.raises(InvalidInput, match="2fail"):
            await stage.rest()
        assert stage.ended == ["2fail", "1a"]

    run(work)


def test_an_error_of_the_messages_comes_after_the_answers_to_what_was_read() -> None:
    """The message before it is answered."""

    async def work() -> None:
        stage = Stage("1a", "unread")
        stage.open("1a")
        assert await stage.take(2) == ["1a", "1a"]
        with pytest.raises(InvalidInput, match="cannot be read"):
            await stage.rest()

    run(work)


class Large:
    """A message that shows whether it is still in memory."""


def test_a_message_is_let_go_with_its_error() -> None:
    """No task or frame keeps it, without the cyclic collector."""
    messages = [Large()]
    seen = weakref.ref(messages[0])

    async def read() -> AsyncIterator[Large]:
        yield messages.pop()

    async def refuse(message: Large) -> AsyncGenerator[Large]:
        if message:
            raise InvalidInput("no")
        yield message

    async def work() -> None:
        async with aclosing(answered(read(), Plan(refuse, lambda _: "", 1))) as answers:
            with suppress(InvalidInput):
                await anext(answers)
        await settle()
        assert seen() is None

    gc.disable()
    try:
        run(work)
    finally:
        gc.enable()

"""handler.edge.peers: workers in one process, over real sockets, each with a registry of its own."""

import errno
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from shutil import copytree
from typing import Any, NamedTuple

import pytest

from core.deadline import within
from core.errors import (
    InvalidInput,
    ModelFailed,
    ModelNotFound,
    ModelUnavailable,
    NotSupported,
    ServingError,
    StillLoading,
)
from core.operations import ModelRef, State
from handler.edge.peers import joining, sockets
from handler.edge.peers.joining import join
from handler.edge.peers.models import SharedModels
from handler.edge.peers.own import OwnModels, finished, used
from handler.edge.peers.sockets import Desk, Peers
from handler.lifecycle.particulars import ProcessState
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background, Load
from tests.handler.edge.client import ROOT, make
from tests.protocols.test_waiting import until

IRIS, OTHER = ModelRef("iris"), ModelRef("half_plus_three")
SOON = Background()


class Member(NamedTuple):
    registry: Registry
    shared: SharedModels
    own: OwnModels
    peers: Peers


Hire = Callable[..., Member]


@pytest.fixture
def hire(tmp_path: Path) -> Iterator[Hire]:
    """Makes a worker of the sample models, or of another folder."""
    folder = tmp_path / "sockets"
    folder.mkdir()
    with ExitStack() as stack:

        def hired(name: str, repository: Path = ROOT / "models", *, serves: bool = True, **settings: str) -> Member:
            app = stack.enter_context(closing(make(repository, **settings)))
            peers = Peers(folder, name)
            own = OwnModels(app.registry, app.observer.publish)
            stack.enter_context(closing(Desk(peers.socket, own.verbs)))
            if serves:
                own.serve()
            return Member(app.registry, SharedModels(app.registry, peers), own, peers)

        yield hired


def is_ready(member: Member) -> bool:
    return member.shared.readiness(IRIS, SOON).ready


def load(member: Member, name: str = "iris") -> None:
    finished(partial(member.shared.load, name, SOON))


def test_a_change_is_made_by_all_and_readiness_is_everybodys(hire: Hire) -> None:
    """A model that only one worker has loaded is not ready, and says why."""
    one, two = hire("1"), hire("2")
    finished(partial(used, one.registry, IRIS))
    found = one.shared.readiness(IRIS, SOON)
    assert (found.ready, found.reason) == (False, "another worker: not loaded yet")
    assert {entry.state for entry in one.shared.index(SOON) if entry.name == "iris"} == {State.UNAVAILABLE}
    assert not one.shared.status(IRIS, SOON).ready
    load(two)
    assert is_ready(one)
    assert is_ready(two)
    assert one.shared.ready(SOON).ready
    assert one.shared.status(IRIS, SOON).ready
    finished(partial(one.shared.unload, "iris", SOON))
    assert not two.registry.readiness(IRIS, SOON).ready
    with pytest.raises(ModelNotFound):
        finished(partial(two.shared.unload, "nothing", SOON))
    finished(partial(two.shared.set_online, online=False))
    assert not one.registry.ready(SOON).ready
    assert one.shared.ready(SOON).reason == "set offline"


def test_numbers_are_summed(hire: Hire) -> None:
    """Of the workers that know the model."""
    one, two = hire("1"), hire("2")
    for member, times in ((one, 1), (two, 2)):
        load(member)
        with member.registry.use(IRIS, SOON) as model:
            assert model.spec.name == "iris"
            loaded = member.registry.use(IRIS, SOON)
            for _ in range(times):
                loaded.record((1, 2, 3, 4), 10, success=True)
            loaded.__exit__()
    (found,) = one.shared.statistics(IRIS, SOON)
    assert (found.inference_count, found.success, found.compute_infer.ns) == (3, (3, 30), 9)
    assert [each.inference_count for each in two.shared.statistics(None, SOON) if each.name == "iris"] == [3]
    assert len(one.shared.series().spans) == len(one.registry.series().spans)
    assert one.peers.ask("publish") == [None]


def test_what_another_worker_refuses_is_refused(hire: Hire, tmp_path: Path) -> None:
    """With the place. One whose repository does not have the model is not asked in vain to unload it."""
    copytree(ROOT / "models" / "half_plus_three", tmp_path / "few" / "half_plus_three")
    one, two = hire("1"), hire("2", tmp_path / "few", GRPS_HEALTH_CONTROL="off")
    with pytest.raises(ModelNotFound, match="another worker: "):
        load(one)
    found = one.shared.readiness(IRIS, SOON)
    assert (found.ready, found.reason[:16], found.fault) == (False, "another worker: ", ModelNotFound.fault)
    finished(partial(one.shared.unload, "iris", SOON))
    with pytest.raises(NotSupported, match="another worker: "):
        finished(partial(one.shared.set_online, online=True))
    with pytest.raises(NotSupported):
        finished(partial(two.shared.set_online, online=True))
    finished(partial(used, one.registry, IRIS))
    finished(partial(two.shared.unload, "iris", SOON))  # which it does not have, and the other one does
    assert not one.registry.readiness(IRIS, SOON).ready


def test_a_worker_that_cannot_be_asked_has_not_agreed(hire: Hire, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process without descriptors reports that it could not ask. A worker that has ended is not asked."""
    one, two = hire("1"), hire("2")
    load(one)

    def fail(*_: Any) -> Any:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(sockets, "_asked", fail)
        with pytest.raises(ModelUnavailable, match="another worker: it cannot be asked: Too many open files"):
            finished(partial(one.shared.unload, "iris", SOON))
        assert not one.shared.ready(SOON).ready
        patch.setattr(sockets, "_asked", lambda *_: (_ for _ in ()).throw(ConnectionRefusedError))
        assert one.shared.ready(SOON).ready
    assert two.registry.readiness(IRIS, SOON).ready


def test_a_new_worker_becomes_like_the_others_first(hire: Hire, caplog: pytest.LogCaptureFixture) -> None:
    """It answers no question before, and what it is told meanwhile comes afterwards."""
    one = hire("1", PRELOAD="passengers")
    load(one)
    finished(partial(used, one.registry, ModelRef("half_plus_three", "123")))
    finished(partial(one.shared.unload, "passengers", SOON))
    finished(partial(one.shared.set_online, online=False))
    new = hire("2", serves=False, PRELOAD="passengers")
    assert one.peers.ask("condition") == one.peers.ask("series") == []
    assert join(new.registry, new.peers) == 2
    assert new.registry.condition() == one.registry.condition()
    told = threading.Thread(target=finished, args=(partial(one.shared.unload, "iris", SOON),))
    told.start()
    until(lambda: not one.registry.readiness(IRIS, SOON).ready)
    assert new.registry.readiness(IRIS, SOON).ready
    new.own.serve()
    told.join()
    assert not new.registry.readiness(IRIS, SOON).ready
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_change_that_a_new_worker_was_not_told_is_made(hire: Hire, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that others began before they saw it, and have made by the time it has loaded what they had."""
    new = hire("1", serves=False)
    answers = [
        ProcessState(online=False, unloaded=(), loaded=(("iris", "1"),)),
        ProcessState(online=True, unloaded=(), loaded=()),
    ]
    monkeypatch.setattr(new.peers, "ask", lambda *_, **__: [answers.pop(0), InvalidInput("no")])
    assert join(new.registry, new.peers) == 1
    assert new.registry.condition() == ProcessState(online=True, unloaded=("iris",), loaded=())
    monkeypatch.setattr(new.peers, "ask", lambda *_, **__: [])
    assert join(new.registry, new.peers) == 0


def test_what_a_new_worker_cannot_load_keeps_it_from_nothing(
    hire: Hire, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It says so, and serves without; so it does when the load takes too long."""
    one = hire("1")
    load(one)
    finished(partial(one.shared.unload, "passengers", SOON))
    copytree(ROOT / "models" / "half_plus_three", tmp_path / "few" / "half_plus_three")
    new = hire("2", tmp_path / "few", serves=False)
    assert join(new.registry, new.peers) == 0
    assert "iris version 1, which other workers have: " in caplog.text
    gate = threading.Event()
    monkeypatch.setattr(joining, "_load", lambda *_: gate.wait())
    assert join(new.registry, new.peers, seconds=0) == 0
    gate.set()
    assert "1 model not loaded after 0 s: requests load them" in caplog.text


def test_a_worker_that_is_silent_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that has ended is, too; one that says that it still works is waited for, however long it takes."""
    monkeypatch.setattr(sockets, "BEAT_SECONDS", 0.01)
    monkeypatch.setattr(sockets, "SILENCE_SECONDS", 0.5)
    gate = threading.Event()
    peers = Peers(tmp_path, "1")
    with ExitStack() as stack:
        for name, listens in (("silent", True), ("ended", False)):
            stood = stack.enter_context(socket.socket(socket.AF_UNIX))
            stood.bind(str(tmp_path / f"{name}.sock"))
            if listens:
                stood.listen()
        stack.enter_context(closing(Desk(tmp_path / "works.sock", {"wait": partial(gate.wait, 30)})))
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.extend(peers.tell("wait")))
        asking.start()
        until(lambda: "silent" in caplog.text)
        assert not answers
        gate.set()
        asking.join()
        assert answers == [True]
        peers._silent.clear()
        assert peers.ask("wait", seconds=0.5) == [True]  # the silent one has taken all of the time
        count = len(caplog.records)
        assert peers.ask("wait") == [True]  # and is not asked again for a while
    assert len(caplog.records) == count
    assert "worker silent does not answer 'wait', and is left out: timed out" in caplog.text


def test_a_worker_that_cannot_take_a_question_takes_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker that had no threads or descriptors for a moment takes questions again."""
    monkeypatch.setattr(sockets, "PAUSE_SECONDS", 0.01)
    lacks = iter((True, True))
    start = threading.Thread.start

    def started(thread: threading.Thread) -> None:
        if thread.name == "dragoman-peer" and next(lacks, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", started)
    peers = Peers(tmp_path, "1")
    with closing(Desk(tmp_path / "2.sock", {"two": lambda: 2})):
        assert [peers.tell("two") for _ in range(3)] == [[], [], [2]]
    assert caplog.text.count("a question of another worker is not taken: can't start new thread") == 2


class Odd(ServingError):
    """One that cannot be made anew from its message."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(one + two)


def test_errors_travel(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The core's as they are, others by their message, and a mistake as an internal error with its traceback here."""
    raised: dict[str, BaseException] = {
        "known": InvalidInput("no", retry_after=2), "odd": Odd("o", "dd"), "mistake": SystemExit(3),
    }  # fmt: skip

    def fail(kind: str) -> None:
        raise raised[kind]

    with closing(Desk(tmp_path / "1.sock", {"fail": fail})):
        found = {kind: Peers(tmp_path, "2").ask("fail", kind)[0] for kind in raised}
    assert {kind: (type(error), error.message) for kind, error in found.items()} == {
        "known": (InvalidInput, "no"),
        "odd": (ModelUnavailable, "odd"),
        "mistake": (ModelFailed, "internal error: the server's log has the details"),
    }
    assert found["known"].retry_after == 2
    assert "SystemExit: 3" in caplog.text


def test_a_wait_has_the_progress_of_the_load(hire: Hire) -> None:
    """Which its refusal names at the deadline."""
    one, work = hire("1"), Load("iris", within(1))
    finished(partial(used, one.registry, IRIS), work)
    assert work.ahead is None
    assert work.version is not None
    assert isinstance(work.unfinished(), StillLoading)

"""`dragoman serve --workers N`: the process that keeps the workers running, and the start of one worker."""

import asyncio
import json
import logging
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from handler import cli
from handler.commands.serve import server, supervisor, worker
from handler.commands.serve.server import NOT_STARTED, Serving
from handler.commands.serve.supervisor import Supervisor, reason
from handler.edge.at_once import AtOnce
from handler.edge.server.whole import requests_of
from handler.settings import InvalidSettings, Settings
from tests.handler.edge.client import ROOT
from tests.protocols.test_waiting import SECONDS
from tests.support.ports import free_port, free_ports

Done = Callable[[Supervisor], bool]


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Returns what the supervisor has logged."""
    return [record.getMessage() for record in caplog.records if record.name == "dragoman.workers"]


def supervise(monkeypatch: pytest.MonkeyPatch, folder: Path, does: dict[int, str], done: Done, signals: int = 1) -> int:
    """Keeps stand-ins running until an event, then ends them with so many signals. Returns the exit code."""
    monkeypatch.setattr(supervisor, "MODULE", "tests.support.worker_stand_in")
    environ = {"STAND_IN": json.dumps(does), "PATH": ""}
    settings = Settings.from_env({"DRAGOMAN_WORKERS": str(len(does)), "DRAGOMAN_SHUTDOWN_TIMEOUT": "0.05"})
    kept = Supervisor(settings, Serving("127.0.0.1", 1, file=Path("x.toml")), environ, str(folder))

    async def run() -> int:
        running, until = asyncio.create_task(kept.run()), asyncio.get_running_loop().time() + SECONDS
        while not running.done() and not done(kept):
            assert asyncio.get_running_loop().time() < until
            await asyncio.sleep(0.005)
        for _ in range(signals):
            kept._end()
        return await running

    return asyncio.run(run())


@pytest.mark.parametrize(("does", "code"), [("fails", 2), ("crashes", NOT_STARTED)])
def test_a_server_whose_first_worker_does_not_start_ends(
    does: str, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With its exit code, and before the others would say the same."""
    assert supervise(monkeypatch, tmp_path, {1: does, 2: "serves"}, lambda kept: 2 in kept._running) == code


def test_a_worker_that_ends_is_replaced_after_growing_pauses(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The line says how it ended; the others run on, and the socket that it leaves is removed."""
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr(supervisor, "LONGEST_PAUSE", 0.02)
    left: list[Path] = []

    def done(kept: Supervisor) -> bool:
        if 2 in kept._running and not left:
            left.append(tmp_path / f"2-{kept._running[2].process.pid}.sock")
            left[0].touch()
        return len(said(caplog)) >= 3

    assert supervise(monkeypatch, tmp_path, {1: "serves", 2: "dies"}, done) == 0
    texts = said(caplog)[:3]
    assert all(text.startswith("worker 2 (process ") for text in texts)
    ends = [text.partition(") ")[2] for text in texts]
    pauses = [re.fullmatch(r"ended with exit code 7 after \d s; another one starts in ([\d.]+) s", end) for end in ends]
    assert [pause and pause[1] for pause in pauses] == ["0.01", "0.02", "0.02"]
    assert not left[0].exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_the_exit_code_tells_ctrl_c_from_an_end_by_the_system(
    number: int, code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A server with one process returns the same codes."""

    def done(kept: Supervisor) -> bool:
        if 2 in kept._running:
            os.kill(os.getpid(), number)
        return 2 in kept._running

    assert supervise(monkeypatch, tmp_path, {1: "serves", 2: "serves"}, done, signals=0) == code


def test_ctrl_c_in_a_terminal_does_not_reach_the_workers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The terminal sends it to the group of the supervisor, which ends them: one that still starts has no traceback."""
    groups: set[int] = set()

    def done(kept: Supervisor) -> bool:
        groups.update(os.getpgid(started.process.pid) for started in kept._running.values())
        return len(groups) == 2

    assert supervise(monkeypatch, tmp_path, {1: "serves", 2: "serves"}, done) == 0
    assert os.getpgrp() not in groups


def test_a_worker_that_has_lived_is_replaced_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its end does not mean that the next one will end, too."""
    monkeypatch.setattr(supervisor, "SETTLED_SECONDS", -1.0)
    assert supervise(monkeypatch, tmp_path, {1: "serves", 2: "dies"}, lambda _: len(said(caplog)) >= 2) == 0
    assert said(caplog)[0].endswith("another one starts in 0 s")


def test_a_worker_that_cannot_be_started_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As when there is no memory for a process: the others serve meanwhile."""
    monkeypatch.setattr(supervisor, "FIRST_PAUSE", 0.01)
    start, failed = asyncio.create_subprocess_exec, []

    async def starts(*words: str, **options: Any) -> Any:
        if '"number": 2' in words[-1] and not failed:
            failed.append(words)
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return await start(*words, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", starts)
    assert supervise(monkeypatch, tmp_path, {1: "serves", 2: "serves"}, lambda kept: 2 in kept._running) == 0
    (line,) = said(caplog)
    assert line.startswith("worker 2 cannot be started: Resource temporarily unavailable after ")


@pytest.mark.parametrize(("seconds", "signals", "lines"), [(0.0, 1, 1), (60.0, 2, 0)])
def test_a_worker_that_does_not_end_is_killed(
    seconds: float, signals: int, lines: int,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """After a time, or at the second signal."""
    monkeypatch.setattr(supervisor, "STOP_SECONDS", seconds)
    assert supervise(monkeypatch, tmp_path, {1: "stays", 2: "serves"}, lambda kept: 2 in kept._running, signals) == 0
    assert len(said(caplog)) == lines


def test_a_signal_before_the_first_worker_serves_ends_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """That is not a failure; a worker that is just being started ends as well."""
    assert supervise(monkeypatch, tmp_path, {1: "serves"}, lambda kept: 1 in kept._running) == 0
    assert supervise(monkeypatch, tmp_path, {1: "serves"}, lambda _: True) == 0


def test_the_end_of_a_process_in_words() -> None:
    """A signal by its name, if it has one."""
    assert reason(3) == "ended with exit code 3"
    assert reason(-9) == "was ended by SIGKILL (by hand, or by the kernel because memory was full)"
    assert (reason(-11), reason(-64 - 5)) == ("was ended by SIGSEGV", "was ended by signal 69")


@pytest.mark.parametrize(("flags", "told"), [
    (("--workers", "0"), "--workers is '0'; expected a whole number from 1 to 256"),
    (("--workers", "257"), "--workers is '257'; expected a whole number from 1 to 256"),
    (("--workers", "2", "--reload"), "--reload is for one process: leave out --reload or --workers"),
    (("--workers", "2", "--lambda"), "--lambda has no --workers: leave one of the two out"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(
    flags: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line."""
    assert cli.main(["serve", *flags]) == 2
    assert capsys.readouterr().err == f"dragoman: {told}\n"


def test_hooks_of_a_snapshot_are_for_one_process(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lambda Web Adapter's would reach one worker, and the others would go on with what only one instance may have."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    monkeypatch.setenv("AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start")
    monkeypatch.setenv("AWS_LWA_SNAPSTART_AFTER_RESTORE_PATH", "/after")
    assert cli.main(["serve", "--workers", "2"]) == 2
    told = "SnapStart's hooks reach one process: leave out --workers (DRAGOMAN_WORKERS)"
    assert capsys.readouterr().err == f"dragoman: {told}\n"


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Before a process is started: a package, or a kernel that shares a port."""
    with monkeypatch.context() as patched:
        patched.setattr(server, "find_spec", lambda name: None if name == "grpc" else object())
        assert cli.main(["serve", "--workers", "2", "--grpc-port", str(free_port())]) == 2
        patched.setattr(server, "find_spec", lambda _: None)
        assert cli.main(["serve", "--workers", "2"]) == 2
        patched.setattr(sys, "platform", "darwin")
        assert cli.main(["serve", "--workers", "2"]) == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert "pip install 'dragoman[grpc]'" in first
    assert "pip install 'dragoman[server]'" in second
    assert third == "dragoman: --workers needs Linux, whose kernel shares a port's connections out"


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
def test_a_port_of_another_server_is_refused(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Even if that one shares it, as the workers of another `dragoman serve` would."""
    other, taken = free_ports(2)
    ports = {"--port": other, "--grpc-port": free_port(), flag: taken}
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(("127.0.0.1", taken))
        listening.listen()
        words = [str(word) for pair in ports.items() for word in pair]
        assert cli.main(["serve", "--workers", "2", *words]) == 2
    assert f"cannot listen on 127.0.0.1:{taken}: Address already in use" in capsys.readouterr().err


def mode(folder: str) -> int:
    return Path(folder).stat().st_mode & 0o777


def test_the_folder_of_the_sockets_has_a_short_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A Unix socket's path has 107 characters at most. The folder is private, and gone in the end."""
    long = tmp_path / ("x" * 80)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    seen: list[tuple[str, int, Any]] = []

    async def run(self: Supervisor) -> int:
        seen.append((self._folder, mode(self._folder), self._environ["DRAGOMAN_METRICS_FOLDER"]))
        return 0

    monkeypatch.setattr(Supervisor, "run", run)
    assert cli.main(["serve", "--workers", "2", "--port", str(free_port())]) == 0
    ((folder, found, metrics),) = seen
    assert (len(folder) < 60, found, metrics) == (True, 0o700, f"{folder}/metrics")
    assert not Path(folder).exists()


def role(folder: Path, *, announces: bool = True, **how: Any) -> dict[str, Any]:
    serving = Serving("127.0.0.1", free_port(), **how)._asdict()
    return {"number": 1, "folder": str(folder), "announces": announces, "how": serving}


def test_a_worker_serves_its_share(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has its part of the limits, gRPC shares its port, and the supervisor hears of it when it listens."""
    settings = {"WORKERS": "2", "THREADS": "6", "REPOSITORY": str(ROOT / "models"), "LOG_LEVEL": "ERROR"}
    for name, text in settings.items():
        monkeypatch.setenv(f"DRAGOMAN_{name}", text)
    served: list[worker.AnnouncedServer] = []

    async def startup(self: uvicorn.Server, sockets: Any = None) -> None:
        self.started = True

    def run(self: worker.AnnouncedServer, sockets: Any = None) -> None:
        served.append(self)
        asyncio.run(self.startup())

    monkeypatch.setattr(uvicorn.Server, "startup", startup)
    monkeypatch.setattr(uvicorn.Server, "run", run)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert worker.serve(role(tmp_path, grpc_port=free_port()), theirs) == 0
        assert ours.recv(8) == b"1"
        second = role(tmp_path / "2", announces=False)
        (tmp_path / "2").mkdir()
        assert worker.serve(second, theirs) == 0
    first, other = (each.config.app for each in served)
    assert type(first).__name__ == "Beside"
    for each in served:
        each.config.load()
    apps = first._app, other
    assert [type(requests_of(each.config)) for each in served] == [AtOnce, AtOnce]
    assert [requests_of(each.config) for each in served] == [each.whole_requests for each in apps]
    assert (other.settings.threads, other.settings.workers) == (3, 2)
    printed = capsys.readouterr().out
    assert printed.count("dragoman serves ") == 1
    assert "2 workers share the port and answer as one server" in printed
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(tmp_path / "nowhere"))
    (tmp_path / "3").mkdir()
    with pytest.raises(InvalidSettings, match="does not exist"):
        worker.serve(role(tmp_path / "3", on_empty="stop"), theirs)
    logging.getLogger().setLevel(logging.WARNING)
    for app in (first._app, other):
        app.close()


def test_one_process_imports_nothing_of_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """`serve` alone starts as fast as before."""
    monkeypatch.setattr(server, "serve", lambda *_: 0)
    for name in [name for name in sys.modules if "handler.edge.peers" in name or name.endswith("serve.supervisor")]:
        monkeypatch.delitem(sys.modules, name)
    assert cli.main(["serve"]) == 0
    assert not any("handler.edge.peers" in name or name.endswith("serve.supervisor") for name in sys.modules)

"""`dragoman serve --workers 2`: processes that share the ports and answer as one server, over every protocol.

Each look is a connection of its own, which the kernel gives to one of the two.
"""

import os
import re
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from shutil import copytree
from typing import Any, Final

import pytest

from core.schema import open_inference as oip
from tests.handler.edge.observe.test_metrics import samples
from tests.protocols.test_waiting import entered, held, until
from tests.support.connect_client import PROTO
from tests.support.grps_client import Rpc
from tests.support.remote import SERVICE, Remote
from tests.support.server import STOP_SECONDS, Server, serve_rpc
from tests.support.watching import crowd

ROOT: Final = Path(__file__).parents[2]
MODEL, VERSION = "half_plus_three", "123"
LOOKS: Final = 50
ROWS: Final = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}
LISTENING, ESTABLISHED = "0A", "01"


def sockets(state: str, port: int) -> Iterator[tuple[int, str]]:
    """Yields (port of the other end, inode) of the machine's TCP sockets on a port of this end."""
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, here, there, found, *_, inode = line.split()[:10]
            if found == state and int(here.rpartition(":")[2], 16) == port:
                yield int(there.rpartition(":")[2], 16), inode


def held_by(process: int) -> set[str]:
    """Returns the inodes of a process's sockets."""
    links = []
    for each in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed since
            links.append(str(each.readlink()))
    return {found[1] for found in map(re.compile(r"socket:\[(\d+)\]").fullmatch, links) if found}


def workers(server: Server) -> list[int]:
    """Returns the processes that listen on both ports."""
    process = server.process.pid
    children = map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
    ports = [{inode for _, inode in sockets(LISTENING, port)} for port in (server.port, server.rpc_port)]
    found = []
    for child in children:
        try:
            own = held_by(child)
        except OSError:  # it has ended
            continue
        if all(own & inodes for inodes in ports):
            found.append(child)
    return found


@pytest.fixture
def start(launch: Callable[..., Server]) -> Callable[..., Server]:
    """Starts a server of two workers, and waits for both."""

    def started(**settings: str) -> Server:
        server = launch(rpc=True, WORKERS="2", **{"REPOSITORY": str(ROOT / "models"), **settings})
        until(lambda: len(workers(server)) == 2)
        return server

    return started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of two workers for tests that leave it as it was."""
    folder = tmp_path_factory.mktemp("workers")
    copytree(ROOT / "models", folder / "models")
    with serve_rpc(folder / "log", WORKERS="2", REPOSITORY=str(folder / "models")) as running:
        until(lambda: len(workers(running)) == 2)
        yield running
        assert running.runs()


def over_rest(server: Server, method: str, path: str, document: Any = None) -> Any:
    with server.wire() as wire:
        answer = wire.call(method, path) if document is None else wire.post(path, document)
    return answer.status, answer.json() if answer.body else None


def over_grpc(server: Server, method: str, message: Any, service: str = SERVICE) -> Any:
    with closing(Remote(server.rpc_netloc)) as remote:
        return remote.ask(method, message, service)


def over_connect(server: Server, method: str, message: Any, answer: Any) -> Any:
    with server.wire() as wire:
        found = wire.call("POST", f"/{SERVICE}/{method}", message.SerializeToString(), {"content-type": PROTO})
    assert found.status == 200, found.body
    return answer.FromString(found.body)


READY: Final[dict[str, Callable[[Server], Any]]] = {
    "V2": lambda server: over_rest(server, "GET", f"/v2/models/{MODEL}/ready")[0] == 200,
    "index": lambda server: any(
        entry["name"] == MODEL and entry["state"] == "READY"
        for entry in over_rest(server, "POST", "/v2/repository/index", {})[1]
    ),
    "V1": lambda server: (
        over_rest(server, "GET", f"/v1/models/{MODEL}")[1]["model_version_status"][0]["state"] == "AVAILABLE"
    ),
    "gRPC": lambda server: over_grpc(server, "ModelReady", oip.ModelReadyRequest(name=MODEL)).ready,
    "Connect": lambda server: (
        over_connect(server, "ModelReady", oip.ModelReadyRequest(name=MODEL), oip.ModelReadyResponse).ready
    ),
}
COUNTS: Final[dict[str, Callable[[Server], Any]]] = {
    "V2": lambda server: over_rest(server, "GET", f"/v2/models/{MODEL}/stats")[1]["model_stats"][0]["inference_count"],
    "gRPC": lambda server: (
        over_grpc(server, "ModelStatistics", oip.ModelStatisticsRequest(name=MODEL)).model_stats[0].inference_count
    ),
    "metrics": lambda server: metric(server, "nv_inference_count", model=MODEL, version=VERSION),
}
CHANGES: Final[dict[str, Callable[[Server, str], Any]]] = {
    "V2": lambda server, verb: over_rest(server, "POST", f"/v2/repository/models/{MODEL}/{verb}", {}),
    "gRPC": lambda server, verb: over_grpc(
        server, f"RepositoryModel{verb.title()}", oip.RepositoryModelLoadRequest(model_name=MODEL)
    ),
    "Connect": lambda server, verb: over_connect(
        server,
        f"RepositoryModel{verb.title()}",
        oip.RepositoryModelLoadRequest(model_name=MODEL),
        oip.RepositoryModelLoadResponse,
    ),
}


def metric(server: Server, name: str, **labels: str) -> float:
    with server.wire() as wire:
        text = wire.get("/metrics").body.decode()
    return samples(text)[name, tuple(sorted(labels.items()))]


def looks(server: Server, look: Callable[[Server], Any], count: int = LOOKS) -> set[Any]:
    """Returns what so many connections see."""
    return {look(server) for _ in range(count)}


@pytest.mark.parametrize("through", CHANGES)
def test_what_one_worker_is_told_all_have_done(through: str, server: Server) -> None:
    """Once a load or an unload is answered, every connection of every protocol sees it."""
    count = LOOKS if through == "V2" else 10
    for verb in ("load", "unload"):
        CHANGES[through](server, verb)
        found = {name: looks(server, look, count) for name, look in READY.items()}
        assert found == {name: {verb == "load"} for name in READY}


def test_numbers_are_those_of_all_workers(server: Server) -> None:
    """Each connection reads the sum, in the statistics and in the metrics, at once."""
    before = {name: look(server) for name, look in COUNTS.items()}
    asked = crowd(4, lambda _: [over_rest(server, "POST", f"/v2/models/{MODEL}/infer", ROWS)[0] for _ in range(10)])
    assert {status for statuses in asked for status in statuses} == {200}
    assert {name: looks(server, look, 10) for name, look in COUNTS.items()} == {
        name: {before[name] + 40} for name in COUNTS
    }
    assert metric(server, "dragoman_processes") == 2


def test_online_and_offline_are_for_all_workers(server: Server) -> None:
    """Readiness of the server follows, whichever worker is asked."""
    with Rpc(server.rpc_netloc) as rpc:
        for method, status in (("Offline", 503), ("Online", 200)):
            rpc.ask(method)
            assert looks(server, lambda server: over_rest(server, "GET", "/v2/health/ready")[0]) == {status}


def test_new_settings_of_a_model_are_everybodys(server: Server) -> None:
    """A load reads the model's settings again, in every worker; one that cannot be loaded is refused, and stays."""
    (repository,) = server.log.parent.glob("models")
    settings = repository / MODEL / "model-settings.json"
    text = settings.read_text() if settings.exists() else "{}"
    CHANGES["V2"](server, "load")
    try:
        settings.write_text('{"max_batch_size": "x"}')
        assert CHANGES["V2"](server, "load")[0] >= 400
        assert looks(server, READY["V2"], 10) == {True}
    finally:
        settings.write_text(text)
    assert over_rest(server, "POST", "/v2/repository/models/nothing/unload", {})[0] == 404
    CHANGES["V2"](server, "unload")


POOL: Final = """
import multiprocessing
pool = multiprocessing.get_context("fork").Pool(1)
def predict(inputs, parameters):
    return {"y": pool.map(abs, [-2])}
"""


def test_a_model_with_a_pool_of_processes_is_loaded_and_unloaded_again(
    start: Callable[..., Server], tmp_path: Path
) -> None:
    """The pool is forked during the load. It inherits the lock file that the worker has open."""
    folder = tmp_path / "pools" / MODEL / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(POOL)
    server = start(REPOSITORY=str(folder.parents[1]), ALLOW_CODE="true")
    for _ in range(2):
        assert CHANGES["V2"](server, "load")[0] == 200
        status, answer = over_rest(server, "POST", f"/v2/models/{MODEL}/infer", ROWS)
        assert (status, answer["outputs"][0]["data"]) == (200, [2])
        assert CHANGES["V2"](server, "unload")[0] == 200


class Client:
    """One keep-alive connection that asks until it is told to stop, or breaks."""

    def __init__(self, server: Server) -> None:
        self.wire = server.wire()
        self.wire.connection.connect()
        self.port = self.wire.connection.sock.getsockname()[1]
        self.good, self.broke, self.over = 0, False, False

    def run(self) -> None:
        while not self.over and not self.broke:
            try:
                assert self.wire.infer(MODEL, *ROWS["inputs"]).status == 200
                self.good += 1
            except OSError:
                self.broke = True
            except Exception as error:
                if type(error).__module__ != "http.client":
                    raise
                self.broke = True
        self.wire.connection.close()


def test_a_killed_worker_is_replaced(server: Server) -> None:
    """Only requests on its own connections fail. The new worker has what the others have before it takes any."""
    CHANGES["V2"](server, "load")
    with Rpc(server.rpc_netloc) as rpc:
        rpc.ask("Offline")
    clients = [Client(server) for _ in range(8)]

    def stop() -> None:
        for each in clients:
            each.over = True

    with ThreadPoolExecutor(len(clients)) as pool, ExitStack() as stack:
        stack.callback(stop)  # else a failure would wait for them
        running = [pool.submit(each.run) for each in clients]
        until(lambda: all(each.good > 10 for each in clients))
        owned = {
            process: {port for port, inode in sockets(ESTABLISHED, server.port) if inode in held_by(process)}
            for process in workers(server)
        }
        victim = max(owned, key=lambda process: len(owned[process]))
        mark = {each.port: each.good for each in clients}
        os.kill(victim, signal.SIGKILL)
        until(lambda: all(each.broke or each.good > mark[each.port] + 10 for each in clients))
        while len(found := workers(server)) < 2 or victim in found:
            assert looks(server, READY["V2"], 1) == {True}
        stop()
        for future in running:
            future.result()
    assert {each.port for each in clients if each.broke} == owned[victim]
    assert f"(process {victim}) was ended by SIGKILL" in server.log.read_text()
    assert looks(server, READY["V2"]) == {True}
    assert looks(server, lambda server: over_rest(server, "GET", "/v2/health/ready")[0]) == {503}
    with Rpc(server.rpc_netloc) as rpc:
        rpc.ask("Online")
    CHANGES["V2"](server, "unload")


def waiting(server: Server, gate: Path, *, rpc: bool) -> Any:
    """Returns the model's name of an answer that comes once the file exists."""
    if rpc:
        return over_grpc(server, "ModelInfer", held(gate)).model_name
    tensor = {"name": "gate", "datatype": "BYTES", "shape": [1], "data": [str(gate)]}
    return over_rest(server, "POST", "/v2/models/py_waits/infer", {"inputs": [tensor]})[1]["model_name"]


def test_a_signal_lets_all_workers_answer_first(start: Callable[..., Server], zoo: Path, tmp_path: Path) -> None:
    """Requests that are being worked on get their answers. Then all processes end, and nothing of them stays."""
    server = start(REPOSITORY=str(zoo), ALLOW_CODE="true", THREADS="16", TIMEOUT="0")
    children = workers(server)
    gates = [tmp_path / f"gate-{number}" for number in range(8)]
    with ThreadPoolExecutor(len(gates)) as pool:
        asked = [pool.submit(waiting, server, gate, rpc=bool(number % 2)) for number, gate in enumerate(gates)]
        until(lambda: all(map(entered, gates)))
        server.process.terminate()
        until(lambda: server.log.read_text().count("Shutting down") == 2)
        for gate in gates:
            gate.touch()
        assert [future.result() for future in asked] == ["py_waits"] * len(gates)
    assert server.process.wait(STOP_SECONDS) == 0
    assert not any(Path(f"/proc/{child}").exists() for child in children)


def test_a_request_gets_no_more_time_than_the_setting_says(
    start: Callable[..., Server], zoo: Path, tmp_path: Path
) -> None:
    """Its client learns that it may try again, elsewhere."""
    server = start(REPOSITORY=str(zoo), ALLOW_CODE="true", TIMEOUT="0", SHUTDOWN_TIMEOUT="0.2")
    gate = tmp_path / "gate"
    tensor = {"name": "gate", "datatype": "BYTES", "shape": [1], "data": [str(gate)]}
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(over_rest, server, "POST", "/v2/models/py_waits/infer", {"inputs": [tensor]})
        until(lambda: entered(gate))
        server.process.terminate()
        status, answer = asked.result()[:2]
        gate.touch()
    assert (status, "the server ends before it has answered" in answer["error"]) == (503, True)
    assert server.process.wait(STOP_SECONDS) == 0


def test_workers_end_with_their_supervisor(start: Callable[..., Server]) -> None:
    """However it ends; their folder goes, too."""
    server = start()
    children = workers(server)
    (folder,) = {found for child in children for found in re.findall(r'"folder": "([^"]+)"', command(child))}
    server.process.kill()
    server.process.wait()
    until(lambda: not any(map(command, children)) and not Path(folder).exists())


def command(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""

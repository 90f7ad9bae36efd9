"""handler.backends.forks: what a process that a model's code has forked keeps of the server."""

import subprocess
import sys
from pathlib import Path

FORKS = """
import os, sys
def predict(inputs, parameters):
    child = os.fork()
    if not child:
        sys.exit(3)
    return {"y": [os.waitpid(child, 0)[0] == child]}
"""
STOPS = """
import os, signal, time
def predict(inputs, parameters):
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        os.write(writes, b"x")
        time.sleep(20)
        os._exit(1)
    os.read(reads, 1)
    os.kill(child, signal.SIGTERM)
    return {"y": [os.waitpid(child, 0)[1]]}
"""
RUNS = """
import sys
from pathlib import Path
from handler.backends import Source, python
from handler.settings import Settings
from handler.settings.model import ModelSettings

source = Source("m", "1", Path(sys.argv[1]), ModelSettings())
model = python.load(source, Settings.from_env({"DRAGOMAN_ALLOW_CODE": "true"}))
try:
    print(model.predict({}, [], {})[0].array.tolist())
except BaseException as error:
    print(repr(error))
"""
STAYS = """
import os, socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.settimeout(20)
accepted = server.accept()[0]
own = socket.socketpair()
waits, stays = os.pipe()
def predict(inputs, parameters):
    child = os.fork()
    if not child:
        own[1].send(b"own")
        os.close(stays)
        os.read(waits, 1)
        os._exit(0)
    sent = own[0].recv(3)
    address = server.getsockname()
    accepted.close()
    server.close()
    end = client.recv(1)
    client.close()
    socket.create_server(address).close()
    os.close(stays)
    os.waitpid(child, 0)
    return {"y": [sent, end]}
"""


def test_a_process_that_a_model_has_forked_does_not_serve(tmp_path: Path) -> None:
    """It would wait for ever with the server's sockets open, so that no other server could listen there."""
    (tmp_path / "model.py").write_text(FORKS)
    command = [sys.executable, "-W", "ignore", "-c", RUNS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["[True]"])


def test_a_process_that_a_model_has_forked_ends_by_a_signal(tmp_path: Path) -> None:
    """The server's handler would only note it, and a pool of multiprocessing would wait for its processes for ever."""
    (tmp_path / "model.py").write_text(STOPS)
    ignores = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: None)\n"
    command = [sys.executable, "-W", "ignore", "-c", ignores + RUNS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["[15]"])


def test_a_process_that_stays_has_no_part_in_the_servers_connections(tmp_path: Path) -> None:
    """Clients see that the server closes a connection, and the port becomes free."""
    (tmp_path / "model.py").write_text(STAYS)
    command = [sys.executable, "-W", "ignore", "-c", RUNS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["[b'own', b'']"]), ended.stderr


ACCEPTS = """
import os, socket
from handler.backends import forks
forks.PORTS.add(socket.create_server(("127.0.0.1", 0)).getsockname()[1])
own = socket.create_server(("127.0.0.1", 0))
def predict(inputs, parameters):
    child = os.fork()
    if not child:
        own.accept()[0].send(b"own")
        os._exit(0)
    with socket.create_connection(own.getsockname(), 20) as client:
        answer = client.recv(3)
    os.waitpid(child, 0)
    return {"y": [answer]}
"""


def test_a_model_may_listen_itself_beside_the_server(tmp_path: Path) -> None:
    """Its processes keep its own port: `dragoman serve` knows which ones are the server's."""
    (tmp_path / "model.py").write_text(ACCEPTS)
    command = [sys.executable, "-W", "ignore", "-c", RUNS, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stdout.splitlines()) == (0, ["[b'own']"]), ended.stderr

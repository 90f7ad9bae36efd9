"""handler.commands.serve.server: the end of a server in a process of its own."""

import http.client
import shutil
import signal
import socket
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from handler.cli import main
from handler.commands.serve import server
from tests.protocols.test_waiting import until
from tests.support.ports import free_port
from tests.support.publishing import publish
from tests.support.server import HOST, ROOT, running

SLOW: Final = b"""
import os, sys, time
sys.stdout.close()
open("begun", "w").close()
while not os.path.exists("never"):
    time.sleep(0.01)
"""
MAIN: Final = """
import signal, sys
from handler.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started in a shell's background ignores it
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_ends_a_server_that_loads_a_model(tmp_path: Path) -> None:
    """Ctrl-C ends a load as SIGTERM does, and prints no traceback, not even if the model's code has closed stdout."""
    publish(tmp_path / "models", "m", 1, SLOW, "model.py")
    log, settings = tmp_path / "log", {"REPOSITORY": str(tmp_path / "models"), "ALLOW_CODE": "true"}

    def arguments(port: int) -> list[str]:
        return ["-c", MAIN, "serve", "--host", HOST, "--port", str(port)]

    with running(arguments, 1, log, settings, folder=tmp_path) as (process, (port,)):
        client = http.client.HTTPConnection(HOST, port)
        client.request("POST", "/v2/models/m/infer", b'{"inputs": []}')
        until((tmp_path / "begun").exists)
        client.close()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == -signal.SIGINT
    assert "Traceback" not in log.read_text()


def test_sigterm_removes_the_folder_that_is_for_one_process(tmp_path: Path) -> None:
    """Where others can write /tmp, each start had a new folder with copies of the models, which stayed."""
    shutil.copytree(ROOT / "models" / "iris", tmp_path / "models" / "iris")
    assert main(["sign", str(tmp_path / "models" / "iris"), "--unsigned"]) == 0
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    settings = {"REPOSITORY": str(tmp_path / "models"), "VERIFY": "digest", "PRELOAD": "iris"}

    def arguments(port: int) -> list[str]:
        return ["-m", "dragoman", "serve", "--host", HOST, "--port", str(port)]

    def made() -> list[Path]:
        return [path for path in (tmp_path / "open").iterdir() if any(path.rglob("model.onnx"))]

    def more(*_: int) -> dict[str, str]:
        return {"TMPDIR": str(tmp_path / "open")}

    with running(arguments, 1, tmp_path / "log", settings, more) as (process, _):
        until(lambda: b"iris version 1 loaded" in (tmp_path / "log").read_bytes())
        assert made()
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == -signal.SIGTERM
    assert made() == []
    assert not list((tmp_path / "open").glob("dragoman-????????"))


def test_the_address_for_all_of_ipv6_is_for_ipv4_too() -> None:
    """The port of gRPC answered clients of IPv4 there, and that of HTTP did not."""
    port = free_port()
    with ExitStack() as bound:
        [listening] = server.bind(bound, "--port", "::", port)
        listening.listen()
        for host in ("127.0.0.1", "::1"):
            socket.create_connection((host, port)).close()

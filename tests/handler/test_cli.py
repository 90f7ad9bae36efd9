"""handler.asgi and handler.cli: the server from the command line; uvicorn itself runs in tests/conformance."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import uvicorn

from handler import asgi, cli
from handler.edge import rpc, streams
from handler.edge.app import App
from tests.handler.edge.client import ROOT, make


def test_importing_asgi_configures_it_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application has the settings of the environment, as under `uvicorn handler.asgi:app`."""
    monkeypatch.setenv("DRAGOMAN_NAME", "mine")
    app = asgi.create()
    assert app.settings.name == "mine"
    app.close()


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, list[Any]]:
    """Returns the exit code, and the applications and options that uvicorn got."""
    served: list[Any] = []
    monkeypatch.setattr("uvicorn.run", lambda app, **options: served.append((app, options)))
    return cli.main(arguments), served


def test_the_command_serves_what_its_flags_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flags become settings, and the welcome has commands to try."""
    for variable in ("DRAGOMAN_REPOSITORY", "DRAGOMAN_PRELOAD", "DRAGOMAN_LOG_LEVEL", "DRAGOMAN_ALLOW_CODE"):
        monkeypatch.setenv(variable, "")  # put back afterwards, whatever the command sets
    monkeypatch.setattr(asgi, "app", make(ROOT / "models"))
    flags = ("--repository", str(ROOT / "models"), "--preload", "iris", "--allow-code", "--log-level", "warning")
    code, served = run_cli(monkeypatch, "serve", "--port", "9", *flags)
    assert code == 0
    assert served[0][1]["port"] == 9
    assert served[0][1]["log_level"] == "warning"
    printed = capsys.readouterr().out
    assert "http://127.0.0.1:9: half_plus_three, iris, strings" in printed
    assert "curl -d" in printed
    asgi.app.close()


def test_the_command_says_what_is_wrong_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Wrong settings, a missing uvicorn and a missing repository are named."""
    monkeypatch.setenv("DRAGOMAN_THREADS", "many")
    assert run_cli(monkeypatch, "serve")[0] == 2
    assert "DRAGOMAN_THREADS is 'many'" in capsys.readouterr().err
    monkeypatch.delenv("DRAGOMAN_THREADS")
    monkeypatch.setattr(asgi, "app", make(ROOT / "nowhere"))
    assert run_cli(monkeypatch, "serve")[0] == 0
    captured = capsys.readouterr()
    assert "the repository does not answer yet" in captured.err
    assert "no model yet" in captured.out
    asgi.app.close()
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert cli.main(["serve"]) == 2
    assert "pip install 'dragoman[server]'" in capsys.readouterr().err


def test_the_command_serves_grpc_beside_http(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The gRPC server has an address of its own in the same process, which the welcome names."""
    runs: list[Any] = []
    monkeypatch.setattr(uvicorn, "run", lambda app, **options: runs.append((app, options)))
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(ROOT / "models"))
    assert cli.main(["serve", "--grpc-port", "9000"]) == 0
    assert cli.main(["serve", "--host", "::1", "--grpc-port", "9000"]) == 0
    assert cli.main(["serve"]) == 0
    (first, options), (second, _), (third, _) = runs
    assert options["timeout_graceful_shutdown"] == streams.GRACE_SECONDS
    assert isinstance(first, rpc.Beside)
    assert isinstance(second, rpc.Beside)
    assert isinstance(third, App)
    out = capsys.readouterr().out
    assert "gRPC on 127.0.0.1:9000" in out
    assert "gRPC on [::1]:9000" in out
    assert out.count("gRPC on") == 2


def test_the_command_without_grpc_installed_says_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command names the extra to install, and serves nothing."""
    monkeypatch.setattr(cli, "find_spec", lambda _: None)
    monkeypatch.setattr(uvicorn, "run", lambda *_, **__: pytest.fail("served"))
    assert cli.main(["serve", "--grpc-port", "9000"]) == 2
    assert "pip install 'dragoman[grpc]'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
@pytest.mark.parametrize("port", [-1, 0, 65536, 99999])
def test_the_command_refuses_a_port_out_of_range(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str, port: int
) -> None:
    """A port such as 99999, for which gRPC would listen on 34463, is refused."""
    monkeypatch.setattr(uvicorn, "run", lambda *_, **__: pytest.fail("served"))
    assert cli.main(["serve", flag, str(port)]) == 2
    assert capsys.readouterr().err == f"dragoman: {flag} is {port}; expected 1 to 65535\n"

"""handler.asgi and handler.cli: the server from the command line; uvicorn itself runs in tests/protocols."""

from __future__ import annotations

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import uvicorn

import dragoman
from handler import asgi, cli
from handler.commands import serve
from handler.edge import rpc
from handler.edge.app import App
from handler.edge.dispatch import streams
from tests.handler.edge.client import ROOT, make
from tests.support.ports import free_port, free_ports


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the command sets is put back."""
    monkeypatch.setenv("DRAGOMAN_ACCESS_LOG", "")


def test_importing_asgi_configures_it_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The application has the settings of the environment, as under `uvicorn handler.asgi:app`."""
    monkeypatch.setenv("DRAGOMAN_NAME", "mine")
    app = asgi.create()
    assert app.settings.name == "mine"
    app.close()


def servers(monkeypatch: pytest.MonkeyPatch, bound: list[int] | None = None) -> list[uvicorn.Config]:
    """Lets uvicorn's servers start, and end at once. Returns what they were to serve. `bound`: gets their ports."""
    served: list[uvicorn.Config] = []

    def run(self: uvicorn.Server, sockets: list[socket.socket]) -> None:
        served.append(self.config)
        self.started = True
        if bound is not None:
            bound.extend(each.getsockname()[1] for each in sockets)

    monkeypatch.setattr(uvicorn.Server, "run", run)
    return served


def run_cli(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, list[uvicorn.Config]]:
    """Returns the exit code, and what uvicorn was to serve."""
    served = servers(monkeypatch)
    return cli.main(arguments), served


def test_the_command_serves_what_its_flags_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The flags become settings, and the welcome has commands to try."""
    for variable in ("DRAGOMAN_REPOSITORY", "DRAGOMAN_PRELOAD", "DRAGOMAN_LOG_LEVEL", "DRAGOMAN_ALLOW_CODE"):
        monkeypatch.setenv(variable, "")  # put back afterwards, whatever the command sets
    monkeypatch.setattr(asgi, "app", make(ROOT / "models"))
    flags = ("--repository", str(ROOT / "models"), "--preload", "iris", "--allow-code", "--log-level", "warning")
    port = free_port()
    bound: list[int] = []
    served = servers(monkeypatch, bound)
    code = cli.main(["serve", "--port", str(port), *flags])
    assert code == 0
    assert (bound, served[0].port) == ([port], port)
    assert served[0].log_level == "warning"
    assert os.environ["DRAGOMAN_ACCESS_LOG"] == "true"
    printed = capsys.readouterr().out
    assert f"http://127.0.0.1:{port}: flowers, half_plus_three, iris, numbers, passengers, species, strings" in printed
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
    assert run_cli(monkeypatch, "serve", "--port", str(free_port()))[0] == 0
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
    served = servers(monkeypatch)
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(ROOT / "models"))
    port, grpc_port = map(str, free_ports(2))
    assert cli.main(["serve", "--port", port, "--grpc-port", grpc_port]) == 0
    assert cli.main(["serve", "--port", port, "--host", "::1", "--grpc-port", grpc_port]) == 0
    assert cli.main(["serve", "--port", port]) == 0
    assert served[0].timeout_graceful_shutdown == streams.GRACE_SECONDS
    first, second, third = (each.app for each in served)
    assert isinstance(first, rpc.Beside)
    assert isinstance(second, rpc.Beside)
    assert isinstance(third, App)
    out = capsys.readouterr().out
    assert f"gRPC on 127.0.0.1:{grpc_port}" in out
    assert f"gRPC on [::1]:{grpc_port}" in out
    assert out.count("gRPC on") == 2


def test_the_command_without_grpc_installed_says_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command names the extra to install, and serves nothing."""
    monkeypatch.setattr(serve, "find_spec", lambda _: None)
    served, (port, grpc_port) = servers(monkeypatch), map(str, free_ports(2))
    assert cli.main(["serve", "--port", port, "--grpc-port", grpc_port]) == 2
    assert served == []
    assert "pip install 'dragoman[grpc]'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
@pytest.mark.parametrize("port", [-1, 0, 65536, 99999])
def test_the_command_refuses_a_port_out_of_range(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str, port: int
) -> None:
    """A port such as 99999, for which gRPC would listen on 34463, is refused."""
    served = servers(monkeypatch)
    assert (cli.main(["serve", flag, str(port)]), served) == (2, [])
    assert capsys.readouterr().err == f"dragoman: {flag} is {port}; expected 1 to 65535\n"


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
def test_an_address_that_is_taken_is_said_before_anything_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    """The command boasts of no address that it does not have."""
    served, (other, taken) = servers(monkeypatch), free_ports(2)
    ports = {"--port": other, "--grpc-port": free_port(), flag: taken}
    with socket.create_server(("127.0.0.1", taken)):
        code = cli.main(["serve", *(str(word) for pair in ports.items() for word in pair)])
    captured = capsys.readouterr()
    assert (code, served, captured.out) == (2, [], "")
    assert captured.err == (
        f"dragoman: 127.0.0.1:{taken} cannot be listened on: Address already in use; choose another {flag} or --host\n"
    )


def test_a_name_without_an_address_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """By the resolver's own reason."""
    served = servers(monkeypatch)
    assert (cli.main(["serve", "--host", "nohost.invalid"]), served) == (2, [])
    assert "dragoman: nohost.invalid:8080 cannot be listened on: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("serv", "; did you mean serve?"),
        ("serve --prot 3", "; did you mean --port?"),
        ("keys nwe", "; did you mean new?"),
        ("serve --xyzzy", ""),
        ("fly", ""),
        ("serve --port", ""),
    ],
)
def test_a_slip_of_the_keyboard_is_answered_with_what_was_meant(
    capsys: pytest.CaptureFixture[str], typed: str, hint: str
) -> None:
    """Words that are like none get no hint, and words that are right get none."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(typed.split())
    told = capsys.readouterr().err.strip()
    assert told.endswith(hint) if hint else "did you mean" not in told


def test_the_version_is_the_distributions(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the flag, by `python -m dragoman`, and as a member of the package."""
    monkeypatch.setattr(sys, "argv", ["dragoman", "--version"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_module("dragoman", run_name="__main__")
    printed = capsys.readouterr().out
    assert printed == f"dragoman {dragoman.__version__}\n"
    assert printed.split()[1][0].isdigit()
    assert not hasattr(dragoman, "version")


def test_the_package_has_the_application_and_the_function() -> None:
    """The very same objects."""
    from dragoman.asgi import app  # noqa: PLC0415 - it configures itself when it is imported
    from dragoman.aws import lambda_handler  # noqa: PLC0415 - the same
    from handler import aws  # noqa: PLC0415 - the same

    assert (app, lambda_handler) == (asgi.app, aws.lambda_handler)


@pytest.mark.parametrize("name", ["handler.py", "core/__init__.py"])
def test_a_module_in_the_way_is_named(tmp_path: Path, name: str) -> None:
    """The tutorials of AWS call the function's file handler.py."""
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("")
    command = (sys.executable, "-c", f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ROOT)!r}]; import dragoman")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert f"ImportError: {mine} is found as {name[: name.find('.')].partition('/')[0]!r}" in done.stderr


@pytest.mark.parametrize(("flags", "variable", "expected"), [
    ((), "", "true"), ((), "false", "false"), (("--no-access-log",), "", "false"), (("--access-log",), "false", "true"),
])  # fmt: skip
def test_the_access_log_is_on_unless_somebody_says_otherwise(
    flags: tuple[str, ...], variable: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag comes first, then the variable."""
    monkeypatch.setenv("DRAGOMAN_ACCESS_LOG", variable)
    monkeypatch.setenv("DRAGOMAN_THREADS", "wrong")  # nothing starts
    assert run_cli(monkeypatch, "serve", *flags)[0] == 2
    assert os.environ["DRAGOMAN_ACCESS_LOG"] == expected

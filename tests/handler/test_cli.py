"""handler.asgi and handler.cli: the server from the command line; uvicorn itself runs in tests/protocols."""

from __future__ import annotations

import json
import os
import re
import runpy
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn

import dragoman
from handler import asgi, cli
from handler.commands import entry
from handler.commands.init import command
from handler.commands.serve import server
from handler.edge import rpc
from handler.edge.app import App
from handler.settings import SETTINGS
from tests.handler.edge.client import ROOT
from tests.handler.site.asking import ask
from tests.support.ports import free_port, free_ports

PYTHON = shlex.quote(sys.executable)


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


def test_the_command_serves_what_its_flags_say(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Flags come before the environment, it before dragoman.toml, and nothing of it gets into the environment."""
    monkeypatch.chdir(tmp_path)
    port, bound = free_port(), []
    (tmp_path / "dragoman.toml").write_text(
        f'port = {port}\nqueue = 7\nname = "file"\nthreads = 2\npreload = ["iris"]\nmax_header_bytes = 1234\n'
    )
    monkeypatch.setenv("DRAGOMAN_NAME", "variable")
    monkeypatch.setenv("DRAGOMAN_THREADS", "3")
    monkeypatch.setenv("DRAGOMAN_PRELOAD", "")
    before, served = dict(os.environ), servers(monkeypatch, bound)
    flags = ("--repository", str(ROOT / "models"), "--threads", "4", "--allow-code", "--log-level", "warning")
    assert cli.main(["serve", *flags]) == 0
    app: Any = served[0].app
    found = app.settings
    assert (found.name, found.threads, found.queue, found.preload) == ("variable", 4, 7, ("iris",))
    assert (found.allow_code, found.access_log, bound, served[0].port) == (True, True, [port], port)
    assert (served[0].log_level, served[0].http.bounds.head) == ("warning", 1234)
    assert dict(os.environ) == before
    printed = capsys.readouterr().out
    assert f"http://127.0.0.1:{port}: flowers, half_plus_three, iris, numbers, passengers, species, strings" in printed
    assert f"dragoman infer flowers --sample --url http://127.0.0.1:{port}" in printed
    assert "dragoman reads settings from dragoman.toml" in printed
    app.close()
    assert cli.main(["list", str(ROOT / "models")]) == 0  # the words of serve are no mistake there


@pytest.mark.parametrize(("flags", "variables", "file", "told"), [
    (("--threads", "x"), {}, "", "--threads is 'x'; expected a whole number above 0"),
    ((), {"DRAGOMAN_THREADS": "x"}, "", "DRAGOMAN_THREADS is 'x'; expected a whole number above 0"),
    ((), {}, "threads = 'x'", "dragoman.toml: threads is 'x'; expected a whole number above 0"),
    ((), {}, "\ufeffthreads = 'x'\r\n", "dragoman.toml: threads is 'x'; expected a whole number above 0"),
    ((), {}, "threads = {a = 1}", "dragoman.toml: threads is {'a': 1}; expected text, a number, true or false, or a"),
    ((), {}, "preload = ['a,b']", "dragoman.toml: preload is ['a,b']; expected text, a number"),
    ((), {}, "log-level = 'INFO'", "dragoman.toml: unknown key 'log-level'; did you mean log_level?"),
    ((), {}, "DRAGOMAN_QUEUE = 3", "dragoman.toml: unknown key 'DRAGOMAN_QUEUE'; did you mean queue?"),
    ((), {}, "xyzzy = 3", "dragoman.toml: unknown key 'xyzzy'; docs/settings.md has the settings"),
    ((), {}, "threads =", "dragoman.toml is not TOML: Invalid value (at"),
    ((), {}, "\udcff", "dragoman.toml is not TOML: 'utf-8' codec can't decode"),
    (("--config", "nowhere.toml"), {}, "", "nowhere.toml cannot be read: No such file or directory"),
    ((), {"DRAGOMAN_AUHT": "keys"}, "", "unknown setting DRAGOMAN_AUHT; did you mean DRAGOMAN_AUTH?"),
    (("--on-empty", "wait"), {}, "", "--on-empty is 'wait'; expected one of serve, stop"),
    (("--repository", "gone", "--on-empty", "stop"), {}, "", "/gone does not exist: make it, or name another one with"),
])  # fmt: skip
def test_the_command_names_the_source_of_what_is_wrong(
    flags: tuple[str, ...], variables: dict[str, str], file: str, told: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """In one line: a flag, a variable, or a file and its key."""
    monkeypatch.chdir(tmp_path)
    for variable, text in variables.items():
        monkeypatch.setenv(variable, text)
    if file:
        (tmp_path / "dragoman.toml").write_bytes(os.fsencode(file))
    served = servers(monkeypatch)
    assert (cli.main(["serve", *flags]), served) == (2, [])
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("dragoman: ")
    assert told in line


@pytest.mark.parametrize(("files", "told"), [
    ([], "has no models: add NAME/1/model.onnx, or name another one with --repository or DRAGOMAN_REPOSITORY"),
    (["wine.onnx"], "has no models: move wine.onnx to wine/1/model.onnx"),
    (["model.onnx"], "is one model: name it with --model-name, or name the folder above it"),
    (["1/1/model.py"], ""),  # a model of the name 1
    (["1/model.py"], "is one model: name it with --model-name, or name the folder above it"),
    (["m/1/model.onnx", "wine.onnx"], "wine.onnx lies beside the models' folders, and is not served: move it"),
    (None, "does not exist: make it, or name another one with --repository or DRAGOMAN_REPOSITORY"),
    ("file", "is not a directory: name another one"),
    (["wine/model.onnx", "m/1/model.onnx"], "not served: model 'wine' has no version: expected a folder such"),
    (["wine/v1/model.onnx", "m/1/model.onnx", "b.onnx"], "with model.onnx; b.onnx lies beside the models' folders"),
    (["m/1/model.onnx", "wine/1/model.onx"], "no model.onnx, model.py or pipeline.json; its files: model.onx"),
    (["m/1/model.onnx", "wine/.x"], "not served: the folder 'wine' has no files: put a model into wine/1, or remove"),
])  # fmt: skip
def test_the_command_says_what_is_not_served(
    files: list[str] | str | None, told: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """It serves on, as the models may come later."""
    root = tmp_path / "models"
    if files == "file":
        root.write_text("")
    elif files is not None:
        root.mkdir()
        for each in files:
            (root / each).parent.mkdir(parents=True, exist_ok=True)
            (root / each).write_text("")
    served = servers(monkeypatch)
    assert cli.main(["serve", "--port", str(free_port()), "--repository", f"file://{root}"]) == 0
    captured = capsys.readouterr()
    assert told in captured.err
    if files == ["1/1/model.py"]:
        assert captured.err == ""
    elif files and "m/1/model.onnx" in files:
        assert captured.out.splitlines()[0].endswith(": m")
    else:
        assert "no model yet" in captured.out
        assert f"the repository {root} {told}" in captured.err
    app: Any = served[0].app
    app.close()


def test_a_folder_without_a_version_is_not_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server does not name it, or a command to try it. `--on-empty stop` ends the start."""
    (tmp_path / "models" / "wine").mkdir(parents=True)
    (tmp_path / "models" / "wine" / "model.onnx").touch()
    served = servers(monkeypatch)
    flags = ["serve", "--repository", str(tmp_path / "models"), "--port", str(free_port())]
    told = f"no model of {tmp_path}/models can be served: model 'wine' has no version: expected a folder such as wine/1"
    assert cli.main([*flags, "--on-empty", "stop"]) == 2
    assert (served, capsys.readouterr().err.startswith(f"dragoman: {told}")) == ([], True)
    assert cli.main(flags) == 0
    out, err = capsys.readouterr()
    assert err.startswith(f"dragoman: {told}")
    assert "no model yet" in out
    assert "wine" not in out
    (tmp_path / "models" / "wine" / "1").mkdir()
    (tmp_path / "models" / "wine" / "model.onnx").rename(tmp_path / "models" / "wine" / "1" / "model.onnx")
    assert cli.main([*flags, "--on-empty", "stop"]) == 0
    for each in served:
        app: Any = each.app
        app.close()


def test_a_start_on_a_platform_reports_a_file_with_the_wrong_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The folder belongs to one model, and its file lies directly in it."""
    (tmp_path / "wine.onnx").write_text("")
    served = servers(monkeypatch)
    flags = ["--platform", "kserve", "--repository", str(tmp_path), "--port", str(free_port())]
    assert cli.main(["serve", *flags]) == 0
    assert "has no models: rename wine.onnx to model.onnx" in capsys.readouterr().err
    app: Any = served[0].app
    app.close()


def test_a_bucket_that_does_not_answer_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The store's own words, as nothing on this machine explains it."""
    for name, value in {"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{free_port()}", "AWS_ACCESS_KEY_ID": "k",
                        "AWS_SECRET_ACCESS_KEY": "s", "AWS_MAX_ATTEMPTS": "1"}.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    assert cli.main(["serve", "--repository", "s3://b", "--on-empty", "stop"]) == 2
    assert "dragoman: the repository does not answer: " in capsys.readouterr().err


def test_a_variable_that_is_like_no_setting_is_said_and_ignored(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Kubernetes sets such ones for a service of the name dragoman."""
    monkeypatch.setenv("DRAGOMAN_SERVICE_HOST", "10.0.0.1")
    asgi.create().close()
    assert "DRAGOMAN_SERVICE_HOST is not a setting, and is ignored: docs/settings.md has them all" in caplog.text


@pytest.mark.parametrize(("variable", "text", "hint"), [
    ("REPO", "/data", "; did you mean DRAGOMAN_REPOSITORY?"),
    ("MODELS", "/data", "; did you mean DRAGOMAN_MODEL_NAME?"),
    ("LOG", "debug", "; did you mean DRAGOMAN_LOG_LEVEL?"),
    ("SERVICE_PORT", "80", ": docs/settings.md has them all"),
    ("METRICS_PORT", "tcp://10.0.0.1:80", ": docs/settings.md has them all"),
    ("", "x", ": docs/settings.md has them all"),
])  # fmt: skip
@pytest.mark.parametrize("command", ["serve", "list {}", "push {}/iris r/m", "batch iris {}/none.jsonl out.jsonl"])
def test_each_command_warns_of_a_variable_once(
    variable: str, text: str, hint: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The warning has the setting that was probably meant. `serve` logs it, and the other commands print it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(f"DRAGOMAN_{variable}", text)
    served = servers(monkeypatch)
    port = ("--port", str(free_port())) if command == "serve" else ()
    cli.main([*command.format(ROOT / "models").split(), *port])
    err, told = capsys.readouterr().err, f"DRAGOMAN_{variable} is not a setting, and is ignored{hint}"
    lines = [record.getMessage() for record in caplog.records] if served else err.splitlines()
    assert [line for line in lines if "not a setting" in line] == [told if served else f"dragoman: {told}"]
    for each in served:
        app: Any = each.app
        app.close()


def test_every_setting_is_a_flag_with_its_line_of_help(capsys: pytest.CaptureFixture[str]) -> None:
    """`--help-all` has them all, `--help` the few that most need."""
    printed = []
    for flag in ("--help-all", "--help"):
        assert cli.main(["serve", flag]) == 0
        printed.append(capsys.readouterr().out)
    words = " ".join(printed[0].split())
    for setting in SETTINGS:
        assert f"--{setting.field.replace('_', '-')}" in printed[0]
        assert setting.variable in words.replace("- ", "-")
    assert len(printed[1].splitlines()) < 70
    assert "--s3-addressing" not in printed[1]
    pages = set(re.findall(r"docs/[\w/-]+\.md", words.replace("- ", "-")))
    assert "docs/protocols/grpc.md" in pages
    assert [page for page in pages if not (ROOT / page).exists()] == []


def test_a_missing_uvicorn_is_named_with_its_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The extra to install."""
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
    assert cli.main(["serve", "--port", port, "--shutdown-timeout", "50"]) == 0
    assert [each.timeout_graceful_shutdown for each in served] == [5, 5, 50]
    first, second, third = (each.app for each in served)
    assert isinstance(first, rpc.Beside)
    assert isinstance(second, rpc.Beside)
    assert isinstance(third, App)
    out = capsys.readouterr().out
    assert f"gRPC on 127.0.0.1:{grpc_port}" in out
    assert f"gRPC on [::1]:{grpc_port}" in out
    assert out.count("gRPC on") == 2


@pytest.mark.parametrize(("more", "said"), [(("--grpc-port", "{}"), "{}"), (("--http2",), "0"), ((), "")])
def test_the_console_of_the_command_knows_the_port_of_grpc(
    monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], said: str
) -> None:
    """Its programs for gRPC work as they are. `--http2` has gRPC on the port of HTTP."""
    served = servers(monkeypatch)
    port, grpc_port = map(str, free_ports(2))
    flags = ["--repository", str(ROOT / "models"), "--port", port, *(word.format(grpc_port) for word in more)]
    assert cli.main(["serve", *flags]) == 0
    application: Any = served[0].app
    app = getattr(application, "_app", application)
    assert f' data-grpc="{said.format(grpc_port)}" ' in ask(app, "/models/iris").text
    app.close()


@pytest.mark.parametrize(("missing", "extra"), [("grpc", "grpc"), ("uvicorn", "server")])
def test_the_command_without_a_package_says_the_cure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], missing: str, extra: str
) -> None:
    """The command names the extra to install, and serves nothing."""
    monkeypatch.setattr(server, "find_spec", lambda name: None if name == missing else object())
    served, (port, grpc_port) = servers(monkeypatch), map(str, free_ports(2))
    assert cli.main(["serve", "--port", port, "--grpc-port", grpc_port]) == 2
    assert served == []
    assert f"pip install 'dragoman[{extra}]'" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--port", "--grpc-port"])
@pytest.mark.parametrize("port", [-1, 0, 65536, 99999])
def test_the_command_refuses_a_port_out_of_range(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flag: str, port: int
) -> None:
    """A port such as 99999, for which gRPC would listen on 34463, is refused."""
    served = servers(monkeypatch)
    assert (cli.main(["serve", flag, str(port)]), served) == (2, [])
    assert capsys.readouterr().err == f"dragoman: {flag} is '{port}'; expected 1 to 65535\n"


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
        f"dragoman: cannot listen on 127.0.0.1:{taken}: Address already in use; choose another {flag} or --host\n"
    )


@pytest.mark.parametrize("more", [[], ["--workers", "2"], ["--http2"]])
def test_grpc_has_a_port_of_its_own(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], more: list[str]
) -> None:
    """On the port of HTTP it would take the connections of every other protocol."""
    served = servers(monkeypatch)
    assert (cli.main(["serve", "--port", "9000", "--grpc-port", "9000", *more]), served) == (2, [])
    assert capsys.readouterr() == (
        "",
        "dragoman: --grpc-port is --port, 9000: choose another one, or --http2, which has all on one port\n",
    )


def test_a_name_without_an_address_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """By the resolver's own reason."""
    served = servers(monkeypatch)
    assert (cli.main(["serve", "--host", "nohost.invalid"]), served) == (2, [])
    assert "dragoman: cannot listen on nohost.invalid:8080: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("serv", "No such command 'serv'. Did you mean 'serve'?"),
        ("serve --prot 3", "No such option '--prot'. (Did you mean one of: '--host', '--port', '--preload'?)"),
        ("serve models", "Got unexpected extra argument (models). Did you mean '--repository models'?"),
        ("serve --port 80 s3://b/m x", "extra arguments (s3://b/m x). Did you mean '--repository s3://b/m'?"),
        ("keys nwe", "No such command 'nwe'. Did you mean 'new'?"),
        ("serve --xyzzy", ""),
        ("fly", ""),
        ("serve --port", ""),
        ("infer m --rows none", "Invalid value for '--rows': 'none' is not a valid integer range."),
        ("infer m --rows 0", "Invalid value for '--rows': 0 is not in the range 1<=x<=9999999."),
        ("bench m --seconds 0", "Invalid value for '--seconds': it is '0'; expected seconds above 0, below 100000"),
        (
            "replay f --timeout nan",
            "Invalid value for '--timeout': it is 'nan'; expected seconds above 0, below 100000",
        ),
        ("replay f --rtol -1", "Invalid value for '--rtol': it is '-1'; expected a number from 0 on"),
        ("replay f --atol inf", "Invalid value for '--atol': it is 'inf'; expected a number from 0 on"),
        ("replay f --atol x", "Invalid value for '--atol': it is 'x'; expected a number from 0 on"),
        ("bench m --protocol v3", "is not one of 'v2', 'v2-binary', 'v1', 'grpc', 'connect', 'grps'."),
    ],
)
def test_a_slip_of_the_keyboard_is_answered_with_what_was_meant(
    capsys: pytest.CaptureFixture[str], typed: str, hint: str
) -> None:
    """Words that are like none get no hint, and words that are right get none."""
    assert cli.main(typed.split()) == 2
    told = capsys.readouterr().err.strip()
    assert told.endswith(hint) if hint else "id you mean" not in told


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
    """The very same objects. hypercorn looks for the application among the module's own names."""
    import dragoman.asgi  # noqa: PLC0415 - it configures itself when it is imported
    from dragoman.aws import lambda_handler  # noqa: PLC0415 - the same
    from handler import aws  # noqa: PLC0415 - the same

    assert (vars(dragoman.asgi)["app"], lambda_handler) == (asgi.app, aws.lambda_handler)


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


@pytest.mark.parametrize("command", [("-m", "dragoman", "--version"), ("-m", "dragoman.runtime"), ("{}", "list")])
def test_a_command_names_a_module_in_the_way_without_a_traceback(tmp_path: Path, command: tuple[str, ...]) -> None:
    """The same holds for the script that pip installs."""
    script = tmp_path / "bin" / "dragoman"
    script.parent.mkdir()
    script.write_text("import sys\nfrom dragoman.__main__ import main\nsys.exit(main())\n")
    (tmp_path / "handler.py").touch()
    words = [word.format(script) for word in command]
    path = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=tmp_path, env=path)
    told = f"{tmp_path}/handler.py is found as 'handler', which is a package of Dragoman: rename it, or start elsewhere"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"dragoman: {told}\n")


@pytest.mark.parametrize(("flags", "variable", "expected"), [
    ((), "", True), ((), "false", False), (("--no-access-log",), "", False), (("--access-log",), "false", True),
])  # fmt: skip
def test_the_access_log_is_on_unless_somebody_says_otherwise(
    flags: tuple[str, ...], variable: str, expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The flag comes first, then the variable."""
    monkeypatch.setenv("DRAGOMAN_ACCESS_LOG", variable)
    served = servers(monkeypatch)
    assert cli.main(["serve", "--port", str(free_port()), *flags]) == 0
    app: Any = served[0].app
    app.close()
    assert app.settings.access_log is expected


def test_serve_imports_no_other_command() -> None:
    """Its start does not pay for them, nor for parsers that only they need."""
    script = "import sys; from handler import cli; cli.main(['serve', '--help']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    found = {name for name in done.stdout.split() if name.startswith("handler.commands.")}
    assert found == {f"handler.commands.{name}" for name in ("options", "output", "serve", "serve.flags")}
    assert not {"argparse", "numpy", "difflib", "tomllib", "importlib.metadata", "rich"} & set(done.stdout.split())


def test_a_reader_that_leaves_and_ctrl_c_end_a_command_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `head` does, and as shells expect it."""
    reads, writes = os.pipe()
    os.close(reads)
    printed = [sys.executable, "-m", "dragoman", "completion", "fish"]
    done = subprocess.run(printed, cwd=ROOT, stdout=writes, stderr=subprocess.PIPE, check=False)
    os.close(writes)
    assert (done.returncode, done.stderr) == (1, b"")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "run", interrupted)
    assert cli.main(["init"]) == 130


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_end_a_commands_work_unless_it_handles_them_itself(number: signal.Signals) -> None:
    """What the work holds is let go, and a second signal does not disturb that. A server has its own way to end."""
    before = signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup, which ignores SIGHUP
    ended = []

    def work() -> None:
        try:
            signal.raise_signal(number)
        finally:
            signal.raise_signal(number)
            ended.append("cleaned up")

    with pytest.raises(SystemExit) as code, entry.ends_by_signal():
        entry.run(work)
    assert (code.value.code, ended) == (128 + number, ["cleaned up"])
    assert signal.getsignal(number) is signal.SIG_DFL
    own = signal.signal(number, signal.SIG_IGN)
    try:
        with entry.ends_by_signal():
            signal.raise_signal(number)
    finally:
        signal.signal(number, own)
        signal.signal(number, before)


@pytest.mark.parametrize("place", ["__del__", "weakref", "C", "C, at the end"])
def test_a_signal_whose_exception_is_lost_comes_again(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python drops exceptions of callbacks, and a library may replace them. The work still cleans up once."""
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    ended = []

    class Last:
        def __del__(self) -> None:
            if place == "__del__":
                signal.raise_signal(signal.SIGTERM)

    def work() -> None:
        last = Last()
        watch = weakref.ref(last, lambda _: signal.raise_signal(signal.SIGTERM) if place == "weakref" else None)
        try:
            del last
            if place.startswith("C"):
                with suppress(SystemExit):
                    signal.raise_signal(signal.SIGTERM)
            if place != "C, at the end":
                threading.Event().wait(20)
                ended.append("not ended")
        finally:
            if place != "C, at the end":
                threading.Event().wait(0.3)  # the signal comes again meanwhile
            ended.append("cleaned up")
            del watch

    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        with pytest.raises(SystemExit) as code, entry.ends_by_signal():
            entry.run(work)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (code.value.code, ended) == (143, ["cleaned up"])


def test_a_missing_folder_is_the_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python does not name the current folder. It lists the folders for temporary files that it cannot use."""
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/nowhere"])
    for work in (os.getcwd, tempfile._get_default_tempdir):  # type: ignore[attr-defined] # as tempfile itself calls it
        with pytest.raises(FileNotFoundError) as missing:
            work()
        assert entry.fail(missing.value) == 1
    current, temporary = capsys.readouterr().err.splitlines()
    assert current == "dragoman: the current folder cannot be found: No such file or directory"
    assert temporary == "dragoman: No usable temporary directory found in ['/nowhere']"


def printed(*words: str, **how: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs the command in a process of its own, whose stdout is a pipe unless `how` says otherwise."""
    how = {"cwd": ROOT, "stdout": subprocess.PIPE} | how
    return subprocess.run([sys.executable, "-m", "dragoman", *words], stderr=subprocess.PIPE, check=False, **how)


@pytest.mark.parametrize("words", [["list", "models"], ["completion", "fish"], ["--version"], ["list", "--help"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_stdout_is_one_line(words: list[str], unbuffered: str) -> None:
    """The interpreter writes some of the output only when it exits."""
    with Path("/dev/full").open("wb") as full:
        done = printed(*words, stdout=full, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 1
    assert re.fullmatch(rb"dragoman: .*No space left on device\n", done.stderr)


def test_a_closed_stdout_and_a_folder_that_is_gone_are_no_tracebacks(tmp_path: Path) -> None:
    """The first is a reader that nobody is; the second is named, since no path is in what the system says."""
    command = f"exec {PYTHON} -m dragoman list"
    gone = f"mkdir {tmp_path}/gone; cd {tmp_path}/gone; rmdir {tmp_path}/gone"
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    for script, code, told in (
        (f"{command} models >&-", 0, b""),
        (f"{gone}; {PYTHON} -m dragoman serve", 1, b"dragoman: the current .*\n"),
    ):
        done = subprocess.run(["sh", "-c", script], cwd=ROOT, env=env, stderr=subprocess.PIPE, check=False)  # noqa: S607 - any shell
        assert done.returncode == code
        assert re.fullmatch(told, done.stderr)


def test_the_worker_that_says_where_the_server_is_ends_with_a_line_too() -> None:
    """It is a process of its own, and left a traceback."""
    words = ["serve", "--workers", "2", "--port", str(free_port())]
    with Path("/dev/full").open("wb") as full:
        done = printed(*words, stdout=full)
    assert done.returncode == 1
    assert re.fullmatch(rb"dragoman: .*No space left on device\n", done.stderr)


@pytest.mark.parametrize("closed", ["2>&-", "<&- >&- 2>&-"])
def test_a_command_works_without_its_streams(tmp_path: Path, closed: str) -> None:
    """A progress bar asked the stream that was not there whether it is a terminal, and nothing was pushed."""
    script = f"exec {PYTHON} -m dragoman push models/iris {tmp_path}/iris {closed}"
    assert subprocess.run(["sh", "-c", script], cwd=ROOT, check=False).returncode == 0  # noqa: S607 - any shell
    assert [each.name for each in (tmp_path / "iris" / "1").iterdir()] == ["model.onnx"]


def test_a_refusal_without_stderr_is_not_among_the_results() -> None:
    """Python prints on stdout what is for a stderr that is not there."""
    script = f"exec {PYTHON} -m dragoman list nowhere --json 2>&-"
    done = subprocess.run(["sh", "-c", script], cwd=ROOT, stdout=subprocess.PIPE, check=False)  # noqa: S607 - any shell
    assert (done.returncode, done.stdout) == (1, b"")


def test_a_name_that_the_terminals_encoding_does_not_have_is_escaped(tmp_path: Path) -> None:
    """As in JSON, so that --json stays JSON; it was a traceback."""
    for name in ("tür", "\U0001f600"):
        (tmp_path / name / "1").mkdir(parents=True)
        (tmp_path / name / "1" / "model.onnx").touch()
    env = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    assert b"\\ud83d\\ude00 " in printed("list", str(tmp_path), env=env).stdout
    found = json.loads(printed("list", str(tmp_path), "--json", env=env).stdout)
    assert [each["model"] for each in found] == ["tür", "\U0001f600"]
    words = ["serve", "--workers", "2", "--repository", str(tmp_path), "--port", str(free_port())]
    command = [sys.executable, "-m", "dragoman", *words]
    with subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
        assert server.stdout is not None
        assert rb": t\u00fcr, \ud83d\ude00" in server.stdout.readline()
        server.terminate()

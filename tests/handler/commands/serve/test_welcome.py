"""handler.commands.serve.welcome: the commands to try."""

import shlex
import socket
from contextlib import closing
from types import SimpleNamespace
from urllib.parse import unquote

import pytest

from handler.commands.serve import welcome
from handler.settings import Settings
from handler.stores import File
from tests.handler.edge.client import make

URL = "http://127.0.0.1:8080"


@pytest.mark.parametrize("name", ["iris", "a b", "a;touch b", "$(touch b)", "<i>&'\"", "é"])
def test_a_models_name_is_one_word_of_a_shell(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Somebody copies the commands, and whoever writes to the repository has chosen the name."""
    settings = Settings.from_env({"DRAGOMAN_REPOSITORY": "models"})
    welcome.say(welcome.Glance((name,), ""), settings, URL, "", None)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    (infer,) = (shlex.split(line) for line in lines if " infer " in line)
    assert infer[infer.index("infer") + 1 :] == [name, "--sample"]
    (curl,) = (line for line in lines if line.startswith(f"curl {URL}/v2/models/"))
    assert len(shlex.split(curl)) == 2
    assert not set(curl) & set("$;<>&'\"()")
    assert unquote(curl.rsplit("/", 1)[1]) == name


def test_a_long_list_of_models_is_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """A repository of 20,000 models made a line of 160 kB."""
    settings = Settings.from_env({"DRAGOMAN_REPOSITORY": "models"})
    welcome.say(welcome.Glance([f"m{number}" for number in range(40)], ""), settings, URL, "", None)
    named = ", ".join(f"m{number}" for number in range(16))
    assert capsys.readouterr().out.splitlines()[0].endswith(f": {named} and 24 more")


def test_a_server_does_not_wait_for_a_store_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has to listen, so that probes of its health have their answers. A look that is not in time is a problem."""
    monkeypatch.setattr(welcome, "LOOK_SECONDS", 0.2)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    with socket.create_server(("127.0.0.1", 0)) as store:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{store.getsockname()[1]}")
        with closing(make(REPOSITORY="s3://bucket/models")) as app:
            seen = welcome.look(app, app.settings, waits=False)
    assert seen == welcome.Glance((), "the repository did not answer within 0.2 s; the next request tries it again")


def test_a_bucket_is_looked_at_up_to_its_first_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is a request. Without `--on-empty stop`, the names are enough."""
    files = {"a": [File("model.onnx", 1)], "b": [File("1/model.onnx", 1)], "c": [File("model.onnx", 1)]}
    listed: list[str] = []

    def list_files(name: str, _: object = None) -> list[File]:
        listed.append(name)
        return files[name]

    store = SimpleNamespace(files=list_files)
    monkeypatch.setattr(welcome, "open_store", lambda _: store)
    app = SimpleNamespace(registry=SimpleNamespace(names=lambda _: sorted(files)))
    settings = Settings.from_env({"DRAGOMAN_REPOSITORY": "s3://bucket/models"})
    assert (welcome.look(app, settings, waits=False), listed) == (welcome.Glance(["a", "b", "c"], ""), [])
    seen = welcome.look(app, settings, waits=True)
    assert (seen.models, listed) == (["b", "c"], ["a", "b"])
    assert seen.problem.startswith("not served: model 'a' has no version: expected a folder such as a/1")


def test_the_commands_have_a_place_for_the_key(capsys: pytest.CaptureFixture[str]) -> None:
    """Where clients need one. Without the site, nobody is sent to it."""
    settings = Settings.from_env({"DRAGOMAN_AUTH": "keys", "DRAGOMAN_SITE": "false"})
    welcome.say(welcome.Glance(("m",), ""), settings, URL, "", None)
    out = capsys.readouterr().out
    assert f"  curl -H 'Authorization: Bearer KEY' {URL}/v2/models/m\n" in out
    assert "infer m --sample --key KEY\n" in out
    assert "Status page" not in out

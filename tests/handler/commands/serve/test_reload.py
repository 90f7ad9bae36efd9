"""`dragoman serve --reload`: models whose files change are loaded again."""

import shutil
from pathlib import Path

import pytest

from handler import asgi, cli
from handler.commands.serve.reload import Reloader
from handler.settings import Settings
from tests.handler.lifecycle.samples import PATIENT, add, get, registry
from tests.protocols.test_waiting import until
from tests.support.server import HOST, running
from tests.support.wire import Wire
from tests.support.zoo.models import adds

CODE = """
metadata = {{"inputs": [{{"name": "x", "datatype": "INT64", "shape": [1]}}]}}
def predict(inputs, parameters):
    return {{"y": inputs["x"] + {}}}
"""
BODY = b'{"inputs": [{"name": "x", "shape": [1], "datatype": "INT64", "data": [0]}]}'


def test_a_model_in_use_is_loaded_again_when_its_files_have_settled(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Not while they change, not if nobody has asked for it, and a broken file leaves the model as it is.

    A folder beside it that cannot be listed changes nothing. The log has the reason if no load has logged it.
    """
    (tmp_path / "loop").symlink_to("loop")
    add(tmp_path, "m", "1", adds(1).SerializeToString())
    add(tmp_path, "other", "1")
    models = registry(tmp_path)
    reloader = Reloader(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}), models)
    first = get(models)
    reloader.look()
    add(tmp_path, "m", "2", adds(2).SerializeToString())
    add(tmp_path, "other", "2")
    reloader.look()
    assert get(models) is first
    reloader.look()
    assert [str(version.version.number) for version in models.known() if version.name == "m" and version.loaded] == [
        "2"
    ]
    assert not any(version.name == "other" for version in models.known())
    second = get(models)
    add(tmp_path, "m", "3", b"broken")
    for _ in range(3):
        reloader.look()
    assert get(models) is second
    shutil.rmtree(tmp_path / "m")
    (tmp_path / "m").mkdir()
    for _ in range(3):
        reloader.look()
    assert get(models) is second
    assert caplog.messages[-1].startswith("m answers as before: model 'm' ")
    shutil.rmtree(tmp_path)
    reloader.look()
    assert models.ready(PATIENT) is not None


def test_the_command_answers_with_code_that_was_edited(tmp_path: Path) -> None:
    """The version stays, its file changes, again and again; the log has the outcome."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    code = tmp_path / "m" / "1" / "model.py"
    code.write_text(CODE.format(1))

    def arguments(port: int) -> list[str]:
        flags = ["--reload", "--allow-code", "--repository", str(tmp_path), "--port", str(port)]
        return ["-m", "dragoman", "serve", *flags]

    with running(arguments, 1, tmp_path.with_suffix(".log"), {}) as (_, (port,)):

        def answered() -> int:
            with Wire(HOST, port) as wire:
                found: int = wire.call("POST", "/v2/models/m/infer", BODY).json()["outputs"][0]["data"][0]
            return found

        assert answered() == 1
        code.write_text(CODE.format(20))
        until(lambda: answered() == 20)
        log = tmp_path.with_suffix(".log")
        until(lambda: "m is loaded again" in log.read_text())
        code.write_text("def predict(")
        until(lambda: "m answers as before\n" in log.read_text())
        assert log.read_text().count("model 'm': model.py raised SyntaxError") == 1
        assert answered() == 20
        code.write_text(CODE.format(300))
        until(lambda: answered() == 300)
    assert "Exception in thread" not in log.read_text()


@pytest.mark.parametrize("more", [(), ("--on-empty", "stop")])
def test_the_command_refuses_a_bucket(
    more: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line with the setting for a bucket, before anything asks the bucket."""
    made: list[Settings] = []
    monkeypatch.setattr(asgi, "create", made.append)
    assert cli.main(["serve", "--reload", "--repository", "s3://b", *more]) == 2
    told = "--reload watches a folder; --repository-poll 1 looks at a bucket each second"
    assert (capsys.readouterr().err, made) == (f"dragoman: {told}\n", [])

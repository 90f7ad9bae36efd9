"""handler.edge.log_lines: the form of the log."""

from __future__ import annotations

import io
import json
import logging
import re
from typing import TYPE_CHECKING

import pytest

from handler.edge import log_lines
from handler.edge.observe.record import RECORD, Record
from handler.settings import Settings
from tests.support.server import ROOT, serve_rpc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """What the root logger's only handler writes."""
    made, root = io.StringIO(), logging.getLogger()
    before, root.handlers = root.handlers, [logging.StreamHandler(made)]
    yield made
    root.handlers = before


def test_a_line_of_json_has_level_time_logger_and_message(stream: io.StringIO) -> None:
    """An exception stands in the same line, and the request's id in lines of a request."""
    log_lines.guard("json")
    log = logging.getLogger("some.where")
    token = RECORD.set(Record("GET", "/", b"mine"))
    try:
        "".index("a")
    except ValueError:
        log.exception('it "failed": %s\n2026 INFO forged', 1)
    RECORD.reset(token)
    log.warning("done")
    failed, done = (json.loads(line) for line in stream.getvalue().splitlines())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", failed.pop("timestamp"))
    assert "ValueError: substring" in failed.pop("exception")
    message = 'it "failed": 1\\n2026 INFO forged'
    assert failed == {
        "level": "ERROR",
        "logger": "some.where",
        "message": message,
        "request_id": "mine",
        "exception_name": "ValueError",
    }
    assert done.keys() == {"timestamp", "level", "logger", "message"}


@pytest.mark.parametrize(("environ", "form", "level"), [
    ({}, "text", "INFO"),
    ({"DRAGOMAN_LOG_FORMAT": "json"}, "json", "INFO"),
    ({"AWS_LAMBDA_LOG_FORMAT": "JSON"}, "text", "INFO"),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_LOG_FORMAT": "JSON"}, "json", "INFO"),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_LOG_FORMAT": "Text"}, "text", "INFO"),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_LOG_FORMAT": "JSON", "DRAGOMAN_LOG_FORMAT": "text"}, "text", "INFO"),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_LOG_LEVEL": "WARN"}, "text", "WARNING"),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_LOG_LEVEL": "TRACE"}, "text", "DEBUG"),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_LOG_LEVEL": "odd"}, "text", "INFO"),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "AWS_LAMBDA_LOG_LEVEL": "WARN", "DRAGOMAN_LOG_LEVEL": "INFO"}, "text", "INFO"),
])  # fmt: skip
def test_the_form_and_level_are_the_settings_or_lambdas(environ: dict[str, str], form: str, level: str) -> None:
    """Lambda's variables count on Lambda, and a setting of ours comes first."""
    settings = Settings.from_env(environ)
    assert (settings.log_format, settings.log_level) == (form, level)


LINE = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) [\w.]+: \S.*")


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_servers_screen_has_one_form(form: str, tmp_path: Path) -> None:
    """The lines of uvicorn, ours and those of requests; `dragoman serve` has an access log without a setting."""
    settings = {"REPOSITORY": str(ROOT / "models"), "LOG_FORMAT": form}
    with serve_rpc(tmp_path / "log", **settings) as server, server.wire() as wire:
        assert wire.call("GET", "/v2").status == 200
    lines = (tmp_path / "log").read_text("utf-8").split("API: ")[1].splitlines()[1:]
    if form == "json":
        loggers = {json.loads(line)["logger"] for line in lines}
    else:
        assert all(map(LINE.fullmatch, lines)), lines
        loggers = {line.split()[3].rstrip(":") for line in lines}
    assert {"uvicorn.error", "dragoman.access"} <= loggers


CLOSES = """
import sys
def predict(inputs, parameters):
    sys.stderr.close()
    return inputs
"""


def test_a_model_that_closes_stderr_takes_only_the_log(tmp_path: Path) -> None:
    """A line that could not be written raised where it was logged, such as in a load: requests waited for ever."""
    row = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]}
    for name in ("closes", "other"):
        (tmp_path / "models" / name / "1").mkdir(parents=True)
        (tmp_path / "models" / name / "1" / "model.py").write_text(CLOSES)
    settings = {"REPOSITORY": str(tmp_path / "models"), "ALLOW_CODE": "true"}
    with serve_rpc(tmp_path / "log", **settings) as server, server.wire() as wire:
        for name in ("closes", "other"):
            assert wire.post(f"/v2/models/{name}/infer", row).status == 200
        assert wire.post("/v2/repository/models/nothing/load", {}).status == 404

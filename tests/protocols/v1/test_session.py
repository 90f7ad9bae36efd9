"""TF Serving's example session from its REST page runs command by command, with the sample half_plus_three."""

import json
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.server import ROOT, Server, serve
from tests.support.v1_client import read

STATUS = ("curl -s http://localhost:8501/v1/models/half_plus_three",
    """{
 "model_version_status": [
  {
   "version": "123",
   "state": "AVAILABLE",
   "status": {
    "error_code": "OK",
    "error_message": ""
   }
  }
 ]
}""",
)  # fmt: skip
PREDICT = ("""curl -s -d '{"instances": [1.0,2.0,5.0]}' -X POST http://localhost:8501/v1/models/half_plus_three:predict""",
    """{
    "predictions": [3.5, 4.0, 5.5]
}""",
)  # fmt: skip
REGRESS = ("""curl -s -d '{"signature_name": "tensorflow/serving/regress", "examples": [{"x": 1.0}, {"x": 2.0}]}' \
  -X POST http://localhost:8501/v1/models/half_plus_three:regress""",
    """{
    "results": [3.5, 4.0]
}""",
)  # fmt: skip
WRONG = """curl -s -i -d '{"instances": [1.0,5.0]}' -X POST http://localhost:8501/v1/models/half:predict"""
WRONG_ANSWER = '{ "error": "Servable not found for request: Latest(half)" }'


@pytest.fixture(scope="module", params=["auto", "tfs"])
def sample(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, str]]:
    """A server that has loaded its models, as TF Serving has once it listens, and its setting."""
    log: Path = tmp_path_factory.mktemp("session") / "log"
    settings = {"V1_DIALECT": request.param} if request.param != "auto" else {}
    with ExitStack() as stack:
        server = stack.enter_context(serve(log, REPOSITORY=str(ROOT / "models"), PRELOAD="*", **settings))
        with server.wire() as wire:
            while wire.get("/v2/health/ready").status != 200:
                assert server.runs()
        yield server, request.param


def shell(server: Server, command: str) -> str:
    """Returns what the command prints, at this server's port."""
    arguments = shlex.split(command.replace("localhost:8501", server.netloc))
    return subprocess.run(
        [*arguments, "--noproxy", "*"], capture_output=True, check=True, timeout=60, encoding="utf-8"
    ).stdout


def packed(text: str) -> str:
    """Returns the text without white space."""
    return "".join(text.split())


@pytest.mark.row("V1-002", "V1-130")
def test_the_status(sample: tuple[Server, str]) -> None:
    """Every byte agrees for TF Serving's clients alone; KServe's members precede it where both are served."""
    server, dialect = sample
    command, expected = STATUS
    found = shell(server, command)
    if dialect == "tfs":
        assert packed(found) == packed(expected)
    else:
        assert json.loads(found) == {"name": "half_plus_three", "ready": True, **json.loads(expected)}
        assert packed(expected)[1:-1] in packed(found)
    assert packed(shell(server, f"{command}/versions/123")) == packed(expected)


@pytest.mark.row("V1-001", "V1-025", "V1-080")
@pytest.mark.parametrize(("command", "expected"), [PREDICT, REGRESS], ids=["predict", "regress"])
def test_predict_and_regress(sample: tuple[Server, str], command: str, expected: str) -> None:
    """Every byte agrees, except for white space."""
    assert packed(shell(sample[0], command)) == packed(expected)


@pytest.mark.row("V1-016", "V1-086")
def test_the_wrong_address(sample: tuple[Server, str]) -> None:
    """Status line, type and body agree."""
    head, _, body = shell(sample[0], WRONG).partition("\n\n")
    lines = head.split("\n")
    assert lines[0].strip() == "HTTP/1.1 404 Not Found"
    assert "content-type: application/json" in [line.strip().lower() for line in lines]
    assert packed(body) == packed(WRONG_ANSWER)


@pytest.mark.row("V1-093")
def test_regress_needs_its_signature_named(sample: tuple[Server, str]) -> None:
    """The page says so."""
    with sample[0].wire() as wire:
        answer = wire.post("/v1/models/half_plus_three:regress", {"examples": [{"x": 1.0}]})
        assert read(answer, 400)["error"].startswith("No regression inputs found in SignatureDef")

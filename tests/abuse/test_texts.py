"""Texts for clients contain no path of the machine, no secret, and nothing that breaks a line; the log has the rest."""

from __future__ import annotations

import io
import json
import logging
import zipfile
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
import pytest
from onnx import TensorProto, helper

from core.dtype import DATATYPES
from core.errors import InvalidInput, ServingError, escaped
from core.operations import ModelSpec
from core.tensor import TensorSpec
from handler.aws import Function
from handler.backends.reasons import one_line
from handler.commands import entry
from handler.edge import log_lines
from handler.lifecycle import warming
from handler.settings import explainer, warmup
from handler.settings.checked import Wrong
from handler.stores.directory import is_name
from handler.stores.s3.location import locate
from tests.support.remote import Remote, question, raw
from tests.support.server import Server, serve_rpc

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECRET = "hunter2"  # noqa: S105 - what nobody may read
HOME = "/home/secret/db"
RAISE = f"raise OSError('cannot open {HOME} with password={SECRET}')"
PREDICT = "def predict(inputs, parameters):\n    "
MODELS = {
    "raises": PREDICT + RAISE,
    "imports": RAISE,
    "yields": f"{PREDICT}yield inputs\n    {RAISE}",
    "streams": f"{PREDICT}return inputs\ndef stream(inputs, parameters):\n    yield inputs\n    {RAISE}",
    "explains": f"{PREDICT}return inputs\ndef explain(inputs, parameters):\n    {RAISE}",
    "answers": f"{PREDICT}return inputs\ndef http(request):\n    {RAISE}",
    "warms": PREDICT + RAISE,
    "refuses": f"from core.errors import InvalidInput\n{PREDICT}raise InvalidInput('x is too small\\nby far')",
}
DECLARED = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1]}]}
SETTINGS = {"warms": DECLARED | {"warmup": [{"random": True}]}, "answers": {"http": {"path": "/own"}}}
UNREADABLE = '{"parameters": {"password": "' + SECRET


def external(location: str) -> bytes:
    """Returns an ONNX model whose weights are in another file."""
    weights = TensorProto(name="w", data_type=1, dims=[1], data_location=TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=location)
    x, y = (helper.make_tensor_value_info(name, 1, [1]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [x], [y], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return bytes(model.SerializeToString())


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that fail in every way that has its own text."""
    root = tmp_path_factory.mktemp("a repository")
    for name, code in MODELS.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.py").write_text(code)
        if name in SETTINGS:
            (root / name / "model-settings.json").write_text(json.dumps(SETTINGS[name]))
    for name, location in (("escapes", "../../../../etc/passwd"), ("misses", "weights.bin"), ("unreadable", "w")):
        (root / name / "1").mkdir(parents=True)
        (root / name / "1" / "model.onnx").write_bytes(external(location))
    (root / "unreadable" / "model-settings.json").write_text(UNREADABLE)
    return root


@pytest.fixture(scope="module")
def server(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server of these models over HTTP and gRPC."""
    log = tmp_path_factory.mktemp("log") / "log"
    with serve_rpc(log, REPOSITORY=str(repository), ALLOW_CODE="true") as running:
        yield running


ALL = [*MODELS, "escapes", "misses", "unreadable"]
X = {"name": "x", "shape": [1], "datatype": "FP32"}
V2 = {"inputs": [X | {"data": [1.0]}]}
GRPS = {"gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [1.0]}]}}
CONNECT = {"inputs": [X | {"shape": ["1"], "contents": {"fp32Contents": [1.0]}}]}
REQUESTS: list[tuple[str, str, Any]] = [
    ("POST", "/v2/models/{}/infer", V2),
    ("POST", "/v2/repository/models/{}/load", {}),
    ("GET", "/v2/models/{}", None),
    ("GET", "/v2/models/{}/ready", None),
    ("GET", "/v1/models/{}", None),
    ("GET", "/v1/models/{}/metadata", None),
    ("POST", "/v1/models/{}:predict", {"instances": [1.0]}),
    ("POST", "/v1/models/{}:explain", {"instances": [1.0]}),
    ("POST", "/grps/v1/infer/predict", GRPS | {"model": "{}"}),
    ("POST", "/grps/v1/infer/predict?streaming=true", GRPS | {"model": "{}"}),
    ("POST", "/inference.GRPCInferenceService/ModelInfer", CONNECT | {"modelName": "{}"}),
    ("POST", "/inference.GRPCInferenceService/ModelMetadata", {"name": "{}"}),
    ("POST", "/inference.GRPCInferenceService/RepositoryIndex", {}),
    ("POST", "/v2/repository/index", {}),
    ("GET", "/v2/health/ready", None),
    ("GET", "/", None),
    ("POST", "/own", {}),
]


def leaks(text: str, repository: Path) -> list[str]:
    """Returns the secrets and paths in a text."""
    private = (SECRET, "password", HOME, "/home", "/etc/", str(repository), str(repository.parent), "Traceback")
    return [each for each in private if each in text]


@pytest.mark.parametrize(("method", "path", "body"), REQUESTS, ids=[path for _, path, _ in REQUESTS])
def test_no_answer_over_http_holds_a_path_or_a_models_text(
    server: Server, repository: Path, method: str, path: str, body: Any
) -> None:
    """Whatever fails, clients read only the kind of failure."""
    with server.wire() as wire:
        for model in ALL:
            text = json.dumps(body).replace('"{}"', json.dumps(model))
            headers = {"content-type": "application/json", "accept": "text/html" if path == "/" else "*/*"}
            sent = b"" if body is None else text.encode()
            answer = wire.call(method, path.replace("{}", model), sent, headers)
            whole = str(answer.headers) + answer.content.decode("utf-8", "replace")
            assert leaks(whole, repository) == [], (model, whole)


def test_no_status_of_grpc_holds_a_path_or_a_models_text(server: Server, repository: Path) -> None:
    """Clients read its details and its trailing metadata."""
    remote = Remote(server.rpc_netloc)
    for model in ALL:
        try:
            remote.ask("ModelInfer", question(model, raw("x", "FP32", np.ones(1, np.float32))))
        except grpc.RpcError as error:
            whole = f"{error.details()} {error.trailing_metadata()}"  # type: ignore[attr-defined] # a call's error
            assert leaks(whole, repository) == [], model
    remote.close()


def test_the_log_has_what_clients_do_not_get(server: Server) -> None:
    """An operator finds the model's text and traceback, and ONNX Runtime's path."""
    with server.wire() as wire:
        wire.call("POST", "/v2/models/raises/infer", json.dumps(V2).encode(), {})
        wire.call("POST", "/v2/models/escapes/infer", json.dumps(V2).encode(), {})
    log = server.log.read_text()
    assert f"cannot open {HOME} with password={SECRET}" in log
    assert "Traceback" in log
    assert "/etc/passwd" in log


def test_a_refusal_that_a_model_declares_reaches_the_client(server: Server) -> None:
    """core.errors.InvalidInput is 400 with the model's text."""
    with server.wire() as wire:
        answer = wire.call("POST", "/v2/models/refuses/infer", json.dumps(V2).encode(), {})
    assert (answer.status, answer.json()) == (400, {"error": "x is too small\nby far"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('resolved path: "/etc/x y" in "/tmp/a b"', "resolved path: <path> in <path>"),
        ("Load model from /tmp/x/bad.onnx failed", "Load model from <path> failed"),
        ("at file:///etc/passwd, //etc/passwd and C:\\Users\\me", "at file:<path>, <path> and <path>"),
        ("open('/srv/a b.txt')", "open(<path>)"),
        ("/onnxruntime_src/core/reshape_helper.h:91 was false", "<path> was false"),
        ("Name:'/linear/MatMul' Status: [-4,3] / n/a 3/4", "Name:'/linear/MatMul' Status: [-4,3] / n/a 3/4"),
        ('in "../../etc/passwd" or ../x', "in <path> or <path>"),
        ("a\nb\tc", "a b c"),
    ],
)
def test_paths_are_taken_out_of_a_runtimes_text(text: str, expected: str) -> None:
    """The names of a graph's nodes only look like paths, and stay."""
    assert one_line(text) == expected


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"DRAGOMAN_REPOSITORY": f"ftp://me:{SECRET}@host/x"}, "DRAGOMAN_REPOSITORY: expected a directory or one of"),
        ({"DRAGOMAN_REPOSITORY": f"s3://https://me:{SECRET}@host/b"}, "DRAGOMAN_REPOSITORY holds credentials"),
        ({"AWS_ENDPOINT_URL_S3": f"https://me:{SECRET}@host"}, "AWS_ENDPOINT_URL_S3 holds credentials"),
        ({"DRAGOMAN_SITE": f"/home/me/{SECRET}"}, "DRAGOMAN_SITE is wrong; expected true or false"),
        ({"DRAGOMAN_SITE": "maybe"}, "DRAGOMAN_SITE is 'maybe'; expected true or false"),
    ],
)
def test_wrong_settings_reach_the_clients_of_a_function_without_their_values(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], said: str
) -> None:
    """A function answers each request with the mistake: it names the variable and what was expected."""
    monkeypatch.setenv("AWS_LAMBDA_FUNCTION_NAME", "f")
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", "s3://b")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    level = logging.getLogger().level
    function = Function()
    event = {"requestContext": {"http": {"method": "GET", "path": "/v2/health/ready"}}}
    text = function(event, None)["body"]
    function.close()
    logging.getLogger().setLevel(level)
    assert said in text
    assert SECRET not in text


def test_credentials_in_a_repositorys_place_are_not_quoted() -> None:
    """The message tells the operator where they belong."""
    with pytest.raises(Exception, match="holds credentials; they belong in AWS_ACCESS_KEY_ID") as refusal:
        locate(f"s3://https://me:{SECRET}@host/bucket", {})
    assert SECRET not in str(refusal.value)


BREAKING = [
    "\n",
    "\r",
    "\0",
    "\x1b",
    "\x7f",
    "\x85",
    "\x9b",
    "\u061c",
    "\u200b",
    "\u200d",
    "\u200e",
    "\u2028",
    "\u2029",
]
BREAKING += ["\u202e", "\u2066", "\u2060", "\ufeff", "\ufffb", "\U000e0041", "\xad", "\u180e"]


UNSEEN = [
    "\u034f",
    "\u115f",
    "\u17b4",
    "\u180b",
    "\u2800",
    "\u3164",
    "\ufe0f",
    "\uffa0",
    "\ufff0",
    "\U0001d173",
    "\U000e0100",
]


@pytest.mark.parametrize("character", [*BREAKING, "\ud800", *UNSEEN], ids=ascii)
def test_a_character_that_breaks_a_line_is_in_no_models_name(character: str) -> None:
    """It would forge a line of the log, steer a terminal, or show another model's name."""
    assert not is_name(f"a{character}b")
    assert not is_name(character)


@pytest.mark.parametrize("name", ["a b", "é", "日本", "🦜", "żółw-1.0", "x" * 255, "a'b\"<c>"])
def test_other_characters_may_be_in_a_models_name(name: str) -> None:
    """Letters of all languages and blanks do not harm the log."""
    assert is_name(name)
    assert escaped(name) == name


@pytest.mark.parametrize("character", BREAKING, ids=ascii)
def test_messages_and_log_lines_escape_what_breaks_them(character: str) -> None:
    """An error's message, a command's line and the log have the character's number instead."""
    text = f"a{character}b"
    plain = text.encode("unicode_escape").decode()
    assert ServingError(text).message == (text if character == "\n" else plain)  # an answer's format carries line ends
    assert written("%s", text) == f"{plain}\n"


def written(message: str, *arguments: Any, error: Exception | None = None) -> str:
    """Returns what a guarded handler of the root writes."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        log_lines.guard()
        root.error(message, *arguments, exc_info=error)
    finally:
        root.removeHandler(handler)
    return stream.getvalue()


def test_a_traceback_cannot_forge_a_line_of_the_log() -> None:
    """An error's text may hold a client's text: its further lines are indented like the traceback."""
    forged = "2026-01-01 00:00:00,000 INFO handler: all is well"
    lines = written("x failed", error=ValueError(f"a\n{forged}\x1b[2J")).split("\n")
    assert lines[0] == "x failed"
    assert all(line.startswith("  ") for line in lines[1:-1])
    assert f"  {forged}\\x1b[2J" in lines


def test_a_record_that_cannot_be_formatted_is_left_to_its_handler() -> None:
    """The guard never raises: a mistake in a call to the log must not fail a request."""
    record = logging.LogRecord("x", logging.INFO, "", 0, "%d", ("text",), None)
    assert log_lines.ONE_LINE.filter(record)
    assert record.msg == "%d"


def test_a_command_escapes_its_refusal(capsys: pytest.CaptureFixture[str]) -> None:
    """A store's text reaches a terminal, which it must not steer."""

    def fail() -> None:
        raise InvalidInput("\x1b[2Jgone")

    assert entry.run(fail) == 1
    assert capsys.readouterr().err == "dragoman: \\x1b[2Jgone\n"


class Never:
    """A model that no test may ask."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.spec = ModelSpec("m", "1", "", (TensorSpec("x", DATATYPES["FP32"], shape),), None)

    def predict(self, *_: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(("times", "shape"), [(1, (2**40,)), (1000, (20_000_000,)), (1, (2**27,))])
def test_a_warm_up_is_counted_before_it_is_made(tmp_path: Path, times: int, shape: tuple[int, ...]) -> None:
    """80 MB a thousand times would keep a loader for hours."""
    with pytest.raises(ServingError, match="failed its warm-up: the largest of its warm-up requests has"):
        warming.warm(Never(shape), [warmup.WarmUp(None, times)], tmp_path)  # type: ignore[arg-type] # only its spec


def test_a_large_file_of_a_warm_up_is_not_read(tmp_path: Path) -> None:
    """A sparse file costs its publisher nothing."""
    with (tmp_path / "w.json").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(ServingError, match="failed its warm-up: the largest"):
        warming.warm(Never((1,)), [warmup.WarmUp("w.json")], tmp_path)  # type: ignore[arg-type] # only its spec


def test_the_runs_of_a_warm_up_are_counted_together() -> None:
    """50 x 1000 runs are refused where they are read."""
    with pytest.raises(Wrong, match="warmup is '50000 requests'; expected at most 1000"):
        warmup.parse([{"random": True, "count": 1000}] * 50)


@pytest.mark.parametrize("name", ["b.npy", "b.npz", "b.json"])
def test_the_rows_of_a_background_are_counted_before_they_are_read(tmp_path: Path, name: str) -> None:
    """800 MB took nine seconds until their rows were counted. Here the file has no rows behind its header."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (100_000_000, 1)})
    with (tmp_path / name).open("wb") as file:
        if name == "b.npz":
            with zipfile.ZipFile(file, "w") as archive:
                archive.writestr("x.npy", header.getvalue())
        else:
            file.write(header.getvalue())
            file.truncate(8 * 100_000_000)
    spec = Never((-1, 1)).spec
    with pytest.raises(Wrong, match="is '(100000000 rows'; expected from 1 to 1000 rows|800000000 bytes')"):
        explainer.build(explainer.parse({"background": {"file": name}}), tmp_path, spec)  # type: ignore[arg-type]

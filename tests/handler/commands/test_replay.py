"""`dragoman replay`: a log that a server has written is sent to another one, over each protocol."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest
from google.protobuf import json_format

from core.schema.open_inference import ModelInferResponse
from handler.cli import main
from handler.commands.replay.compare import Tolerance, differences
from handler.commands.replay.recorded import Exchange, Payload, Reached, read
from tests.protocols.test_waiting import until
from tests.support.connect_client import Caller
from tests.support.ports import free_port
from tests.support.publishing import publish, say
from tests.support.remote import Remote, question, raw
from tests.support.server import ROOT, Server, serve, serve_rpc

CALL = "/inference.GRPCInferenceService/ModelInfer"
PROTOCOLS = ("same", "v2", "v2-binary", "v1", "grpc", "connect", "grpc-web")
X = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]], np.float32)
JSON = {"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, "NaN", 2.5]}]}
X4 = JSON["inputs"]
REQUESTS: dict[str, tuple[str, dict[str, str], bytes]] = {
    "v2": ("/v2/models/half_plus_three/infer", {}, json.dumps(JSON).encode()),
    "v2 of a version": ("/v2/models/half_plus_three/versions/123/infer", {}, json.dumps(JSON).encode()),
    "v2 of texts": ("/v2/models/strings/infer", {}, json.dumps(
        {"inputs": [{"name": "text", "shape": [2], "datatype": "BYTES", "data": ["a", "é"]}]}
    ).encode()),
    "v2 of classes": ("/v2/models/iris/infer", {}, json.dumps({
        "inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": X.tolist()}], "id": "7",
        "outputs": [{"name": "probabilities", "parameters": {"classification": 2}}, {"name": "label"}],
    }).encode()),
    "v2 of all outputs": ("/v2/models/iris/infer", {}, json.dumps(
        {"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": X.tolist()}]}
    ).encode()),
    "v2 refused": ("/v2/models/half_plus_three/infer", {}, b'{"inputs": []}'),
    "v1": ("/v1/models/half_plus_three:predict", {}, b'{"instances": [1, 2.5]}'),
    "v1 of columns": ("/v1/models/iris:predict", {}, json.dumps({"inputs": X.tolist()}).encode()),
    "grps": ("/grps/v1/infer/predict", {}, b'{"model": "half_plus_three", "ndarray": [1, 2.5]}'),
    "grps of a query": (
        "/grps/v1/infer/predict?return-ndarray=true&model=half_plus_three-123", {},
        b'{"gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [2], "flat_float32": [1, 2.5]}]}}',
    ),
    "connect": (CALL, {"content-type": "application/proto"}, b""),
    "connect by GET": (CALL + "?connect=v1&encoding=json&message=" + quote(json_format.MessageToJson(
        question("half_plus_three", raw("x", "FP32", np.ones(2, np.float32)))
    )), {}, b""),
    "connect in json": (CALL, {"content-type": "application/json"}, json_format.MessageToJson(
        question("half_plus_three", raw("x", "FP32", np.ones(2, np.float32)))
    ).encode()),
}  # fmt: skip
MESSAGE = question("half_plus_three", raw("x", "FP32", np.ones(2, np.float32))).SerializeToString()
LONG = question("half_plus_three", raw("x", "FP32", np.ones(2000, np.float32))).SerializeToString()
IN_JSON = json_format.MessageToJson(question("half_plus_three", raw("x", "FP32", np.ones(2000, np.float32)))).encode()
ENVELOPE, JSON_ENVELOPE = (b"\0" + len(message).to_bytes(4) + message for message in (LONG, IN_JSON))
REQUESTS |= {
    f"{kind} {coding}": (CALL, {"content-type": f"application/{kind}", "grpc-accept-encoding": coding}, body)
    for kind, body in (
        ("grpc-web+proto", ENVELOPE),
        ("grpc-web-text", b64encode(ENVELOPE)),
        ("grpc-web+json", JSON_ENVELOPE),
    )
    for coding in ("identity", "gzip")
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server whose payload log has a request of each kind."""
    folder = tmp_path_factory.mktemp("payloads")
    with serve_rpc(folder / "log", REPOSITORY=str(ROOT / "models"), PAYLOAD_LOG=str(folder / "events")) as running:
        caller, remote = Caller(running.netloc), Remote(running.rpc_netloc)
        for path, headers, body in REQUESTS.values():
            if "?connect" in path:
                caller.client.get(path)
                continue
            caller.client.post(path, content=body or MESSAGE, headers={"content-type": "application/json"} | headers)
        remote.call("ModelInfer")(MESSAGE)
        until(lambda: count(folder / "events") == 2 * (len(REQUESTS) + 1))
        yield running, Path(shutil.copytree(folder / "events", folder / "then"))  # a replay is logged, too
        remote.close()
        caller.close()


def count(folder: Path) -> int:
    return sum(len(file.read_bytes().splitlines()) for file in folder.glob("*.jsonl"))


def replayed(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, dict[str, Any], str]:
    """The command's exit code, its document and its errors."""
    code = main(["replay", "--json", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else {}, err


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_log_is_replayed_over_any_protocol(
    protocol: str, server: tuple[Server, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """Each answer is the log's, in the form of its own request."""
    running, folder = server
    url = running.rpc_netloc if protocol == "grpc" else f"http://{running.netloc}"
    code, found, _ = replayed(capsys, folder, "--url", url, "--protocol", protocol)
    skipped = {(each["path"], each["reason"]) for each in found["exceptions"]}
    assert (code, found["different"], found["unreached"]) == (0, 0, 0), found["exceptions"]
    assert found["requests"] == len(REQUESTS) + 1
    if protocol == "same":
        assert skipped == {(CALL, "grpc cannot be sent to this URL: choose a --protocol")}
    elif protocol == "grpc":
        assert {path for path, _ in skipped} == {"/v1/models/iris:predict"}
    elif protocol == "v1":
        assert skipped == {("/v2/models/iris/infer", reason) for reason in (
            "V1 has no parameters and no classes",
            "no signature of the model has these inputs and outputs for V1's clients",
        )}  # fmt: skip
    else:
        assert not skipped


def test_an_answer_is_compared_in_the_form_that_its_client_accepted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A platform's client chooses it by Accept: CSV or numpy's became JSON, and a refused form was accepted."""
    log, forms = tmp_path / "events", ("text/csv;q=0.5", "application/x-npy", "text/odd", "*/*")
    settings = {"PLATFORM": "mlflow", "DEFAULT_MODEL": "half_plus_three", "PAYLOAD_LOG": str(log)}
    with serve(tmp_path / "log", REPOSITORY=str(ROOT / "models"), **settings) as running:
        caller = Caller(running.netloc)
        for form in forms:
            caller.client.post("/invocations", content=b'{"instances": [1, 2.5]}', headers={"accept": form})
        caller.close()
        until(lambda: count(log) == 2 * len(forms))
        code, found, _ = replayed(capsys, log, "--url", running.netloc)
    assert {each["status"] for each in events(log) if "status" in each} == {"200", "406"}
    assert (code, found["same"]) == (0, len(forms)), found["exceptions"]


def events(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for file in sorted(path.glob("*.jsonl")) for line in file.read_bytes().splitlines()]


def write(path: Path, *found: Any) -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in found), "utf-8")
    return path


def test_an_answer_that_differs_is_an_exit_code_and_a_line(
    server: tuple[Server, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the output, the place and both values. A tolerance may take it; the log's version does not matter."""
    running, folder = server
    request, answer = events(folder)[:2]
    answer["data"] |= {"model_version": "7", "id": "other"}
    answer["data"]["outputs"][0]["data"][2] = 4.3
    file = write(tmp_path / "file", request, answer)
    url = ("--url", running.netloc)  # as `dragoman infer` takes it
    code, found, err = replayed(capsys, file, *url)
    assert (code, found["different"], err) == (1, 1, "dragoman: 1 of 1 answers differ\n")
    assert found["exceptions"][0]["reason"].startswith("output y at [2]: 4.3")
    assert replayed(capsys, file, *url, "--rtol", "0.1")[0] == 0
    assert main(["replay", str(file), *url]) == 1
    assert f"different: {request['path']} {request['id']}: output y at [2]: 4.3" in capsys.readouterr().out
    answer |= {"status": "400"}
    assert "status 400 became 200" in replayed(capsys, write(file, request, answer), *url)[1]["exceptions"][0]["reason"]


def test_kserves_own_events_are_replayed(
    server: tuple[Server, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They name a service, and no path; the protocol is that of the body. `--limit` ends early."""
    kserve = {"specversion": "1.0", "source": "http://localhost:9081/", "inferenceservicename": "half_plus_three"}
    found = []
    for number, (ask, answer) in enumerate((
        ({"instances": [1]}, {"predictions": [3.5]}),
        (JSON, {"model_name": "m", "outputs": [JSON["inputs"][0] | {"name": "y", "data": [3.5, "NaN", 4.25]}]}),
    )):  # fmt: skip
        for kind, data in (("request", ask), ("response", answer)):
            named = {"type": f"org.kubeflow.serving.inference.{kind}", "id": str(number)}
            found.append(kserve | named | {"datacontenttype": "application/json", "data": data})
    file, url = write(tmp_path / "k", *found), ("--url", f"http://{server[0].netloc}")
    assert replayed(capsys, file, *url)[1]["same"] == 2
    assert replayed(capsys, file, *url, "--limit", 1)[1]["requests"] == 1
    assert main(["replay", str(file), *url, "--limit", "-1"]) == 2
    assert "Invalid value for '--limit': -1 is not in the range 1<=x<=999999999." in capsys.readouterr().err


@pytest.mark.parametrize(("content", "arguments", "told"), [
    ("", (), "these files have no request with its answer"),
    ("{\n", (), ":1 is not a CloudEvent"), ("[]", (), ":1 is not a CloudEvent"),
    ('{"type": "t"}', (), ":1 is not a CloudEvent"), ("", ("--url", "ftp://h"), "--url is 'ftp://h'"),
    ("", ("--header", "odd"), "--header has the form"), ("", ("--header", "x y: u"), "--header has the form"),
    ("", ("--header", "ä: u"), "--header has the form"), ("", ("--header", "x: €"), "--header has the form"),
    ("", ("--url", "http://host:x"), "--url is"),
    ("", ("--url", "http://a b"), "--url is 'http://a b'; expected http://HOST:PORT"),
    (None, (), "there is no file"), ("[" * 100_000 + "\n", (), ":1 is not a CloudEvent"),
    ([{"data_base64": "%"}, {}], (), "the payload cannot be read"),
    ([{"data_base64": "YQ==", "contentencoding": "odd"}, {}], (), "the payload cannot be read"),
])  # fmt: skip
def test_what_cannot_be_replayed_is_one_line(
    content: Any, arguments: Any, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    if isinstance(content, list):
        kinds = ("request", "response")
        head = [{"type": f"org.kubeflow.serving.inference.{kind}", "id": "1"} for kind in kinds]
        write(file, *(one | more for one, more in zip(head, content, strict=True)))
    elif content is not None:
        file.write_text(content, "utf-8")
    code, found, err = replayed(capsys, file, *arguments)
    assert (code, err.count("\n"), found.get("same", 0)) == (2 if arguments else 1, 1, 0)
    assert told in err


def test_a_log_that_grows_is_read_to_the_end_that_it_had(tmp_path: Path) -> None:
    """A server that logs the requests of a replay into the same folder was sent them again, without an end.

    A file that has gone meanwhile is left out.
    """
    kinds = ("request", "response")
    pair = [{"type": f"org.kubeflow.serving.inference.{kind}", "id": "1", "data": {}} for kind in kinds]
    files = [write(tmp_path / name, *pair) for name in ("a.jsonl", "b.jsonl")]
    gone = write(tmp_path / "d.jsonl", *pair)
    (tmp_path / "e.jsonl").symlink_to("nothing")
    whole = files[0].read_text("utf-8")
    files[1].write_text(whole + whole[:20], "utf-8")
    found = read([str(tmp_path)])
    next(found)
    gone.unlink()
    for file in (*files, tmp_path / "c.jsonl"):
        with file.open("a", encoding="utf-8") as log:
            log.write(whole[20:] + whole)
    assert len([*found]) == 1


@pytest.mark.parametrize("payload", [
    '{"instances": [123456789012345678901234567890]}', '{"instances": [1], "instances": [2]}',
    '{"instances": ' + "[" * 500 + "]" * 500 + "}", '{"instances": [1.0000000000000000000001e0]}',
])  # fmt: skip
@pytest.mark.parametrize("more", ["", ',"traceparent":"a"'])
def test_a_payload_is_replayed_by_its_own_bytes(payload: str, more: str, tmp_path: Path) -> None:
    """One request with a number beyond 64 bits ended the replay of all."""
    head = [f'{{"type":"org.kubeflow.serving.inference.{kind}","id":"1"' for kind in ("request", "response")]
    file = tmp_path / "file.jsonl"
    file.write_text(f'{head[0]}{more},"data":{payload}}}\n{head[1]},"data":{{}}{more}}}\n', "utf-8")
    (found,) = read([str(file)])
    assert found.request.content == payload.encode()
    assert found.answer.body.content == b"{}"


@pytest.mark.parametrize(("status", "outcome"), [("400", "skipped"), ("200", "different")])
def test_a_refused_request_that_cannot_be_read_has_no_other_answer(
    server: tuple[Server, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], status: str, outcome: str
) -> None:
    """No server was asked, so no answer differs. One that was answered should have been readable."""
    about = {"id": "1", "protocol": "v1", "path": "/v1/models/iris:predict", "inferenceservicename": "iris"}
    payload = {"datacontenttype": "application/json", "data_base64": b64encode(b"hello").decode(), "status": status}
    found = [about | payload | {"type": f"org.kubeflow.serving.inference.{kind}"} for kind in ("request", "response")]
    file = write(tmp_path / "file", *found)
    _, document, _ = replayed(capsys, file, "--url", f"http://{server[0].netloc}", "--protocol", "v2")
    assert [row["outcome"] for row in document["exceptions"]] == [outcome]


def test_a_last_line_that_is_cut_off_is_left_out(
    server: tuple[Server, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A full disk or a killed server cuts a line off. The requests before it are sent."""
    running, folder = server
    file = write(tmp_path / "file", *events(folder)[:2])
    whole = file.read_bytes().rstrip()
    for content in (whole, whole + b"\n" + whole[:-5], whole + b"\n" + b'{"id": "\xc3'):
        file.write_bytes(content)
        code, found, err = replayed(capsys, file, "--url", f"http://{running.netloc}")
        assert (code, found["same"], found["requests"], err) == (0, 1, 1, "")


@pytest.mark.parametrize("protocol", ["same", "v2", "v1", "grpc", "connect"])
def test_a_server_that_is_not_there_is_not_a_difference(
    protocol: str, server: tuple[Server, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    url = "http://127.0.0.1:1"
    code, found, err = replayed(capsys, server[1], "--url", url, "--protocol", protocol)
    assert (code, found["same"], found["different"]) == (1, 0, 0)
    assert found["unreached"] > 0
    assert f"requests got no answer from {url}; name the server with --url" in err
    assert "differ" not in err


def of_call(file: Path, message: bytes, status: str) -> Path:
    """Writes the log of one call over gRPC, with an empty answer."""
    about = {"id": "1", "protocol": "grpc", "path": CALL, "datacontenttype": "application/protobuf"}
    request = about | {"type": "org.kubeflow.serving.inference.request", "data_base64": b64encode(message).decode()}
    answer = about | {"type": "org.kubeflow.serving.inference.response", "data_base64": "", "status": status}
    return write(file, request, answer)


def test_a_refused_call_that_reaches_no_server_is_not_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The channel's own status was compared with the log's."""
    file = of_call(tmp_path / "file", MESSAGE, "UNAVAILABLE")
    for url in ("no-such-host.invalid:9", f"127.0.0.1:{free_port()}"):
        code, found, _ = replayed(capsys, file, "--url", url, "--protocol", "grpc")
        assert (code, found["same"], found["unreached"]) == (1, 0, 1)


@pytest.mark.parametrize("status", ["499", "CANCELLED"])
@pytest.mark.parametrize("protocol", ["same", "v2", "grpc-web"])
def test_a_request_whose_client_left_has_no_answer_to_compare(
    status: str, protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = of_call(tmp_path / "file", MESSAGE, status)
    _, found, err = replayed(capsys, file, "--protocol", protocol, "--url", f"127.0.0.1:{free_port()}")
    (row,) = found["exceptions"]
    assert (row["outcome"], row["reason"]) == ("skipped", "its client left before the answer")
    assert err == "dragoman: no request was sent\n"


def test_a_tensor_that_json_does_not_carry_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The server refused it, which was a difference."""
    message = question("m", raw("x", "BF16", np.ones(2, np.uint16))).SerializeToString()
    file = of_call(tmp_path / "file", message, "OK")
    (row,) = replayed(capsys, file, "--protocol", "v2", "--url", f"127.0.0.1:{free_port()}")[1]["exceptions"]
    told = "input x is BF16, which JSON does not carry: use --protocol v2-binary"
    assert (row["outcome"], row["reason"]) == ("skipped", told)


def test_a_port_of_grpc_is_named_as_such(server: tuple[Server, Path], capsys: pytest.CaptureFixture[str]) -> None:
    """The reasons had the bytes of its HTTP/2 frames."""
    running, folder = server
    code, found, _ = replayed(capsys, folder, "--url", f"http://{running.rpc_netloc}", "--protocol", "v2")
    assert (code, found["unreached"]) == (1, found["requests"])
    assert all(each["reason"].startswith("answers, but not over HTTP/1.1: ") for each in found["exceptions"])


def test_a_request_and_its_key_are_sent_over_tls_to_a_url_of_https(
    server: tuple[Server, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """The server does not speak TLS, so it never has the request. It had it in clear text."""
    running, folder = server
    url = f"https://{running.rpc_netloc}"
    code, found, _ = replayed(capsys, folder, "--url", url, "--protocol", "grpc", "--header", "x-api-key: secret")
    assert (code, found["same"], found["different"]) == (1, 0, 0)
    assert found["unreached"] > 0


def test_a_model_whose_name_has_a_space_is_replayed_over_another_protocol(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The conversion asks for the model's metadata, by its name in the path."""
    publish(tmp_path / "models", "my model", 1, (ROOT / "models/half_plus_three/123/model.onnx").read_bytes())
    about = {"id": "1", "protocol": "v1", "path": "/v1/models/my model:predict", "inferenceservicename": "my model"}
    about |= {"datacontenttype": "application/json"}
    pair = (("request", {"instances": [1, 2.5]}), ("response", {"predictions": [3.5, 4.25]}))
    found = [about | {"type": f"org.kubeflow.serving.inference.{kind}", "data": data} for kind, data in pair]
    file = write(tmp_path / "file", *found)
    with serve(tmp_path / "log", REPOSITORY=str(tmp_path / "models")) as running:
        code, document, _ = replayed(capsys, file, "--url", f"http://{running.netloc}", "--protocol", "v2")
    assert (code, document["same"]) == (0, 1), document["exceptions"]


@pytest.mark.parametrize(("signature", "protocol"), [
    ("serving_default", "v1"), ("special", "v1"), ("serving_default", "v2"),
])  # fmt: skip
def test_requests_are_converted_by_the_names_of_a_signature(
    signature: str, protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A signature has other names than the tensors, for inputs and outputs, and perhaps a name of its own."""
    publish(tmp_path / "r", "m", 1, (ROOT / "models/half_plus_three/123/model.onnx").read_bytes())
    say(tmp_path / "r", "m", signatures={signature: {"inputs": {"a": "x"}, "outputs": {"b": "y"}}})
    one = {"shape": [1], "datatype": "FP32"}
    asked = {"v2": {"inputs": [one | {"name": "x", "data": [1]}]}, "v1": {"instances": [{"a": 1}]}}
    answered = {"v2": {"outputs": [one | {"name": "y", "data": [3.5]}]}, "v1": {"predictions": [3.5]}}
    source = "v2" if protocol == "v1" else "v1"
    path = {"v2": "/v2/models/m/infer", "v1": "/v1/models/m:predict"}[source]
    about = {"id": "1", "protocol": source, "path": path, "inferenceservicename": "m"}
    pair = (("request", asked[source]), ("response", answered[source]))
    found = [about | {"type": f"org.kubeflow.serving.inference.{kind}", "data": data} for kind, data in pair]
    file = write(tmp_path / "file", *found)
    with serve(tmp_path / "log", REPOSITORY=str(tmp_path / "r")) as running:
        _, document, _ = replayed(capsys, file, "--url", running.netloc, "--protocol", protocol)
    assert document["same"] == 1, document["exceptions"]


def reached(kind: str, content: Any) -> Payload:
    return Payload(content if isinstance(content, bytes) else json.dumps(content).encode(), kind)


def proto(*values: float, name: str = "y", datatype: str = "FP32") -> bytes:
    answer = ModelInferResponse(model_name="m", raw_output_contents=[np.array(values, np.float32).tobytes()])
    answer.outputs.add(name=name, datatype=datatype, shape=[len(values)])
    return answer.SerializeToString()


def half(*bits: int) -> bytes:
    """An answer of BF16."""
    answer = ModelInferResponse(model_name="m", raw_output_contents=[np.array(bits, np.uint16).tobytes()])
    answer.outputs.add(name="y", datatype="BF16", shape=[len(bits)])
    return answer.SerializeToString()


@pytest.mark.parametrize(("path", "kind", "old", "new", "told"), [
    ("/v1/models/m:predict", "application/json", {"a": [1, {"b": "x"}]}, {"a": [1.0000001, {"b": "x"}]}, None),
    ("/v1/models/m:predict", "application/json", {"a": [1, 2]}, {"a": [1, 2.1]}, ".a[1]: 2 became 2.1"),
    ("/v1/models/m:predict", "application/json", {"a": [1, 2]}, {"a": [1]}, ".a: a list of 2 became a list of 1"),
    ("/v1/models/m:predict", "application/json", {"a": 1}, {"b": 1}, ".a is gone"),
    ("/v1/models/m:predict", "application/json", {"a": True}, {"a": 1.5}, ".a: True became 1.5"),
    ("/v1/models/m:predict", "application/json", b'{"a": NaN}', b'{"a": NaN}', None),
    ("/v1/models/m:predict", "application/json", b'{"a": Infinity}', b'{"a": -Infinity}', ".a: inf became -inf"),
    ("/v1/models/m:predict", "application/json", {"a": "x" * 99}, {"a": ""}, ".a: '" + "x" * 79 + "... became ''"),
    ("/custom", "text/plain", b"one", b"two", "the answer: b'one' became b'two'"),
    (CALL, "application/protobuf", proto(1, 2, float("nan")), proto(1, 2, float("nan")), None),
    (CALL, "application/protobuf", proto(1, 2, 3), proto(1, 5, 7), "output y at [1]: 2.0 became 5.0, and 1 more of 3"),
    (CALL, "application/protobuf", proto(1), proto(1, 2), "output y was FP32 [1], became FP32 [2]"),
    (CALL, "application/protobuf", proto(1), proto(1, datatype="INT32"), "output y was FP32 [1], became INT32 [1]"),
    (CALL, "application/protobuf", proto(1), proto(1, name="z"), "outputs y became z"),
    (CALL, "application/protobuf", half(0x3F80, 0x7FC0), half(0x3F81, 0x7FC1),
        "output y at [0]: 1.0 became 1.0078125"),
    (CALL, "application/protobuf", half(0x0001, 0x7FC0), half(0x0002, 0x7FC1), None),
    ("/v1/models/m:predict", "application/json", {"a": 2**60 + 1}, {"a": 2**60 + 2**40}, None),
    (CALL, "application/protobuf", proto(1, datatype="INT32"), proto(2, datatype="INT32"), "output y at [0]: "),
])  # fmt: skip
def test_the_first_difference(path: str, kind: str, old: Any, new: Any, told: str | None) -> None:
    """Numbers within the tolerance, NaN as NaN; everything else exactly."""
    protocol = "grpc" if path == CALL else "v1"
    before = Reached("200", is_good=True, body=reached(kind, old))
    exchange = Exchange("1", protocol, path, "m", "1", Payload(b""), before)
    found = next(differences(exchange, reached(kind, new), Tolerance(1e-5, 1e-8)), None)
    assert found == told if told is None or found is None else found.startswith(told)


@pytest.mark.parametrize(("old", "new"), [(2**53 + 1, 2**53), (-(2**63), 1 - 2**63), (1, 2)])
def test_integers_are_compared_exactly_without_a_tolerance(old: int, new: int) -> None:
    """As doubles, some that differ are equal."""
    before = Reached("200", is_good=True, body=reached("application/json", {"a": old}))
    exchange = Exchange("1", "v1", "/v1/models/m:predict", "m", "1", Payload(b""), before)
    found = [*differences(exchange, reached("application/json", {"a": new}), Tolerance(0, 0))]
    assert found == [f".a: {old} became {new}"]
    assert not [*differences(exchange, reached("application/json", {"a": new}), Tolerance(0, 1))]


@pytest.mark.parametrize(("protocol", "path", "body", "told"), [
    ("v1", "/v1/models/iris:explain", {"instances": X.tolist()}, "explain is possible only over its own protocol"),
    ("v2", "/v2/models/half_plus_three/infer", {"inputs": X4, "parameters": {"a": [1]}}, "parameter a is list"),
    ("v2", "/v2/models/nobody/infer", {"inputs": X4}, None), ("custom", "/odd", {}, "no protocol has the path"),
    ("v1", "/v1/models/nobody:predict", {"instances": [1]}, "the server has no metadata of model nobody"),
    ("v1", "/v1/models/iris:predict", {"instances": [{"odd": 1}]}, ""),
    ("grpc", "/odd.Service/Method", {}, "no protocol has the path"),
    ("v1", "/v1/models/iris:classify", {"examples": [{}]}, "examples are possible only over their own protocol"),
    ("v2", "/v2/models/iris/generate_stream", {}, "stream is possible only over its own protocol"),
    ("v2", "/v2/models/half_plus_three/infer", {"inputs": X4, "parameters": {"a": 1, "b": True, "c": "d"}}, None),
])  # fmt: skip
def test_what_another_protocol_cannot_carry_is_skipped(
    protocol: str, path: str, body: Any, told: str | None, server: tuple[Server, Path], tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """With the reason; a model that the server does not have is another answer."""
    model = path.split("/")[3].partition(":")[0] if "models" in path else ""
    about = {"id": "1", "protocol": protocol, "path": path, "inferenceservicename": model}
    payload = {"datacontenttype": "application/json", "data_base64": b64encode(json.dumps(body).encode()).decode()}
    found = [about | payload | {"type": f"org.kubeflow.serving.inference.{kind}"} for kind in ("request", "response")]
    file = write(tmp_path / "file", *found)
    code, document, err = replayed(capsys, file, "--url", f"http://{server[0].netloc}", "--protocol", "connect")
    assert code == 1
    (row,) = document["exceptions"]
    assert row["outcome"] == ("different" if told is None else "skipped"), row
    assert (told or "") in row["reason"]
    assert err.count("\n") == 1

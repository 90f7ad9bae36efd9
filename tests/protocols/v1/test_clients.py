"""Unmodified clients of both protocols (KServe's, OpenVINO's, curl) use one server without any setting."""

import asyncio
import gzip
import json
import shutil
import subprocess
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import numpy as np
import ovmsclient
import pytest
from kserve import InferenceRESTClient, RESTConfig

from tests.support.server import Server
from tests.support.v1_client import alive
from tests.support.wire import Wire


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the environment's proxies, which httpx, requests and curl obey on the loopback, too."""
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")


def run(server: Server, work: Callable[[InferenceRESTClient, str], Awaitable[Any]]) -> Any:
    """Runs one coroutine with a new KServe client and the server's base URL."""

    async def main() -> Any:
        async with InferenceRESTClient(RESTConfig(protocol="v1", timeout=30)) as client:
            return await work(client, f"http://{server.netloc}")

    return asyncio.run(main())


def predicted(server: Server, model: str, document: dict[str, Any]) -> Any:
    """Makes one inference by KServe's client."""
    return run(server, lambda client, url: client.infer(url, document, model_name=model))


@pytest.mark.row("V1-106", "V1-128")
def test_kserve_sees_that_the_server_is_live(server: Server) -> None:
    """It asks the root."""
    assert run(server, lambda client, url: client.is_server_live(url)) is True


@pytest.mark.row("V1-111", "V1-113", "V1-128")
def test_kserve_sees_that_a_model_is_ready(server: Server) -> None:
    """It is ready after its first inference."""
    predicted(server, "half_plus_two", {"instances": [1.0]})
    assert run(server, lambda client, url: client.is_model_ready(url, "half_plus_two")) is True


@pytest.mark.row("V1-112", "V1-128")
@pytest.mark.parametrize("model", ["broken_onnx", "idle_for_kserve"])
def test_kserve_sees_that_a_model_is_not_ready(server: Server, model: str) -> None:
    """A model that cannot load and a model without a request are False, without an exception."""
    assert run(server, lambda client, url: client.is_model_ready(url, model)) is False


@pytest.mark.row("V1-114", "V1-128")
def test_kserve_raises_for_an_unknown_model(server: Server) -> None:
    """It shows the text only if the content type is exactly application/json."""
    with pytest.raises(httpx.HTTPStatusError, match="Could not find any versions of model half"):
        run(server, lambda client, url: client.is_model_ready(url, "half"))


@pytest.mark.row("V1-108", "V1-110", "V1-127")
@pytest.mark.parametrize("key", ["instances", "inputs"])
@pytest.mark.parametrize(
    "values", [[1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], [{"x": 1.0}, {"x": 2.0}]], ids=["values", "lists", "objects"]
)
def test_kserve_predicts(server: Server, key: str, values: list[Any]) -> None:
    """Either root key is rows to it."""
    found = predicted(server, "half_plus_two", {key: values})["predictions"]
    plain = [value["x"] if isinstance(value, dict) else value for value in values]
    assert found == (np.array(plain) / 2 + 2).tolist()


@pytest.mark.row("V1-122")
def test_kserve_explains(server: Server) -> None:
    """It gets predictions and explanations."""
    found = run(server, lambda client, url: client.explain(url, "linear", {"instances": [[1.0, 2.0, 3.0]]}))
    assert found["predictions"] == pytest.approx([-1.5])
    assert found["explanations"][0]["importance_scores"] == pytest.approx([2.0, -6.0, 1.5], abs=1e-4)


@pytest.mark.row("V1-128")
@pytest.mark.parametrize(
    ("model", "status", "text"),
    [
        ("half", 404, "Latest"),
        ("half_plus_two", 400, "is not of expected type: float"),
        ("py_raises", 500, "raised ValueError"),
    ],
)
def test_kserve_shows_the_text_of_an_error(server: Server, model: str, status: int, text: str) -> None:
    """It is the text of the member `error`."""
    with pytest.raises(httpx.HTTPStatusError, match=text) as raised:
        predicted(server, model, {"instances": ["exception"]})
    assert raised.value.response.status_code == status


@pytest.mark.row("V1-122", "V1-128")
def test_kserve_shows_why_there_is_no_explanation(server: Server) -> None:
    """The status is 501."""
    with pytest.raises(httpx.HTTPStatusError, match="explainer") as raised:
        run(server, lambda client, url: client.explain(url, "half_plus_two", {"instances": [1.0]}))
    assert raised.value.response.status_code == 501


@pytest.fixture
def ovms(server: Server) -> Any:
    """OpenVINO's client, which asks for version 0 by default."""
    return ovmsclient.make_http_client(server.netloc)


@pytest.mark.row("V1-014", "V1-058")
@pytest.mark.parametrize("values", [[1.0, 2.0, 5.0], [[1.0], [2.0]], np.array([1.5, 2.5], np.float32), 1.0])
def test_ovmsclient_predicts_one_output(ovms: Any, values: Any) -> None:
    """The result is an array, under `outputs`; a number is sent as a list of one."""
    found = ovms.predict({"x": values}, "half_plus_two")
    assert np.array_equal(found, np.atleast_1d(np.array(values)) / 2 + 2)


@pytest.mark.row("V1-014", "V1-058", "V1-072")
def test_ovmsclient_predicts_many_outputs(ovms: Any) -> None:
    """The result is a dict of arrays; bytes are sent as base64."""
    inputs = {"tag": [b"foo", b"bar"], "signal": [1.0, 2.0], "sensor": np.ones((2, 2))}
    found = ovms.predict(inputs, "seeds", 1)
    assert found["tag"].tolist() == ["foo", "bar"]
    assert found["signal"].tolist() == [1.0, 2.0]
    assert found["sensor"].tolist() == [[1.0, 1.0], [1.0, 1.0]]


@pytest.mark.row("V1-014")
@pytest.mark.parametrize(("version", "answer"), [(0, 10), (1, 1), (2, 2)])
def test_ovmsclient_chooses_a_version(ovms: Any, version: int, answer: int) -> None:
    """0 leaves the choice to the server."""
    assert ovms.predict({"x": [0]}, "labelled", version).tolist() == [answer]


@pytest.mark.row("V1-014", "V1-130")
def test_ovmsclient_reads_the_status(ovms: Any) -> None:
    """It has a state for each version."""
    ovms.predict({"x": [0]}, "labelled")
    assert ovms.get_model_status("labelled") == {10: {"state": "AVAILABLE", "error_code": 0, "error_message": ""}}


@pytest.mark.row("V1-134")
def test_ovmsclient_hands_on_the_metadata(ovms: Any) -> None:
    """It passes TF Serving's form on unchanged, and parses only OpenVINO's."""
    found = ovms.get_model_metadata("half_plus_two")
    signature = found["metadata"]["signature_def"]["signature_def"]["serving_default"]
    assert signature["inputs"]["x"]["dtype"] == "DT_FLOAT"


@pytest.mark.row("V1-016", "V1-017", "V1-115", "V1-131")
def test_ovmsclient_knows_the_errors(ovms: Any) -> None:
    """The status chooses the error, and the text is in it."""
    with pytest.raises(ovmsclient.ModelNotFoundError, match="half"):
        ovms.predict({"x": [1.0]}, "half")
    with pytest.raises(ovmsclient.ModelNotFoundError, match="labelled, 99"):
        ovms.predict({"x": [1.0]}, "labelled", 99)
    with pytest.raises(ovmsclient.ModelNotFoundError, match="version 99"):
        ovms.get_model_status("labelled", 99)
    with pytest.raises(ovmsclient.InvalidInputError, match="expected type: float"):
        ovms.predict({"x": ["text"]}, "half_plus_two")
    with pytest.raises(ovmsclient.InvalidInputError, match="Missing named input: x"):
        ovms.predict({"y": [1.0]}, "half_plus_two")


def curl(server: Server, target: str, *arguments: str, body: bytes = b"") -> tuple[int, dict[str, str], bytes]:
    """Returns status, headers and body as curl prints them."""
    program = shutil.which("curl")
    assert program is not None
    command = [program, "-s", "-i", "--max-time", "30", *arguments, f"http://{server.netloc}{target}"]
    printed = subprocess.run(command, input=body, capture_output=True, check=True, timeout=60).stdout
    head, _, rest = printed.partition(b"\r\n\r\n")
    while head.split()[1] == b"100":
        head, _, rest = rest.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    return int(first.split()[1]), headers, rest


PREDICT = "/v1/models/half_plus_two:predict"


@pytest.mark.row("V1-025", "V1-077")
@pytest.mark.parametrize("kind", [[], ["-H", "Content-Type:"], ["-H", "Content-Type: text/plain"]])
def test_curl_predicts(server: Server, kind: list[str]) -> None:
    """The type may be a form's, text or absent."""
    status, headers, rest = curl(server, PREDICT, "-d", '{"instances": [1.0,2.0,5.0]}', *kind)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert json.loads(rest) == {"predictions": [2.5, 3.0, 4.5]}


@pytest.mark.row("V1-088")
def test_curl_sends_a_compressed_file(server: Server) -> None:
    """It uses --data-binary with gzip's output."""
    packed = gzip.compress(b'{"instances": [1.0]}')
    status, _, rest = curl(server, PREDICT, "--data-binary", "@-", "-H", "Content-Encoding: gzip", body=packed)
    assert (status, json.loads(rest)) == (200, {"predictions": [2.5]})


@pytest.mark.row("V1-025", "V1-127")
def test_curl_sends_a_large_body(server: Server) -> None:
    """It asks for 100 Continue first."""
    body = json.dumps({"instances": [0.5] * 300_000}).encode()
    status, _, rest = curl(server, PREDICT, "--data-binary", "@-", body=body)
    assert status == 200
    assert json.loads(rest) == {"predictions": [2.25] * 300_000}


@pytest.mark.row("V1-016", "V1-086")
def test_curl_sees_an_error(server: Server) -> None:
    """It prints the status line, the type and the object."""
    status, headers, rest = curl(server, "/v1/models/half:predict", "-d", '{"instances": [1.0,5.0]}')
    assert (status, headers["content-type"]) == (404, "application/json")
    assert json.loads(rest) == {"error": "Servable not found for request: Latest(half)"}


@pytest.mark.row("V1-012")
def test_curl_asks_for_the_head(server: Server, wire: Wire) -> None:
    """The option is -I."""
    alive(wire)
    status, _, rest = curl(server, "/v1/models/half_plus_two", "-I")
    assert (status, rest) == (200, b"")

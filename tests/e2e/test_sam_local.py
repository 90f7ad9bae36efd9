"""template.yaml runs under SAM's local API Gateway and Lambda, with containers, a gateway, and unmodified clients."""

import gzip
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tritonclient import http as triton

from tests.e2e.expected import ANSWERS, EVENTS, HALF_PLUS_THREE, gist
from tests.e2e.sam import Local
from tests.e2e.tools import run
from tests.support.walks import walk

# SAM's gateway hands base64 to a client that does not name a type, and tritonclient does not.
ANYTHING = {"Accept": "*/*"}
REQUEST = json.dumps({"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 5]}]})


@pytest.fixture
def client(api: str) -> triton.InferenceServerClient:
    return triton.InferenceServerClient(api, network_timeout=60, connection_timeout=60)


def test_curl_prints_what_the_page_shows(api: str, tmp_path: Path) -> None:
    """The address is all that differs from the commands of docs/aws.md."""
    here = f"http://localhost:{api.rpartition(':')[2]}"
    given = dict.fromkeys(("http://127.0.0.1:3000", "https://ID.execute-api.REGION.amazonaws.com/Prod"), here)
    assert walk("docs/aws.md", "tests/e2e/test_sam_local.py", tmp_path, given) == 3


def test_curl_sends_a_compressed_body(api: str, tmp_path: Path) -> None:
    """Bytes that are not UTF-8 reach the function unchanged."""
    body = tmp_path / "body.gz"
    body.write_bytes(gzip.compress(REQUEST.encode()))
    url = f"http://{api}/v2/models/half_plus_three/infer"
    answer = run("curl", "-sS", "-H", "Content-Encoding: gzip", "--data-binary", f"@{body}", url)
    assert json.loads(answer)["outputs"][0]["data"] == HALF_PLUS_THREE


def test_an_error_keeps_its_status_and_its_text(api: str) -> None:
    """The gateway adds nothing to a refusal."""
    url = f"http://{api}/v2/models/nobody/infer"
    body, _, status = run("curl", "-sS", "-d", REQUEST, "-w", "\n%{http_code}", url).rpartition("\n")
    assert (status, "nobody" in json.loads(body)["error"]) == ("404", True)


def test_tritonclient_finds_the_server(client: triton.InferenceServerClient) -> None:
    """It reads health and metadata."""
    assert client.is_server_live()
    assert client.is_server_ready()
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata("half_plus_three")["versions"] == ["123"]


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
def test_tritonclient_infers(client: triton.InferenceServerClient, binary: bool) -> None:  # noqa: FBT001 - both ways
    """Tensors travel as text and as bytes in both directions."""
    x = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
    given = triton.InferInput("x", list(x.shape), "FP32")
    given.set_data_from_numpy(x, binary_data=binary)
    wanted = triton.InferRequestedOutput("y", binary_data=binary)
    result = client.infer("half_plus_three", [given], outputs=[wanted], headers=ANYTHING if binary else None)
    np.testing.assert_array_equal(result.as_numpy("y"), x / 2 + 3)
    assert client.is_model_ready("half_plus_three", "123")


@pytest.fixture(scope="module")
def answers(local: Local, request: pytest.FixtureRequest) -> Iterator[dict[Path, Future[Any]]]:
    """Offer the answers to the selected events. Two run at a time: SAM itself takes most of it, on one CPU."""
    cases = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    with ThreadPoolExecutor(2) as pool:
        yield {event: pool.submit(local.invoke, event) for event in EVENTS if {"event": event} in cases}
        pool.shutdown(cancel_futures=True)


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.stem)
def test_every_event_works_with_sam_local_invoke(answers: dict[Path, Future[Any]], event: Path) -> None:
    """`sam local invoke --event` starts a container for each."""
    assert gist(answers[event].result()) == ANSWERS[event.stem]

"""Unmodified clients of Connect and gRPC-Web call where native gRPC cannot: uvicorn, Lambda's runtime, SAM's gateway.

They are connectrpc's client for Node, `buf curl` on the command line (which is connectrpc's for Go), and connectrpc's
client for Python.
"""

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from connectrpc.client import ConnectClientSync
from connectrpc.code import Code
from connectrpc.compat import google_protobuf_binary_codec, google_protobuf_json_codec
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.protocol import ProtocolType

from core.dialects.rpcs import RPCS
from core.schema import grps
from core.schema import open_inference as oip
from handler.edge.gate.gate import NO_CREDENTIAL
from tests.e2e import rpc_gateway
from tests.e2e.expected import HALF_PLUS_THREE
from tests.e2e.tools import HOME, ROOT, daemon, listens, npm_install, run
from tests.support.gated import KEYS, Issuer
from tests.support.ports import free_port

HERE = ROOT / "tests" / "e2e" / "rpc"
CLIENTS = HOME / "rpc"
SCHEMAS = [ROOT / "core" / "schema" / f"{name}.binpb" for name in ("open_inference", "grps")]
OIP, GRPS = "inference.GRPCInferenceService", "grps.protos.v1.GrpsService"
METHODS = {method.path: method for method in RPCS}
NUMBERS = [1.0, 2.0, 5.0]
RAW = np.array(NUMBERS, np.float32).tobytes()
TENSOR = {"name": "x", "dtype": "DT_FLOAT32", "shape": [3], "flatFloat32": NUMBERS}
PREDICTION = {
    "status": {"code": 200, "msg": "OK", "status": "SUCCESS"},
    "gtensors": {"tensors": [TENSOR | {"name": "y", "flatFloat32": HALF_PLUS_THREE}]},
}
UNKNOWN = "Request for unknown model: 'nobody' is not found"
NODE_OUTCOMES = {
    "live": True, "raw": HALF_PLUS_THREE, "typed": HALF_PLUS_THREE, "compressed": HALF_PLUS_THREE, "got": ["123"],
    "unknown_model": {"code": "NotFound", "message": UNKNOWN}, "in_time": HALF_PLUS_THREE, "predict": PREDICTION,
    "predict_streaming": [PREDICTION],
}  # fmt: skip
FORMS = {
    "connect": (ProtocolType.CONNECT, google_protobuf_binary_codec),
    "connect-json": (ProtocolType.CONNECT, google_protobuf_json_codec),
    "grpc-web": (ProtocolType.GRPC_WEB, google_protobuf_binary_codec),
}


@pytest.fixture(scope="session")
def uvicorn() -> Iterator[str]:
    """Offer the sample models on uvicorn."""
    port = free_port()
    command = (sys.executable, "-m", "uvicorn", "handler.asgi:app", "--port", str(port), "--log-level", "warning")
    with daemon(*command, ready=lambda: listens(port), log=HOME / "log" / "uvicorn.log"):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(params=["uvicorn", "runtime", "gateway"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Offer each place in turn."""
    with contextlib.ExitStack() as stack:
        if request.param == "uvicorn":
            yield request.getfixturevalue("uvicorn")
        elif request.param == "runtime":
            answers = rpc_gateway.before_emulator(request.getfixturevalue("warm"))
            yield stack.enter_context(rpc_gateway.running(answers))
        else:
            answers = rpc_gateway.before_sam(request.getfixturevalue("api"))
            yield stack.enter_context(rpc_gateway.running(answers))


@pytest.fixture(scope="session")
def clients() -> Path:
    """Install what package.json pins, and offer the folder."""
    CLIENTS.mkdir(parents=True, exist_ok=True)
    shutil.copy(HERE / "client.js", CLIENTS)
    wanted, stamp = (HERE / "package.json").read_text(encoding="utf-8"), CLIENTS / "package.json"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        draft = CLIENTS / "draft"
        draft.mkdir(exist_ok=True)
        shutil.copy(HERE / "package.json", draft)
        npm_install(draft)
        shutil.rmtree(CLIENTS / "node_modules", ignore_errors=True)
        (draft / "node_modules").rename(CLIENTS / "node_modules")
        shutil.copy(HERE / "package.json", stamp)
    return CLIENTS


@pytest.mark.parametrize("protocol", FORMS)
def test_connect_node_calls_models(clients: Path, url: str, protocol: str) -> None:
    """The calls cover raw and typed tensors, GRPS and its streams, compression, GET, deadlines and errors."""
    told = run("node", clients / "client.js", url, protocol, *SCHEMAS)
    assert json.loads(told) == NODE_OUTCOMES


@pytest.fixture(scope="session")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Issuer]]:
    """Offer the sample models on uvicorn to callers with a key or a token."""
    port, issuer = free_port(), Issuer(tmp_path_factory.mktemp("issuer"))
    settings = {f"DRAGOMAN_{name}": value for name, value in issuer.settings("both").items()}
    command = (sys.executable, "-m", "uvicorn", "handler.asgi:app", "--port", str(port), "--log-level", "warning")
    log = HOME / "log" / "uvicorn-gated.log"
    with daemon(*command, ready=lambda: listens(port), log=log, env={**os.environ, **settings}):
        yield f"http://127.0.0.1:{port}", issuer


@pytest.mark.parametrize("protocol", FORMS)
def test_connect_node_sends_a_key_or_a_token(clients: Path, gated: tuple[str, Issuer], protocol: str) -> None:
    """The header of each call has it; without one, everything except health is refused."""
    url, issuer = gated
    refusal = {"code": "Unauthenticated", "message": NO_CREDENTIAL}
    for credential in (KEYS["infer,read"], issuer.token("infer,read"), ""):
        told = json.loads(
            run("node", clients / "client.js", url, protocol, *SCHEMAS, env={**os.environ, "KEY": credential})
        )
        if credential:
            assert told == NODE_OUTCOMES
        else:
            assert (told["live"], told["unknown_model"]) == (True, refusal)
            assert all(NO_CREDENTIAL in told[name] for name in ("raw", "typed", "compressed", "got", "predict"))


@pytest.fixture(scope="session")
def program(clients: Path) -> str:
    """Generate the code that docs/protocols/connect.md imports, and return the page's program."""
    plugin = {"local": str(clients / "node_modules" / ".bin" / "protoc-gen-es"), "out": str(clients / "gen")}
    buf = clients / "node_modules" / ".bin" / "buf"
    run(buf, "generate", ROOT / "proto", "--template", json.dumps({"version": "v2", "plugins": [plugin]}))
    return script("protocols/connect.md")


def script(page: str) -> str:
    """Return the JavaScript of a page, which names this file."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    return text.partition("<!-- tested by tests/e2e/test_rpc.py -->\n```js\n")[2].partition("```")[0]


def test_the_page_of_connect_calls_a_model(clients: Path, program: str, uvicorn: str) -> None:
    """Its program runs with generated code, at another address."""
    (clients / "page.js").write_text(re.sub('https://[^"]*', uvicorn, program), "utf-8")
    assert "64" in run("node", clients / "page.js")


def test_the_page_of_security_sends_a_key(clients: Path, program: str, gated: tuple[str, Issuer]) -> None:
    """Its line lists the models to a client with a key."""
    client = re.sub('https://[^"]*', gated[0], program.partition("const answer")[0])
    (clients / "key.js").write_text(f"{client}{script('security.md')}console.log(answer.models[0].name)", "utf-8")
    told = run("node", clients / "key.js", env={**os.environ, "KEY": KEYS["infer,read"]})
    assert told.strip() == "flowers"


def curl(clients: Path, protocol: str, url: str, data: Any) -> subprocess.CompletedProcess[str]:
    """Call from the command line, with the .proto files for a schema."""
    buf = clients / "node_modules" / ".bin" / "buf"
    command = (buf, "curl", "--schema", ROOT / "proto", "--protocol", protocol, "--data", json.dumps(data), url)
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.parametrize("protocol", ["connect", "grpcweb"])
def test_buf_curl_calls_models(clients: Path, url: str, protocol: str) -> None:
    """The calls are an inference, a stream of GRPS, and an error with its code."""
    x = {"name": "x", "datatype": "FP32", "shape": [3]}
    asked = {"modelName": "half_plus_three", "inputs": [x], "rawInputContents": [base64.b64encode(RAW).decode()]}
    infer = f"{url}/{OIP}/ModelInfer"
    answer = curl(clients, protocol, infer, asked)
    assert answer.returncode == 0, answer.stderr
    (raw,) = json.loads(answer.stdout)["rawOutputContents"]
    assert np.frombuffer(base64.b64decode(raw), np.float32).tolist() == HALF_PLUS_THREE
    predict = {"model": "half_plus_three", "gtensors": {"tensors": [TENSOR]}}
    answer = curl(clients, protocol, f"{url}/{GRPS}/PredictStreaming", predict)
    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout) == PREDICTION
    answer = curl(clients, protocol, infer, asked | {"modelName": "nobody"})
    assert answer.returncode == 5 << 3
    assert json.loads(answer.stderr) == {"code": "not_found", "message": UNKNOWN}


def info(path: str) -> MethodInfo[Any, Any]:
    """Return what generated code would contain for a method."""
    method = METHODS[path]
    return MethodInfo(
        name=method.rpc.name, service_name=method.service, input=method.request, output=method.response,
        idempotency_level=IdempotencyLevel.NO_SIDE_EFFECTS if method.safe else IdempotencyLevel.UNKNOWN,
        stream_type=StreamType.UNARY,
    )  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_connectrpc_for_python_calls_models(url: str, form: str) -> None:
    """The calls are an inference, a stream of GRPS, and an error with its code."""
    protocol, codec = FORMS[form]
    tensor = oip.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[3])
    message = oip.ModelInferRequest(model_name="half_plus_three", inputs=[tensor], raw_input_contents=[RAW])
    x = grps.GenericTensor(name="x", dtype="DT_FLOAT32", shape=[3], flat_float32=NUMBERS)
    predict = grps.GrpsMessage(model="half_plus_three", gtensors=grps.GenericTensorData(tensors=[x]))
    infer = info(f"/{OIP}/ModelInfer")
    with ConnectClientSync(url, codec=codec(), protocol=protocol) as client:
        answer = client.execute_unary(request=message, method=infer, timeout_ms=60_000)
        assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == HALF_PLUS_THREE
        answers = client.execute_server_stream(request=predict, method=info(f"/{GRPS}/PredictStreaming"))
        assert [list(one.gtensors.tensors[0].flat_float32) for one in answers] == [HALF_PLUS_THREE]
        message.model_name = "nobody"
        with pytest.raises(ConnectError, match=UNKNOWN) as refused:
            client.execute_unary(request=message, method=infer)
        assert refused.value.code == Code.NOT_FOUND

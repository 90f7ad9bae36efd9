"""Node writes the console's programs for tritonclient, by snippets.js, and they run against a server."""

import json
import shutil
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.openapi import ROOT
from tests.support.publishing import publish
from tests.support.server import HOST, Server, serve, serve_http2, serve_rpc
from tests.support.zoo.models import identity

CALL = """
import { readFileSync } from "node:fs";
globalThis.sessionStorage = { getItem: () => null };
const load = (name) => import(`${process.argv[1]}/${name}.js`);
const [{ base }, { PROTOCOLS }, { snippets }] = await Promise.all(["network", "protocols", "snippets"].map(load));
const [address, id, model, tensors, port] = JSON.parse(readFileSync(0, "utf8"));
base.href = address;
const protocol = PROTOCOLS.find((each) => each.id === id);
const written = snippets(protocol, model, tensors, protocol.request(model, tensors), port);
console.log(JSON.stringify(Object.fromEntries(written)["Python: tritonclient"]));
"""


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Offer the scripts in a folder that every Node reads as modules."""
    folder = tmp_path_factory.mktemp("assets")
    for script in (ROOT / "handler" / "site" / "assets").glob("*.js"):
        shutil.copy(script, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def program(assets: Path, address: str, protocol: str, datatype: str, port: str) -> str:
    """Return the program for a model of one input, which answers its input."""
    spec = {"name": "INPUT0", "datatype": datatype, "shape": [-1]}
    model = {"name": "m", "loaded": "1", "inputs": [spec], "outputs": [{**spec, "name": "OUTPUT0"}]}
    tensors = [{"name": "INPUT0", "datatype": datatype, "shape": [2], "data": [1.5, -2]}]
    call = json.dumps([address, protocol, model, tensors, port])
    command = ("node", "--input-type=module", "--eval", CALL, str(assets))
    done = subprocess.run(command, input=call, capture_output=True, text=True, check=True)
    text: str = json.loads(done.stdout)
    return text


@pytest.mark.parametrize(
    ("server", "protocol", "datatype"),
    [
        (serve, "v2-binary", "FP32"),
        (serve, "v2-binary", "BF16"),
        (serve_rpc, "grpc", "FP16"),
        (serve_rpc, "grpc", "BF16"),
        (serve_http2, "grpc", "FP32"),
    ],
)
def test_a_program_for_tritonclient_runs(
    server: Any, protocol: str, datatype: str, assets: Path, tmp_path: Path
) -> None:
    """It finds gRPC at the server's own port, and has arrays of the type that tritonclient expects."""
    publish(tmp_path / "models", "m", 1, identity(datatype, [None]).SerializeToString())
    started: AbstractContextManager[Server] = server(tmp_path / "log", REPOSITORY=str(tmp_path / "models"))
    with started as running:
        port = {serve: "", serve_http2: "0"}.get(server, str(running.rpc_port))
        text = program(assets, f"http://{running.netloc}/", protocol, datatype, port)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, (text, done.stderr)
    name, _, values = done.stdout.partition(" ")
    assert (name, [float(each) for each in values.strip("[ ]\n").split()]) == ("OUTPUT0", [1.5, -2.0])


def test_a_program_names_the_usual_port_of_a_server_without_grpc(assets: Path) -> None:
    """The text above it names the flags that open one. On the port of HTTP, gRPC has its encryption, too."""
    assert f'("{HOST}:9000")' in program(assets, f"http://{HOST}:8080/", "grpc", "FP32", "")
    assert f'("{HOST}:8001")' in program(assets, f"https://{HOST}/", "grpc", "FP32", "8001")
    assert f'("{HOST}:443", ssl=True)' in program(assets, f"https://{HOST}/", "grpc", "FP32", "0")
    assert f'("{HOST}:80")' in program(assets, f"http://{HOST}/", "grpc", "FP32", "0")

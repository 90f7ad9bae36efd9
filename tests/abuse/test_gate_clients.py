"""The programs of docs/security.md are run as they stand there, each with a key and with a token."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import grpc
import pytest

from tests.support.gated import Issuer, line
from tests.support.server import Server, serve_rpc

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
CURLS = re.findall(r"^\$ (curl http://127.*)\n(.*)\n", PAGE, re.MULTILINE)
IMPORTED = [
    re.findall(r"^(?:from|import) (tritonclient\.\w+|kserve|ovmsclient|connectrpc)", p, re.MULTILINE)[0]
    for p in PROGRAMS
]


@pytest.fixture(scope="module")
def server(issuer: Issuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """An HTTP and gRPC server that accepts keys and tokens for some of its models."""
    folder = tmp_path_factory.mktemp("server")
    for name in ("half_plus_three", "iris", "strings"):
        shutil.copytree(ROOT / "models" / name, folder / "models" / name)
    keys = folder / "keys.txt"
    keys.write_text(line("ci", "dgm_ci", "infer,read", "half*,iris"))
    tokens = {name: value for name, value in issuer.settings("jwt").items() if name != "AUTH"}
    with serve_rpc(
        folder / "log", REPOSITORY=str(folder / "models"), AUTH="both", KEYS_FILE=str(keys), **tokens
    ) as made:
        yield made


@pytest.fixture(params=["key", "token"])
def credential(request: pytest.FixtureRequest, issuer: Issuer) -> str:
    """A key, or a token with the same rights."""
    return "dgm_ci" if request.param == "key" else issuer.token("infer,read", models=["half*", "iris"])


def run(arguments: list[str], server: Server, credential: str) -> subprocess.CompletedProcess[str]:
    own = {"KEY": credential, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
    local = [
        each.replace("127.0.0.1:8080", server.netloc).replace("127.0.0.1:8081", server.rpc_netloc) for each in arguments
    ]
    return subprocess.run(local, env=os.environ | own, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.parametrize("program", PROGRAMS, ids=IMPORTED)
def test_an_official_client_is_served_unmodified(server: Server, credential: str, program: str) -> None:
    """It prints what the page says."""
    expected = "".join(f"{text}\n" for text in re.findall(r"^# (\[.*\])$", program, re.MULTILINE))
    done = run([sys.executable, "-c", program], server, credential)
    assert (done.stdout, done.returncode) == (expected, 0), done.stderr


@pytest.mark.parametrize("program", [PROGRAMS[0], PROGRAMS[-1]], ids=[IMPORTED[0], IMPORTED[-1]])
def test_an_official_client_with_a_wrong_credential_is_refused(server: Server, program: str) -> None:
    """Its own exception has the server's text."""
    done = run([sys.executable, "-c", program], server, "dgm_wrong")
    assert done.returncode == 1
    assert re.search("key is not valid|401|Unauthorized", done.stderr), done.stderr


def test_a_long_token_is_accepted_over_grpc(server: Server, issuer: Issuer) -> None:
    """Tokens of callers in many groups have 8 kB and more, which grpc's own limit refuses at random."""
    metadata = (("authorization", f"Bearer {issuer.token('infer,read', groups='g' * 11_000)}"),)
    with grpc.insecure_channel(server.rpc_netloc) as channel:
        ask = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert {ask(b"", metadata=metadata) for _ in range(20)} == {b"\x08\x01"}
        with pytest.raises(grpc.RpcError) as refused:
            ask(b"", metadata=(*metadata, ("x-more", "m" * 32_768)))
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "metadata size exceeds" in refused.value.details()


@pytest.mark.parametrize(("command", "answer"), CURLS)
def test_curl_is_served(server: Server, credential: str, command: str, answer: str) -> None:
    """Each command prints the answer that the page shows."""
    assert run(["bash", "-c", command], server, credential).stdout.strip() == answer

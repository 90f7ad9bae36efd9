"""tritonclient.grpc, unmodified, in a process of its own: see triton_client."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.server import ROOT
from tests.support.zoo.models import DATATYPES

if TYPE_CHECKING:
    from tests.support.server import Server


@pytest.fixture(scope="module")
def outcomes(server: Server) -> dict[str, str]:
    """Of every case, "ok" or what went wrong."""
    command = [sys.executable, "-m", "tests.support.triton_client", server.rpc_netloc]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.row("G-403")
@pytest.mark.parametrize("datatype", DATATYPES)
def test_every_datatype_goes_there_and_back(outcomes: dict[str, str], datatype: str) -> None:
    """To the bit."""
    assert outcomes[f"datatype_{datatype}"] == "ok"


@pytest.mark.row("G-404")
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_requests_may_be_compressed(outcomes: dict[str, str], coding: str) -> None:
    """With the client's own argument."""
    assert outcomes[f"compression_{coding}"] == "ok"


@pytest.mark.row("G-407")
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_empty_tensors_go_there_and_back(outcomes: dict[str, str], datatype: str) -> None:
    """With their shape."""
    assert outcomes[f"empty_{datatype}"] == "ok"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("health_and_metadata", marks=pytest.mark.row("G-400")),
        pytest.param("infer", marks=pytest.mark.row("G-401")),
        pytest.param("outputs", marks=pytest.mark.row("G-402")),
        pytest.param("model_version", marks=pytest.mark.row("G-405")),
        pytest.param("parameters", marks=pytest.mark.row("G-406")),
        pytest.param("errors", marks=pytest.mark.row("G-408")),
        pytest.param("async_infer", marks=pytest.mark.row("G-409")),
        pytest.param("stream", marks=pytest.mark.row("G-410")),
        pytest.param("repository_index", marks=pytest.mark.row("G-411")),
        pytest.param("model_config", marks=pytest.mark.row("G-412")),
        pytest.param("aio", marks=pytest.mark.row("G-413")),
        pytest.param("nan", marks=pytest.mark.row("G-414")),
    ],
)
def test_the_client_does_what_its_documentation_says(outcomes: dict[str, str], case: str) -> None:
    """One call of it each."""
    assert outcomes[case] == "ok"


def test_every_case_of_the_client_is_looked_at(outcomes: dict[str, str]) -> None:
    """None is run and forgotten."""
    assert [case for case, outcome in outcomes.items() if outcome != "ok"] == []

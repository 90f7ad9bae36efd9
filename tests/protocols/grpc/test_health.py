"""ServerLive, ServerReady, ModelReady and metadata are asked over gRPC."""

from collections.abc import Callable
from pathlib import Path

import grpc
import numpy as np
import pytest

from core.schema import open_inference as oip
from tests.support.remote import Remote, raw
from tests.support.server import Server
from tests.support.zoo.models import VERSIONS

X = raw("x", "INT64", np.array([0]))


@pytest.mark.row("G-001", "G-002")
def test_the_server_is_live_and_ready(remote: Remote) -> None:
    """Both flags are true."""
    assert remote.ask("ServerLive", oip.ServerLiveRequest()).live
    assert remote.ask("ServerReady", oip.ServerReadyRequest()).ready


def test_a_server_whose_model_is_broken_is_live_and_not_ready(launch: Callable[..., Server], zoo: Path) -> None:
    """It was to preload the model."""
    remote = Remote(launch(rpc=True, REPOSITORY=str(zoo), PRELOAD="broken_onnx").rpc_netloc)
    assert remote.ask("ServerLive", b"").live
    assert not remote.ask("ServerReady", b"").ready
    remote.close()


@pytest.mark.row("G-003")
def test_a_model_is_ready_once_it_is_loaded(remote: Remote) -> None:
    """A readiness request does not load it."""
    asked = oip.ModelReadyRequest(name="spare_rpc_ready")
    assert not remote.ask("ModelReady", asked).ready
    remote.infer("spare_rpc_ready", X)
    assert remote.ask("ModelReady", asked).ready


@pytest.mark.row("G-004")
@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_is_ready_once_it_is_loaded(remote: Remote, version: int) -> None:
    """Each version is ready by itself."""
    remote.infer("versions", X, model_version=str(version))
    assert remote.ask("ModelReady", oip.ModelReadyRequest(name="versions", version=str(version))).ready


@pytest.mark.row("G-005", "G-006", "G-007")
@pytest.mark.parametrize(
    ("name", "version"), [("unheard_of", ""), ("versions", "3"), ("versions", "x"), ("", ""), ("a/b", "")]
)
def test_what_is_not_there_is_not_ready(remote: Remote, name: str, version: str) -> None:
    """It is not an error: clients ask until it is there."""
    assert not remote.ask("ModelReady", oip.ModelReadyRequest(name=name, version=version)).ready


@pytest.mark.row("G-010")
def test_the_server_names_itself_and_its_extensions(remote: Remote) -> None:
    """The metadata are those of REST."""
    told = remote.ask("ServerMetadata", oip.ServerMetadataRequest())
    assert told.name == "dragoman"
    assert told.version
    assert "model_repository" in told.extensions


@pytest.mark.row("G-011", "G-012")
@pytest.mark.parametrize(("model", "inputs", "outputs"), [
    ("add_sub", {"INPUT0": [16], "INPUT1": [16]}, {"OUTPUT0": [16], "OUTPUT1": [16]}),
    ("matrix", {"INPUT0": [-1, -1]}, {"OUTPUT0": [-1, -1]}),
    ("fixed", {"INPUT0": [2, 3]}, {"OUTPUT0": [2, 3]}),
    ("scalar", {"INPUT0": []}, {"OUTPUT0": []}),
    ("named_dims", {"INPUT0": [-1, 3]}, {"OUTPUT0": [-1, 3]}),
    ("zero_dims", {"matrix": [-1, -1]}, {"same": [-1, -1], "sums": [-1]}),
])  # fmt: skip
def test_a_model_is_described(
    remote: Remote, model: str, inputs: dict[str, list[int]], outputs: dict[str, list[int]]
) -> None:
    """It has name, platform, and each tensor."""
    told = remote.ask("ModelMetadata", oip.ModelMetadataRequest(name=model))
    assert (told.name, told.platform) == (model, "onnx_onnxv1")
    assert {tensor.name: list(tensor.shape) for tensor in told.inputs} == inputs
    assert {tensor.name: list(tensor.shape) for tensor in told.outputs} == outputs
    assert {tensor.datatype for tensor in (*told.inputs, *told.outputs)} <= {"INT32", "FP32"}


@pytest.mark.row("G-013")
def test_versions_are_those_that_may_be_asked_for(remote: Remote) -> None:
    """They are in numeric order, and each can be described."""
    told = remote.ask("ModelMetadata", oip.ModelMetadataRequest(name="versions", version="2"))
    assert list(told.versions) == ["1", "2", "10"]


@pytest.mark.row("G-014", "G-015", "G-016")
@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig", "ModelStatistics"])
@pytest.mark.parametrize(("name", "version"), [("unheard_of", ""), ("versions", "3")])
def test_what_is_not_there_is_not_found(remote: Remote, method: str, name: str, version: str) -> None:
    """The text names it."""
    request = getattr(oip, f"{method}Request")(name=name, version=version)
    with pytest.raises(grpc.RpcError, match=version or name) as refused:
        remote.ask(method, request)
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND

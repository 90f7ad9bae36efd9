"""Instances that start before any request: provisioned ones under the emulator, snapshots with a stand-in."""

import contextlib
import json
import shutil
import socket
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e import rie, s3, snapshot
from tests.e2e.tools import ROOT

PATH = "/v2/models/half_plus_three/infer"
REQUEST = json.dumps({"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 5]}]})
EVENT = rie.event("POST", PATH, REQUEST)
PRELOAD = {"DRAGOMAN_PRELOAD": "half_plus_three"}


def started(answer: dict[str, dict[str, str]]) -> tuple[str, bool]:
    """Return how the process started, and whether the request waited for its model."""
    timing = answer["headers"]["server-timing"]
    return timing.rpartition("start;desc=")[2], "load;dur=" in timing


def test_a_provisioned_instance_has_its_models_before_the_first_request(artifact: Path, store: s3.Store) -> None:
    """The answer is cold, and waits for nothing."""
    variables = {**store.variables(), **PRELOAD, "AWS_LAMBDA_INITIALIZATION_TYPE": "provisioned-concurrency"}
    with rie.running(artifact, variables) as instance:
        assert started(instance.invoke(EVENT)) == ("cold", False)
        assert started(instance.invoke(EVENT)) == ("warm", False)


def test_an_instance_on_demand_waits_with_its_first_request(cold: rie.Rie) -> None:
    """Nothing is preloaded there."""
    assert started(cold.invoke(EVENT)) == ("cold", True)
    assert started(cold.invoke(EVENT)) == ("warm", False)


@pytest.fixture
def bucket(store: s3.Store) -> str:
    """Offer a separate bucket with the sample models."""
    return store.fill(f"b-{uuid4()}")


def test_a_restored_instance_answers_at_once_with_what_is_newest(
    artifact: Path, store: s3.Store, bucket: str, tmp_path: Path
) -> None:
    """The runtime's own client calls the hooks; a version published after the snapshot is served."""
    with snapshot.taken(artifact, {**store.variables(bucket), **PRELOAD}) as instance:
        files = ROOT / "models" / "half_plus_three"
        shutil.copytree(files / "123", tmp_path / "half_plus_three" / "124")
        store.add(tmp_path, bucket)
        instance.restore()
        answer = instance.invoke(EVENT)
        assert json.loads(answer["body"])["model_version"] == "124"
        assert started(answer) == ("restored", False)
        assert started(instance.invoke(EVENT)) == ("warm", False)


def test_a_restored_instance_makes_new_connections(artifact: Path, store: s3.Store, bucket: str) -> None:
    """Connections from before the snapshot are closed before it is taken."""
    with snapshot.taken(artifact, {**store.variables(bucket), **PRELOAD}) as instance:
        port = int(store.endpoint.rpartition(":")[2])
        assert not connections(instance.pid, port)
        instance.restore()
        other = rie.event("POST", "/v2/models/strings/infer", STRINGS)
        assert instance.invoke(other)["statusCode"] == 200
        assert connections(instance.pid, port)


STRINGS = json.dumps({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}]})


def connections(pid: int, port: int) -> list[str]:
    """Return the established connections of a process to a local port."""
    held = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed meanwhile
            held.add(str(file.readlink()))
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    remote = f"{socket.ntohl(0x7F000001):08X}:{port:04X}"
    return [row[1] for row in rows if row[2] == remote and row[3] == "01" and f"socket:[{row[9]}]" in held]

"""With loads longer than a function's timeout, each request is answered in time, and the model is loaded in the end."""

import json
import os
import random
import re
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from tests.e2e import rie, s3, throttle

MB = 10**6
SIZE = 300 * MB
REQUEST = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}]})
PATH = "/v2/models/large/infer"
WEIGHTS = "weights.bin"
TOLD = re.compile(r"model 'large' is (\d+) of (\d+) MB loaded")
MOST = 40
MOST_CUT_OFF = 9
"""Three loads of one length of time are cut off, and those before them that had less time."""
PLUGIN = Path(__file__).with_name("slow_store.py")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Offer a model of 300 MB whose computation and load take almost no time."""
    folder = tmp_path_factory.mktemp("large-models")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    weights = numpy_helper.from_array(np.zeros(SIZE // 4, np.float32), "w")
    index = numpy_helper.from_array(np.zeros(1, np.int64), "i")
    nodes = [helper.make_node("Gather", ["w", "i"], ["g"]), helper.make_node("Add", ["x", "g"], ["y"])]
    graph = helper.make_graph(nodes, "large", [x], [y], [weights, index])
    (folder / "large" / "1").mkdir(parents=True)
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    # The weights are beside the file, where the runtime maps them: only the fetch is to take time here.
    place = {"save_as_external_data": True, "location": WEIGHTS, "size_threshold": 1024}
    save(model, folder / "large" / "1" / "model.onnx", **place)
    return folder


@pytest.fixture
def slow(models: Path, tmp_path: Path) -> dict[str, str]:
    """Offer the variables of a function whose store is the stand-in, at 60 MB/s."""
    distribution = tmp_path / "slow_store-1.dist-info"
    distribution.mkdir()
    (distribution / "METADATA").write_text("Metadata-Version: 2.1\nName: slow-store\nVersion: 1\n")
    (distribution / "entry_points.txt").write_text("[dragoman.stores]\nslow = slow_store:SlowStore\n")
    (tmp_path / "slow_store.py").write_bytes(PLUGIN.read_bytes())
    return {
        "DRAGOMAN_REPOSITORY": f"slow://{models}",
        "PYTHONPATH": str(tmp_path),
        "SLOW_BYTES_PER_SECOND": str(60 * MB),
        "AWS_LAMBDA_FUNCTION_TIMEOUT": "3",
    }


@pytest.fixture
def throttled(store: s3.Store, models: Path) -> Iterator[dict[str, str]]:
    """Offer the variables of a function whose S3 server sends it 60 MB/s."""
    store.add(models)
    store.client.upload_file(str(models / "large" / "1" / WEIGHTS), s3.BUCKET, f"{s3.PREFIX}/large/1/{WEIGHTS}")
    with throttle.running(store.endpoint, 60 * MB) as endpoint:
        yield {**store.variables(), "AWS_ENDPOINT_URL_S3": endpoint, "AWS_LAMBDA_FUNCTION_TIMEOUT": "3"}


def converge(instance: rie.Rie) -> list[int]:
    """Ask until the model answers; return the megabytes that each refusal before it reported."""
    told = []
    for _ in range(MOST):
        status, answer = instance.http("POST", PATH, REQUEST)
        if status == 200:
            assert answer["outputs"][0]["data"] == [1]
            return told
        assert status == 503, answer
        found = TOLD.search(answer["error"])
        told.append(int(found[1]) if found else SIZE // MB)
    raise AssertionError(f"not loaded after {MOST} invocations: {told}")


def check(artifact: Path, variables: dict[str, str]) -> None:
    """Check that refusals come in time with growing progress, and then the answer, all from one process."""
    with rie.running(artifact, variables) as instance:
        told = converge(instance)
        assert len(told) > 1
        assert told == sorted(told)
        assert len(set(told[:-1])) == len(told[:-1])  # the last may have left the runtime's part to the next
        assert instance.inits() == 1


def check_killed(artifact: Path, variables: dict[str, str]) -> None:
    """End the process at random moments; check that the next one continues where it was."""
    moments = random.Random(7)  # noqa: S311 - a schedule
    with rie.running(artifact, variables) as instance:
        for _ in range(5):
            killer = threading.Timer(moments.uniform(0.3, 2.5), kill, [instance])
            killer.start()
            instance.invoke(rie.event("POST", PATH, REQUEST))
            killer.cancel()
            killer.join()
        converge(instance)
        assert instance.inits() > 1


def kill(instance: rie.Rie) -> None:
    """End the runtime's process, not the emulator."""
    for pid in instance.runtimes():
        os.kill(pid, signal.SIGKILL)


def test_a_load_longer_than_the_timeout_is_told_and_ends_over_several_requests(
    artifact: Path, slow: dict[str, str]
) -> None:
    """The store is a stand-in."""
    check(artifact, slow)


def test_a_load_goes_on_after_its_process_was_killed(artifact: Path, slow: dict[str, str]) -> None:
    """The store is a stand-in."""
    check_killed(artifact, slow)


def test_a_load_from_s3_longer_than_the_timeout_is_told_and_ends_over_several_requests(
    artifact: Path, throttled: dict[str, str]
) -> None:
    """The store is a real S3 server behind a throttle."""
    check(artifact, throttled)


def test_a_load_from_s3_goes_on_after_its_process_was_killed(artifact: Path, throttled: dict[str, str]) -> None:
    """The store is a real S3 server behind a throttle."""
    check_killed(artifact, throttled)


def test_a_runtime_that_never_ends_loading_is_named_with_its_cure(artifact: Path, tmp_path: Path) -> None:
    """The function is cut off a limited number of times."""
    folder = tmp_path / "stuck" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("import time\n\ntime.sleep(3600)\n")
    variables = {
        "DRAGOMAN_REPOSITORY": str(tmp_path), "DRAGOMAN_ALLOW_CODE": "true", "AWS_LAMBDA_FUNCTION_TIMEOUT": "3",
    }  # fmt: skip
    with rie.running(artifact, variables) as instance:
        answers = [instance.invoke(rie.event("POST", "/v2/models/stuck/infer", REQUEST))]
        # A slow start leaves little time. The next load, with more of it, begins a new count.
        while "statusCode" not in answers[-1] and len(answers) < MOST_CUT_OFF:
            answers.append(instance.invoke(rie.event("POST", "/v2/models/stuck/infer", REQUEST)))
    assert "timed out" in answers[0]["errorMessage"]
    assert answers[-1]["statusCode"] == 503
    assert "raise the function's timeout or memory" in answers[-1]["body"]

"""Triton's `reshape`: requests and answers have other shapes than the model."""

import asyncio
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.asgi import application
from tests.support.openapi import ask, serving
from tests.support.zoo.models import identity

IMAGE = """
input [
  { name: "INPUT0" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 2, 2, 2 ] reshape { shape: [ 1, 2, 2, 2 ] } }
]
output [
  { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 8 ] reshape { shape: [ 1, 2, 2, 2 ] } label_filename: "labels" }
]
"""
"""As the configuration of densenet_onnx, with which Triton's quick start begins."""
TENSOR = {"name": "y", "datatype": "FP32", "shape": [1]}


def one(role: str, dims: str, reshape: str, datatype: str = "FP32") -> str:
    """Returns the declaration of a tensor."""
    name = f"{role.upper()}0"
    return f'{role} {{ name: "{name}" data_type: TYPE_{datatype} dims: {dims} reshape {{ shape: {reshape} }} }}'


def write(root: Path, config: str, shape: Sequence[int | None], datatype: str = "FP32") -> None:
    """Makes a model that returns its input of this shape."""
    (root / "m" / "1").mkdir(parents=True)
    (root / "m" / "1" / "model.onnx").write_bytes(identity(datatype, shape).SerializeToString())
    (root / "m" / "config.pbtxt").write_text(config)


def tensor(shape: list[int], data: list[Any], datatype: str = "FP32") -> dict[str, Any]:
    """Returns the model's input in V2's JSON."""
    return {"name": "INPUT0", "datatype": datatype, "shape": shape, "data": data}


def infer(
    root: Path, shape: list[int], data: list[Any], datatype: str = "FP32", *, outputs: Any = (), **settings: str
) -> Any:
    """Returns the answer's shape and data, or the refusal with its status."""
    app = serving(root, **settings)
    answer = ask(app, "/v2/models/m/infer", {"inputs": [tensor(shape, data, datatype)], "outputs": [*outputs]})
    app.close()
    if answer.status_code != 200:
        return answer.status_code, answer.json()["error"]
    (output,) = answer.json()["outputs"]
    return output["shape"], output["data"]


def test_an_image_model_is_served_with_the_configuration_of_tritons_quick_start(tmp_path: Path) -> None:
    """Metadata, requests, classes and refusals have the shape of `dims`."""
    write(tmp_path, IMAGE, [1, 2, 2, 2])
    (tmp_path / "m" / "labels").write_text("\n".join("abcdefgh"))
    values = [*map(float, range(8))]
    assert infer(tmp_path, [2, 2, 2], values) == ([8], values)
    top = [{"name": "OUTPUT0", "parameters": {"classification": 1}}]
    assert infer(tmp_path, [2, 2, 2], values, outputs=top) == ([1], ["7.000000:7:h"])
    refused = "input 'INPUT0' has shape [1, 2, 2, 2]; the model expects [2, 2, 2]"
    assert infer(tmp_path, [1, 2, 2, 2], values) == (400, refused)
    app = serving(tmp_path)
    known = ask(app, "/v2/models/m", method="GET").json()
    assert [known[role][0]["shape"] for role in ("inputs", "outputs")] == [[2, 2, 2], [8]]
    app.close()


@pytest.mark.parametrize(("batch", "dims", "own", "shape", "sent"), [
    (4, "1", "[]", [None], [3, 1]),  # a number for each row
    (4, "[ 2, 3 ]", "6", [None, 6], [2, 2, 3]),
    (4, "[ -1, 2, -1 ]", "[ -1, -1, 2 ]", [None, None, None, 2], [1, 3, 2, 2]),
    (0, "-1", "[ 1, -1, 1 ]", [1, None, 1], [4]),
    (0, "[ 2, 2 ]", "4", None, [2, 2]),
])  # fmt: skip
def test_variable_sizes_follow_each_other(
    tmp_path: Path, batch: int, dims: str, own: str, shape: Any, sent: list[int]
) -> None:
    """The batch comes first, and is the same in both."""
    config = f"max_batch_size: {batch} {one('input', dims, own)} {one('output', dims, own)}"
    write(tmp_path, config, shape)
    values = [*map(float, range(math.prod(sent)))]
    assert infer(tmp_path, sent, values) == (sent, values)


def test_texts_and_only_one_of_the_tensors_may_be_reshaped(tmp_path: Path) -> None:
    """The other one has the model's shape."""
    write(tmp_path, one("output", "[ -1, 1 ]", "-1", "STRING"), [None], "BYTES")
    assert infer(tmp_path, [2], ["a", "b"], "BYTES") == ([2, 1], ["a", "b"])


def test_a_batch_of_requests_is_reshaped_as_one(tmp_path: Path) -> None:
    """Each client gets its own rows."""
    config = f"max_batch_size: 4 {one('input', '[ 2, 1 ]', '2')} {one('output', '[ 1, 2 ]', '2')}"
    write(tmp_path, f"{config} dynamic_batching {{ max_queue_delay_microseconds: 1000000 }}", [None, 2])
    app = application(tmp_path)
    bodies = [{"inputs": [tensor([1, 2, 1], [float(number), -1.0])]} for number in range(8)]

    async def crowd() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local") as client:
            await client.post("/v2/repository/models/m/load")
            return await asyncio.gather(*(client.post("/v2/models/m/infer", json=body) for body in bodies))

    answers = [each.json()["outputs"][0] for each in asyncio.run(crowd())]
    (counts,) = ask(app, "/v2/models/m/stats", method="GET").json()["model_stats"]
    app.close()
    assert [(each["shape"], each["data"]) for each in answers] == [([1, 1, 2], [n, -1.0]) for n in range(8)]
    assert (counts["inference_count"], counts["execution_count"] < 8) == (8, True)


@pytest.mark.parametrize(("shape", "reshape", "wrong"), [
    ([-1], [1, -1], [1, -1]), ([1, -1], [-1], [1, -1]), ([-1, 2], [-1, 2, 1], None),
])  # fmt: skip
def test_requests_run_alone_if_the_batch_is_not_the_first_axis_on_both_sides(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, shape: list[int], reshape: list[int], wrong: list[int] | None
) -> None:
    """The log has the shape that is to blame."""
    write(tmp_path, "", [None] * len(reshape))
    said = {"name": "INPUT0", "datatype": "FP32", "shape": shape, "reshape": reshape}
    settings = {"inputs": [said], "outputs": [said | {"name": "OUTPUT0"}], "batching": {}}
    (tmp_path / "m" / "model-settings.json").write_text(json.dumps(settings))
    sent = [1 if size < 0 else size for size in shape]
    assert infer(tmp_path, sent, [3.0] * math.prod(sent)) == (sent, [3.0] * math.prod(sent))
    told = [record.getMessage() for record in caplog.records if "run alone" in record.getMessage()]
    assert [each.partition("the first axis of ")[2] for each in told] == (
        [] if wrong is None else [f"'INPUT0' {wrong} is not variable"]
    )


@pytest.mark.parametrize(("config", "message"), [
    (one("input", "[ 2, 2 ]", "[ 4, 1 ]"), "'INPUT0' has the shape [2, -1] in model.onnx, [4, 1] in its settings"),
    (one("output", "4", "[ 2, 2, 1 ]"), "'OUTPUT0' has the shape [2, -1] in model.onnx, [2, 2, 1] in its settings"),
    (one("input", "3", "2"), "input[0].reshape is [2]; expected as many elements and variable sizes as in the"),
])  # fmt: skip
def test_a_reshape_that_does_not_fit_is_refused_when_the_model_is_loaded(
    tmp_path: Path, config: str, message: str
) -> None:
    """The model's own shape is compared with the one in `reshape`."""
    write(tmp_path, config, [2, None])
    status, said = infer(tmp_path, [2, 2], [1.0, 2.0, 3.0, 4.0])
    assert status == 503
    assert message in said


def test_an_output_of_another_shape_than_its_declared_one_is_the_models_failure(tmp_path: Path) -> None:
    """Files often declare sizes that their outputs do not have."""
    write(tmp_path, one("output", "4", "[ 2, 2 ]"), [None, None])
    assert infer(tmp_path, [2, 2], [1.0, 2.0, 3.0, 4.0]) == ([4], [1.0, 2.0, 3.0, 4.0])
    status, said = infer(tmp_path, [1, 4], [1.0, 2.0, 3.0, 4.0])
    assert (status, said) == (
        500,
        "model 'm' returned output 'OUTPUT0' with shape [1, 4]; its settings reshape [2, 2]",
    )


@pytest.mark.parametrize(("config", "code"), [
    ('backend: "python"' + one("input", "1", "[ 1, 1 ]"), ""),
    ('backend: "python"', f"metadata = {{'outputs': [{TENSOR | {'reshape': [1, 1]}}]}}\n"),
], ids=["config.pbtxt", "metadata"])  # fmt: skip
def test_only_onnx_models_are_reshaped(tmp_path: Path, config: str, code: str) -> None:
    """A Python model gets the arrays that clients send."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.py").write_text(f"{code}def predict(inputs, parameters):\n    return inputs\n")
    (tmp_path / "m" / "config.pbtxt").write_text(config)
    status, said = infer(tmp_path, [1], [1.0], ALLOW_CODE="true")
    assert status == 503
    assert "model 'm' has a tensor with `reshape`, which is for ONNX models only" in said

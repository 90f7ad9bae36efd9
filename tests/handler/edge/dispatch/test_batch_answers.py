"""Batching changes no answer: whatever comes at the same time, in whichever order, over whichever protocol."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pytest
from grpc import aio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper, save

from core.schema import grps
from tests.handler.edge.beside import running
from tests.handler.edge.dispatch.meeting import INFER, Meeting, binary, rows
from tests.support.asgi import Local, application
from tests.support.remote import question, raw

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ENDED: Final = 503
TABLE: Final = np.array([0.1, -0.0, np.nan, 1e30, 7, 1 / 3, np.inf, 2**-140, 8, 9], np.float32)
SAID: Final = {
    "alone": None,
    "three": {"max_batch_size": 3, "max_delay_ms": 20},
    "preferred": {"max_batch_size": 16, "max_delay_ms": 10, "preferred": [6]},
    "at-once": {"max_delay_ms": 0},
}
"""Settings of the same model, under as many names."""


def lookup(folder: Path) -> None:
    """Writes a model that looks numbers up in a table, and fails for one that is not in it."""
    node = [helper.make_node("Gather", ["table", "x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])]
    kinds = {"x": TensorProto.INT64, "y": TensorProto.FLOAT, "z": TensorProto.INT64}
    x, y, z = (helper.make_tensor_value_info(name, kind, ["n", "m"]) for name, kind in kinds.items())
    graph = helper.make_graph(node, "lookup", [x], [y, z], [numpy_helper.from_array(TABLE, "table")])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 13)])
    for name, said in SAID.items():
        (folder / name / "1").mkdir(parents=True)
        save(model, folder / name / "1" / "model.onnx")
        (folder / name / "model-settings.json").write_text(json.dumps({"batching": said}))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """One server for all examples."""
    folder = tmp_path_factory.mktemp("lookup")
    lookup(folder)
    made = Local(application(folder, THREADS="2", QUEUE="1000"))
    yield made
    counts = [each.statistics() for each in made.app.registry.known() if each.name in ("three", "preferred")]
    made.close()
    told = [(each.execution_count, each.inference_count) for each in counts]
    assert any(executions < inferences for executions, inferences in told), told  # some did run with others


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes, int, int | None]:
    """A request: what follows the model's name in its path, its body, when it comes, and when its client leaves."""
    count, columns = draw(st.integers(0, 4)), draw(st.integers(1, 2))
    values = st.sampled_from([*range(10), *range(10), -3, 10])
    data = draw(st.lists(st.lists(values, min_size=columns, max_size=columns), min_size=count, max_size=count))
    arrives, leaves = draw(st.integers(0, 30)), draw(st.none() | st.none() | st.integers(0, 30))
    if count and draw(st.booleans()):
        return "v1/models/{}:predict", json.dumps({"instances": data}).encode(), arrives, leaves
    members: dict[str, Any] = {}
    if draw(st.booleans()):
        members["outputs"] = [{"name": name} for name in draw(st.permutations(["y", "z"]))]
    if draw(st.booleans()):
        members["parameters"] = {"k": draw(st.sampled_from([1, True, 1.0]))}
    datatype = draw(st.sampled_from(["INT64", "INT64", "INT64", "INT32"]))
    x = {"name": "x", "datatype": datatype, "shape": [count, columns], "data": data}
    return "v2/models/{}/infer", json.dumps({"inputs": [x], **members}).encode(), arrives, leaves


async def answer(local: Local, model: str, path: str, body: bytes, arrives: int) -> tuple[int, bytes]:
    """Returns a request's status and body, in which the model's name is left out."""
    for _ in range(arrives):
        await asyncio.sleep(0)
    found = await local._call("POST", "/" + path.format(model), body, {}, stays=True)
    return found.status, found.body.replace(model.encode(), b"")


async def answers(local: Local, model: str, asked: list[Any]) -> list[Any]:
    """Returns the answers of all requests, None for those that the server has ended, as it does when it stops."""
    tasks = [asyncio.ensure_future(answer(local, model, *request)) for *request, _ in asked]
    for tick in range(31):
        for task, (*_, leaves) in zip(tasks, asked, strict=True):
            if leaves == tick:
                task.cancel()
        await asyncio.sleep(0.0005)
    await asyncio.wait(tasks)
    return [None if task.cancelled() or task.result()[0] == ENDED else task.result() for task in tasks]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(requests(), min_size=3, max_size=16), model=st.sampled_from(["three", "preferred", "at-once"]))
def test_each_request_gets_what_it_would_have_got_alone(local: Local, asked: list[Any], model: str) -> None:
    """Byte for byte: an answer, its own error, or nothing for a client that has left."""
    lane = local.app.dispatcher._workers._lanes.find(model)  # type: ignore[union-attr] # threads
    if lane is not None:
        lane.batches.last = 99  # so that they wait for each other
    found = local.run(answers(local, model, asked))
    for (path, body, *_), one in zip(asked, found, strict=True):
        assert one in (None, local.run(answer(local, "alone", path, body, 0)))
    assert all(one is not None for one, (*_, leaves) in zip(found, asked, strict=True) if leaves is None)
    assert not any(version.loaded.in_use() for version in local.app.registry.known() if version.loaded is not None)


VALUES: Final = range(1000, 1009)
"""The values of the requests, one for each protocol."""


def carried(meeting: Meeting, channel: aio.Channel) -> list[Any]:
    """Begins a request of one row over each protocol."""

    def message(value: float) -> bytes:
        row = np.full((1, 2), value, np.float32)
        return question("m", raw("x", "FP32", row)).SerializeToString()

    def infer(value: float) -> dict[str, Any]:
        x = {"name": "x", "datatype": "FP32", "shape": [1, 2], "contents": {"fp32Contents": [value, value]}}
        return {"modelName": "m", "inputs": [x]}

    v2, bin2, v1, columns, ndarray, connect, web, unary, stream = VALUES
    x = grps.GenericTensor(name="x", dtype="DT_FLOAT32", shape=[1, 2], flat_float32=[9.0, 9.0])
    predict = grps.GrpsMessage(model="m", gtensors=grps.GenericTensorData(tensors=[x]))
    oip_path = "/inference.GRPCInferenceService/ModelInfer"
    calls: Any = channel
    as_json = {"content-type": "application/json"}
    body = message(web)
    return [
        meeting.ask(rows(v2)),
        meeting.ask(binary(bin2)[0], INFER, binary(bin2)[1]),
        meeting.ask(json.dumps({"instances": [[v1, v1]]}).encode(), "/v1/models/m:predict"),
        meeting.ask(json.dumps({"inputs": [[columns, columns]]}).encode(), "/v1/models/m/versions/1:predict"),
        meeting.ask(json.dumps({"ndarray": [[ndarray, ndarray]]}).encode(), "/grps/v1/infer/predict?model=m", as_json),
        meeting.ask(json.dumps(infer(connect)).encode(), oip_path, as_json),
        meeting.ask(struct.pack(">BI", 0, len(body)) + body, oip_path, {"content-type": "application/grpc-web+proto"}),
        asyncio.ensure_future(calls.unary_unary(oip_path)(message(unary))),
        asyncio.ensure_future(
            anext(aiter(calls.stream_stream(f"{oip_path[:-10]}ModelStreamInfer")([message(stream)])))
        ),
        asyncio.ensure_future(calls.unary_unary("/grps.protos.v1.GrpsService/Predict")(predict.SerializeToString())),
    ]


def test_every_protocol_reaches_a_batch(tmp_path: Path) -> None:
    """Requests of REST, Connect, gRPC-Web, gRPC and its streams run as one, and each gets its own row."""
    # A call of GRPS is read in a thread before it is known which model it names.
    meeting = Meeting(tmp_path, {"max_batch_size": 16, "max_delay_ms": 1000}, max_concurrency=1, THREADS="2")

    async def work() -> list[Any]:
        async with running(meeting.local.app) as (channel, _):
            first = await meeting.hold()
            tasks = carried(meeting, channel)
            await meeting.until(len(tasks))
            meeting.open()
            await first
            return [await task for task in tasks]

    found = meeting.run(work())
    meeting.close()
    bodies = [each if isinstance(each, bytes) else each.body for each in found]
    for value, body in zip([*VALUES, 9], bodies, strict=True):
        forms = [b"%.1f" % (2 * value), b"%d" % (2 * value), struct.pack("<2f", 2 * value, 2 * value)]
        assert any(form in body for form in forms), (value, body)
    counts = {each.rows: each.inferred.times for each in meeting.local.app.registry.known()[0].statistics().batches}
    assert counts == {1: 2, 10: 1}

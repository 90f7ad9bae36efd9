"""handler.lifecycle.warming and warmup_settings: the requests that a model gets before it is ready."""

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.dtype import DATATYPES
from core.errors import ModelFailed, ModelNotLoadable
from core.operations import ModelSpec
from core.tensor import Tensor, TensorSpec
from handler.lifecycle.warming import warm
from handler.settings import warmup as warmup_settings
from handler.settings.checked import Wrong
from handler.settings.warmup import MOST, WarmUp


class Model:
    """A model that remembers its requests."""

    steady = True
    explain = http = None

    def __init__(self, inputs: tuple[TensorSpec, ...] | None, *, streams: bool = False) -> None:
        self.spec = ModelSpec("m", "3", "fake", inputs, None)
        self.asked: list[dict[str, Any]] = []
        self.ended = 0
        self.stream = self._stream if streams else None

    def predict(self, inputs: Mapping[str, Tensor], _: Sequence[str], __: Mapping[str, Any]) -> list[Tensor]:
        self.asked.append({name: tensor.array for name, tensor in inputs.items()})
        if any((array.shape == (0,)) for array in self.asked[-1].values()):
            raise ModelFailed("empty")
        return []

    def _stream(self, *question: Any) -> Iterator[list[Tensor]]:
        for _ in range(2):
            yield self.predict(*question)
        self.ended += 1


def spec(name: str, datatype: str, *shape: int) -> TensorSpec:
    return TensorSpec(name, DATATYPES[datatype], shape)


@pytest.mark.parametrize("datatype", DATATYPES)
@pytest.mark.parametrize("shape", [(), (0, 2), (1,), (2, 3)])
def test_random_tensors_have_the_declared_type_and_shape(tmp_path: Path, datatype: str, shape: tuple[int, ...]) -> None:
    """The values suit an index, a flag and a probability."""
    model = Model((spec("x", datatype, *shape),))
    warm(model, [WarmUp(times=3)], tmp_path)
    assert len(model.asked) == 3
    for asked in model.asked:
        array = asked["x"]
        assert isinstance(array, np.ndarray)
        assert (array.dtype, array.shape) == (DATATYPES[datatype].numpy, shape)
        if datatype == "BF16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        if datatype == "BYTES":
            assert set(array.reshape(-1)) <= {b"0", b"1"}
        else:
            assert ((array >= 0) & (array <= 1)).all()


def test_what_a_shape_leaves_open_is_one_unless_it_is_said(tmp_path: Path) -> None:
    """The settings have to name the shape of an input of any rank."""
    inputs = (spec("x", "FP32", -1, 4), TensorSpec("y", DATATYPES["INT64"], None))
    model = Model(inputs)
    warm(model, [WarmUp(shapes={"y": (2,)}), WarmUp(shapes={"x": (8, 4), "y": ()})], tmp_path)
    shapes = [{name: array.shape for name, array in asked.items()} for asked in model.asked]
    assert shapes == [{"x": (1, 4), "y": (2,)}, {"x": (8, 4), "y": ()}]


def test_a_file_is_a_request_of_the_open_inference_protocol(tmp_path: Path) -> None:
    """It is sent as often as the settings ask."""
    tensor = {"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}
    (tmp_path / "w.json").write_text(json.dumps({"inputs": [tensor]}))
    model = Model((spec("x", "FP32", -1),))
    warm(model, [WarmUp("w.json", 2)], tmp_path)
    assert [asked["x"].tolist() for asked in model.asked] == [[1, 2], [1, 2]]


def test_a_model_that_streams_is_asked_for_its_stream_to_the_end(tmp_path: Path) -> None:
    """The warm-up takes all of its answers."""
    model = Model((spec("x", "FP32", 1),), streams=True)
    warm(model, [WarmUp()], tmp_path)
    assert (len(model.asked), model.ended) == (2, 1)


@pytest.mark.parametrize(("inputs", "request_", "reason"), [
    (None, WarmUp(), 'warmup.0.: the model does not declare its inputs: name them in its settings, or use a "file"'),
    ((TensorSpec("x", DATATYPES["FP32"], None),), WarmUp(), "input 'x' can have any rank: state its shape"),
    ((spec("x", "FP32", 1),), WarmUp(shapes={"y": (1,)}), "warmup.0.: its shapes name the input 'y', which"),
    ((spec("x", "FP32", 1),), WarmUp(shapes={"x": (2,)}), r"warmup.0.: input 'x' has shape \[2\]; the model"),
    ((spec("x", "FP32", 1),), WarmUp("gone.json"), "'gone.json' cannot be read: No such file or directory"),
    ((spec("x", "FP32", 1),), WarmUp("bad.json"), r"warmup\[0\] \('bad.json'\): the body is 1; expected an object"),
    ((spec("x", "FP32", -1),), WarmUp(shapes={"x": (0,)}), "warmup.0.: empty"),
])  # fmt: skip
def test_a_warm_up_that_fails_is_why_the_model_is_not_loaded(
    tmp_path: Path, inputs: Any, request_: WarmUp, reason: str
) -> None:
    """The refusal has the reason in one line."""
    (tmp_path / "bad.json").write_text("1")
    with pytest.raises(ModelNotLoadable, match=f"^model 'm' version 3 failed its warm-up: {reason}"):
        warm(Model(inputs), [request_], tmp_path)


def test_requests_are_read_from_the_settings() -> None:
    """A request is sent once with the declared shapes, unless the settings differ."""
    said = [{"random": True}, {"random": True, "count": 2, "shapes": {"x": [3, 0]}}, {"file": "a/b.json", "count": 5}]
    assert warmup_settings.parse(said) == (WarmUp(), WarmUp(None, 2, {"x": (3, 0)}), WarmUp("a/b.json", 5))


@pytest.mark.parametrize(("said", "message"), [
    ({}, "warmup is {}; expected an array of requests"),
    ([1], r"warmup\[0\] is 1; expected an object"),
    ([{}], r'warmup\[0\] is {}; expected either "random": true or a "file"'),
    ([{"random": False}], r"warmup\[0\] is .*; expected either"),
    ([{"random": True, "file": "x"}], r"warmup\[0\] is .*; expected either"),
    ([{"file": 1}], r"warmup\[0\].file is 1; expected a path in the version's folder"),
    ([{"file": ""}], r"warmup\[0\].file is ''; expected"),
    ([{"file": "../x"}], r"warmup\[0\].file is '../x'; expected"),
    ([{"file": "x\0"}], r"warmup\[0\].file is 'x.x00'; expected"),
    ([{"file": "/x"}], r"warmup\[0\].file is '/x'; expected"),
    ([{"random": True}, {"random": True, "count": 0}], r"warmup\[1\].count is 0; expected a whole number from 1"),
    ([{"random": True, "count": MOST + 1}], r"warmup\[0\].count is 1001; expected at most 1000"),
    ([{"random": True, "shapes": {"x": [-1]}}], r"warmup\[0\].shapes.x is \[-1\]; expected an array of whole"),
    ([{"random": True, "shapes": [1]}], r"warmup\[0\].shapes is \[1\]; expected an object"),
    ([{"random": True, "rows": 1}], r"warmup\[0\].rows is 1; expected no such key"),
])  # fmt: skip
def test_what_is_wrong_in_the_settings_is_named_by_its_place(said: Any, message: str) -> None:
    """The refusal quotes the value."""
    with pytest.raises(Wrong, match=message):
        warmup_settings.parse(said)


class Stuck(Model):
    """A model that answers once the gate is open."""

    def __init__(self) -> None:
        super().__init__((spec("x", "FP32", 1),))
        self.gate = threading.Event()
        self.threads: list[threading.Thread] = []

    def predict(self, inputs: Mapping[str, Tensor], *rest: Any) -> list[Tensor]:
        self.threads.append(threading.current_thread())
        self.gate.wait(60)
        return super().predict(inputs, *rest)


def test_a_warm_up_that_still_runs_is_not_asked_again(tmp_path: Path) -> None:
    """Each try would keep another thread and another model. A version with other files is another one."""
    (tmp_path / "model.py").write_text("")
    model = Stuck()
    with pytest.raises(ModelNotLoadable, match="it took longer than 0.05 s"):
        warm(model, [WarmUp()], tmp_path, 0.05)
    with pytest.raises(ModelNotLoadable, match="an earlier one exceeded the time limit .*still runs"):
        warm(model, [WarmUp()], tmp_path, 0.05)
    assert len(model.threads) == 1
    os.utime(tmp_path / "model.py", (0, 0))
    mended = Model((spec("x", "FP32", 1),))
    warm(mended, [WarmUp()], tmp_path, 60)
    os.utime(tmp_path / "model.py", (1, 1))
    with pytest.raises(ModelNotLoadable, match="it took longer"):
        warm(model, [WarmUp()], tmp_path, 0.05)
    model.gate.set()
    for thread in model.threads:
        thread.join(60)
    warm(model, [WarmUp()], tmp_path, 60)
    assert (len(mended.asked), len(model.asked)) == (1, 3)

"""Warm-up requests: a model answers them before it is ready, so that its first client does not pay their cost."""

import math
import os
import threading
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from core.dialects.v2 import infer as v2_infer
from core.dtype import BF16, OBJECT, DataType, NDArray
from core.engine import ask
from core.errors import InvalidInput, ModelNotLoadable, ServingError, TimedOut, shown
from core.operations import Infer, ModelRef, ModelSpec, Stream
from core.ports import Model
from core.tensor import Tensor, TensorSpec
from core.wire import Call, HttpRequest
from handler.backends.runs import check, limited
from handler.settings.checked import size_of
from handler.settings.warmup import WarmUp

LARGEST: Final = 2**28
MOST_BYTES: Final = 2**32
"""The most bytes of one warm-up request, and of all those of a version, counted before any is made."""


_STUCK: Final[dict[tuple[Any, ...], threading.Thread]] = {}
"""The threads of warm-ups that went on beyond their limit, by the content of the version."""


def warm(model: Model, requests: Iterable[WarmUp], folder: Path, limit: float | None = None) -> None:
    """Sends the warm-up requests to a model. Raises ModelNotLoadable with the reason if one of them fails.

    `limit`: the seconds that all of them may take together. Code that goes on after it keeps its thread and its model,
    so it is not asked again before it has ended: each try after a pause would keep another one.
    """
    spec, requests = model.spec, tuple(requests)
    if not requests:
        return
    content = _content(folder)
    try:
        _check_size(requests, model, folder)
        stuck = _STUCK.get(content)
        if stuck is not None and stuck.is_alive():
            raise TimedOut("an earlier one exceeded the time limit of an inference, and still runs")
        _STUCK.pop(content, None)
        limited(
            lambda: _ask(requests, model, folder), limit, lambda: _late(limit), partial(_STUCK.__setitem__, content)
        )
    except ServingError as error:
        raise ModelNotLoadable(
            f"model {spec.name!r} version {spec.version} failed its warm-up: {error.message}"
        ) from error


def _content(folder: Path) -> tuple[Any, ...]:
    """Returns what changes with the files of a version: a mended one is asked at once."""
    files = [(entry.name, entry.stat().st_mtime_ns) for entry in os.scandir(folder) if entry.is_file()]
    return str(folder), *sorted(files)


def _check_size(requests: Iterable[WarmUp], model: Model, folder: Path) -> None:
    """Raises InvalidInput for requests that would keep a loader busy for hours, or take all memory."""
    sizes = [(request.times, _size(request, model.spec, folder)) for request in requests]
    total, largest = sum(times * size for times, size in sizes), max(size for _, size in sizes)
    if total > MOST_BYTES or largest > LARGEST:
        text = f"the largest of its warm-up requests has {largest} bytes, and all have {total}"
        raise InvalidInput(f"{text}; at most {LARGEST} and {MOST_BYTES} are sent")


def _size(request: WarmUp, spec: ModelSpec, folder: Path) -> int:
    """Returns the bytes of one request. Raises InvalidInput for a file that cannot be read."""
    if request.file is not None:
        return _file_size(request.file, folder)
    return sum(
        math.prod(_shape(tensor, request)) * (OBJECT if tensor.datatype.is_bytes else tensor.datatype.numpy.itemsize)
        for tensor in spec.inputs or ()
    )


def _ask(requests: Iterable[WarmUp], model: Model, folder: Path) -> None:
    for index, request in enumerate(requests):
        try:
            for infer in _inferences(request, model, folder):
                check()
                for _ in ask(Stream(infer), model):
                    pass
        except ServingError as error:
            file = "" if request.file is None else f" ({shown(request.file)})"
            raise InvalidInput(f"warmup[{index}]{file}: {error.message}") from error


def _late(limit: float | None) -> TimedOut:
    return TimedOut(f"it took longer than {limit:g} s, the time limit of an inference (DRAGOMAN_TIMEOUT, or timeout)")


def _inferences(request: WarmUp, model: Model, folder: Path) -> Iterator[Infer]:
    if request.file is not None:
        infer = _read(request.file, model, folder)
        yield from (infer for _ in range(request.times))
        return
    random = np.random.default_rng(0)
    for _ in range(request.times):
        yield _random(request, model, random)


def _file_size(file: str, folder: Path) -> int:
    try:
        return size_of(folder / file)
    except OSError as error:
        raise InvalidInput(f"{shown(file)} cannot be read: {error.strerror}") from error


def _read(file: str, model: Model, folder: Path) -> Infer:
    name = model.spec.name
    try:
        body = (folder / file).read_bytes()
    except OSError as error:
        raise InvalidInput(f"{shown(file)} cannot be read: {error.strerror}") from error
    infer, _ = v2_infer.decode(Call(HttpRequest("POST", "", {}, body), {"model": name}))
    return infer


def _random(request: WarmUp, model: Model, random: np.random.Generator) -> Infer:
    spec = model.spec
    if spec.inputs is None:
        raise InvalidInput('the model does not declare its inputs: name them in its settings, or use a "file"')
    for name in request.shapes:
        if name not in {tensor.name for tensor in spec.inputs}:
            raise InvalidInput(f"its shapes name the input {shown(name)}, which the model does not have")
    tensors = tuple(
        Tensor(tensor.name, tensor.datatype, _values(tensor.datatype, _shape(tensor, request), random))
        for tensor in spec.inputs
    )
    return Infer(ModelRef(spec.name), tensors)


def _shape(tensor: TensorSpec, request: WarmUp) -> tuple[int, ...]:
    shape = request.shapes.get(tensor.name)
    if shape is not None:
        return shape
    if tensor.shape is None:
        raise InvalidInput(f"input {shown(tensor.name)} can have any rank: state its shape in `shapes`")
    return tuple(1 if size == -1 else size for size in tensor.shape)


def _values(datatype: DataType, shape: tuple[int, ...], random: np.random.Generator) -> NDArray[Any]:
    """Returns floats from 0 to 1, or the integers 0 and 1, which most indices permit, or the texts "0" and "1"."""
    if datatype is BF16:  # the upper half of a 32-bit number
        bits = np.asarray(random.random(shape, np.float32)).view(np.uint32)
        return np.asarray(bits >> 16, datatype.numpy)
    if datatype.is_float:
        return np.asarray(random.random(shape), datatype.numpy)
    bits = np.asarray(random.integers(0, 2, shape))
    if not datatype.is_bytes:
        return bits.astype(datatype.numpy)
    texts = np.empty(shape, object)
    texts.reshape(-1)[:] = [b"%d" % bit for bit in bits.flat]
    return texts

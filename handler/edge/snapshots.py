"""What is done in advance where Lambda starts instances before any request comes: provisioned ones, and snapshots.

SnapStart takes one snapshot of an initialised instance when a version is published, and every instance goes on from it:
with the same memory, the same random numbers to come, connections that are long gone, and perhaps weeks later.
"""

import gc
import importlib
import logging
import math
import random
import sys
from typing import Any, Final

import orjson

from core.deadline import within
from core.dialects import DIALECTS
from core.engine import ask
from core.errors import ServingError
from core.operations import ModelSpec
from core.ports import Model
from core.wire import Call, HttpRequest, Router
from handler.edge.app import App

log = logging.getLogger(__name__)
RESTORE_SECONDS: Final = 8.0
"""Lambda gives what runs after a restore 10."""
LENGTH_PREFIX: Final = 4
"""Bytes before each string; all of them zero, it is empty."""
HOOKS: Final = "snapshot_restore_py"
"""The module of Lambda's runtime (and of PyPI) that keeps what is to run around a snapshot."""


def warm(app: App) -> None:
    """One inference of each loaded model, which nobody asked for and nobody counts: the first is the slowest.

    Models whose settings have a warm-up have had it when they were loaded.
    """
    for version in app.registry.known():
        loaded = version.loaded
        if loaded is None or loaded.model.spec.inputs is None or version.listing.said.warmup:
            continue
        try:
            _infer(loaded.model)
        except ServingError as error:  # zeros need not suit a model
            log.info("model %s was not warmed up: %s", version.name, error.message)


def _infer(model: Model) -> None:
    spec = model.spec
    path = f"/v2/models/{spec.name}/versions/{spec.version}/infer"
    route, values = Router(DIALECTS[0]).find("POST", path)
    headers, body = request(spec)
    operation, reply = route.decode(Call(HttpRequest("POST", path, headers, body), values))
    reply(ask(operation, model))


def request(spec: ModelSpec) -> tuple[dict[bytes, bytes], bytes]:
    """Headers and body of a V2 inference of zeros and empty strings, of the least size that the model says it takes."""
    inputs, size = [], 0
    for tensor in spec.inputs or ():
        shape = [1] if tensor.shape is None else [max(1, length) for length in tensor.shape]
        width = LENGTH_PREFIX if tensor.datatype.is_bytes else tensor.datatype.numpy.itemsize
        data = math.prod(shape) * width
        size += data
        binary = {"binary_data_size": data}
        inputs.append({"name": tensor.name, "datatype": tensor.datatype.name, "shape": shape, "parameters": binary})
    head = orjson.dumps({"inputs": inputs})
    return {b"inference-header-content-length": b"%d" % len(head)}, head + bytes(size)


def watch(app: App) -> None:
    """Have Lambda call `before` and `after` around the snapshot that it takes."""
    try:
        hooks: Any = importlib.import_module(HOOKS)
    except ImportError:
        log.warning("%s is not there: this runtime takes no snapshots", HOOKS)
        return
    hooks.register_before_snapshot(before, app)
    hooks.register_after_restore(after, app)


def before(app: App) -> None:
    """Leave in memory what every instance needs, and nothing that only one can have."""
    warm(app)
    app.registry.disconnect()
    gc.collect()
    gc.freeze()


def after(app: App) -> None:
    """Differ from the other instances of the snapshot, and catch up with the repository."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    app.restored(within(RESTORE_SECONDS, init=True))

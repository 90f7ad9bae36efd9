"""Preparation of instances that Lambda starts before any request comes: provisioned ones, and snapshots.

SnapStart takes one snapshot of an initialised instance when a version is published. Every instance continues from it,
perhaps weeks later: with the same memory, the same random numbers to come, and connections that are long gone.
"""

import gc
import importlib
import logging
import math
import random
import sys
from functools import partial
from typing import Any, Final

import orjson

from core.deadline import within
from core.dialects import DIALECTS
from core.engine import ask
from core.errors import ServingError
from core.operations import ModelSpec
from core.ports import Model
from core.wire import Call, HttpRequest, Router
from handler.backends.runs import limited
from handler.edge.app import App
from handler.edge.dispatch.limits import late

log = logging.getLogger(__name__)
RESTORE_SECONDS: Final = 8.0
"""Lambda permits 10 for the hooks after a restore."""
LENGTH_PREFIX: Final = 4
"""Bytes before each string. If all of them are zero, the string is empty."""
HOOKS: Final = "snapshot_restore_py"
"""The module of Lambda's runtime (and of PyPI) that keeps the hooks around a snapshot."""


def warm(app: App) -> None:
    """Runs one uncounted inference of each loaded model, because the first one is the slowest.

    Models whose settings have a warm-up ran it when they were loaded.
    """
    for version in app.registry.known():
        loaded = version.loaded
        if loaded is None or loaded.model.spec.inputs is None or version.listing.said.warmup:
            continue
        try:
            model, limit = loaded.model, app.settings.timeout
            limited(
                partial(_infer, model),
                model.spec.timeout or limit,
                partial(late, model.spec, model.spec.version, limit),
            )
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
    """Returns the headers and body of a V2 inference: zeros and empty strings, in the model's smallest shapes."""
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
    """Registers `before` and `after`, which Lambda calls around the snapshot."""
    try:
        hooks: Any = importlib.import_module(HOOKS)
    except ImportError:
        log.warning("%s is not there: this runtime takes no snapshots", HOOKS)
        return
    hooks.register_before_snapshot(before, app)
    hooks.register_after_restore(after, app)


def before(app: App) -> None:
    """Prepares the memory that every instance needs, and ends the connections that only one can have."""
    warm(app)
    app.registry.disconnect()
    gc.collect()
    gc.freeze()


def after(app: App) -> None:
    """Seeds the random numbers anew, unlike the snapshot's other instances, and catches up with the repository."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    app.restored(within(RESTORE_SECONDS, init=True))

"""Preparation of instances that Lambda starts before any request comes: provisioned ones, and snapshots.

SnapStart takes one snapshot of an initialised instance when a version is published. Every instance continues from it,
perhaps weeks later: with the same memory, the same random numbers to come, and connections that are long gone.
"""

import asyncio
import gc
import importlib
import logging
import math
import random
import sys
import time
from functools import partial
from typing import Any, Final

import orjson

from core.deadline import within
from core.dialects import DIALECTS
from core.engine import ask
from core.errors import ServingError
from core.operations import ModelSpec
from core.ports import Model
from core.router import Router
from core.wire import Call, HttpRequest
from handler.backends.runs import limited
from handler.edge.app import App
from handler.edge.dispatch.limits import late
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.gate.origins import is_local
from handler.edge.observe.record import draw
from handler.lifecycle.single_flight import Background

log = logging.getLogger(__name__)
RESTORE_SECONDS: Final = 8.0
"""Lambda permits 10 for the hooks after a restore."""
LENGTH_PREFIX: Final = 4
"""Bytes before each string. If all of them are zero, the string is empty."""
HOOKS: Final = "snapshot_restore_py"
"""The module of Lambda's runtime (and of PyPI) that keeps the hooks around a snapshot."""


FORWARDED: Final = frozenset((b"x-amzn-request-context", b"x-amzn-lambda-context"))
"""The headers that Lambda Web Adapter adds to the requests of clients, and not to its own."""
LOOK_SECONDS: Final = 0.05
LOAD_SECONDS: Final = 120.0
"""Seconds that models which are preloaded have before a snapshot."""


class HookedApp:
    """The application behind Lambda Web Adapter, which calls the hooks around a snapshot over HTTP.

    Each answers once, in its turn, and to the adapter alone: to anybody else their paths are nothing. Its whole answer
    is the status. `served`: answers all else. Source: https://github.com/aws/aws-lambda-web-adapter/releases/tag/v1.1.0.
    """

    def __init__(self, app: App, served: Any) -> None:
        self._app = app
        self._served = served
        steps = zip(app.settings.contract.hooks, (before, after), strict=True)
        self._due = [(path, step) for path, step in steps if path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._due or scope["type"] != "http" or not self._is_due(scope):
            await self._served(scope, receive, send)
            return
        _, step = self._due[0]
        status = 503
        if await self._has_loaded():
            await asyncio.to_thread(step, self._app)
            self._due.pop(0)
            status = 200
        await send({"type": "http.response.start", "status": status, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def _is_due(self, scope: Scope) -> bool:
        path = scope["path"] if scope["path"] == "/" else scope["path"].removesuffix("/")
        if scope["method"] != "POST" or path != self._due[0][0]:
            return False
        return is_local(scope) and FORWARDED.isdisjoint(name for name, _ in scope["headers"])

    async def _has_loaded(self) -> bool:
        """Waits for the models that are preloaded. Returns False if they take too long, or cannot be loaded."""
        until = time.monotonic() + LOAD_SECONDS
        while time.monotonic() < until:
            if (await asyncio.to_thread(self._app.registry.ready, Background())).ready:
                return True
            await asyncio.sleep(LOOK_SECONDS)
        return False


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
    """Seeds random numbers and ids anew, unlike the snapshot's other instances, and catches up with the repository."""
    random.seed()
    draw()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()
    app.restored(within(RESTORE_SECONDS, init=True))

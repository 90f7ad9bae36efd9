"""The application for `uvicorn handler.asgi:app`, configured by the environment, and for `dragoman serve`."""

import logging
from collections.abc import Callable
from typing import Any

from handler.edge import log_lines
from handler.edge.app import App
from handler.edge.jobs import ServedModels
from handler.lifecycle.registry import Registry
from handler.lifecycle.room.memory import give_back_when_idle, keep_large_blocks
from handler.settings import Settings, hosts
from handler.settings.sources import ignored

log = logging.getLogger(__name__)


def create(settings: Settings | None = None, shared: Callable[[Registry], ServedModels] | None = None) -> App:
    """Makes the application. `settings`: the environment's by default. `shared`: see App. Raises InvalidSettings."""
    settings = Settings.from_env() if settings is None else settings
    log_lines.begin(settings.log_level, settings.log_format)
    for line in ignored():
        log.warning(line)
    if found := hosts.line(settings.contract):
        log.info(found)
    keep_large_blocks()
    give_back_when_idle()
    return App(settings, shared=shared)


def hooked(app: App, served: Any = None) -> Any:
    """Returns the application as its platform calls it: behind Lambda Web Adapter with events, and hooks if it has any.

    `served`: what answers all else, such as the application beside a gRPC server; default: the application.
    """
    contract, served = app.settings.contract, served or app
    if contract.events:
        from handler.edge.batch.passed_on import PassedEvents  # noqa: PLC0415 - behind Lambda Web Adapter only

        served = PassedEvents(app, served)
    if any(contract.hooks):
        from handler.edge.snapshots import HookedApp  # noqa: PLC0415 - the same

        served = HookedApp(app, served)
    return served


def __getattr__(name: str) -> Any:
    """Makes `app` when it is asked for: `dragoman serve` makes an application from other settings."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    made = globals()["app"] = hooked(create())
    return made

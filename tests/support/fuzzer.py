"""schemathesis over the application.

Its import takes 1.5 s, which every process that collects tests would spend, so functions import it.
"""

from typing import Any, Final

from handler.edge.app import App

POSITIVE: Final = "positive"
NEGATIVE: Final = "negative"
MODES: Final = (POSITIVE, NEGATIVE)
"""Requests that a description allows, and those that it forbids."""


def described(app: App, config: dict[str, Any]) -> Any:
    """Returns what schemathesis reads of the application's description; `config` has the names of its file."""
    import schemathesis  # noqa: PLC0415
    from schemathesis.config import SchemathesisConfig  # noqa: PLC0415

    return schemathesis.openapi.from_asgi("/openapi.json", app, config=SchemathesisConfig.from_dict(config))


def requests(operation: Any, mode: str, **fixed: Any) -> Any:
    """Returns a strategy for an operation's requests of one of the MODES, with parts that are fixed."""
    from schemathesis import GenerationMode  # noqa: PLC0415

    return operation.as_strategy(generation_mode=GenerationMode(mode), **fixed)

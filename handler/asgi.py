"""The application for `uvicorn handler.asgi:app`, configured by the environment."""

from handler.edge import log_lines
from handler.edge.app import App
from handler.lifecycle.memory import give_back_when_idle, keep_large_blocks
from handler.settings import Settings


def create() -> App:
    """Makes the application. Raises InvalidSettings."""
    settings = Settings.from_env()
    log_lines.begin(settings.log_level, settings.log_format)
    keep_large_blocks()
    give_back_when_idle()
    return App(settings)


app = create()

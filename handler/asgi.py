"""The application for `uvicorn handler.asgi:app`, configured by the environment."""

import logging

from handler.edge.app import App
from handler.lifecycle.memory import keep_large_blocks
from handler.settings import Settings


def create() -> App:
    """Makes the application. Raises InvalidSettings."""
    settings = Settings.from_env()
    logging.basicConfig(level=settings.log_level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    keep_large_blocks()
    return App(settings)


app = create()

"""The application for `uvicorn dragoman.asgi:app`; see handler.asgi."""

from handler.asgi import app

__all__ = ["app"]

"""The application below a stage, as API Gateway has it: the path holds it, and root_path names it."""

from typing import Any

from handler.asgi import app as below

STAGE = "/Prod"


async def app(scope: Any, receive: Any, send: Any) -> None:
    """Passes requests below the stage on, and answers others with 404: a link that has left the stage."""
    if scope["type"] != "http":
        await below(scope, receive, send)
    elif scope["path"] == STAGE or scope["path"].startswith(STAGE + "/"):
        path = STAGE + "/" if scope["path"] == STAGE else scope["path"]  # the gateway's event has / for either
        await below({**scope, "path": path, "root_path": STAGE}, receive, send)
    else:
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

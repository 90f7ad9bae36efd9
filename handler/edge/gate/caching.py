"""What caches may store of the answers to callers with a credential: nothing, unless an answer says otherwise."""

from typing import Any, Final

from handler.edge.exchange import Send

CACHING: Final = b"cache-control"


def unstored(send: Send) -> Send:
    """Wraps `send`: answers without Cache-Control get one that forbids caches to store them.

    RFC 9111 3.5 forbids shared caches to store answers to Authorization. They do not know x-api-key.
    """

    async def sending(message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = list(message.get("headers", ()))
            own = any(name == CACHING for name, _ in headers)
            message["headers"] = headers if own else [*headers, (CACHING, b"no-store")]
        await send(message)

    return sending

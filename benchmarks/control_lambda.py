"""The control of ours on Lambda: raw ASGI, Mangum and numpy only."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import numpy as np
from mangum import Mangum

Message = MutableMapping[str, Any]


async def app(
    _: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b'{"live":%s}' % str(bool(np.True_)).lower().encode()})


lambda_handler = Mangum(app, lifespan="off")

"""The time limit for the bodies of HTTP/2 requests, which uvicorn does not have."""

import asyncio
from collections.abc import MutableMapping
from typing import Any

from handler.edge.exchange import UNPACED_KEY, Receive, Scope, Send
from handler.edge.server.h2.calls import is_call
from handler.edge.server.limits import Limits, WaitLimit
from handler.edge.server.refusals import LATE


class Paced:
    """An application whose clients have to go on with a body: `limits` says how fast."""

    def __init__(self, app: Any, limits: Limits) -> None:
        self._app = app
        self._limits = limits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if is_call(scope):
            await self._app(scope, receive, send)
            return
        body = _Body(receive, send, self._limits)
        scope[UNPACED_KEY] = body.let_go
        await self._app(scope, body.receive, body.send)
        if body.is_late:
            await LATE.at(scope["path"].encode())(scope, receive, send)


class _Body:
    """One body. `is_late`: it stopped before its end, and nothing has been answered."""

    def __init__(self, receive: Receive, send: Send, limits: Limits) -> None:
        self._receive = receive
        self._send = send
        self._wait = WaitLimit(limits.pause, limits.least)
        self._is_paced = True
        self._has_answer = False
        self._stopped = False

    @property
    def is_late(self) -> bool:
        return self._stopped and not self._has_answer

    async def receive(self) -> MutableMapping[str, Any]:
        if not self._is_paced:
            return await self._receive()
        begun = asyncio.get_running_loop().time()
        try:
            async with asyncio.timeout(self._wait.left):
                message = await self._receive()
        except TimeoutError:
            self._stopped = True
            message = {"type": "http.disconnect"}
        self._wait.count(len(message.get("body", b"")), asyncio.get_running_loop().time() - begun)
        self._is_paced = message.get("more_body", False)
        return message

    def let_go(self) -> None:
        """Ends the limit, for a stream whose client decides when it sends."""
        self._is_paced = False

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self._has_answer = True
        await self._send(message)

"""HTTP/2 beside HTTP/1.1 on one port, for `dragoman serve --http2`."""

from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from handler.edge.server.h2.connection import BoundedHttp2
from handler.edge.server.h2.resets import PREFACE
from handler.edge.server.protocol import BoundedHttp


class EitherHttp(BoundedHttp):
    """A connection of HTTP/1.1 or HTTP/2: its first bytes tell."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, Any], _loop: Any = None) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._begun = b""
        self._is_known = False

    def data_received(self, data: bytes) -> None:
        if not self._is_known:
            data = self._begun + data
            if len(data) < len(PREFACE) and PREFACE.startswith(data):
                self._begun = data
                self.received = len(data)
                return
            self._is_known, self.received = True, 0
            if data.startswith(PREFACE):
                self._switch(data)
                return
        super().data_received(data)

    def _switch(self, data: bytes) -> None:
        """Leaves the connection to the protocol of HTTP/2."""
        other = BoundedHttp2(self.config, self.server_state, self.app_state, self.loop, self.limits)
        self.connections.discard(self)
        transport = self.joined.raw
        transport.set_protocol(other)
        other.connection_made(transport)
        other.data_received(data)

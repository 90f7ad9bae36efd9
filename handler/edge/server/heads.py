"""What the headers of a request say of how it can be answered."""

from typing import Final

from handler.edge.server.refusals import HOST, HOSTS, OTHER_CODING, OTHER_VERSION, WEBSOCKET, WRONG_HOST, Refusal

NOTED: Final = frozenset((b"expect", b"host", b"transfer-encoding", b"upgrade"))
"""The headers that `HeadNotes.take` is for."""


class HeadNotes:
    """Notes of the head that is being parsed.

    `hosts`: its Host headers; `host`: the last valid one of the connection; `expects`: its client waits for
    100 (Continue); `odd`: why it is perhaps refused.
    """

    __slots__ = ("expects", "host", "hosts", "odd")

    def __init__(self) -> None:
        self.host = b""
        self.reset()

    def reset(self) -> None:
        self.hosts = 0
        self.expects = False
        self.odd: Refusal | None = None

    def take(self, name: bytes, value: bytes) -> None:
        """Notes a header. `name`: one of NOTED; both in lower case."""
        if name == b"host":
            self.hosts += 1
            if value != self.host:
                self._check(value)
        elif name == b"expect":
            self.expects = value == b"100-continue"
        elif name == b"transfer-encoding" and value != b"chunked":
            self.odd = OTHER_CODING
        elif name == b"upgrade" and value == b"websocket":
            self.odd = self.odd or WEBSOCKET  # perhaps it is not an upgrade after all

    def _check(self, host: bytes) -> None:
        """Notes a Host header. Clients repeat it."""
        if HOST.fullmatch(host):
            self.host = host
        else:
            self.odd = WRONG_HOST  # RFC 9112 3.2

    def refusal(self, version: str, *, upgrades: bool) -> Refusal | None:
        """Returns why a request of this version of HTTP is refused. `upgrades`: it really asks for another protocol."""
        if version not in ("1.1", "1.0"):
            return OTHER_VERSION
        if self.hosts > 1 or (version == "1.1" and not self.hosts):  # RFC 9112 3.2
            return HOSTS
        return self.odd if self.odd is not WEBSOCKET or upgrades else None

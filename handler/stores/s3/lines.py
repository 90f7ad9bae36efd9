"""How one thread ends what another waits for: nothing but the end of its socket ends a read of the network."""

import socket
import threading
from contextlib import suppress


class Line:
    """The connection that a thread waits on, from when it asks until the answer is closed."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._is_cut = False
        self._lock = threading.Lock()

    def hold(self, its_socket: socket.socket | None) -> None:
        """Wait on this one from now on; None: on none."""
        with self._lock:
            self._socket = its_socket
            self._end()

    def cut(self) -> None:
        """Whatever is waited for breaks off, now and later."""
        with self._lock:
            self._is_cut = True
            self._end()

    def _end(self) -> None:
        if self._is_cut and self._socket is not None:
            with suppress(OSError):
                # Not SSLSocket's own, after which a request that is being written would go on in plain text.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

"""What a process that a model's code forks does not keep of the server: its signals, its port, its connections."""

import os
import signal
import socket
from contextlib import suppress
from typing import Any, Final

OPEN: Final = "/dev/fd"
"""The folder that has a name for each open descriptor of the process that reads it, on Linux and macOS."""
PORTS: Final[set[int]] = set()
"""The ports of `dragoman serve`. Under another server they are not known: each port that listens counts as one."""


def _take_signals() -> None:
    """Lets signals end the process: the server's handlers would only note them.

    multiprocessing ends the processes of a pool by SIGTERM, and waits for them.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)


def _leave_sockets() -> None:
    """Closes the copies of the sockets that listen for the server, and of the connections that came through them.

    A connection ends when its last copy is closed: clients would send their next requests to nobody, and after the
    server's end its port would still be taken. /dev/null takes each number, because an object may close it later.
    """
    sockets = _sockets()
    ports = PORTS or {port for port, listens in sockets.values() if listens}
    nothing = os.open(os.devnull, os.O_RDWR)
    for number, (port, _) in sockets.items():
        if port in ports:
            os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _sockets() -> dict[int, tuple[Any, bool]]:
    """Returns the port, or the path, of each open socket, and whether it listens."""
    found = {}
    for name in os.listdir(OPEN):  # noqa: PTH208 - names, and no paths to take them from
        with suppress(OSError):  # it is not a socket
            one = socket.socket(fileno=int(name))
            try:
                address = one.getsockname()
                port = address[1] if isinstance(address, tuple) else address
                found[int(name)] = port, bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            finally:
                one.detach()
    return found


def end_unless(process: int) -> None:
    """Ends this process if it is another one: it would go on as a second server."""
    if os.getpid() != process:
        os._exit(0)


os.register_at_fork(after_in_child=_take_signals)
os.register_at_fork(after_in_child=_leave_sockets)

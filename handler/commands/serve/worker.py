"""One worker of `dragoman serve --workers N`: `worker.py ROLE`, started by the supervisor.

ROLE is a JSON object: the worker's `number`, the `folder` of the workers' sockets, whether the worker `announces` the
server, and `how` to serve. The environment has the settings of the whole server.
"""

import json
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import uvicorn

from handler import asgi
from handler.commands import entry, output
from handler.commands.serve import server, welcome
from handler.edge.peers.joining import join
from handler.edge.peers.models import SharedModels
from handler.edge.peers.own import OwnModels
from handler.edge.peers.shares import share
from handler.edge.peers.sockets import Desk, Peers
from handler.lifecycle.registry import Registry
from handler.settings import InvalidSettings, Settings

LAST_SECONDS: Final = 30.0
"""A worker whose supervisor has gone ends within this time, whatever it works on."""
LISTENS: Final = b"1"


class AnnouncedServer(uvicorn.Server):
    """uvicorn's server. `announce`: called once it takes requests."""

    def __init__(self, config: uvicorn.Config, announce: Callable[[], object]) -> None:
        super().__init__(config)
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._announce()


def serve(role: dict[str, Any], supervisor: socket.socket) -> int:
    """Becomes like the other workers, and then serves until a signal. Raises InvalidSettings."""
    settings = share(Settings.from_env())
    file = role["how"]["file"]
    how = server.Serving(**{**role["how"], "file": file and Path(file)})
    peers = Peers(Path(role["folder"]), f"{role['number']}-{os.getpid()}")
    app = asgi.create(settings, partial(_shared, peers))
    say: Callable[[], None] = _nothing
    if role["announces"]:
        seen = welcome.look(app, settings, waits=how.on_empty == "stop")
        if how.on_empty == "stop" and not seen.models:
            app.close()
            raise InvalidSettings(seen.problem)
        say = server.welcomed(seen, settings, how)
    own = OwnModels(app.registry, app.observer.publish)
    Desk(peers.socket, own.verbs)
    app.observer.gather = partial(peers.ask, "publish")
    app.observer.publish()
    join(app.registry, peers)
    own.serve()
    served = server.with_grpc(app, how)
    announce = partial(supervisor.send, LISTENS)
    return server.run(served, settings, how, say, partial(AnnouncedServer, announce=announce))


def _shared(peers: Peers, registry: Registry) -> SharedModels:
    return SharedModels(registry, peers)


def _nothing() -> None:
    """Another worker has announced the server."""


def _watch(supervisor: socket.socket, folder: str) -> None:
    """Ends this process when the supervisor has ended, which could not do so itself."""
    with suppress(OSError):
        while supervisor.recv(1):
            pass
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(LAST_SECONDS)
    os._exit(server.NOT_STARTED)


def main(text: str) -> int:
    role = json.loads(text)
    supervisor = socket.socket(fileno=os.dup(0))
    with open(os.devnull) as nothing:  # noqa: PTH123 - a device
        os.dup2(nothing.fileno(), 0)
    threading.Thread(target=_watch, args=(supervisor, role["folder"]), name="dragoman-end", daemon=True).start()
    output.prepare()
    try:
        return entry.run(partial(serve, role, supervisor))
    except OSError as error:
        return entry.fail(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))

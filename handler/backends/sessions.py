"""Opens ONNX Runtime's sessions: one for most models, two in turn for a model that was optimised before it was pushed.

The first one takes the graph as it is, and multiplies by the weights where the mapped file has them. It answers after
0.2 to 0.3 of the time of a usual load, and takes a fifth to a quarter longer for each answer (benchmarks/loading.py).
The second one is a usual session, made when the model has answered for the first time. The packed session alone would
take 0.5 to 0.7.
"""

import errno
import logging
import math
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from core.records import NamedTuple
from handler.backends import Source
from handler.settings import Settings
from handler.settings.providers import CPU

log = logging.getLogger(__name__)


class SessionUser(Protocol):
    """What answers with a session, until it gets a better one."""

    def take(self, session: Any) -> None: ...


def _in_utf8(path: Path) -> str:
    """Returns a path as ONNX Runtime takes it, whatever the locale. Raises OSError for one that is not UTF-8."""
    try:
        return os.fsencode(path).decode()
    except UnicodeDecodeError:
        told = "the name of its folder, or of one above, is not UTF-8, which ONNX Runtime needs: rename it"
        raise OSError(errno.EILSEQ, told) from None


class Opening(NamedTuple):
    """How to open the sessions of one model. `providers`: the execution providers to ask for.

    `library`: the path of more operators, "" without any.
    """

    runtime: Any
    path: Path
    settings: Settings
    providers: Sequence[str]
    library: str = ""

    def usual(self) -> Any:
        """Opens a session that is optimised for this machine. Raises ONNX Runtime's errors."""
        return self._open(self._options())

    def quick(self) -> Any:
        """Opens the first session of a model that was optimised before. Raises ONNX Runtime's errors."""
        options = self._options()
        options.graph_optimization_level = self.runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        # Packing copies each weight into the order in which the processor multiplies by it.
        options.add_session_config_entry("session.disable_prepacking", "1")
        return self._open(options)

    def _open(self, options: Any) -> Any:
        # For a file that the CPU refuses, it would try the CPU again, and print the file's bytes.
        fallback = {"enable_fallback": 0} if self.providers is CPU else {}
        return self.runtime.InferenceSession(_in_utf8(self.path), options, providers=self.providers, **fallback)

    def _options(self) -> Any:
        options = self.runtime.SessionOptions()
        if self.library:
            options.register_custom_ops_library(self.library)
        options.intra_op_num_threads = max(1, math.ceil(self.settings.cpus))
        options.inter_op_num_threads = 1
        # What fails is raised. At 3, each request that a model fails on is a line on stderr, beside the log.
        options.log_severity_level = 4
        # On Lambda, spinning threads use up the CPU share; elsewhere they take it from other requests.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        return options


def replacement(opening: Opening, source: Source, user: SessionUser) -> Callable[[], None]:
    """Returns the function that has the usual session made in the background, and given to its user."""
    later = source.later
    assert later is not None  # noqa: S101 - without it the first session is a usual one
    size = sum(file.stat().st_size for file in source.folder.iterdir() if file.is_file())
    name, found = f"model {source.name} version {source.version}", weakref.ref(user)
    return lambda: later(lambda: _replace(opening, name, found), size)


def _replace(opening: Opening, name: str, found: "weakref.ref[SessionUser]") -> None:
    if found() is None:  # it was unloaded
        return
    try:
        session = opening.usual()
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's own classes have no common base
        log.warning("%s keeps its first session: %s", name, " ".join(str(error).split()))
        return
    user = found()
    if user is not None:
        user.take(session)
        log.info("%s has its packed session", name)

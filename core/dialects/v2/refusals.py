"""The texts of failures for V2's clients, over REST and over remote calls.

Clients and test suites of Triton match on its words for unknown models. Of Triton's extensions that are not offered, a
client is told what is missing, and not only that a path or a method is.
Sources: Triton core's model_lifecycle.cc and model_repository_manager.cc, its extension documents for shared memory,
trace and logging.
"""

from typing import Final

from core.encoding import jsonio
from core.errors import SHOWN_CHARACTERS, ModelNotFound, ServingError, VersionNotFound, shown
from core.wire import JSON, HttpResponse, RouteNotFound, headers_of, status_of

SHARED_MEMORY: Final = (
    "shared memory is not offered: this server shares none with its clients; send tensors in requests"
)
TRACE: Final = "trace settings are not offered: the header Server-Timing says where the time of a request went"
LOGGING: Final = "log settings are not offered to clients: the operator sets DRAGOMAN_LOG_LEVEL"
METHODS: Final = {
    **{
        f"{kind}SharedMemory{verb}": SHARED_MEMORY
        for kind in ("System", "Cuda")
        for verb in ("Status", "Register", "Unregister")
    },
    "TraceSetting": TRACE,
    "LogSettings": LOGGING,
}
"""The remote calls of Triton's service that are not offered."""
FOLDERS: Final = {"systemsharedmemory": SHARED_MEMORY, "cudasharedmemory": SHARED_MEMORY, "logging": LOGGING}
"""The same of REST, by the first segment of a path below /v2."""


def refuse(error: ServingError, _method: str = "", path: str = "") -> HttpResponse:
    """Returns a refusal, which is {"error": text} for every failure of this protocol."""
    told = worded(error).message
    if isinstance(error, RouteNotFound):
        told = _absent(path) or told
    return HttpResponse(status_of(error), (JSON, *headers_of(error)), (jsonio.dumps({"error": told}),))


def worded(error: ServingError) -> ServingError:
    """Returns an error in Triton's words, if it is that of an unknown model or version."""
    if isinstance(error, ModelNotFound) and error.model is not None:
        return ModelNotFound(f"Request for unknown model: {shown(error.model)} is not found{_more(error.hint)}")
    if isinstance(error, VersionNotFound) and error.model is not None:
        is_plain = error.version.isdecimal() and len(error.version) < SHOWN_CHARACTERS
        version = error.version if is_plain else shown(error.version)
        unknown = f"{shown(error.model)} version {version}"
        return VersionNotFound(f"Request for unknown model: {unknown} is not found{_more(error.hint)}", error.version)
    return error


def _more(hint: str) -> str:
    return f": {hint}" if hint else ""


def _absent(path: str) -> str | None:
    """Returns why there is nothing at a path of one of Triton's extensions."""
    segments = path.strip("/").split("/")
    if segments[-2:] == ["trace", "setting"]:
        return TRACE
    return FOLDERS.get(segments[1]) if len(segments) > 1 else None

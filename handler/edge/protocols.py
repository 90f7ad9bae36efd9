"""Which protocol a request speaks, where only its head is known: for refusing it in that protocol's form."""

from collections.abc import MutableMapping
from typing import Any, Final

from core.dialects import DIALECTS
from core.errors import ServingError
from core.wire import HttpResponse

Scope = MutableMapping[str, Any]
INTERNAL: Final = "internal error: the server's log has the details"
"""What a client is told of an exception that nobody foresaw."""


def path_of(scope: Scope) -> str:
    """The path below where the application is mounted: ASGI's path holds root_path, unless a gateway cut it off."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    return path[len(root) :] if root and path.startswith(root + "/") else path


def is_rpc(path: str) -> bool:
    """Whether it is /package.Service/Method."""
    service, _, method = path[1:].partition("/")
    return "." in service and "/" not in method and method != ""


def refuse(error: ServingError, scope: Scope) -> HttpResponse:
    method, path = scope["method"], path_of(scope)
    if is_rpc(path):
        from core.dialects.connect import protocol  # noqa: PLC0415 - nothing for who speaks REST alone

        return protocol.kind_of(dict(scope["headers"])).refuse(error)
    dialect = next((dialect for dialect in DIALECTS if dialect.owns(path)), DIALECTS[0])
    return dialect.refuse(error, method, path)

"""Chooses the protocol in whose format a request is refused before it was routed."""

from typing import Final

from core.dialects import DIALECTS
from core.errors import ServingError
from core.wire import HttpResponse
from handler.edge.exchange import Scope, path_of

INTERNAL: Final = "internal error: the server's log has the details"
"""The text that clients read for an unforeseen exception."""


def refuse(error: ServingError, scope: Scope) -> HttpResponse:
    """Returns the refusal in the format of the protocol that owns the request's path; V2's if none does."""
    method, (path, is_rpc) = scope["method"], path_of(scope)
    if is_rpc:
        from core.dialects.connect import protocol  # noqa: PLC0415 - not for servers whose clients speak REST alone

        return protocol.kind_of(dict(scope["headers"])).refuse(error)
    dialect = next((dialect for dialect in DIALECTS if dialect.owns(path)), DIALECTS[0])
    return dialect.refuse(error, method, path)

"""Chooses the protocols of a server, and the one in whose format a request is refused before it was routed."""

from typing import Final

from core.dialects import DIALECTS
from core.errors import ServingError
from core.wire import Dialect, HttpResponse
from handler.edge.exchange import Scope, path_of
from handler.settings.hosts import Contract

INTERNAL: Final = "internal error: the server's log has the details"
"""The text that clients read for an unforeseen exception."""


def dialects_of(contract: Contract) -> tuple[Dialect, ...]:
    """Returns the protocols that a server speaks: behind the routes of its platform, those of DIALECTS."""
    if not contract.infer:
        return DIALECTS
    from core.dialects.platforms.contract import dialects  # noqa: PLC0415 - for servers that a platform starts

    own = dialects(contract.health, contract.infer, contract.hosted, as_mlflow=contract.as_mlflow)
    return (*own, *DIALECTS)


def refuse(error: ServingError, scope: Scope) -> HttpResponse:
    """Returns the refusal in the format of the protocol that owns the request's path; V2's if none does."""
    method, (path, is_rpc) = scope["method"], path_of(scope)
    if is_rpc:
        from core.dialects.connect import protocol  # noqa: PLC0415 - not for servers whose clients speak REST alone

        return protocol.kind_of(dict(scope["headers"])).refuse(error)
    dialect = next((dialect for dialect in DIALECTS if dialect.owns(path)), DIALECTS[0])
    return dialect.refuse(error, method, path)

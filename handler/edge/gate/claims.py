"""The caller that an API Gateway authorizer, or IAM, has let through to the function: from requestContext alone.

Only the gateway, and principals with the permission to invoke the function, write the requestContext. A client's header
has no way into it.
"""

from collections.abc import Mapping
from typing import Any, Final

from core.errors import shown
from handler.edge.gate.identity import Caller, patterns, rights_of, scoped
from handler.edge.gate.tokens import models, scopes
from handler.settings import Settings

NAMES: Final = ("sub", "principalId", "userArn", "client_id")
SHOWN_NAME: Final = 128


def caller(event: Any, settings: Settings) -> Caller | None:
    """Returns the caller of an HTTP event, None if no authorizer has let it through. Raises Unauthenticated."""
    context = event.get("requestContext") if isinstance(event, Mapping) else None
    claims = _claims(context) if isinstance(context, Mapping) else None
    if claims is None:
        return None
    name = next((shown(claims[each], SHOWN_NAME) for each in NAMES if isinstance(claims.get(each), str)), "''")
    words = scopes(claims)
    mine = any(word.startswith(settings.jwt_scope_prefix) for word in words)
    rights = scoped(words, settings.jwt_scope_prefix) if mine else rights_of(settings.authorizer_rights)
    return Caller(f"authorized {name}", rights, patterns(models(claims)))


def _claims(context: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the authorizer's claims about the caller, None if there was no authorizer.

    HTTP APIs and Function URLs: {"jwt": {"claims"}}, {"lambda": context}, {"iam": {"userArn"}}. REST APIs: Cognito's
    {"claims"}, a function's {"principalId", ...}; IAM's caller is in `identity`.
    """
    authorizer = context.get("authorizer")
    if isinstance(authorizer, Mapping) and authorizer:
        jwt = authorizer.get("jwt")
        inner = jwt.get("claims") if isinstance(jwt, Mapping) else None
        for found in (_unflattened(inner), authorizer.get("iam"), authorizer.get("claims"), authorizer.get("lambda")):
            if isinstance(found, Mapping):
                return found
        return authorizer if "principalId" in authorizer else {} if "lambda" in authorizer else None
    identity = context.get("identity")
    if isinstance(identity, Mapping) and isinstance(identity.get("userArn"), str):
        return {"userArn": identity["userArn"]}
    return None


def _unflattened(claims: Any) -> Any:
    """Returns the claims of an HTTP API's JWT authorizer, with the lists that it has written as texts: "[a b]"."""
    if not isinstance(claims, Mapping):
        return None
    return {name: _list(value) if isinstance(value, str) else value for name, value in claims.items()}


def _list(text: str) -> str | list[str]:
    return text[1:-1].split() if text.startswith("[") and text.endswith("]") else text

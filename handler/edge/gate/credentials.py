"""Finds the credential of a request, and checks its form."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from core.errors import Unauthenticated
from core.wire import Header

AUTHORIZATION: Final = b"authorization"
API_KEY: Final = b"x-api-key"
NAMES: Final = frozenset((AUTHORIZATION, API_KEY))
LONGEST: Final = 16 * 1024
"""Bytes of a credential. A token with a hundred groups has 8 kB; a longer one is refused before it is hashed."""
TOKEN: Final = re.compile(rb"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750 2.1, b64token. It holds no comma, so two headers that a gateway has joined into one are refused."""
SCHEME: Final = b"bearer"


def sole(headers: Iterable[Header], gateways_key: bytes | None = None) -> Header | None:
    """Returns the header with the request's credential, None if there is none. Raises Unauthenticated for two.

    `gateways_key`: the value of x-api-key that a gateway has taken for itself, and that is not a credential here.
    """
    found = [(name, value) for name, value in headers if name in NAMES and (name, value) != (API_KEY, gateways_key)]
    if len(found) > 1:
        raise Unauthenticated("the request has more than one credential; send Authorization or x-api-key, once")
    return found[0] if found else None


def credential(header: Header) -> bytes:
    """Returns the key or token in a header. Raises Unauthenticated."""
    name, value = header
    if name == AUTHORIZATION:
        scheme, _, value = value.partition(b" ")
        if scheme.lower() != SCHEME:
            raise Unauthenticated("the Authorization header is not understood; expected Bearer and a key or a token")
        value = value.strip()
    if len(value) > LONGEST or not TOKEN.fullmatch(value):
        raise Unauthenticated("the credential is malformed; expected one key or one token")
    return value


def gateways_key(event: Any) -> bytes | None:
    """Returns the x-api-key that a REST API's usage plan has taken for itself. Here it is not a credential."""
    context = event.get("requestContext") if isinstance(event, Mapping) else None
    identity = context.get("identity") if isinstance(context, Mapping) else None
    key = identity.get("apiKey") if isinstance(identity, Mapping) else None
    return key.encode("utf-8", "replace") if isinstance(key, str) and key else None

"""The protocols, one package each, and THE table of those over HTTP."""

from typing import Final

from core.dialects.v2.http import SURFACE
from core.dialects.v2.infer import HEADER_LENGTH
from core.wire import JSON, Dialect, HttpResponse, Surface


def _openai() -> Surface:
    from core.dialects.openai import http  # noqa: PLC0415 - cold start of servers with other clients

    return http.SURFACE


def _v1() -> Surface:
    from core.dialects.v1 import http  # noqa: PLC0415 - as above

    return http.SURFACE


def _grps() -> Surface:
    from core.dialects.grps import http  # noqa: PLC0415 - as above

    return http.SURFACE


V2: Final = Dialect("v2", "/v2", lambda: SURFACE, json_length=HEADER_LENGTH)
OPENAI: Final = Dialect("openai", "/v1/embeddings", _openai, id_member="")
V1: Final = Dialect("v1", "/v1", _v1, any_case=True, root=HttpResponse(200, (JSON,), (b'{"status":"alive"}',)))
GRPS: Final = Dialect("grps", "/grps/v1", _grps, is_exact=True)
DIALECTS: Final = (V2, OPENAI, V1, GRPS)
"""The first one that owns a path answers: /v1/embeddings is not V1's."""


def refusing(path: str) -> Dialect:
    """Returns the protocol that phrases a refusal at a path: the one that owns it, V2 if none does."""
    return next((dialect for dialect in DIALECTS if dialect.owns(path)), V2)

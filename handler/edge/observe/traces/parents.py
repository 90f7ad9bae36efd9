"""The span that a request continues: its caller's, from the request's headers, or Lambda's own."""

import re
from collections.abc import Mapping
from typing import Final

from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags

XRAY: Final = "x-amzn-trace-id"
INVOCATION: Final = "_X_AMZN_TRACE_ID"
"""The variable in which Lambda's runtime has the span of the current invocation, in the header's form."""
ROOT: Final = re.compile(r"1-([0-9a-f]{8})-([0-9a-f]{24})", re.IGNORECASE)
PARENT: Final = re.compile(r"[0-9a-f]{16}", re.IGNORECASE)
SAMPLED: Final = "1"


def parent_of(headers: Mapping[str, str], environ: Mapping[str, str]) -> Context:
    """Returns the context of the span that a request continues; an empty one if it begins a trace.

    Headers in the formats of OTEL_PROPAGATORS come first (by default W3C's `traceparent`), then Lambda's own span, then
    X-Ray's header. Lambda's own counts only if X-Ray records it: a function without X-Ray has one, too, and says that
    nothing of it is to be recorded.

    Headers of one name are one list here: `tracestate` may come in several parts, and two `traceparent` are not valid
    (W3C Trace Context 3.2, 3.3).
    """
    context = propagate.extract(headers, context=Context())
    if trace.get_current_span(context).get_span_context().is_valid:
        return context
    found = xray(environ.get(INVOCATION, ""))
    if found is None or not found.trace_flags.sampled:
        found = xray(headers.get(XRAY, "").partition(",")[0])
    return context if found is None else trace.set_span_in_context(NonRecordingSpan(found), context)


def xray(text: str) -> SpanContext | None:
    """Returns the span in X-Ray's header `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1`.

    None without a parent: load balancers name the root alone, and no span can be a child of that.
    """
    parts = dict(part.strip().partition("=")[::2] for part in text.split(";"))
    root, parent = ROOT.fullmatch(parts.get("Root", "")), PARENT.fullmatch(parts.get("Parent", ""))
    if root is None or parent is None:
        return None
    flags = TraceFlags(TraceFlags.SAMPLED if parts.get("Sampled") == SAMPLED else TraceFlags.DEFAULT)
    found = SpanContext(int(root[1] + root[2], 16), int(parent[0], 16), is_remote=True, trace_flags=flags)
    return found if found.is_valid else None

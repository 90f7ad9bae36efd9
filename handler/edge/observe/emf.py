"""A request's numbers for CloudWatch, in one line ("Specification: Embedded metric format").

Names and dimensions are those of Powertools for AWS Lambda: `service`, `function_name`, `ColdStart`.
"""

import os
import time
from typing import Any, Final

import orjson

from handler.edge.observe.access import Entry, phases

COUNT: Final = "Count"
MS: Final = "Milliseconds"
BYTES: Final = "Bytes"
DIMENSIONS: Final = ("service", "function_name")
LONGEST: Final = 1024
"""The most characters of a dimension's value."""


def line(entry: Entry, given: str, namespace: str, service: str, *, is_cold: bool) -> str:
    """Returns the line. `given`: the invocation's id. `service`: unless POWERTOOLS_SERVICE_NAME names another.

    `is_cold`: it is the first request of its instance.
    """
    _, _, _, status, protocol, model, version = entry.what
    metrics: dict[str, tuple[str, float]] = {
        "Requests": (COUNT, 1),
        "Refusals": (COUNT, int(entry.reason is not None)),
        "ColdStart": (COUNT, int(is_cold)),
        "Duration": (MS, round(entry.ns / 1e6, 3)),
        "BytesReceived": (BYTES, entry.received),
        "BytesSent": (BYTES, entry.sent),
    }
    steps = phases(entry.durations, entry.waits)
    metrics |= {f"{name.title()}Duration": (MS, round(ms, 3)) for name, ms in steps}
    definition = {
        "Namespace": namespace,
        "Dimensions": [list(DIMENSIONS)],
        "Metrics": [{"Name": name, "Unit": unit} for name, (unit, _) in metrics.items()],
    }
    found: dict[str, Any] = {
        "_aws": {"Timestamp": time.time_ns() // 1_000_000, "CloudWatchMetrics": [definition]},
        "service": (os.environ.get("POWERTOOLS_SERVICE_NAME") or service)[:LONGEST],
        "function_name": os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")[:LONGEST] or "unknown",
        "function_request_id": given,
        "correlation_id": entry.request_id.decode(),
        "cold_start": is_cold,
        "protocol": protocol,
        "status": str(status),
        "model": model[:LONGEST],
        "version": version[:LONGEST],
        **({"reason": entry.reason.fault} if entry.reason is not None else {}),
        **{name: value for name, (_, value) in metrics.items()},
    }
    return orjson.dumps(found).decode()

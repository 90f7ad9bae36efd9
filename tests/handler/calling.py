"""Lambda's side of an invocation: its context, and the events of HTTP requests."""

import json
from types import SimpleNamespace
from typing import Any


def context(seconds: float) -> Any:
    """Returns Lambda's context of an invocation with that much time left."""
    return SimpleNamespace(get_remaining_time_in_millis=lambda: int(seconds * 1e3), aws_request_id="r")


def http(method: str, path: str, body: str = "", **more: Any) -> dict[str, Any]:
    """Returns an HTTP API event, version 2.0."""
    request = {"http": {"method": method, "path": path, "sourceIp": "203.0.113.9"}, "stage": "$default"}
    return {"version": "2.0", "requestContext": request, "headers": {}, "body": body, **more}


def infer(path: str = "/v2/models/half_plus_three/infer", size: int = 1) -> dict[str, Any]:
    """Returns the event of an inference of so many elements."""
    x = {"name": "x", "shape": [size], "datatype": "FP32", "data": [1.0] * size}
    return http("POST", path, json.dumps({"inputs": [x]}))

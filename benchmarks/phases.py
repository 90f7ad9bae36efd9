"""Measures each step to the first answer. cold_start.py runs it in a fresh interpreter, in the function's artifact.

The arguments are the start of the process (seconds since 1970) and the event. It prints milliseconds by step as JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

STEPS: dict[str, float] = {}


def timed(step: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            STEPS[step] = STEPS.get(step, 0) + (time.perf_counter() - start) * 1e3

    return call


def main(started: float, event: Any) -> None:
    STEPS["interpreter"] = (time.time() - started) * 1e3
    begun = time.perf_counter()
    from handler.aws import lambda_handler  # noqa: PLC0415 - this import is measured

    STEPS["import"] = (time.perf_counter() - begun) * 1e3
    from handler.backends import onnx  # noqa: PLC0415
    from handler.lifecycle.repository import Repository  # noqa: PLC0415

    for name in ("look", "settings", "fetch"):
        setattr(Repository, name, timed("fetch", getattr(Repository, name)))
    onnx._runtime = timed("import onnxruntime", onnx._runtime)  # noqa: SLF001 - import and load have no public seam
    onnx.load = timed("load", onnx.load)
    answer = timed("first request", lambda_handler)(event, None)
    if answer["statusCode"] != 200:
        raise RuntimeError(answer["body"])
    STEPS["load"] -= STEPS["import onnxruntime"]
    STEPS["infer"] = STEPS["first request"] - STEPS["fetch"] - STEPS["load"] - STEPS["import onnxruntime"]
    timed("second request", lambda_handler)(event, None)
    print(json.dumps(STEPS))


main(float(sys.argv[1]), json.loads(sys.argv[2]))

"""Our own runtime for AWS Lambda, in images and on `provided` runtimes: `python -m dragoman.runtime`."""

import asyncio
import gc
import signal
import sys
import time
from typing import Any

from handler.edge.runtime.loop import main

BEGAN = time.monotonic()


def function(carrier: Any) -> Any:
    """Makes the function."""
    from handler.aws import Function  # noqa: PLC0415 - the loop reports a failed import to Lambda

    made = Function(began=BEGAN, carrier=carrier)
    gc.freeze()  # what exists now lives as long as the process
    return made


def run() -> int:
    """Runs the function until the process gets SIGTERM. Returns an exit code."""
    loop = asyncio.new_event_loop()
    loop.add_signal_handler(signal.SIGTERM, loop.stop)
    return main(function, loop)


if __name__ == "__main__":
    sys.exit(run())

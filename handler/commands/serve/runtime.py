"""The process of `serve --lambda` that runs `handler.aws.lambda_handler`, in place of Lambda's own runtime.

It reads an event with its context from one pipe, and writes the answer to another. What the function prints goes to
stderr, with the log.
"""

import json
import logging
import os
import resource
import select
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any


class InvocationContext:
    """The members of Lambda's context that a function reads."""

    def __init__(self, members: dict[str, Any]) -> None:
        self.aws_request_id: str = members["request_id"]
        self.function_name: str = members["function"]
        self.function_version = "$LATEST"
        self.invoked_function_arn = f"arn:aws:lambda:us-east-1:000000000000:function:{self.function_name}"
        self.memory_limit_in_mb = os.environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
        self._end = time.monotonic() + members["seconds"]

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self._end - time.monotonic()) * 1000))


def main(reads: int, writes: int) -> None:
    """Serves until the pipe ends."""
    began = time.monotonic()
    from handler.edge import log_lines  # noqa: PLC0415 - a part of the init phase

    logging.basicConfig(format=log_lines.TEXT)  # Lambda's runtime has a handler, too
    questions, answers = Connection(reads, writable=False), Connection(writes, readable=False)
    from handler.aws import lambda_handler  # noqa: PLC0415 - the init phase, which is timed

    answers.send_bytes(json.dumps({"init": time.monotonic() - began}).encode())
    while True:
        try:
            question = json.loads(questions.recv_bytes())
        except EOFError:
            return
        answers.send_bytes(_answer(lambda_handler, question))


def _answer(function: Any, question: dict[str, Any]) -> bytes:
    """Returns the memory's peak in MB and what the function returns, or why it does not, in the runtime's words."""
    try:
        found = {"answer": function(question["event"], InvocationContext(question["context"]))}
    except Exception as error:  # noqa: BLE001 - whatever a function raises is its answer
        found = {"errorType": type(error).__name__, "errorMessage": str(error)}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return json.dumps(found | {"peak": peak}, ensure_ascii=False).encode()


def _watch(reads: int) -> None:
    """Ends this process when the server has ended, however that happened, and whatever the function does."""
    server = select.poll()
    server.register(reads, 0)  # poll always reports the end of a pipe
    server.poll()
    os._exit(1)


if __name__ == "__main__":
    os.dup2(2, 1)
    threading.Thread(target=_watch, args=(int(sys.argv[1]),), name="dragoman-end", daemon=True).start()
    main(int(sys.argv[1]), int(sys.argv[2]))

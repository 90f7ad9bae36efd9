"""Runtimes in the deployed artifact, with a Runtime API of our own making: ours, and Lambda's own as the oracle."""

import contextlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.e2e.tools import HOME, RUNTIME, environment
from tests.support.runtime_api import RuntimeStandIn, runtime_api

OURS = ("-m", "dragoman.runtime")


@contextlib.contextmanager
def running(
    artifact: Path, arguments: tuple[str, ...], variables: Mapping[str, str], program: Path | None = None
) -> Iterator[tuple[RuntimeStandIn, subprocess.Popen[bytes]]]:
    """Runs one of the two; yields the API that it takes events from, and its process. `program`: in Python's place."""
    with runtime_api() as api, contextlib.ExitStack() as stack:
        log = stack.enter_context((HOME / "log" / f"runtime-{api.server_address[1]}.log").open("wb"))
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        process = subprocess.Popen(
            (program or environment("runtime") / "python", *arguments),
            cwd=artifact,
            stdout=log,
            stderr=log,
            env={
                **inherited,
                "AWS_LAMBDA_RUNTIME_API": api.address,
                "AWS_LAMBDA_FUNCTION_NAME": "dragoman",
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769",
                "AWS_EXECUTION_ENV": f"AWS_Lambda_python{RUNTIME}",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_REGION": "us-east-1",
                "LAMBDA_TASK_ROOT": str(artifact),
                "PYTHONPATH": str(artifact),
                **variables,
            },
        )
        try:
            yield api, process
        finally:
            process.terminate()
            process.wait(30)

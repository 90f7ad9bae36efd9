"""One Lambda execution environment without a container: awslambdaric under the Runtime Interface Emulator."""

import base64
import contextlib
import json
import os
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.tools import HOME, RUNTIME, daemon, emulator, environment, listens
from tests.support.ports import free_port

HANDLER = "handler.aws.lambda_handler"
LAMBDAS = ("-m", "awslambdaric", HANDLER)
PATH = "/2015-03-31/functions/function/invocations"
SIZE_LIMIT = 6 * 1024 * 1024  # the limit for a request; the emulator silently cuts the rest off


@dataclass(frozen=True, slots=True)
class Rie:
    """Starts cold: nothing of the function is imported before the first event."""

    port: int
    log: Path
    pid: int

    def invoke(self, event: Any) -> Any:
        """Return what the function answered, or the error object that Lambda makes of a failure."""
        body = json.dumps(event).encode()
        assert len(body) <= SIZE_LIMIT, "Lambda would not take this event"
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{PATH}", data=body)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - our own URL
                payload = answer.read()
        except urllib.error.HTTPError as error:
            payload = error.read()
        try:
            return json.loads(payload)
        except ValueError:  # the emulator's own text, of a timeout for instance
            return {"errorMessage": payload.decode(errors="replace")}

    def http(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> tuple[int, Any]:
        """Send as the gateway of template.yaml does, any body in base64; return status and body, read if it is JSON."""
        answer = self.invoke(event(method, path, body, **headers))
        assert "statusCode" in answer, f"{answer}\n{self.log.read_text(errors='replace')[-4000:]}"
        return answer["statusCode"], read(answer)

    def runtimes(self) -> list[int]:
        """Return the processes of the function: the emulator's children."""
        children = Path(f"/proc/{self.pid}/task").glob("*/children")  # of each thread
        return [int(pid) for file in children for pid in file.read_text().split()]

    def inits(self) -> int:
        """Count how often the function was imported: more than once means that the environment died in between."""
        return len(re.findall(r"INIT REPORT\(", self.log.read_text(errors="replace")))


def event(method: str, path: str, body: bytes | str | None = None, **headers: str) -> dict[str, Any]:
    """Return what the gateway of template.yaml sends."""
    raw = body.encode() if isinstance(body, str) else body
    return {
        "resource": "/{proxy+}",
        "path": path,
        "httpMethod": method,
        "headers": {name.replace("_", "-"): value for name, value in headers.items()},
        "queryStringParameters": None,
        "requestContext": {"stage": "Prod", "path": f"/Prod{path}", "httpMethod": method},
        "body": None if raw is None else base64.b64encode(raw).decode(),
        "isBase64Encoded": raw is not None,
    }


def read(answer: Mapping[str, Any]) -> Any:
    """Return the body of an answer to a gateway: bytes, or the value if it is JSON."""
    body = base64.b64decode(answer["body"]) if answer.get("isBase64Encoded") else answer["body"].encode()
    with contextlib.suppress(ValueError):
        return json.loads(body)
    return body


@contextlib.contextmanager
def running(artifact: Path, variables: Mapping[str, str], runtime: tuple[str, ...] = LAMBDAS) -> Iterator[Rie]:
    """Offer a new execution environment for a built function. `runtime`: Python's arguments."""
    api, port = free_port(), free_port()
    python = environment("runtime") / "python"
    addresses = (
        "--runtime-api-address", f"127.0.0.1:{api}", "--runtime-interface-emulator-address", f"127.0.0.1:{port}",
    )  # fmt: skip
    inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    log = HOME / "log" / f"rie-{port}.log"
    with (
        tempfile.TemporaryDirectory() as temporary,
        daemon(
            *(emulator(), "--log-level", "info", *addresses, python, *runtime),
            ready=lambda: listens(port),
            log=log,
            cwd=artifact,
            env={
                **inherited,
                "AWS_LAMBDA_FUNCTION_NAME": "dragoman",
                "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "1769",
                "AWS_LAMBDA_FUNCTION_TIMEOUT": "29",
                "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
                "AWS_EXECUTION_ENV": f"AWS_Lambda_python{RUNTIME}",
                "AWS_EC2_METADATA_DISABLED": "true",
                "AWS_REGION": "us-east-1",
                "LAMBDA_TASK_ROOT": str(artifact),
                "TMPDIR": temporary,
                **variables,
            },
        ) as process,
    ):
        yield Rie(port, log, process.pid)

"""SAM CLI: validate, build, and the two ways to run a function locally, in the containers of an engine."""

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.engine import Engine
from tests.e2e.s3 import Store
from tests.e2e.tools import ARCHITECTURE, HOME, ROOT, alone, daemon, environment, listens, run
from tests.support.ports import free_port

TEMPLATE = ROOT / "template.yaml"
STREAMING = ROOT / "template-streaming.yaml"
BUILD = HOME / "build"
FUNCTION = "InferenceFunction"
ALONE = {
    "SAM_CLI_TELEMETRY": "0",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9",  # else SAM asks AWS for the owner of the local store's keys
    "AWS_MAX_ATTEMPTS": "1",
}

PASSED_ON = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")


def sam(*arguments: str | Path, env: dict[str, str] | None = None) -> str:
    return run(environment("sam") / "sam", *arguments, env={**(env or os.environ), **ALONE})


def validate(template: Path = TEMPLATE) -> str:
    return sam("validate", "--lint", "--template", template)


def build(run_id: str) -> Path:
    """Return the folder of the function's artifact, which is made once for each run of the tests."""
    stamp = BUILD.with_suffix(".run")
    with alone(BUILD.name):
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != run_id:
            sam("build", "--template", TEMPLATE, "--build-dir", BUILD, env={**os.environ, "ARCHITECTURE": ARCHITECTURE})
            stamp.write_text(run_id, encoding="utf-8")
    return BUILD / FUNCTION


@dataclass(frozen=True, slots=True)
class Local:
    """The built function with the models of a store, in an engine that has its runtime's image."""

    engine: Engine
    store: Store
    bucket: str

    @property
    def env(self) -> dict[str, str]:
        """Return the environment for SAM, which passes credentials and region on; all else comes by parameters."""
        passed = self.store.variables(self.bucket).items()
        return {**self.engine.env, **{name: value for name, value in passed if name in PASSED_ON}}

    @property
    def options(self) -> tuple[str, ...]:
        parameters = {"Bucket": self.bucket, "S3Endpoint": self.store.endpoint, "Architecture": ARCHITECTURE}
        parameters["Timeout"] = "300"  # SAM prints nothing for a function that a busy machine kept beyond it
        overrides = [f"ParameterKey={key},ParameterValue={value}" for key, value in parameters.items()]
        return ("--template", str(BUILD / "template.yaml"), "--skip-pull-image", "--parameter-overrides", *overrides)

    def invoke(self, event: Path) -> Any:
        """Return the answer of a new container to the event in a file."""
        return json.loads(sam("local", "invoke", FUNCTION, "--event", event, *self.options, env=self.env))

    @contextlib.contextmanager
    def start_api(self) -> Iterator[str]:
        """Start the gateway; yield host and port."""
        port = free_port()
        serving = ("local", "start-api", "--host", "127.0.0.1", "--port", str(port), "--warm-containers", "EAGER")
        with daemon(
            environment("sam") / "sam",
            *serving,
            *self.options,
            ready=lambda: listens(port),
            log=HOME / "log" / "start-api.log",
            env={**self.env, **ALONE},
        ):
            yield f"127.0.0.1:{port}"

"""The tests check which modules are imported, and when."""

import logging
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def imported(statement: str) -> set[str]:
    """Returns the modules that a new interpreter has after a statement."""
    script = f"{statement}\nimport sys; print(*sys.modules, sep='\\n')"
    environ = {"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "AWS_LAMBDA_FUNCTION_NAME": "f", "PATH": ""}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    return set(done.stdout.splitlines())


HEAVY = {
    "core.dialects.v1.verbs", "core.explain.explanation", "numpy.random", "boto3", "botocore", "click", "fastapi",
    "google.protobuf", "grpc", "onnxruntime", "prometheus_client", "pydantic", "rich", "simdjson",
    "starlette", "uvicorn",
}  # fmt: skip
LATER = {
    "core.classification", "core.dialects.grps.http", "core.dialects.openai.http", "core.dialects.v1.http",
    "core.dialects.v2.content_types", "core.encoding.compression", "handler.backends.onnx",
    "handler.site.pages", "handler.stores.s3.store", "http", "importlib.metadata", "numpy.typing",
    "random", "tempfile", "zlib",
}  # fmt: skip
HEALTH = """
from handler.aws import lambda_handler
event = {"version": "2.0", "headers": {}, "requestContext": {"http": {"method": "GET", "path": "PATH", "sourceIp": ""}}}
assert lambda_handler(event, None)["statusCode"] == 200
"""


def test_a_cold_start_imports_only_what_it_needs() -> None:
    """Start-up and health import no framework, no client of the store and no runtime, because INIT is billed."""
    loaded = imported(HEALTH.replace("PATH", "/v2/health/live"))
    assert not loaded & (HEAVY | LATER)
    assert loaded >= {"asyncio.tasks", "numpy"}


def test_no_search_for_garbage_reads_what_was_imported() -> None:
    """The objects are out of its reach before it may begin."""
    found = imported("import gc, handler.aws\nprint(handler.aws.gc.isenabled() and gc.get_freeze_count() > 20_000)")
    assert "True" in found


def test_what_no_protocol_knows_imports_the_site() -> None:
    """A request for a page imports FastAPI."""
    assert imported(HEALTH.replace("PATH", "/docs")) >= {"fastapi", "handler.site.pages"}


def test_opening_a_bucket_imports_no_client() -> None:
    """A store of S3 imports no client before its first request."""
    script = "from handler.settings import *; from handler.stores import *\n"
    script += "open_store(Settings.from_env({'DRAGOMAN_REPOSITORY': 's3://b'}))"
    assert not imported(script) & HEAVY


def test_logging_is_the_servers_own_business() -> None:
    """Importing the application adds no log handler."""
    assert not logging.getLogger("handler").handlers

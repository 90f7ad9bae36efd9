"""A real S3 server to keep models in: OpenStack Swift's S3 API, on an address of this machine."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from tests.e2e.tools import HOME, ROOT, daemon, environment
from tests.support.ports import free_ports

BUCKET = "example-models"  # the bucket of events/s3-object-created.json
PREFIX = "models"
MEMORY = "/dev/shm"  # noqa: S108
USER = "test:tester"  # Swift's keys have the form account:user
SECRET = "testing"  # noqa: S105 - of a server that lives as long as the tests


@dataclass(frozen=True, slots=True)
class Store:
    """A store: what a function needs to read it, and a client for the tests' own use."""

    endpoint: str
    client: Any

    def variables(self, bucket: str = BUCKET) -> dict[str, str]:
        """Return the environment of a function whose repository is this bucket's prefix."""
        return {
            "DRAGOMAN_REPOSITORY": f"s3://{bucket}/{PREFIX}",
            "AWS_ENDPOINT_URL_S3": self.endpoint,
            "AWS_ACCESS_KEY_ID": USER,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def fill(self, bucket: str = BUCKET) -> str:
        """Make a bucket of the sample models."""
        self.client.create_bucket(Bucket=bucket)
        return self.add(ROOT / "models", bucket)

    def add(self, models: Path, bucket: str = BUCKET) -> str:
        """Upload a folder's models."""
        for file in sorted([*models.glob("*/*.json"), *models.glob("*/*/model.onnx"), *models.glob("*/*/*.json")]):
            self.client.upload_file(str(file), bucket, f"{PREFIX}/{file.relative_to(models)}")
        return bucket


def answers(client: Any) -> bool:
    """Return whether all of Swift's servers work: a bucket and an object need each, and they start side by side."""
    with contextlib.suppress(BotoCoreError, ClientError):
        client.create_bucket(Bucket="probe")
        client.put_object(Bucket="probe", Key="probe", Body=b"")
        client.delete_object(Bucket="probe", Key="probe")
        client.delete_bucket(Bucket="probe")
        return True
    return False


def client_of(endpoint: str) -> Any:
    """Return a client for the tests' own use, which is patient on a busy machine."""
    config = Config(
        connect_timeout=5, read_timeout=30, retries={"total_max_attempts": 3}, s3={"addressing_style": "path"}
    )
    return boto3.client(
        "s3",
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id=USER,
        aws_secret_access_key=SECRET,
        config=config,
    )


@contextlib.contextmanager
def running(host: str = "127.0.0.1") -> Iterator[Store]:
    """Offer an empty store. Its files are in memory if that is possible: Swift waits for the disk at each of them."""
    port, *inner = free_ports(4, host)
    folder = tempfile.mkdtemp(prefix="dragoman-s3-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
    endpoint = f"http://{host}:{port}"
    client = client_of(endpoint)
    python, script = environment("swift") / "python", Path(__file__).with_name("swift_server.py")
    try:
        with daemon(
            *(python, script, folder, host, str(port), *map(str, inner), USER, SECRET),
            ready=lambda: answers(client),
            log=HOME / "log" / f"s3-{port}.log",
        ):
            yield Store(endpoint, client)
    finally:
        shutil.rmtree(folder, ignore_errors=True)

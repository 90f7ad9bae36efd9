"""Other servers that speak S3, each in a separate environment: moto, rclone and LocalStack (in host mode)."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from tests.e2e import s3
from tests.e2e.tools import HOME, daemon, environment
from tests.support.ports import free_ports

HOST = "127.0.0.1"


class OtherServer(NamedTuple):
    """How a server is started on a port, with a separate folder, and how it differs from Amazon's.

    `conditions`: it refuses a write whose If-None-Match does not hold. `checks_keys`: it refuses a wrong secret.
    `keeps_names`: metadata come with the case of names that they were written with.
    `lists_uploads`: it has ListMultipartUploads.
    """

    command: Callable[[Path, Path, int], tuple[str | Path, ...]]
    variables: Callable[[Path, int], Mapping[str, str]] = lambda _folder, _port: {}
    conditions: bool = True
    checks_keys: bool = True
    keeps_names: bool = True
    lists_uploads: bool = True


def _localstack(folder: Path, port: int) -> Mapping[str, str]:
    """Return LocalStack's settings: its default, twisted, would listen on all addresses."""
    return {
        "GATEWAY_LISTEN": f"{HOST}:{port}",
        "GATEWAY_SERVER": "hypercorn",
        "SERVICES": "s3",
        "DISABLE_EVENTS": "1",
        "SKIP_SSL_CERT_DOWNLOAD": "1",
        "DNS_ADDRESS": "0",
        "FILESYSTEM_ROOT": str(folder),
        "HOME": str(folder),
    }


OTHERS = {
    "moto": OtherServer(lambda bin_, _, port: (bin_ / "moto_server", "-H", HOST, "-p", str(port)), checks_keys=False),
    "rclone": OtherServer(
        lambda bin_, folder, port: (
            *(bin_ / "rclone", "--config", os.devnull, "serve", "s3", folder, "--addr", f"{HOST}:{port}"),
            *("--auth-key", f"{s3.USER},{s3.SECRET}"),
        ),
        conditions=False,
        keeps_names=False,
        lists_uploads=False,
    ),
    "localstack": OtherServer(
        lambda bin_, _, __: (bin_ / "python", "-m", "localstack.runtime.main"), _localstack, checks_keys=False
    ),
}


def _answers(store: s3.Store) -> bool:
    with contextlib.suppress(BotoCoreError, ClientError):
        store.client.create_bucket(Bucket="probe-of-a-server")
        return True
    return False


@contextlib.contextmanager
def running(name: str) -> Iterator[s3.Store]:
    """Offer an empty store of one of OTHERS."""
    (port,) = free_ports(1, HOST)
    folder = Path(tempfile.mkdtemp(prefix=f"dragoman-{name}-"))
    endpoint = f"http://{HOST}:{port}"
    store = s3.Store(endpoint, s3.client_of(endpoint))
    other = OTHERS[name]
    command = other.command(environment(name), folder, port)
    variables = {**os.environ, **other.variables(folder, port)}
    log = HOME / "log" / f"{name}-{port}.log"
    try:
        with daemon(*command, ready=lambda: _answers(store), log=log, env=variables, cwd=folder):
            yield store
    finally:
        shutil.rmtree(folder, ignore_errors=True)

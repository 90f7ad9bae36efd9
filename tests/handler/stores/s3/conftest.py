"""Fixtures for several modules of tests of S3 stores."""

from __future__ import annotations

import ssl
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from tests.support import s3_stand_in

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def secure(stand_in: s3_stand_in.StandIn, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The stand-in behind TLS, with its own certificate: its URL, and the certificate's file."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    names = ("-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1")
    made = ("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", certificate, *names)
    subprocess.run(made, check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with s3_stand_in.Server(("127.0.0.1", 0), type("Of", (s3_stand_in.Handler,), {"store": stand_in})) as running:
        running.socket = context.wrap_socket(running.socket, server_side=True)
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"https://127.0.0.1:{running.server_port}", str(certificate)
        running.shutdown()
        thread.join()

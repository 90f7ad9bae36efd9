"""Fixtures for several modules of tests of S3 stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support import fault_proxy, s3_stand_in, web

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def behind(stand_in: s3_stand_in.StandIn) -> Iterator[fault_proxy.Proxy]:
    """A proxy in front of the stand-in."""
    with fault_proxy.running(stand_in.url) as between:
        yield between


@pytest.fixture
def secure(stand_in: s3_stand_in.StandIn, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """The stand-in behind TLS, with its own certificate: its URL, and the certificate's file."""
    context, certificate = web.certified(tmp_path)
    with web.serving(type("Of", (s3_stand_in.Handler,), {"store": stand_in}), context) as running:
        yield f"https://127.0.0.1:{running.server_port}", str(certificate)

"""Fixtures for tests of the edge."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from handler.edge.app import App
from tests.support.asgi import application


@pytest.fixture
def app() -> Iterator[App]:
    """An application of the sample models."""
    with closing(application()) as made:
        yield made

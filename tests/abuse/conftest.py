"""Fixtures of the tests that send hostile requests."""

from collections.abc import Iterator
from contextlib import closing

import pytest

from handler.edge.app import App
from tests.support.asgi import application
from tests.support.gated import Issuer


@pytest.fixture(scope="module")
def app() -> Iterator[App]:
    """An application of the sample models, which the tests of a module share."""
    with closing(application()) as made:
        yield made


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    """An issuer of tokens."""
    return Issuer(tmp_path_factory.mktemp("issuer"))

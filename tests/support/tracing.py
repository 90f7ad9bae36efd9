"""Coverage of some of the tests of a run."""

from collections.abc import Iterable

import pytest
from coverage import Coverage


class Tracing:
    """A plugin of pytest, which stops coverage's tracing during the tests outside these folders."""

    def __init__(self, folders: Iterable[str]) -> None:
        self._folders = tuple(f"{folder}/" for folder in folders)
        self._stopped: Coverage | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        """Goes on with the tracing, or stops it, before a test begins."""
        stopped, is_traced = self._stopped, item.nodeid.startswith(self._folders)
        if stopped is not None and is_traced:
            self._stopped = None
            stopped.start()
        elif stopped is None and not is_traced and (current := Coverage.current()) is not None:
            self._stopped = current
            current.stop()

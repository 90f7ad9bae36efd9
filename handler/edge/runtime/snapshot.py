"""SnapStart with our own runtime: the work before a snapshot of the process, and after each restore from it.

Source: AWS documentation, "Runtime hooks for Lambda SnapStart", custom runtimes.
"""

import importlib
import logging
from collections.abc import Callable
from typing import Any, Final

from handler.edge import snapshots
from handler.edge.app import App
from handler.edge.runtime.api import RuntimeApi

log = logging.getLogger(__name__)
BEFORE_FAILED: Final = "Runtime.BeforeSnapshotError"
AFTER_FAILED: Final = "Runtime.AfterRestoreError"
"""The types of errors that Lambda's own runtime sends, and the exit codes of its process."""
EXIT_BEFORE, EXIT_AFTER = 64, 65


def pass_through(api: RuntimeApi, app: App | None) -> int:
    """Has the snapshot taken, and returns in an instance made from it: 0, or the code with which the process exits.

    Raises RuntimeApiError.
    """
    try:
        _before(app)
    except Exception as error:
        log.exception("a hook before the snapshot failed")
        api.init_error(BEFORE_FAILED, f"{type(error).__name__}: {error}")
        return EXIT_BEFORE
    api.restore_next()
    try:
        _after(app)
    except Exception as error:
        log.exception("a hook after the restore failed")
        api.restore_error(AFTER_FAILED, f"{type(error).__name__}: {error}")
        return EXIT_AFTER
    return 0


def _before(app: App | None) -> None:
    for function, given, named in reversed(_registered("get_before_snapshot")):
        function(*given, **named)
    if app is not None:
        snapshots.before(app)


def _after(app: App | None) -> None:
    for function, given, named in _registered("get_after_restore"):
        function(*given, **named)
    if app is not None:
        snapshots.after(app)


def _registered(name: str) -> list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]]:
    """Returns the hooks that models' code has registered with Lambda's module; none where that is not installed."""
    try:
        module: Any = importlib.import_module(snapshots.HOOKS)
    except ImportError:
        return []
    return list(getattr(module, name)())

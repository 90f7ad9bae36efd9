"""The paths of the site, known before it is imported."""

from typing import Final

START, DOCS, DESCRIPTION, ICON, STATUS = "/", "/docs", "/openapi.json", "/favicon.ico", "/status"
MODELS: Final = "/models/"
"""The path of a model's page, in front of the model's name."""
FIXED: Final = frozenset((START, DOCS, DESCRIPTION, ICON, STATUS))


def may_have(path: str) -> bool:
    """Decides whether the site may have a page at a path. Other paths are refused without the site's import.

    >>> may_have("/docs"), may_have("/models/iris"), may_have("/wp-login.php")
    (True, True, False)
    """
    return path in FIXED or path.startswith(MODELS)

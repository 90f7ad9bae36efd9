"""The tables of docs that the code has: `make reference` writes them, tests/test_documents.py finds stale ones."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

from core.dialects import DIALECTS
from handler.settings import SETTINGS
from handler.settings.model_keys import TABLE

DOCS: Final = Path(__file__).parents[2] / "docs"
MADE: Final = re.compile(r"(?<=<!-- made by `make reference` -->\n).*?\n(?=\n|\Z)", re.DOTALL)
FORMS: Final = {"/versions/{version}": ", of one version", "/labels/{label}": ", of the version with a label"}
"""What a path names beside its model, and how the route says so."""


def settings() -> str:
    """Returns the table of the process's settings."""
    rows = ((f"`{each.variable}`", each.default and f"`{each.default}`", each.about) for each in SETTINGS)
    return table(("variable", "default", "meaning"), rows)


def model_settings() -> str:
    """Returns the table of a model's settings. A default that is JSON stands as code."""
    rows = (
        (", ".join(f"`{path}`" for path in each.paths.split(", ")), each.kind, said(each.default), each.about)
        for each in TABLE
    )
    return table(("key", "type", "default", "meaning"), rows)


def said(default: str) -> str:
    """Returns a default as a cell: JSON as code, words as they are."""
    try:
        json.loads(default)
    except ValueError:
        return default
    return f"`{default}`"


def routes() -> str:
    """Returns the table of routes. Those of one meaning share a row: [brackets] are optional parts of their path."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for route in (route for dialect in DIALECTS for route in dialect.routes):
        form = next((form for form in FORMS if form in route.pattern), "")
        key = route.pattern.replace(form, ""), route.about.removesuffix(FORMS.get(form, ""))
        found.setdefault(key, {}).setdefault(route.method, []).append(form)
    rows = (
        (", ".join(sorted(methods)), f"`{with_parts(pattern, next(iter(methods.values())))}`", about)
        for (pattern, about), methods in found.items()
    )
    return table(("method", "path", "what it answers"), rows)


def with_parts(pattern: str, forms: Iterable[str]) -> str:
    """Returns a path with its optional parts behind the model.

    >>> with_parts("/v1/models/{model}:predict", ["", "/labels/{label}"])
    '/v1/models/{model}[/labels/{label}]:predict'
    """
    parts = ";".join(form for form in forms if form)
    return pattern.replace("{model}", f"{{model}}[{parts}]") if parts else pattern


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Returns a table of Markdown."""
    head = list(head)
    lines = (f"| {' | '.join(cells)} |" for cells in (head, *rows))
    return "\n".join((next(lines), "|---" * len(head) + "|", *lines)) + "\n"


PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "settings.md": settings,
    "model-settings.md": model_settings,
    "routes.md": routes,
}


def renewed(name: str) -> str:
    """Returns a page with its table as the code has it now."""
    page, count = MADE.subn(lambda _: PAGES[name](), (DOCS / name).read_text(encoding="utf-8"))
    assert count == 1, f"{name} has {count} tables that are made"
    return page


if __name__ == "__main__":
    for name in PAGES:
        (DOCS / name).write_text(renewed(name), encoding="utf-8")

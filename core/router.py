"""Finds the route of a path in the table of a dialect."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

from core.errors import shown
from core.wire import Dialect, HttpError, MethodNotAllowed, Route, RouteNotFound

LABEL: Final = "label"
"""The placeholder whose values may hold any character."""
COLON: Final = re.compile("%3[aA]")


def has_route(path: str, dialects: Iterable[Dialect]) -> bool:
    """Decides whether the dialect that owns a path has a route there, whatever its method."""
    owner = next((dialect for dialect in dialects if dialect.owns(path)), None)
    return owner is not None and Router(owner).has(path)


class Router:
    """Finds a dialect's route for a path. Ignores one trailing slash unless the dialect is exact. HEAD is like GET."""

    def __init__(self, dialect: Dialect) -> None:
        # By number of segments: a handful of candidates each, in the order of the table.
        self._routes: dict[int, list[tuple[list[str], Route]]] = {}
        self._any_case = dialect.any_case
        self._is_exact = dialect.is_exact
        # Where a colon sets the verb off, it belongs to no name, and a slash after the verb to no path.
        routes = dialect.routes
        self._verbs = any("}:" in route.pattern for route in routes)
        for route in routes:
            segments = route.pattern.strip("/").split("/")
            self._routes.setdefault(len(segments), []).append((segments, route))

    def find(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Returns a path's route with its values. Raises RouteNotFound, MethodNotAllowed."""
        return self._find(method, path, self._segments(path))

    def has(self, path: str) -> bool:
        """Decides whether a path has a route, whatever its method."""
        segments = self._segments(path)
        return any(self._match(pattern, segments) is not None for pattern, _ in self._routes.get(len(segments), ()))

    def _segments(self, path: str) -> list[str]:
        with_slash = self._is_exact or (self._verbs and ":" in path)
        return (path if with_slash else path.removesuffix("/"))[1:].split("/")

    def _find(self, method: str, path: str, segments: Sequence[str]) -> tuple[Route, dict[str, str]]:
        wanted = "GET" if method == "HEAD" else method
        allowed: list[str] = []
        for pattern, route in self._routes.get(len(segments), ()):
            values = self._match(pattern, segments)
            if values is None:
                continue
            if route.method == wanted:
                return route, values
            allowed += ["GET", "HEAD"] if route.method == "GET" else [route.method]
        if not allowed:
            raise RouteNotFound(f"there is nothing at {shown(path)}")
        raise MethodNotAllowed(method, path, list(dict.fromkeys(allowed)))

    def find_encoded(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """Returns the route of a path that is percent-encoded: an encoded slash or colon is part of a value.

        If the path has no such route, an encoded colon can be the one before a verb: some clients encode it. No value
        but a label holds a slash. Raises RouteNotFound, MethodNotAllowed.
        """
        try:
            route, encoded = self._find(method, path, self._segments(path))
            values = {name: unquote(value) for name, value in encoded.items()}
        except HttpError:
            segments = self._segments(COLON.sub(":", path))
            route, values = self._find(method, path, [unquote(segment) for segment in segments])
        if any("/" in value for name, value in values.items() if name != LABEL):
            raise RouteNotFound(f"there is nothing at {shown(path)}")
        return route, values

    def _match(self, pattern: list[str], segments: Sequence[str]) -> dict[str, str] | None:
        values = {}
        for expected, segment in zip(pattern, segments, strict=True):
            if expected[:1] != "{":
                if expected != (segment.lower() if self._any_case else segment):
                    return None
                continue
            name, _, verb = expected[1:].partition("}")
            value = segment.removesuffix(verb)
            if not value or (verb and value == segment) or (self._verbs and ":" in value):
                return None
            values[name] = value
        return values

"""core.router: the route of a path."""

from functools import partial

import pytest

from core.dialects import DIALECTS, GRPS, V1, V2
from core.operations import ServerLive
from core.router import Router, has_route
from core.wire import Call, Dialect, MethodNotAllowed, Route, RouteNotFound, Surface, headers_of, status_of


def nothing(_: Call) -> tuple[ServerLive, object]:
    """A decoder that is never called."""
    raise AssertionError


def route(method: str, pattern: str) -> Route:
    """A row of a table."""
    return Route(method, pattern, nothing, "")  # type: ignore[arg-type] # never called


def router_of(dialect: Dialect, *routes: Route) -> Router:
    """The dialect's router, for other routes."""
    return Router(dialect._replace(surface=partial(Surface, routes, dialect.refuse)))


ROUTES = (route("GET", "/a"), route("GET", "/a/b"), route("POST", "/a/{x}"), route("GET", "/a/{x}/c/{y}"))
ROUTER = router_of(V2, *ROUTES)
VERBS = router_of(V1, route("GET", "/a/{x}"), route("POST", "/a/{x}:do"), route("POST", "/a/{x}/b:do"))


@pytest.mark.parametrize(("router", "method", "path", "pattern", "values"), [
    (ROUTER, "GET", "/a", "/a", {}),
    (ROUTER, "GET", "/a/", "/a", {}),
    (ROUTER, "HEAD", "/a", "/a", {}),
    (ROUTER, "GET", "/a/b", "/a/b", {}),
    (ROUTER, "POST", "/a/b", "/a/{x}", {"x": "b"}),
    (ROUTER, "POST", "/a/m:do", "/a/{x}", {"x": "m:do"}),
    (ROUTER, "GET", "/a/1/c/2", "/a/{x}/c/{y}", {"x": "1", "y": "2"}),
    (VERBS, "GET", "/a/m", "/a/{x}", {"x": "m"}),
    (VERBS, "GET", "/A/M/", "/a/{x}", {"x": "M"}),
    (VERBS, "POST", "/a/m:do", "/a/{x}:do", {"x": "m"}),
    (VERBS, "POST", "/A/Do:do", "/a/{x}:do", {"x": "Do"}),
])  # fmt: skip
def test_a_path_finds_its_route(router: Router, method: str, path: str, pattern: str, values: dict[str, str]) -> None:
    """A slash at the end changes nothing, HEAD finds the route of GET, and only dialects with verbs split at a colon.

    In those, fixed segments match in any case, verbs in their own, and names keep theirs.
    """
    found, path_values = router.find(method, path)
    assert (found.pattern, path_values) == (pattern, values)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_slash_at_the_end_of_an_exact_dialects_path_makes_another_path(method: str) -> None:
    """No method finds it, so the answer does not say that one is allowed."""
    router = router_of(GRPS, *ROUTES)
    assert router.find("GET", "/a/b")[0].pattern == "/a/b"
    for path in ("/a/", "/a/b/", "/a//"):
        with pytest.raises(RouteNotFound):
            router.find(method, path)


@pytest.mark.parametrize("path", ["/", "/b", "/a//", "//a", "/a/b/c", "/a/1/d/2"])
def test_an_unknown_path_is_not_found(path: str) -> None:
    """An empty segment matches no placeholder."""
    with pytest.raises(RouteNotFound) as refusal:
        ROUTER.find("GET", path)
    assert status_of(refusal.value) == 404


def test_a_wrong_method_is_refused_with_the_right_ones() -> None:
    """The header Allow names each method once."""
    with pytest.raises(MethodNotAllowed) as refusal:
        ROUTER.find("DELETE", "/a/b")
    assert status_of(refusal.value) == 405
    assert headers_of(refusal.value) == [(b"allow", b"GET, HEAD, POST")]


@pytest.mark.parametrize("path", ["/a/m:do/", "/a/m:DO", "/a/:do", "/a/m:n:do", "/a/m:", "/a/:", "/a/do"])
def test_a_colon_belongs_to_no_name(path: str) -> None:
    """A path with a stray colon or with a slash after its verb is not found."""
    with pytest.raises((RouteNotFound, MethodNotAllowed)):
        VERBS.find("POST", path)


@pytest.mark.parametrize("path", ["/a/m%3Ado/", "/a/%3Ado", "/a/m%3An%3Ado"])
def test_an_encoded_colon_before_a_verb_is_a_colon(path: str) -> None:
    """Such a path is found or not as the decoded one is."""
    assert VERBS.find_encoded("POST", "/a/m%3ado") == VERBS.find("POST", "/a/m:do")
    with pytest.raises((RouteNotFound, MethodNotAllowed)):
        VERBS.find_encoded("POST", path)


LABELS = router_of(V1, route("GET", "/a/{label}"), route("POST", "/{x}/{label}/b:do"))


@pytest.mark.parametrize(("method", "path", "values"), [
    ("GET", "/a/m%2fn", {"label": "m/n"}),
    ("GET", "/a/m%3Ado%2Fb/", {"label": "m:do/b"}),
    ("POST", "/%C3%A9/m%2Fb%252F/b:do", {"x": "\u00e9", "label": "m/b%2F"}),
    ("POST", "/a%3A/m/b:do", {"x": "a:", "label": "m"}),
    ("POST", "/a/m%2Fn/%62%3ado", {"x": "a", "label": "m/n"}),
    ("POST", "/a/m%252Fn%253Ado/b%3Ado", {"x": "a", "label": "m%2Fn%3Ado"}),
])  # fmt: skip
def test_a_value_is_decoded_once_its_path_is_split(method: str, path: str, values: dict[str, str]) -> None:
    """It is decoded once only. The colon before a verb may be encoded."""
    assert LABELS.find_encoded(method, path)[1] == values


@pytest.mark.parametrize("path", [
    "/%2Fa/m/b:do", "/%61/m/b/do", "/a%2Fm/b:do", "/a%2Fb/m/b%3Ado", "/a%2Fm%2Fb:do",
])  # fmt: skip
def test_only_a_label_holds_a_slash(path: str) -> None:
    """An encoded slash separates nothing."""
    with pytest.raises((RouteNotFound, MethodNotAllowed)):
        LABELS.find_encoded("POST", path)


@pytest.mark.parametrize(("path", "found"), [
    ("/v2/health/live", True), ("/V1/models/", True), ("/v1/models/m:predict", True), ("/v1/embeddings", True),
    ("/v1/chat/completions", False), ("/v1/embeddings/x", False), ("/grps/v1/health/live/", False), ("/docs", False),
])  # fmt: skip
def test_a_path_has_a_route_whatever_its_method(path: str, *, found: bool) -> None:
    """The first protocol that owns the path decides."""
    assert has_route(path, DIALECTS) is found

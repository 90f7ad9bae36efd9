"""The routes of a server, which remembers where paths lead."""

from urllib.parse import unquote

import pytest

from core.wire import RouteNotFound
from handler.edge.protocols import Routes
from handler.settings import Settings

METADATA = "/v2/models/{model}"


def routes() -> Routes:
    return Routes(Settings.from_env({"DRAGOMAN_REPOSITORY": "."}).contract)


def found(known: Routes, path: str, raw: str = "", root: str = "") -> tuple[str, str]:
    """Returns the pattern of the path's route, and the model in it."""
    scope = {"method": "GET", "path": path, "raw_path": (raw or path).encode(), "root_path": root}
    destination = known.destination(scope)
    assert destination.dialect is not None
    match = destination.match or known.find(destination.path, destination.dialect, scope)
    return match.route.pattern, match.values["model"]


def test_only_so_many_paths_of_bounded_length_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Paths that clients make up can neither fill the memory nor keep others out of it."""
    known = routes()
    monkeypatch.setattr("handler.edge.protocols.REMEMBERED_PATHS", 2)
    for name in ("1", "2", "x" * 300, "3"):
        for _ in range(2):
            assert found(known, f"/v2/models/{name}") == (METADATA, name)
        assert len(known._known) <= 2
    assert ("GET", "/v2/models/3", "") in known._known


@pytest.mark.parametrize(("method", "raw", "expected"), [
    ("GET", "/v2/models/a%3Ab/ready", ("/v2/models/{model}/ready", "a:b")),
    ("POST", "/v1/models/a%3Ab:predict", ("/v1/models/{model}:predict", "a:b")),
    ("POST", "/v1/models/m%3Apredict", ("/v1/models/{model}:predict", "m")),
    ("GET", "/v2/models/m%2Fready", None),
    ("GET", "/v2%2Fmodels/m", None),
    ("POST", "/v1/models/a%2Fb:predict", None),
])  # fmt: skip
def test_an_encoded_separator_is_part_of_a_name(method: str, raw: str, expected: tuple[str, str] | None) -> None:
    """No model's name holds a slash. The decoded path is remembered as another one."""
    known = routes()
    scope = {"method": method, "path": unquote(raw), "raw_path": raw.encode()}
    for _ in range(2):
        destination = known.destination(scope)
        assert destination.dialect is not None
        if expected is None:
            with pytest.raises(RouteNotFound):
                known.find(destination.path, destination.dialect, scope)
        else:
            match = known.find(destination.path, destination.dialect, scope)
            assert (match.route.pattern, match.values["model"]) == expected


def test_a_remembered_path_is_that_of_its_mount_and_of_its_own_encoding() -> None:
    """The same decoded path may mean another one: below a root path, or with an encoded slash in it."""
    known = routes()
    assert found(known, "/v2/models/m/ready") == ("/v2/models/{model}/ready", "m")
    scope = {"method": "GET", "path": "/v2/models/m/ready"}
    assert known.destination(scope).match is not None
    assert known.destination(scope | {"raw_path": b"/v2/models/m%2Fready"}).match is None
    assert known.destination(scope | {"method": "POST"}).match is None
    assert known.destination(scope | {"root_path": "/v2/models"}).dialect is None


@pytest.mark.parametrize(("method", "path", "kind", "is_rpc"), [
    ("POST", "/Unknown/Method", b"application/grpc", True),
    ("POST", "/unknown", b"application/grpc-web+proto", True),
    ("POST", "/unknown", b"Application/Connect+JSON; charset=utf-8", True),
    ("POST", "/a.B/Method", b"application/json", True),
    ("GET", "/unknown", b"application/grpc", False),
    ("POST", "/unknown", b"application/json", False),
    ("POST", "/v2/models/m/infer", b"application/grpc", False),
])  # fmt: skip
def test_a_call_has_its_path_or_nobodys_path_and_the_type_of_calls(
    method: str, path: str, kind: bytes, *, is_rpc: bool
) -> None:
    """A protocol that owns the path refuses the type in its own words."""
    scope = {"method": method, "path": path, "headers": [(b"content-type", kind)]}
    assert routes().destination(scope).is_rpc is is_rpc

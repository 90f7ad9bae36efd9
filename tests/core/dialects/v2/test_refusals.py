"""core.dialects.v2.refusals."""

import json
from typing import Any

import pytest

from core.dialects.rpcs import ABSENT
from core.dialects.v2 import refusals
from core.errors import InvalidInput, ModelNotFound, ServingError, VersionNotFound
from core.wire import RouteNotFound

UNKNOWN = "Request for unknown model: "


def refused(error: ServingError, path: str = "/v2") -> tuple[int, str]:
    """Status and text of a refusal."""
    answer = refusals.refuse(error, "GET", path)
    found: dict[str, Any] = json.loads(b"".join(answer.parts))
    assert found.keys() == {"error"}
    return answer.status, found["error"]


@pytest.mark.parametrize(("error", "text"), [
    (ModelNotFound("own", model="m"), f"{UNKNOWN}'m' is not found"),
    (ModelNotFound("own", model="a\nb", hint="why"), rf"{UNKNOWN}'a\nb' is not found: why"),
    (ModelNotFound("own", model=""), f"{UNKNOWN}'' is not found"),
    (ModelNotFound("own", model="x" * 999), f"{UNKNOWN}'{'x' * 252}... is not found"),
    (ModelNotFound("own"), "own"),
    (VersionNotFound("own", "7", model="m", hint="it serves 1"), f"{UNKNOWN}'m' version 7 is not found: it serves 1"),
    (VersionNotFound("own", "\n", model="m"), rf"{UNKNOWN}'m' version '\n' is not found"),
    (VersionNotFound("own", "7" * 5000, model="m"), f"{UNKNOWN}'m' version '{'7' * 252}... is not found"),
    (VersionNotFound("own", "7"), "own"),
])  # fmt: skip
def test_unknown_models_and_versions_are_refused_in_tritons_words(error: ServingError, text: str) -> None:
    """Their clients match on them. Names are shown on one line and bounded; other packages' errors keep their text."""
    assert refused(error) == (404, text)
    assert type(refusals.worded(error)) is type(error)


def test_other_errors_keep_their_text() -> None:
    """They are returned as they are."""
    error = InvalidInput("own")
    assert refusals.worded(error) is error
    assert refused(error) == (400, "own")


@pytest.mark.parametrize(("path", "text"), [
    ("/v2/systemsharedmemory/status", refusals.SHARED_MEMORY),
    ("/v2/systemsharedmemory/region/r/register", refusals.SHARED_MEMORY),
    ("/v2/cudasharedmemory/unregister", refusals.SHARED_MEMORY),
    ("/v2/trace/setting", refusals.TRACE),
    ("/v2/models/m/trace/setting/", refusals.TRACE),
    ("/v2/logging", refusals.LOGGING),
    ("/v2/nothing", "own"),
    ("/", "own"),
])  # fmt: skip
def test_extensions_that_are_not_offered_are_named(path: str, text: str) -> None:
    """Any other path has nothing."""
    assert refused(RouteNotFound("own"), path) == (404, text)


def test_absent_calls_are_those_of_the_same_service() -> None:
    """Each has its path."""
    assert ABSENT["/inference.GRPCInferenceService/CudaSharedMemoryRegister"] == refusals.SHARED_MEMORY
    assert len(ABSENT) == len(refusals.METHODS) == 8

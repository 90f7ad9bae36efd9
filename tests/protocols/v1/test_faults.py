"""Catalogue rows 86 and 87: every kind of failure has an answer in this dialect."""

import json

import pytest

from core.dialects import DIALECTS
from core.errors import Fault, ServingError

(V1,) = (dialect for dialect in DIALECTS if dialect.prefix == "/v1")
STATUSES = {
    Fault.INVALID_ARGUMENT: {400}, Fault.NOT_FOUND: {404}, Fault.FAILED_PRECONDITION: {503},
    Fault.RESOURCE_EXHAUSTED: {413, 429}, Fault.UNAVAILABLE: {503}, Fault.UNIMPLEMENTED: {501}, Fault.INTERNAL: {500},
    Fault.DEADLINE_EXCEEDED: {504}, Fault.UNAUTHENTICATED: {401}, Fault.PERMISSION_DENIED: {403},
}  # fmt: skip


@pytest.mark.row("V1-086", "V1-087")
@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name)
def test_every_fault_is_an_error_object_with_its_status(fault: Fault) -> None:
    """A text that needs no escape stays as it is."""
    kind = type("Odd", (ServingError,), {"fault": fault})
    response = V1.refuse(kind('a "text" of é, \ud800 and \n'), "POST", "/v1/models/m:predict")
    assert response.status in STATUSES[fault]
    headers = {name.lower(): value for name, value in response.headers}
    assert headers[b"content-type"] == b"application/json"
    document = json.loads(b"".join(response.parts).decode("utf-8"))
    assert document == {"error": 'a "text" of é, ? and \n'}


@pytest.mark.row("V1-087")
def test_a_failure_that_may_pass_says_when_to_come_back(recwarn: pytest.WarningsRecorder) -> None:
    """Retry-After has whole seconds."""
    kind = type("Odd", (ServingError,), {"fault": Fault.UNAVAILABLE})
    headers = {
        name.lower(): value for name, value in V1.refuse(kind("later", retry_after=2.0), "GET", "/v1/models/m").headers
    }
    assert headers[b"retry-after"] == b"2"
    assert not recwarn.list

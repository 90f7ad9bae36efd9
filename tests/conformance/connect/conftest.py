"""Connections by hand to the server that all black-box tests share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from core.schema import open_inference as oip
from tests.conformance.connect.calls import PROTO, Caller
from tests.conformance.grpc.remote import question, raw, tensors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.server import Server


def alive(caller: Caller) -> None:
    """Assert that the server calculates."""
    left, right = np.arange(16, dtype=np.int32), np.full(16, 3, np.int32)
    message = question("add_sub", raw("INPUT0", "INT32", left), raw("INPUT1", "INT32", right))
    (answer,) = caller.post("ModelInfer", PROTO, message.SerializeToString()).messages
    found = tensors(oip.ModelInferResponse.FromString(answer))
    assert np.array_equal(found["OUTPUT0"], left + right)
    assert np.array_equal(found["OUTPUT1"], left - right)


@pytest.fixture
def caller(server: Server) -> Iterator[Caller]:
    """A connection of this test's own, over which the server still calculates afterwards."""
    connection = Caller(server.netloc)
    yield connection
    alive(connection)
    connection.close()

"""handler.settings.batching: the names of three servers for one thing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from core.errors import ModelNotLoadable
from core.operations import Batching
from handler.settings import model


def parse(**said: Any) -> Batching | None:
    """Returns the batching of a model's settings."""
    return model.parse("m", json.dumps(said).encode()).batching


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, None),
        ({"max_batch_size": 8}, None),
        ({"batching": None, "dynamic_batching": None}, None),
        ({"batching": {}}, Batching(32, 0.005)),
        ({"batching": {}, "max_batch_size": 8}, Batching(8, 0.005)),
        ({"batching": {}, "max_batch_size": 65536}, Batching(8192, 0.005)),
        ({"batching": {"max_batch_size": 4, "max_delay_ms": 2.5}, "max_batch_size": 8}, Batching(4, 0.0025)),
        ({"batching": {"max_batch_size": 16, "preferred": [8, 4, 8]}}, Batching(16, 0.005, (4, 8))),
        ({"batching": {"max_delay_ms": 0}}, Batching(32, 0.0)),
        (
            {
                "max_batch_size": 64,
                "dynamic_batching": {
                    "preferred_batch_size": [16, 32],
                    "max_queue_delay_microseconds": 100,
                    "preserve_ordering": True,
                },
            },
            Batching(64, 0.0001, (16, 32)),
        ),
        (
            {
                "batching": {
                    "max_batch_size": {"value": 128},
                    "batch_timeout_micros": {"value": 1000},
                    "num_batch_threads": {"value": 4},
                }
            },
            Batching(128, 0.001),
        ),
    ],
)
def test_batching_is_said_in_the_words_of_any_server(said: dict[str, Any], expected: Batching | None) -> None:
    """Without a word of it requests run alone."""
    assert parse(**said) == expected


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"batching": True}, "batching is true; expected an object"),
        ({"batching": {"max_delay": 1}}, "batching.max_delay is 1; expected no such key; the keys are max_batch_size"),
        ({"batching": {}, "dynamic_batching": {}}, "dynamic_batching is {}; expected no such key beside batching"),
        ({"batching": {"max_batch_size": 0}}, "batching.max_batch_size is 0; expected a whole number from 1 up"),
        ({"batching": {"max_batch_size": 8193}}, "is 8193; expected a whole number from 1 to 8192"),
        ({"batching": {"max_batch_size": {"value": True}}}, "batching.max_batch_size is true"),
        ({"batching": {"max_delay_ms": -1}}, "batching.max_delay_ms is -1; expected a number from 0 to 1000"),
        ({"batching": {"max_delay_ms": "1"}}, "batching.max_delay_ms is '1'"),
        ({"batching": {"batch_timeout_micros": 1e9}}, "expected a number from 0 to 1000000"),
        (
            {"dynamic_batching": {"max_queue_delay_microseconds": float("nan")}},
            "dynamic_batching.max_queue_delay_micro",
        ),
        ({"batching": {"max_delay_ms": 1, "batch_timeout_micros": 1}}, "no such key beside max_delay_ms: both mean"),
        ({"batching": {"preferred": 8}}, "batching.preferred is 8; expected an array of at most 64 sizes"),
        ({"batching": {"preferred": [1] * 65}}, "expected an array of at most 64 sizes"),
        ({"batching": {"preferred": [0]}}, r"batching.preferred\[0\] is 0"),
        ({"batching": {"preferred": [33]}}, r"batching.preferred\[0\] is 33; expected a whole number from 1 to 32"),
    ],
)
def test_what_cannot_be_meant_is_named(said: dict[str, Any], message: str) -> None:
    """With the path of its key."""
    with pytest.raises(ModelNotLoadable, match=message):
        parse(**said)

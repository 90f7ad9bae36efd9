"""The tests check which model answers."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.grps_client import Http, Rpc, refusal, to_json, to_message
from tests.support.server import HOST, Server
from tests.support.zoo import grps as models

ZERO = np.zeros(1, np.int64)
X = to_json("x", "DT_INT64", ZERO)
SELECTORS = {
    "my-model-1": 1, "my-model-2": 2, "my-model-10": 10, "my-model": 10, "twin": 100, "twin-1": 100, "twin-1-3": 200,
    "dashed-7": 300, "dashed-7-1": 300,
}  # fmt: skip


def asked(selector: Any) -> dict[str, Any]:
    """Returns the answer to a question that every model of numbers answers with its own number."""
    return {"model": selector, "gtensors": {"tensors": [X]}}


@pytest.mark.row("GRPS-030", "GRPS-031")
@pytest.mark.parametrize(("selector", "number"), SELECTORS.items())
def test_a_selector_is_name_and_version_or_a_name(http: Http, rpc: Rpc, selector: str, number: int) -> None:
    """Names may have dashes; of two meanings, the version takes precedence."""
    assert http.predict(asked(selector)).tensors()["y"].tolist() == [number]
    assert rpc.infer(selector, to_message("x", "DT_INT64", ZERO))["y"].tolist() == [number]


@pytest.mark.row("GRPS-032")
@pytest.mark.parametrize(("payload", "query", "number"), [
    ("my-model-1", "my-model-2", 1), ("my-model-1", "nope", 1), ("", "my-model-2", 2), (None, "my-model-2", 2),
    (None, "my%2Dmodel-1", None),
])  # fmt: skip
def test_the_message_goes_before_the_query(http: Http, payload: Any, query: str, number: int | None) -> None:
    """The rule holds whether or not the query's model exists."""
    answer = http.predict(asked(payload), model=query)
    if number is None:  # encoded twice
        answer.refusal(404)
    else:
        assert answer.tensors()["y"].tolist() == [number]


def default(http: Http, rpc: Rpc) -> Iterator[Any]:
    """Returns the answers to a text that names no model, over every transport."""
    yield http.predict({"str_data": "a"})
    yield http.predict({"str_data": "a", "model": ""}, model="")
    yield rpc.ask("Predict", str_data="a")


@pytest.mark.row("GRPS-036")
def test_the_only_model_is_the_default(launch: Callable[..., Server], tmp_path: Path) -> None:
    """It is the default for texts and for bytes."""
    server = launch(rpc=True, REPOSITORY=str(models.only(tmp_path / "only")))
    with Http(HOST, server.port) as http, Rpc(server.rpc_netloc) as rpc:
        one, two, three = default(http, rpc)
        assert one.content() == two.content() == {"str_data": "a"}
        assert three.str_data == "a"
        assert http.predict(b"{}").bytes() == b"{}"


@pytest.mark.row("GRPS-037")
@pytest.mark.parametrize("setting", ["my-model-2", "my-model"])
def test_the_default_is_a_setting(launch: Callable[..., Server], zoo: Path, setting: str) -> None:
    """It is a selector like any other."""
    server = launch(rpc=True, REPOSITORY=str(zoo), DEFAULT_MODEL=setting)
    number = SELECTORS[setting]
    with Http(HOST, server.port) as http, Rpc(server.rpc_netloc) as rpc:
        assert http.predict(asked(None)).tensors()["y"].tolist() == [number]
        assert rpc.infer("", to_message("x", "DT_INT64", ZERO))["y"].tolist() == [number]
        assert http.predict(asked("my-model-1")).tensors()["y"].tolist() == [1]


@pytest.mark.row("GRPS-038")
def test_without_a_default_the_models_are_named(http: Http, rpc: Rpc) -> None:
    """The text also names the setting that would choose one."""
    one, two, three = default(http, rpc)
    for text in (one.refusal(400), two.refusal(400), refusal(three, 400)):
        assert "any_add_sub" in text
        assert "DRAGOMAN_DEFAULT_MODEL" in text

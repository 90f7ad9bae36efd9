"""core.dialects.grps.metadata: the documents are YAML, whatever the names, and contain what a client can use."""

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.grps.metadata import of_model, of_server
from core.operations import IndexEntry, ModelInfo, ServerInfo, State
from tests.support.grps_samples import UNTOLD, model, spec

HOSTILE = [
    "", " ", "null", "true", "1.0", "2024-01-01", "~", "a: b", "- a", "#a", "'", '"', "\\", "a\nb", "\r\n", "\t", "\0",
    "\x7f", "\x85", "\u2028", "\ufeff", "\ud800", "\U0001f422", "żółw", "%TAG", "&a *b", "{a}", "[a]",
    "!!python/name:os",    "---", "...", "? a", "| a", "> a", "@a", "`a", "a" * 5000,
]  # fmt: skip


INFO = ServerInfo("s", "0.1")


def entries(*names: str) -> list[IndexEntry]:
    """Returns one version of each."""
    return [IndexEntry(name, "1", State.READY, reason="/a/path") for name in names]


def loaded(text: str) -> Any:
    """Returns the document as a client reads it."""
    text.encode()
    return yaml.safe_load(text)


def test_a_server_tells_its_interface_and_the_versions_of_its_models() -> None:
    """It has their states, and nothing about the machine."""
    found = loaded(of_server((INFO, [*entries("a", "b"), IndexEntry("b", "2", State.LOADING)])))
    assert found == {
        "name": "s",
        "version": "0.1",
        "platform": "dragoman",
        "interface": {"framework": "http+grpc"},
        "models": [
            {"name": "a", "version": "1", "state": "READY"},
            {"name": "b", "version": "1", "state": "READY"},
            {"name": "b", "version": "2", "state": "LOADING"},
        ],
        "dag": {"type": "sequential", "name": "default", "nodes": []},
    }


@pytest.mark.parametrize(("default", "listed", "model"), [
    ("", [("a", "9"), ("a", "10")], "a-10"),
    ("b", [("a", "1"), ("b", "2"), ("b", "1")], "b-2"),
    ("b-1", [("a", "1"), ("b", "2"), ("b", "1")], "b-1"),
    ("b-1", [("b-1", "3"), ("c", "1")], "b-1-3"),
    ("b", [("a", "1")], None),
    ("", [("a", "1"), ("b", "1")], None),
    ("", [], None),
])  # fmt: skip
def test_the_dag_has_the_model_of_requests_that_name_none(
    default: str, listed: list[tuple[str, str]], model: str | None
) -> None:
    """It is one node, as the name and version that a request can name; none that the caller does not see."""
    versions = [IndexEntry(name, version, State.READY) for name, version in listed]
    dag = loaded(of_server((INFO._replace(default_model=default), versions)))["dag"]
    assert dag["nodes"] == ([] if model is None else [{"name": "node-1", "type": "model", "model": model}])


def test_a_server_without_models_has_an_empty_list_of_them() -> None:
    """The list is not null."""
    assert loaded(of_server((INFO, [])))["models"] == []


def test_a_model_tells_its_inputs_and_outputs_in_both_vocabularies() -> None:
    """The protocol's type is the one that carries them. An open shape is null."""
    inputs = spec("x", "BOOL", -1, 3), spec("s", "FP16"), spec("any", "BYTES", rank=False)
    assert loaded(of_model(ModelInfo(model(*inputs), ("1", "7")))) == {
        "name": "m",
        "version": "7",
        "versions": ["1", "7"],
        "platform": "onnx_onnxv1",
        "inputs": [
            {"name": "x", "dtype": "DT_UINT8", "datatype": "BOOL", "shape": [-1, 3]},
            {"name": "s", "dtype": "DT_FLOAT16", "datatype": "FP16", "shape": []},
            {"name": "any", "dtype": "DT_STRING", "datatype": "BYTES", "shape": None},
        ],
        "outputs": [{"name": "y", "dtype": "DT_FLOAT32", "datatype": "FP32", "shape": [-1]}],
    }


def test_a_model_that_does_not_say_its_inputs_has_null_for_them() -> None:
    """Null differs from an empty list."""
    found = loaded(of_model(ModelInfo(UNTOLD, ("7",))))
    assert found["inputs"] is None
    assert found["outputs"] is None
    assert loaded(of_model(ModelInfo(model(), ("7",))))["inputs"] == []


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_read_as_it_is(name: str) -> None:
    """It is a string, in one piece, and the next member follows it."""
    (found,) = loaded(of_server((INFO, entries(name))))["models"]
    assert found == {"name": name, "version": "1", "state": "READY"}


@given(st.lists(st.text(st.characters()), min_size=1, max_size=3))
def test_any_names_are_read_as_they_are(names: list[str]) -> None:
    """The rule includes the names of inputs."""
    assert [each["name"] for each in loaded(of_server((INFO, entries(*names))))["models"]] == names
    inputs = loaded(of_model(ModelInfo(model(*(spec(name, "FP32", 1) for name in names)), ("7",))))["inputs"]
    assert [each["name"] for each in inputs] == names

"""handler.settings.model_keys: its rows are the keys that the parsers take, with their types and defaults."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from core.errors import ModelNotLoadable
from handler.settings import keys
from handler.settings import model as model_settings
from handler.settings.model_keys import TABLE
from tests.support.reference import said

TENSOR = {"name": "x", "datatype": "FP32", "shape": [1]}
TAKEN: dict[str, Any] = {
    "inputs[]": TENSOR, "outputs[]": TENSOR, "version_policy": {}, "version_policy.latest": {},
    "version_policy.specific": {}, "signatures.NAME": {"outputs": {"scores": "y"}},
    "signatures.NAME.inputs.ALIAS": {"tensor": "x"}, "signatures.NAME.outputs.ALIAS": {"tensor": "y"},
    "explainer": {"background": [[1]]}, "embeddings": {}, "pipeline": {"steps": [{"model": "a"}]},
    "warmup[]": {"random": True}, "batching": {"max_batch_size": 8}, "http": {"path": "/x"},
    "optimized": {"from": {}}, "": {},
}  # fmt: skip
"""A value of each object with keys, to which a test adds one key."""
KINDS: dict[str, tuple[Any, ...]] = {
    "text": ("text",), "whole number": (1,), "number": (1, 1.5), "true or false": (True,), "array": ([],),
    "object": ({},),
}  # fmt: skip
ABSENT: Any = object()
ROWS = [(path, row) for row in TABLE for path in row.paths.split(", ")]


def placed(path: str, value: Any) -> dict[str, Any]:
    """Returns settings that have the value at the path, unless it is ABSENT, with what its object needs beside it."""
    above, _, key = path.rpartition(".")
    value = {each: found for each, found in {**TAKEN[above], key: value}.items() if found is not ABSENT}
    for part in reversed(above.split(".") if above else ()):
        value = {part.removesuffix("[]"): [value] if part.endswith("[]") else value}
        if part in ("inputs", "outputs"):  # of a signature
            value = {"outputs": {"y": "y"}, **value}
    return value


def parsed(settings: dict[str, Any]) -> model_settings.ModelSettings:
    """Returns the parsed settings."""
    return model_settings.parse("m", json.dumps(settings).encode())


def objects() -> Iterator[tuple[str, set[str]]]:
    """Yields the path of each object with keys of its own, and those keys."""
    for above in TAKEN:
        rest = [path[len(above) + bool(above) :] for path, _ in ROWS if path.startswith(f"{above}." if above else "")]
        yield above, {found[0] for each in rest if (found := re.match(r"\w+", each))}


@pytest.mark.parametrize(("above", "listed"), [*objects()], ids=lambda each: each if isinstance(each, str) else "")
def test_an_object_takes_the_keys_of_the_table_and_no_other(above: str, listed: set[str]) -> None:
    """A refusal lists the keys; objects that note unknown ones have a table of theirs."""
    noted = {"": model_settings.KEYS, "version_policy": {"latest", "all", "specific"}}
    noted |= {f"version_policy.{kind}": found for kind, found in keys.POLICIES.items()}
    noted |= {f"{role}[]": known for role, known in keys.TENSORS.items()}
    if above in noted:
        assert listed == noted[above]
        return
    with pytest.raises(ModelNotLoadable) as refused:
        parsed(placed(f"{above}.zzz", 1))
    assert listed == set(refused.value.message.partition("the keys are ")[2].split(", "))


@pytest.mark.parametrize(("path", "row"), ROWS, ids=[path for path, _ in ROWS])
def test_a_value_of_another_type_is_refused(path: str, row: Any) -> None:
    """The error names the key, or the warm-up that has to have one of two."""
    kinds = row.kind.split(" or ") if row.kind != "true or false" else [row.kind]
    taken = [value for kind in kinds for value in KINDS.get(kind, ())]
    wrong = [] if row.kind == "any value" else [True, 1, 1.5, "text", [], {}]
    for value in wrong:
        if not any(value == each and type(value) is type(each) for each in taken):
            with pytest.raises(ModelNotLoadable, match=rf"{re.escape(path.replace('[]', '[0]'))}|warmup\[0\] is"):
                parsed(placed(path, value))


@pytest.mark.parametrize(
    ("path", "row"), [each for each in ROWS if each[1].default], ids=[path for path, row in ROWS if row.default]
)
def test_a_key_with_its_default_changes_nothing(path: str, row: Any) -> None:
    """A default in words comes from elsewhere. A required key has none."""
    if row.default == "required":
        with pytest.raises(ModelNotLoadable, match=re.escape(path.replace("[]", "[0]"))):
            parsed(placed(path, ABSENT))
    elif said(row.default) != row.default:
        assert parsed(placed(path, json.loads(row.default))) == parsed(placed(path, ABSENT))
    else:
        assert parsed(placed(path, ABSENT))

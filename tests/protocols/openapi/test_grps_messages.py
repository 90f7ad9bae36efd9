"""The accepted messages of GRPS are held against their schema in the published OpenAPI description."""

import copy
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final

import pytest

from core.dialects.grps.content import MAP_FIELDS
from core.dtype import BY_GRPS
from tests.support.asgi import Local
from tests.support.openapi import JSON, serving, validator

ANY: Final = """
import numpy as np

def predict(inputs, parameters):
    return {"inputs": np.array(len(inputs), np.int64)}
"""
ABSENT: Final = object()
ODD: Final = [None, True, 0, 1, 7, 10, -1, 1.0, 1.5, 1e300, 2**32, 2**70, "", "1", "-1", "+1", "01", "1.5", "1e1", " 1"]
TEXTS: Final = ["1.", "NaN", "-Infinity", "-NaN", "é", "YQ", "YQ==", "Pz8_", "Y", "e=", "DT_INT8", "DT_STRING"]
VALUES: Final = [ABSENT, *ODD, *TEXTS, [], [None], [1, 1], ["1"], [[1]], {}, {"x": None}, {"x": 1}, {"x": "YQ"}]
FIELDS: Final = {datatype.grps_field: name for name, datatype in BY_GRPS.items()}
BESIDE: Final = ["model", "ndarray", "str_data", "gtensors", "gmap", "name", "other", *MAP_FIELDS, *FIELDS]
SINGLE: Final = {field: {field: 1} for field in MAP_FIELDS} | {"s_s": {"s_s": "1"}, "s_b": {"s_b": "MQ=="}}
GIVEN: Final[dict[str, Any]] = {
    "str_data": {"model": "any", "str_data": "a"},
    "ndarray": {"model": "any", "ndarray": [[1, 2.5], ["NaN", 4]]},
    "gtensors": {"gtensors": {"tensors": [{"name": "x", "dtype": "DT_FLOAT32", "shape": [0]}]}},
    "gmap": {"gmap": SINGLE},
}
TENSORS: Final = {
    field: {"dtype": name, "shape": [1], field: ["1" if name == "DT_STRING" else 1]} for field, name in FIELDS.items()
}
BEYOND: Final = re.compile(
    r"elements?; its shape|has the dtype|is ragged|out of range|where s_b needs base64|has both"
    r"|is not in the repository"
    # JSON Schema takes 1.0 and 1e300 for integers.
    r"|has 1\.0 in its shape|has 1\.0 as dtype|has 1e\+300 where"
)
"""The refusals that the schema cannot express."""


@pytest.fixture(scope="module")
def anything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """The application over a model that accepts any tensor."""
    folder = tmp_path_factory.mktemp("any")
    (folder / "any" / "1").mkdir(parents=True)
    (folder / "any" / "1" / "model.py").write_text(ANY)
    client = Local(serving(folder, ALLOW_CODE="true"))
    yield client
    client.close()


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yields every container in a document, with each of its keys."""
    if isinstance(value, dict | list):
        for key, member in value.items() if isinstance(value, dict) else enumerate(value):
            yield value, key
            yield from places(member)


def changed(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yields the document, versions with a place replaced by each value, and some with further members in objects."""
    yield document
    for index, (owner, key) in enumerate(places(document)):
        further = [(name, value) for name in BESIDE if name not in owner for value in (None, True)]
        for name, value in [*((key, value) for value in VALUES), *(further if isinstance(owner, dict) else ())]:
            other = copy.deepcopy(document)
            place, _ = next(islice(places(other), index, None))
            place[name] = value
            if value is ABSENT:
                del place[name]
            yield other


@pytest.mark.parametrize("name", [*GIVEN, *TENSORS])
def test_what_is_accepted_is_what_the_schema_allows(anything: Local, name: str) -> None:
    """Forbidden messages are refused. Allowed ones are accepted, except for rules that the schema cannot express."""
    if name in GIVEN:
        messages = changed(GIVEN[name])
    else:
        messages = ({"gtensors": {"tensors": [tensor]}} for tensor in changed(TENSORS[name]))
    message_schema, answer_schema, refusal_schema = map(validator, ("GrpsMessage", "GrpsAnswer", "GrpsRefusal"))
    for message in messages:
        answer = anything.call("POST", "/grps/v1/infer/predict", json.dumps(message).encode(), {"content-type": JSON})
        if answer.status == 200:
            answer_schema.validate(answer.json())
            message_schema.validate(message)
        else:
            refusal_schema.validate(answer.json())
            assert answer.status in (400, 404)
            text = answer.json()["status"]["msg"]
            assert BEYOND.search(text) or not message_schema.is_valid(message), (text, message)

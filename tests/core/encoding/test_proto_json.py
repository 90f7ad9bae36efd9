"""core.encoding.proto_json: proto3's JSON as it is written, and what protobuf's reader of it refuses, and why."""

from typing import Any

import numpy as np
import orjson
import pytest
from google.protobuf import json_format

from core.dialects.rpcs import RPCS
from core.encoding import jsonio
from core.encoding.jsonio import TOGETHER, Oversized
from core.encoding.proto_json import KINDS, integers, unreadable
from core.schema.grps import GrpsMessage
from core.schema.open_inference import ModelInferRequest

INPUT = {"name": "x", "datatype": "FP32", "shape": [1]}


def refused(document: dict[str, Any], message: Any = ModelInferRequest) -> str:
    """Returns the refusal of a document, which protobuf must refuse."""
    with pytest.raises(json_format.ParseError) as error:
        json_format.ParseDict(document, message(), ignore_unknown_fields=True)
    return unreadable(document, message.DESCRIPTOR, str(error.value)).message


@pytest.mark.parametrize(("document", "told"), [
    ({"id": 5}, "id is 5; expected a string"),
    ({"modelName": ["m"]}, "modelName is ['m']; expected a string"),
    ({"model_name": True}, "model_name is true; expected a string"),
    ({"inputs": {}}, "inputs is {}; expected an array"),
    ({"inputs": [INPUT, None]}, "inputs[1] is null; expected an object"),
    ({"inputs": [INPUT, 5]}, "inputs[1] is 5; expected an object"),
    ({"inputs": [{**INPUT, "shape": 1}]}, "inputs[0].shape is 1; expected an array"),
    ({"inputs": [{**INPUT, "shape": [2.0, "3", 1.5]}]}, "inputs[0].shape[2] is 1.5; expected a whole number"),
    ({"inputs": [{**INPUT, "shape": ["1 "]}]}, "inputs[0].shape[0] is '1 '; expected a whole number"),
    ({"inputs": [{**INPUT, "shape": [True]}]}, "inputs[0].shape[0] is true; expected a whole number"),
    ({"inputs": [{**INPUT, "shape": [2**64]}]}, f"inputs[0].shape[0] is {2**64}; expected a whole number of 64 bits"),
    ({"parameters": []}, "parameters is []; expected an object"),
    ({"parameters": {"a": 5}}, "parameters['a'] is 5; expected an object"),
    ({"parameters": {"a": {"boolParam": 1}}}, "parameters['a'].boolParam is 1; expected true or false"),
    ({"outputs": [{"parameters": {"b": {"doubleParam": []}}}]}, "outputs[0].parameters['b'].doubleParam is []; exp"),
])  # fmt: skip
def test_a_member_of_a_wrong_kind_is_named_with_its_value(document: dict[str, Any], told: str) -> None:
    """The message has the place of the first one, as the client spells it."""
    assert refused(document).startswith(f"the body is not a ModelInferRequest in JSON: {told}")


@pytest.mark.parametrize(("name", "value", "told"), [
    ("int64Param", str(2**63), f"'{2**63}'; expected a whole number of 64 bits"),
    ("int64Param", -(2**63) - 1, f"{-(2**63) - 1}; expected a whole number of 64 bits"),
    ("int64Param", "9" * 5000, f"'{'9' * 252}..."),
    ("int64Param", -1e30, "-1e+30; expected a whole number of 64 bits"),
    ("uint64Param", -1, "-1; expected a whole number of 64 bits, not below 0"),
    ("uint64Param", Oversized("1e400"), "1e400; expected a whole number of 64 bits, not below 0"),
    ("doubleParam", Oversized("1e400"), "1e400; expected a number that a double holds"),
])  # fmt: skip
def test_a_number_out_of_range_is_named_with_its_parameter(name: str, value: Any, told: str) -> None:
    """Protobuf's own text names neither the parameter nor what would be right."""
    assert f"parameters['a'].{name} is {told}" in refused({"parameters": {"a": {name: value}}})


@pytest.mark.parametrize("name", ["int64Param", "uint64Param"])
def test_whole_numbers_at_the_ends_of_their_range_are_right(name: str) -> None:
    """A document is refused for the mistake that it has, and not for such a number before it."""
    for value in (
        "0",
        str(2**63 - 1),
        "00000000000000000000000001",
        *([-(2**63)] if name == "int64Param" else [2**64 - 1]),
    ):
        assert "id is 5" in refused({"id": 5, "parameters": {"a": {name: value}}})
        assert "outputs is 5" in refused({"parameters": {"a": {name: value}}, "outputs": 5})


def test_every_field_of_a_request_has_a_kind() -> None:
    """A new type of field in a .proto needs a row of the table."""
    waiting, seen = [method.request.DESCRIPTOR for method in RPCS], set()
    while waiting:
        kind = waiting.pop()
        if kind.full_name not in seen:
            seen.add(kind.full_name)
            waiting += [field.message_type for field in kind.fields if field.message_type]
            assert {field.type for field in kind.fields} <= KINDS.keys()


def test_a_number_of_an_enumeration_may_be_a_name() -> None:
    """Other values are not."""
    tensor = {"dtype": "DT_INT8", "name": None}
    told = "gtensors.tensors[1].dtype is []; expected a name or a whole number"
    assert told in refused({"gtensors": {"tensors": [tensor, {"dtype": []}]}}, GrpsMessage)


@pytest.mark.parametrize("document", [
    {"parameters": {"a": {"boolParam": True, "int64Param": "1"}}},
    {"parameters": {"a": {"doubleParam": "x"}}},
])  # fmt: skip
def test_any_other_mistake_has_protobufs_own_words(document: dict[str, Any]) -> None:
    """Every member has the right kind."""
    assert "Failed to parse" in refused(document)


def test_a_message_is_as_long_as_any_other() -> None:
    """A client chooses names and values."""
    assert len(refused({"parameters": {"a" * 10_000: {"boolParam": "b" * 10_000}}})) < 1000


def test_many_integers_are_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The writer stops all other threads until it returns."""
    sizes, dumps = [], orjson.dumps

    def noted(value: Any, **options: Any) -> bytes:
        sizes.append(getattr(value, "size", 0))
        return dumps(value, **options)

    monkeypatch.setattr(jsonio.orjson, "dumps", noted)
    array = np.arange(-1, TOGETHER, dtype=np.int64)
    assert jsonio.dumps(integers(array)) == dumps([*map(str, array.tolist())])
    assert 0 < max(sizes) <= TOGETHER

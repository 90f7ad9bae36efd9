"""core.dialects.grps.content: its types are those of the schema, and other types travel in them without loss."""

from typing import Any

import numpy as np
import pytest

from core.dialects.grps.content import CARRIERS, MAP_FIELDS, TYPES, carried, carrier, converted
from core.dtype import BF16, DATATYPES
from core.errors import InvalidInput, ModelFailed
from core.schema.grps import GenericMapData, GenericTensor, GrpsMessage
from tests.support.grps_samples import OWN, by_name, filled, same, tensor
from tests.support.samples import SHAPES

BF16_ONE, BF16_NAN = 0x3F80, 0x7FC0


def test_the_types_are_those_of_the_schema() -> None:
    """They have the schema's numbers."""
    values = GenericTensor.DESCRIPTOR.fields_by_name["dtype"].enum_type.values
    assert [value.number for value in values] == list(range(len(TYPES)))
    assert [value.name for value in values] == list(TYPES)


@pytest.mark.parametrize("datatype", OWN, **by_name)
def test_the_field_of_a_type_is_one_of_the_schema(datatype: Any) -> None:
    """Its elements are in that field and nowhere else."""
    assert datatype.grps in TYPES
    assert GenericTensor.DESCRIPTOR.fields_by_name[datatype.grps_field].is_repeated


def test_the_maps_are_those_of_the_schema() -> None:
    """The schema has no other maps."""
    assert list(MAP_FIELDS) == [field.name for field in GenericMapData.DESCRIPTOR.fields]


def test_the_message_has_the_numbers_of_the_protocol() -> None:
    """The clients have these numbers compiled in."""
    numbers = {
        name: {field.name: field.number for field in found.DESCRIPTOR.fields}
        for name, found in {"message": GrpsMessage, "tensor": GenericTensor, "map": GenericMapData}.items()
    }
    kinds = {"bin_data": 3, "str_data": 4, "gtensors": 5, "ndarray": 6, "gmap": 7}
    flat = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "string"]
    assert numbers["message"] == {"status": 1, "model": 2, **kinds}
    assert numbers["tensor"] == {
        "name": 1, "dtype": 2, "shape": 3, **{f"flat_{name}": 4 + index for index, name in enumerate(flat)}
    }  # fmt: skip
    assert numbers["map"] == {"s_s": 1, "s_b": 2, "s_i32": 3, "s_i64": 4, "s_f": 5, "s_d": 6}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("datatype", list(DATATYPES.values()), **by_name)
def test_every_datatype_comes_back_from_its_carrier(datatype: Any, shape: tuple[int, ...]) -> None:
    """Every shape is tried. A type of the protocol is its own carrier. UINT64 is carried as far as INT64 goes."""
    whole = filled(datatype, shape)
    if datatype.name == "UINT64":
        whole.array[whole.array > 2**63 - 1] = 2**63 - 1
    travelling = carried(whole)
    assert travelling.datatype is carrier(datatype)
    assert travelling.datatype.grps
    assert travelling.array.dtype == travelling.datatype.numpy
    assert same(converted(travelling, datatype) if datatype.name in CARRIERS else travelling, whole)


def test_an_integer_beyond_every_type_of_the_protocol_is_the_models_failure() -> None:
    """The client's request was correct."""
    with pytest.raises(ModelFailed, match="output 'y' has 9223372036854775808, which is beyond the range of DT_INT64"):
        carried(tensor("y", "UINT64", [0, 2**63]))


@pytest.mark.parametrize(("given", "values", "wanted"), [
    ("UINT8", [2], "BOOL"), ("INT32", [-1], "UINT16"), ("INT32", [65536], "UINT16"), ("INT64", [2**32], "UINT32"),
    ("INT64", [-1], "UINT64"), ("FP32", [3.4e38], "BF16"), ("FP64", [1e39], "BF16"), ("INT64", [2**17], "FP16"),
])  # fmt: skip
def test_what_the_narrower_type_does_not_hold_is_refused(given: str, values: list[Any], wanted: str) -> None:
    """The refusal names the input and its type."""
    with pytest.raises(InvalidInput, match=rf"input 'x' has .*out of range for {wanted}"):
        converted(tensor("x", given, [*values, 0]), DATATYPES[wanted])


@pytest.mark.parametrize("shape", [(), (1,)])
def test_bfloat16_is_rounded_and_keeps_what_is_no_number(shape: tuple[int, ...]) -> None:
    """A NaN of any bits stays a NaN, and numpy does not warn for scalars."""
    odd = np.array(0xFFFFFFFF, np.uint32).view(np.float32).reshape(shape)
    for value, bits in ((1.001, BF16_ONE), (odd, BF16_NAN), (np.inf, 0x7F80)):
        found = converted(tensor("x", "FP32", np.array(value, np.float32).reshape(shape)), BF16)
        assert found.array.shape == shape
        assert found.array.item() == bits

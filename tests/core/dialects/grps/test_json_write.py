"""core.dialects.grps.json_write: the form of answers, and that protobuf's reader finds in them what was put in."""

import json
from typing import Any

import numpy as np
import pytest
from google.protobuf import json_format

from core.dialects.grps import messages as grps_messages
from core.dialects.grps.content import Binary, Map, MapEntry, Numbers, Tensors, Text
from core.dialects.grps.json_read import camel
from core.dialects.grps.json_read import read as read_json
from core.dialects.grps.json_write import snake, write
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput
from core.schema.grps import GrpsMessage
from tests.support.grps_samples import OWN, by_name, filled, same, string, tensor
from tests.support.samples import SHAPES

OK = {"code": 200, "msg": "OK", "status": "SUCCESS"}
SPELLINGS = [snake, camel]


def told(content: Any, spell: Any = snake, non_finite: NonFinite | None = NonFinite.QUOTED) -> Any:
    """Returns the answer's only member beside its status."""
    found = json.loads(write(content, spell, non_finite))
    assert found.pop("status") == OK
    ((kind, value),) = found.items()
    return {kind: value}


def single(field: str, name: str, datatype: str, value: Any) -> MapEntry:
    """Returns one value of a map."""
    if isinstance(value, bytes):
        return MapEntry(field, string(name, value))
    return MapEntry(
        field, tensor(name, datatype, [value])._replace(array=tensor("", datatype, [value]).array.reshape(()))
    )


MAPS = Map(
    (single("s_s", "a", "BYTES", "żółw".encode()), single("s_b", "b", "BYTES", b"\xff\xfe\xfd"),
     single("s_i32", "c", "INT32", -1), single("s_i64", "d", "INT64", 2**53 + 1), single("s_f", "e", "FP32", 0.1),
     single("s_d", "f", "FP64", np.inf), single("s_s", "g", "BYTES", b"")),
)  # fmt: skip


def test_a_success_without_content_is_its_status_alone() -> None:
    """The text is compact, and its members have this order."""
    assert write(None, snake, None) == b'{"status":{"code":200,"msg":"OK","status":"SUCCESS"}}'


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("spell", SPELLINGS)
@pytest.mark.parametrize("datatype", OWN, **by_name)
def test_a_tensor_says_the_same_in_json_and_in_protobuf(datatype: Any, spell: Any, shape: tuple[int, ...]) -> None:
    """Protobuf's own reader and ours agree."""
    content = Tensors((filled(datatype, shape), filled(datatype, shape)._replace(name="")))
    body = write(content, spell, NonFinite.QUOTED)
    assert json_format.Parse(body, GrpsMessage()) == GrpsMessage.FromString(grps_messages.write(content))
    found = read_json(body).content
    assert isinstance(found, Tensors)
    assert all(same(*pair) for pair in zip(found.tensors, content.tensors, strict=True))


@pytest.mark.parametrize("spell", SPELLINGS)
@pytest.mark.parametrize("content", [Text(""), Text("a\0ż"), Binary(b"\xff"), Binary(b""), Tensors(()), Map(()), MAPS])
def test_every_other_form_says_the_same_in_json_and_in_protobuf(content: Any, spell: Any) -> None:
    """Empty contents are written, too."""
    body = write(content, spell, NonFinite.QUOTED)
    assert json_format.Parse(body, GrpsMessage()) == GrpsMessage.FromString(grps_messages.write(content))


def test_protobuf_reads_the_largest_floats() -> None:
    """It refuses their shortest digits, 3.4028235e38, which are beyond 32 bits as a double."""
    largest = float(np.finfo(np.float32).max)
    for content in (Tensors((tensor("y", "FP32", [-largest, 0.1]),)), Map((single("s_f", "a", "FP32", largest),))):
        found = json_format.Parse(write(content, snake, NonFinite.QUOTED), GrpsMessage())
        assert found == GrpsMessage.FromString(grps_messages.write(content))


def test_members_are_spelled_as_in_the_protocol_or_in_lower_camel_case() -> None:
    """Keys of maps are the models' names, and never change."""
    content = Tensors((tensor("y_y", "FP32", [0.5]),))
    assert told(content)["gtensors"]["tensors"][0].keys() == {"name", "dtype", "shape", "flat_float32"}
    assert told(content, camel)["gtensors"]["tensors"][0].keys() == {"name", "dtype", "shape", "flatFloat32"}
    assert told(Text("a"), camel) == {"strData": "a"}
    assert told(Map((single("s_i64", "k_k", "INT64", 1),)), camel) == {"gmap": {"sI64": {"k_k": "1"}}}


def test_what_has_its_default_is_left_out() -> None:
    """A scalar has no shape member, an empty tensor no elements, and an unnamed one no name."""
    scalar = tensor("", "FP32", [1.0])._replace(array=np.array(1, np.float32))
    nothing = tensor("n", "INT8", [], 0)
    assert told(Tensors((scalar, nothing)))["gtensors"]["tensors"] == [
        {"dtype": "DT_FLOAT32", "flat_float32": [1.0]},
        {"name": "n", "dtype": "DT_INT8", "shape": [0]},
    ]
    assert told(Tensors(())) == {"gtensors": {}}


def test_integers_of_64_bits_are_strings_and_shorter_ones_numbers() -> None:
    """The rule holds in maps, too."""
    tensors = told(Tensors((tensor("a", "INT64", [-(2**63), 0]), tensor("b", "INT32", [1, -1]))))["gtensors"]["tensors"]
    assert tensors[0]["flat_int64"] == ["-9223372036854775808", "0"]
    assert tensors[1]["flat_int32"] == [1, -1]
    assert told(MAPS)["gmap"]["s_i64"] == {"d": "9007199254740993"}


@pytest.mark.parametrize(("datatype", "value", "text"), [
    ("FP32", 0.1, b"[0.1]"), ("FP32", 16777217, b"[16777216.0]"), ("FP16", 0.1, b"[0.099975586]"),
    ("FP16", 65504, b"[65504.0]"), ("FP64", 0.1, b"[0.1]"),
])  # fmt: skip
def test_floats_have_the_fewest_digits_of_32_bits_or_of_64(datatype: str, value: float, text: bytes) -> None:
    """The protocol carries floats of 16 bits as floats of 32."""
    body = write(Tensors((tensor("y", datatype, [value]),)), snake, NonFinite.QUOTED)
    assert text in body


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64"])
def test_what_json_has_no_number_for_is_written_as_the_operator_chose(datatype: str) -> None:
    """They are strings, as in the protocol, also for null, which protobuf's parsers refuse; or an error."""
    odd = Tensors((tensor("y", datatype, [np.nan, np.inf, -np.inf, 1]),))
    flat = f"flat_float{datatype[2:]}"
    quoted = told(odd)["gtensors"]["tensors"][0][flat]
    assert quoted == ["NaN", "Infinity", "-Infinity", 1.0]
    assert told(odd, snake, NonFinite.NULL)["gtensors"]["tensors"][0][flat] == quoted
    with pytest.raises(InvalidInput, match="output 'y' has NaN or infinite elements"):
        write(odd, snake, None)


def test_an_ndarray_is_nested_as_its_shape_is() -> None:
    """A scalar becomes a number."""
    assert told(Numbers(np.array([[0.5, np.nan]], np.float32))) == {"ndarray": [[0.5, "NaN"]]}
    assert told(Numbers(np.array(0.5, np.float32))) == {"ndarray": 0.5}


def test_elements_that_do_not_lie_in_a_row_are_written_in_their_order() -> None:
    """The cases are a transposed array, and every other element of one."""
    array = np.arange(6, dtype=np.int64).reshape(2, 3).T
    strided = np.arange(6, dtype=np.float32)[::2]
    plain = Tensors((tensor("a", "INT64", [0])._replace(array=array), tensor("b", "FP32", [0])._replace(array=strided)))
    tensors = told(plain)["gtensors"]["tensors"]
    assert tensors[0]["flat_int64"] == ["0", "3", "1", "4", "2", "5"]
    assert tensors[1]["flat_float32"] == [0.0, 2.0, 4.0]
    assert json_format.ParseDict({"gtensors": {"tensors": tensors}}, GrpsMessage()) == GrpsMessage(
        gtensors=GrpsMessage.FromString(grps_messages.write(plain)).gtensors
    )

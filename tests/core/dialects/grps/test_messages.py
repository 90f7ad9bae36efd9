"""core.dialects.grps.messages: messages in protobuf become content, and content messages, quickly and alike."""

from typing import Any

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.grps import messages as grps_messages
from core.dialects.grps.content import Binary, GrpsQuestion, Map, Numbers, Tensors, Text
from core.dialects.grps.messages import NO_FIELD, WORTH_SPLITTING, refusal, success, write
from core.errors import InvalidInput, ModelNotFound, ServingError
from core.schema import fields as raw_fields
from core.schema.grps import GenericMapData, GenericTensor, GenericTensorData, GrpsMessage, NDArrayData
from tests.support.grps_samples import OWN, by_name, filled, read, same, tensor
from tests.support.samples import SHAPES

COUNT = WORTH_SPLITTING
FLOATS = ["FP16", "FP32", "FP64"]


def asked(**members: Any) -> GrpsQuestion:
    """Returns what a message says."""
    return read(GrpsMessage(**members).SerializeToString())


def gtensors(*tensors: Any) -> GenericTensorData:
    """Returns tensors that have these members."""
    return GenericTensorData(tensors=[GenericTensor(**members) for members in tensors])


def tensors(question: GrpsQuestion) -> Any:
    """Returns the tensors that a message carries."""
    assert isinstance(question.content, Tensors)
    return question.content.tensors


@pytest.mark.parametrize("size", [0, COUNT], ids=["small", "large"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("datatype", OWN, **by_name)
def test_every_type_comes_back_in_every_shape(datatype: Any, shape: tuple[int, ...], size: int) -> None:
    """A tensor travels alone, or beside one that makes the message a large one."""
    whole = filled(datatype, shape)
    heavy = tensor("", "FP32", np.arange(size))
    found = tensors(read(write(Tensors((whole, heavy)))))
    assert same(found[0], whole)
    assert same(found[1], heavy)
    assert all(each.array.flags.aligned for each in found)


@pytest.mark.parametrize("datatype", OWN, **by_name)
def test_many_elements_come_back(datatype: Any) -> None:
    """The rule holds for every type."""
    few = filled(datatype, (6,)).array
    whole = filled(datatype, (6,))._replace(array=np.tile(few, COUNT // 6).reshape(2, -1))
    assert same(tensors(read(write(Tensors((whole,)))))[0], whole)


def test_answers_are_what_protobuf_reads() -> None:
    """They have a status, and stand in the fields of the protocol."""
    whole = filled(OWN[-2], (2, 3))
    message = GrpsMessage.FromString(write(Tensors((whole,))))
    assert (message.status.code, message.status.msg, message.status.status) == (200, "OK", 1)
    assert message.model == ""
    (found,) = message.gtensors.tensors
    assert (found.name, found.dtype, list(found.shape)) == ("t", 8, [2, 3])
    assert list(found.flat_float64) == whole.array.ravel().tolist()


@pytest.mark.parametrize("content", [Text("ż"), Text(""), Binary(b"\xff"), Binary(b""), Map(()), Tensors(())])
def test_every_other_form_comes_back(content: Any) -> None:
    """The rule includes empty ones."""
    question = read(write(content))
    assert question == GrpsQuestion("", content)


def test_maps_are_read_with_the_type_of_each() -> None:
    """The values have no dimension, and come back unchanged."""
    values: dict[str, Any] = {
        "s_s": {"a": "ż"}, "s_b": {"b": b"\xff"}, "s_i32": {"c": -1}, "s_i64": {"d": 2**62}, "s_f": {"e": 0.5},
        "s_d": {"f": 1e300},
    }  # fmt: skip
    question = asked(model="m-1", gmap=GenericMapData(**values))
    content = question.content
    assert isinstance(content, Map)
    assert question.model == "m-1"
    found = {entry.field: {entry.tensor.name: entry.tensor.array.item()} for entry in content.entries}
    assert found == {**values, "s_s": {"a": "ż".encode()}}
    assert all(entry.tensor.array.shape == () for entry in content.entries)
    assert GrpsMessage.FromString(write(content)).gmap == GenericMapData(**values)


def test_other_fields_than_the_types_own_are_ignored() -> None:
    """A status in a request is ignored, too."""
    found = tensors(
        asked(
            status={"code": 5},
            gtensors=gtensors({"name": "x", "dtype": 4, "shape": [1], "flat_int32": [1], "flat_float32": [1, 2]}),
        )
    )
    assert same(found[0], tensor("x", "INT32", [1]))


@pytest.mark.parametrize(("members", "told"), [
    ({"dtype": 0}, "input 'x' has 0 as dtype; expected one of DT_UINT8,"),
    ({"dtype": 10}, "input 'x' has 10 as dtype"),
    ({"dtype": -1}, "input 'x' has -1 as dtype"),
    ({"shape": [3]}, r"input 'x' has 2 elements; its shape \[3\] needs 3"),
    ({"shape": []}, r"input 'x' has 2 elements; its shape \[\] needs 1"),
    ({"shape": [1] * 33}, "input 'x' has 33 dimensions"),
    ({"shape": [2**32 - 1] * 3}, "input 'x' has 2 elements"),
    ({"name": "", "shape": [3]}, r"input 'tensors\[0\]' has 2 elements"),
    ({"dtype": 1, "flat_uint8": [1, 256]}, "input 'x' has 256, which is out of range for UINT8"),
    ({"dtype": 2, "flat_int8": [1, -129]}, "input 'x' has -129, which is out of range for INT8"),
    ({"dtype": 6, "flat_float16": [1, 65536]}, "input 'x' has 65536.0, which is out of range for FP16"),
    ({"dtype": 9, "flat_string": ["a"]}, "input 'x' has 1 element"),
    ({"dtype": 7}, "input 'x' has the dtype DT_FLOAT32 and 'flat_int32'; expected 'flat_float32'"),
    ({"dtype": 9}, "input 'x' has the dtype DT_STRING and 'flat_int32'; expected 'flat_string'"),
    ({"dtype": 5, "flat_int32": [], "flat_float32": [1, 2]}, "has the dtype DT_INT64 and 'flat_float32'; expected 'fl"),
    ({"flat_int32": []}, "input 'x' has 0 elements"),
])  # fmt: skip
@pytest.mark.parametrize("padding", [0, COUNT], ids=["small", "large"])
def test_a_tensor_that_contradicts_itself_is_refused_by_its_name(members: Any, told: str, padding: int) -> None:
    """A tensor without a name is refused by its position."""
    given = {"name": "x", "dtype": 4, "shape": [2], "flat_int32": [1, 2], **members}
    heavy = {"dtype": 7, "shape": [padding], "flat_float32": np.zeros(padding)}
    with pytest.raises(InvalidInput, match=told):
        asked(gtensors=gtensors(given, heavy))


def test_a_message_without_content_is_refused() -> None:
    """So is a message with content that only JSON can express."""
    with pytest.raises(InvalidInput, match=f"^{NO_FIELD}$"):
        asked(model="m")
    with pytest.raises(InvalidInput, match="ndarray is for JSON alone"):
        asked(ndarray=NDArrayData())
    with pytest.raises(InvalidInput, match="ndarray is for JSON alone"):
        write(Numbers(np.ones(1, np.float32)))


def test_status_of_success_and_of_failure_are_messages() -> None:
    """The code is HTTP's."""
    done, failed = success(str_data="a"), refusal(ModelNotFound("no"))
    assert (done.status.code, done.status.msg, done.status.status, done.str_data) == (200, "OK", 1, "a")
    assert (failed.status.code, failed.status.msg, failed.status.status) == (404, "no", 2)


def framed(number: int, body: bytes) -> bytes:
    """Returns a field with these bytes."""
    return raw_fields.head(number, len(body)) + body


def in_gtensors(body: bytes) -> bytes:
    """Returns a message whose only tensor is these bytes."""
    return framed(5, framed(1, body))


def large(datatype: str = "FP32") -> tuple[Any, bytes]:
    """Returns a tensor that is large enough for splitting, and its message."""
    whole = tensor("x", datatype, np.arange(COUNT) % 100)
    message = GrpsMessage.FromString(write(Tensors((whole,))))
    return whole, message.gtensors.tensors[0].SerializeToString()


@pytest.mark.parametrize("datatype", FLOATS)
def test_packed_floats_are_never_made_objects(datatype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule holds in both directions."""
    monkeypatch.setattr(np, "fromiter", None)
    whole, body = large(datatype)
    assert same(tensors(read(in_gtensors(body)))[0], whole)


def test_a_message_in_parts_is_one() -> None:
    """Protobuf merges fields that occur twice."""
    whole, body = large()
    half = GenericTensor(name="z", dtype=7, shape=[1], flat_float32=[0.5]).SerializeToString()
    found = tensors(read(in_gtensors(body) + framed(2, b"m-1") + in_gtensors(half)))
    assert [each.name for each in found] == ["x", "z"]
    assert same(found[0], whole)
    packed = whole.array.tobytes()
    parts = framed(10, packed[: len(packed) // 2]), framed(10, packed[len(packed) // 2 :])
    head = GenericTensor(name="x", dtype=7, shape=[COUNT]).SerializeToString()
    assert same(tensors(read(in_gtensors(parts[0] + head + parts[1])))[0], whole)


def test_elements_one_by_one_among_packed_ones_keep_their_order() -> None:
    """Protobuf does the merging."""
    whole, body = large()
    longer = GenericTensor.FromString(body)
    longer.shape[:] = [COUNT + 1]
    single = b"\x55" + np.float32(7).tobytes()  # field 10, not packed
    found = tensors(read(in_gtensors(longer.SerializeToString() + single)))
    assert found[0].array.tolist() == [*whole.array.tolist(), 7.0]


def test_the_last_kind_of_content_counts() -> None:
    """Protobuf has this rule everywhere."""
    _, body = large()
    assert read(in_gtensors(body) + framed(4, b"a")).content == Text("a")
    assert len(tensors(read(framed(4, b"a") + in_gtensors(body)))) == 1


@pytest.mark.parametrize("body", [
    in_gtensors(framed(10, bytes(COUNT + 1))),
    in_gtensors(large()[1] + b"\x0a\2\xff\xff"),
    framed(5, framed(1, large()[1]) + b"\x0a\xff"),
    in_gtensors(large()[1]) + b"\x12\1\xff",
    in_gtensors(large()[1])[:-1],
    b"\xff" * COUNT,
    framed(5, b"\xff" * COUNT),
    in_gtensors(b"\xff" * COUNT),
])  # fmt: skip
def test_a_large_message_that_is_broken_is_none(body: bytes) -> None:
    """The rule holds at every depth."""
    with pytest.raises(DecodeError):
        read(body)


@pytest.mark.parametrize("fields", [1, 300])
def test_very_many_tensors_are_left_to_protobuf(fields: int) -> None:
    """So are very many fields of one tensor."""
    small = GenericTensor(name="s", dtype=7, shape=[1], flat_float32=[0.5]).SerializeToString()
    whole, body = large()
    found = tensors(read(framed(5, framed(1, body) + framed(1, small) * fields)))
    assert len(found) == fields + 1
    assert same(found[0], whole)
    assert same(tensors(read(in_gtensors(body + framed(1, b"x") * fields)))[0], whole)


@pytest.mark.parametrize(("count", "padding"), [(0, COUNT), (2, 0), (2, COUNT), (300, COUNT)])
def test_a_message_tells_how_many_tensors_it_has_before_they_are_made(
    count: int, padding: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule holds for small messages, large ones, and those that are left to protobuf."""
    monkeypatch.setattr(grps_messages, "_tensor", None)
    request = grps_messages.read(framed(9, bytes(padding)) + framed(5, framed(1, b"\x10\x07") * count))
    assert (request.kind, request.tensor_count) == ("gtensors", count)


@given(st.binary(max_size=80), st.sampled_from([0, COUNT]))
def test_any_bytes_are_read_or_refused(body: bytes, padding: int) -> None:
    """The rule holds for small messages and large ones."""
    for candidate in (body, in_gtensors(body)):
        blank = framed(9, bytes(padding)) if padding else b""  # an unknown field
        try:
            assert isinstance(read(blank + candidate), GrpsQuestion)
        except (DecodeError, ServingError):
            continue


PIECES = st.sampled_from(
    [
        framed(1, b"x"), b"\x10\x07", b"\x10\x06", b"\x10\x08", framed(3, b"\2"), framed(3, b"\1"), b"\x18\2",
        framed(10, np.float32([1, 2]).tobytes()), framed(10, b""), b"\x55" + np.float32(3).tobytes(),
        framed(9, np.float32([1, 70000]).tobytes()), framed(11, np.float64([1, 2]).tobytes()), framed(10, b"abc"),
        b"\x59" + np.float64(3).tobytes(), b"\x3a\1\5", b"\x62\1a", b"\xa8\x06\x05", b"\xff",
    ]
)  # fmt: skip


@given(st.lists(PIECES, max_size=9).map(b"".join))
def test_a_large_message_says_what_a_small_one_says(body: bytes) -> None:
    """Its fields come in any order, packed or not, with unknown ones among them."""
    blank = framed(9, bytes(COUNT))
    found: list[Any] = []
    for message in (in_gtensors(body), blank + in_gtensors(body)):
        try:
            found.append(tensors(read(message)))
        except (DecodeError, ServingError) as error:
            found.append(type(error))
    small, other = found
    assert small == other if isinstance(small, type) else all(same(*pair) for pair in zip(small, other, strict=True))


def test_the_module_has_no_other_way_to_large_messages() -> None:
    """The quick reader returns None where it leaves a message to protobuf."""
    assert grps_messages._large(framed(4, b"a")) is None
    assert grps_messages._large(b"\xff") is None

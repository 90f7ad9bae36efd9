"""Messages that the protocol forbids, one per line: what is wrong, the message, and what its refusal must name.

Each starts from a correct request to `add_sub` (INPUT0, INPUT1 INT32 [16]) or to an identity, and one thing is changed.
"""

from typing import Any, Final, NamedTuple

import numpy as np

from core.schema import open_inference as oip
from tests.support.remote import question, raw, typed, wanted

RAMP: Final = np.arange(16, dtype=np.int32)
TEXTS: Final = np.array([b"a", b"bc"], object)


class Bad(NamedTuple):
    """One bad message. `culprit`: a regular expression that the text of the refusal must match."""

    name: str
    message: oip.ModelInferRequest | bytes
    culprit: str


def both(**members: Any) -> oip.ModelInferRequest:
    """Returns a correct request, raw."""
    return question("add_sub", raw("INPUT0", "INT32", RAMP), raw("INPUT1", "INT32", RAMP), **members)


def both_typed(**members: Any) -> oip.ModelInferRequest:
    """Returns a correct request, typed."""
    return question("add_sub", typed("INPUT0", "INT32", RAMP), typed("INPUT1", "INT32", RAMP), **members)


def changed(message: oip.ModelInferRequest, **members: Any) -> oip.ModelInferRequest:
    """Returns the request with other members of its first input; lists are replaced."""
    for name, value in members.items():
        if isinstance(value, list):
            del getattr(message.inputs[0], name)[:]
            getattr(message.inputs[0], name).extend(value)
        elif isinstance(value, dict):
            message.inputs[0].ClearField(name)
            getattr(message.inputs[0], name).MergeFrom(oip.InferTensorContents(**value))
        else:
            setattr(message.inputs[0], name, value)
    return message


def with_raw(*contents: bytes, message: oip.ModelInferRequest | None = None) -> oip.ModelInferRequest:
    """Returns the request with other raw contents."""
    message = message or both()
    del message.raw_input_contents[:]
    message.raw_input_contents.extend(contents)
    return message


def parameter(message: oip.ModelInferRequest, owner: Any, name: str, **value: Any) -> oip.ModelInferRequest:
    """Returns the request with a parameter of one of its parts."""
    owner.parameters[name].CopyFrom(oip.InferParameter(**value))
    return message


def identity(kind: str, **contents: Any) -> oip.ModelInferRequest:
    """Returns two elements of an identity in contents that need not fit."""
    tensor = oip.ModelInferRequest.InferInputTensor(name="INPUT0", datatype=kind, shape=[2])
    tensor.contents.CopyFrom(oip.InferTensorContents(**contents))
    return question(f"identity_{kind.lower()}", tensor)


def strings(content: bytes, shape: int = 2) -> oip.ModelInferRequest:
    """Returns raw BYTES whose lengths need not fit."""
    tensor = oip.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="BYTES", shape=[shape])
    return question("identity_bytes", (tensor, content))


REGION: Final = "shared_memory_region"
FOUR: Final = RAMP.tobytes()
SHAPES: Final = {
    "negative": [-16], "negative_pair": [-4, -4], "short": [15], "long": [17], "empty": [], "zero": [0],
    "huge": [2**62, 2**62], "wraps_to_16": [2**63 - 1, 2, 2**62], "many": [1] * 40,
}  # fmt: skip
_BOTH, _OUTPUT, _INPUT = both(), both(outputs=wanted("OUTPUT0")), both()

BAD_MESSAGES: Final = [
    Bad("no_message", b"\x0a", "ModelInferRequest"),
    Bad("no_utf8", b"\x0a\x02\xff\xff", "ModelInferRequest"),
    Bad("cut", both().SerializeToString()[:-3], "ModelInferRequest"),
    Bad("no_inputs", question("add_sub"), "INPUT0"),
    Bad("one_input", question("add_sub", raw("INPUT0", "INT32", RAMP)), "INPUT1"),
    Bad("one_input_typed", question("add_sub", typed("INPUT0", "INT32", RAMP)), "INPUT1"),
    Bad("unknown_input", changed(both(), name="INPUT9"), "INPUT9"),
    Bad("unnamed_input", changed(both(), name=""), "''"),
    Bad("input_twice", changed(both(), name="INPUT1"), "INPUT1.*twice"),
    Bad("datatype_unknown", changed(both(), datatype="INT33"), "INPUT0.*INT33"),
    Bad("datatype_empty", changed(both(), datatype=""), "datatype.*INPUT0"),
    Bad("datatype_lower", changed(both(), datatype="int32"), "INPUT0.*int32"),
    Bad("datatype_other", changed(both(), datatype="FP32"), "INPUT0.*FP32"),
    Bad("datatype_other_typed", changed(both_typed(), datatype="FP32"), "INPUT0.*int_contents"),
    *(Bad(f"shape_{name}", changed(both(), shape=shape), "INPUT0") for name, shape in SHAPES.items()),
    *(Bad(f"shape_{name}_typed", changed(both_typed(), shape=shape), "INPUT0") for name, shape in SHAPES.items()),
    Bad("raw_short", with_raw(FOUR[:-1], FOUR), "INPUT0.*63 bytes"),
    Bad("raw_long", with_raw(FOUR, FOUR + b"\0"), "INPUT1.*65 bytes"),
    Bad("raw_missing", with_raw(FOUR), "INPUT1.*raw_input_contents"),
    Bad("raw_too_many", with_raw(FOUR, FOUR, FOUR), "raw_input_contents.*3"),
    Bad("raw_and_typed", with_raw(FOUR, FOUR, message=both_typed()), "INPUT0.*contents"),
    Bad("raw_and_one_typed", changed(both(), contents={"int_contents": [1]}), "INPUT0.*contents"),
    Bad("typed_absent", changed(both_typed(), contents={}), "INPUT0.*0 elements"),
    Bad("typed_other_field", changed(both_typed(), contents={"int64_contents": RAMP.tolist()}), "INPUT0.*int64_cont"),
    Bad("typed_two_fields", changed(both_typed(), contents={"int_contents": RAMP, "fp32_contents": [1]}), "fp32_cont"),
    Bad("int8_range", identity("INT8", int_contents=[0, 128]), "INPUT0.*128.*INT8"),
    Bad("int16_range", identity("INT16", int_contents=[0, -32769]), "INPUT0.*-32769.*INT16"),
    Bad("uint8_range", identity("UINT8", uint_contents=[0, 256]), "INPUT0.*256.*UINT8"),
    Bad("uint16_range", identity("UINT16", uint_contents=[0, 65536]), "INPUT0.*65536.*UINT16"),
    Bad("fp16_typed", identity("FP16", fp32_contents=[1, 2]), "INPUT0.*FP16.*raw"),
    Bad("bf16_typed", identity("BF16", fp32_contents=[1, 2]), "INPUT0.*BF16.*raw"),
    Bad("bytes_no_length", strings(b"abcdefg"), "INPUT0"),
    Bad("bytes_cut_length", strings(b"\1\0\0\0a\1\0"), "INPUT0.*length"),
    Bad("bytes_length_beyond", strings(b"\1\0\0\0a\xff\xff\xff\xffb"), "INPUT0.*4294967295"),
    Bad("bytes_too_few", strings(b"\1\0\0\0a"), "INPUT0.*1 element"),
    Bad("bytes_too_many", strings(b"\0\0\0\0" * 3), "INPUT0.*3 elements"),
    Bad("output_unknown", both(outputs=wanted("OUTPUT9")), "OUTPUT9"),
    Bad("output_unnamed", both(outputs=wanted("")), "''"),
    Bad("output_twice", both(outputs=wanted("OUTPUT0", "OUTPUT0")), "OUTPUT0.*twice"),
    Bad("output_is_an_input", both(outputs=wanted("INPUT0")), "INPUT0"),
    *(
        Bad(f"classes_{name}", both(outputs=wanted("OUTPUT0", classification=value)), "classification.*OUTPUT0")
        for name, value in {
            "zero": {"int64_param": 0}, "negative": {"int64_param": -1}, "text": {"string_param": "2"},
            "flag": {"bool_param": True}, "fraction": {"double_param": 1.5},
        }.items()
    ),
    Bad("shared_request", parameter(_BOTH, _BOTH, REGION, string_param="r"), REGION),
    Bad("shared_input", parameter(_INPUT, _INPUT.inputs[0], REGION, string_param="r"), f"INPUT0.*{REGION}"),
    Bad("shared_output", parameter(_OUTPUT, _OUTPUT.outputs[0], REGION, string_param="r"), f"OUTPUT0.*{REGION}"),
    Bad("parameter_empty", both(parameters={"p": oip.InferParameter()}), "'p'"),
    Bad("raw_output_text", both(parameters={"binary_data_output": oip.InferParameter(string_param="x")}), "binary_da"),
]  # fmt: skip

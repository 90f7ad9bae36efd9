"""Requests that the binary tensor data extension forbids, in the form of `bad_requests`."""

import json
import struct
from typing import Any, Final

import numpy as np

from tests.protocols.v2.bad_requests import bad as any_bad
from tests.protocols.v2.bad_requests import changed, encoded, good
from tests.support.wire import HEADER_LENGTH, pack

ADD_SUB: Final = "add_sub"
RAMP: Final = np.arange(16, dtype="<i4").tobytes()


def bad(name: str, model: str, body: bytes, culprit: str, headers: dict[str, str]) -> Any:
    """Returns the case of a refused binary request."""
    return any_bad(name, model, body, culprit, headers, "R-201 R-202 R-203 R-208 R-209")


def head(name: str, size: Any = 64, **more: Any) -> dict[str, Any]:
    """Returns an input of add_sub whose elements follow the JSON."""
    return {"name": name, "datatype": "INT32", "shape": [16], "parameters": {"binary_data_size": size}, **more}


def packed(name: str, culprit: str, first: dict[str, Any], *parts: bytes) -> Any:
    """Returns a request to add_sub with another first input or other parts."""
    body, headers = pack({"inputs": [first, head("INPUT1")]}, parts or (RAMP, RAMP))
    return bad(f"binary_{name}", ADD_SUB, body, culprit, headers)


def measured(name: str, length: str) -> Any:
    """Returns a correct request with another length of the header."""
    body, _ = pack({"inputs": [head("INPUT0"), head("INPUT1")]}, [RAMP, RAMP])
    return bad(f"header_{name}", ADD_SUB, body, "header|inference-header-content-length|json", {HEADER_LENGTH: length})


def text(name: str, part: bytes, shape: list[int], culprit: str = "INPUT0") -> Any:
    """Returns BYTES to the identity over strings."""
    parameters = {"binary_data_size": len(part)}
    own = {"name": "INPUT0", "datatype": "BYTES", "shape": shape, "parameters": parameters}
    body, headers = pack({"inputs": [own]}, [part])
    return bad(f"text_{name}", "identity_bytes", body, culprit, headers)


def element(content: bytes) -> bytes:
    """Returns one element of BYTES."""
    return struct.pack("<I", len(content)) + content


def json_only(name: str, length: int) -> Any:
    """Returns a correct request without binary inputs, whose header states another length than its body has."""
    body = encoded(good())
    return bad(f"header_of_json_{name}", ADD_SUB, body, "header|json", {HEADER_LENGTH: str(len(body) + length)})


RIGHT_LENGTH = len(json.dumps({"inputs": [head("INPUT0"), head("INPUT1")]}))
HEADERS = {
    "negative": "-1", "word": "many", "fraction": "10.5", "exponent": "1e3", "hexadecimal": "0x10", "underscore": "1_0",
    "plus": f"+{RIGHT_LENGTH}", "two_numbers": "10 20", "list": "10,20", "beyond_the_body": str(RIGHT_LENGTH + 129),
    "int64": str(2**63), "beyond_uint64": str(10**30), "digits_5000": "9" * 5000, "one_less": str(RIGHT_LENGTH - 1),
    "one_more": str(RIGHT_LENGTH + 1), "whole_body": str(RIGHT_LENGTH + 128), "other_digits": "\u00b2",
}  # fmt: skip
SIZES: dict[str, Any] = {
    "negative": -64, "text": "64", "fraction": 64.5, "true": True, "list": [64], "less": 60, "more": 68,
    "beyond_the_body": 1_000_000, "beyond_int64": 2**64, "thirty_digits": 10**30, "zero": 0,
}  # fmt: skip

BAD_BINARIES: Final = [
    *(measured(name, length) for name, length in HEADERS.items()),
    *(packed(f"size_{name}", "INPUT0", head("INPUT0", size)) for name, size in SIZES.items()),
    packed("parts_absent", "INPUT0|INPUT1", head("INPUT0"), b""),
    packed("part_cut", "INPUT1", head("INPUT0"), RAMP, RAMP[:-1]),
    packed("second_part_absent", "INPUT1", head("INPUT0"), RAMP),
    packed("stray_byte", "byte|binary", head("INPUT0"), RAMP, RAMP, b"\0"),
    packed("stray_part", "byte|binary", head("INPUT0"), RAMP, RAMP, RAMP),
    packed("data_and_size", "INPUT0", head("INPUT0", data=list(range(16)))),
    packed("no_data_and_stray", "INPUT0|byte|binary", head("INPUT0", data=[]), RAMP, RAMP),
    packed("shape_other", "INPUT0", head("INPUT0", shape=[15])),
    packed("shape_huge", "INPUT0", head("INPUT0", shape=[1, 1 << 40])),
    packed("shape_overflow", "INPUT0", head("INPUT0", shape=[1 << 32, 1 << 32, 16])),
    packed("shape_negative", "INPUT0", head("INPUT0", shape=[-1])),
    packed("datatype_other", "INPUT0", head("INPUT0", datatype="FP32")),
    packed("datatype_unknown", "INT33", head("INPUT0", datatype="INT33")), packed("twice", "INPUT1", head("INPUT1")),
    packed("name_absent", "name", changed(head("INPUT0"), "name", None)),
    packed("parameters_text", "parameters", changed(head("INPUT0"), "parameters", "64")),
    packed("shared_memory", "shared", {**head("INPUT0"), "parameters": {"shared_memory_region": "r"}}),
    text("length_beyond_part", struct.pack("<I", 100) + b"abc", [1]),
    text("length_of_4_gigabytes", struct.pack("<I", 0xFFFFFFFF) + b"abc", [1]), text("length_cut", b"\x01\x00", [1]),
    text("less_than_shape", element(b"a"), [2]), text("more_than_shape", element(b"a") * 3, [2]),
    text("stray_after_last", element(b"a") + b"\0", [1]), text("nothing_for_one", b"", [1]),
    text("something_for_nothing", element(b"a"), [0]), text("shape_huge", element(b"a"), [1, 1 << 40]),
    json_only("more", 1), json_only("far_more", 1000), json_only("less", -1),
    bad("raw_two_inputs", ADD_SUB, RAMP * 2, "INPUT|input", {HEADER_LENGTH: "0"}),
    bad("raw_two_variable_dimensions", "matrix", RAMP, "INPUT0|shape|dimension", {HEADER_LENGTH: "0"}),
    bad("raw_one_element_of_a_matrix", "matrix", RAMP[:4], "INPUT0|shape|dimension", {HEADER_LENGTH: "0"}),
    bad("raw_text_of_a_vector", "vector_bytes", b"abc", "INPUT0|BYTES", {HEADER_LENGTH: "0"}),
    bad("raw_unaligned", "vector_int32", RAMP[:-1], "INPUT0|byte", {HEADER_LENGTH: "0"}),
    bad("raw_other_size", "fixed", RAMP, "INPUT0|byte", {HEADER_LENGTH: "0"}),
]  # fmt: skip

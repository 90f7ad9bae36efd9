"""Requests that V2 forbids, one per line: what is wrong, the request, and what its refusal must name.

Each starts from a correct request to `add_sub` (INPUT0, INPUT1 INT32 [16]) or to an identity, and one thing is changed.
A culprit is a regular expression that the text of the refusal must match, whatever its case.
"""

import json
import re
from typing import Any, Final

from tests.support.catalogue import row
from tests.support.checks import Bad
from tests.support.zoo.models import DATATYPES

ABSENT: Final = object()
ADD_SUB: Final = "add_sub"


def bad(name: str, model: str, body: bytes, culprit: str, headers: dict[str, str] | None = None, rows: str = "") -> Any:
    """Returns the case of an inference that is refused by the name of its culprit."""
    pattern = re.compile(culprit, re.IGNORECASE | re.DOTALL)
    refused = Bad(f"/v2/models/{model}/infer", body, pattern, headers or {})
    return row(rows or "R-200 R-201 R-202 R-203 R-208", refused, name=name)


def ramp(name: str) -> dict[str, Any]:
    """Returns a correct input of add_sub."""
    return {"name": name, "datatype": "INT32", "shape": [16], "data": list(range(16))}


def good() -> dict[str, Any]:
    """Returns a correct request to add_sub."""
    return {"inputs": [ramp("INPUT0"), ramp("INPUT1")]}


def encoded(document: Any) -> bytes:
    """Returns the JSON of a document."""
    return json.dumps(document).encode()


def changed(target: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    """Returns the object with another member, or without this one."""
    return {k: v for k, v in target.items() if k != key} if value is ABSENT else {**target, key: value}


def top(name: str, key: str, value: Any, culprit: str) -> Any:
    """Returns the request with a changed member."""
    return bad(name, ADD_SUB, encoded(changed(good(), key, value)), culprit)


def first(name: str, key: str, value: Any, culprit: str) -> Any:
    """Returns the request with a changed member of the first input."""
    document = {"inputs": [changed(ramp("INPUT0"), key, value), ramp("INPUT1")]}
    return bad(name, ADD_SUB, encoded(document), culprit)


def asked(name: str, outputs: Any, culprit: str) -> Any:
    """Returns the request with a changed choice of outputs."""
    return bad(name, ADD_SUB, encoded({**good(), "outputs": outputs}), culprit)


def values(name: str, datatype: str, data: str, culprit: str, shape: str = "[2]") -> Any:
    """Returns the data of an identity, written as text."""
    head = f'{{"name": "INPUT0", "datatype": "{datatype}", "shape": {shape}, "data": {data}}}'
    return bad(f"{datatype.lower()}_{name}", DATATYPES[datatype].model, f'{{"inputs": [{head}]}}'.encode(), culprit)


NULL = {"null": None}
NOT_A_LIST = {**NULL, "text": "x", "number": 1, "true": True, "object": {}}
NOT_TEXT = {**NULL, "number": 1, "true": True, "list": ["x"], "object": {}}
NOT_AN_OBJECT = {"text": "x", "number": 1, "false": False, "list": []}

BYTES_OF_NO_DOCUMENT = [
    bad("empty", ADD_SUB, b"", r"json|empty|body"), bad("blank", ADD_SUB, b" \n ", r"json|empty|body"),
    bad("cut", ADD_SUB, encoded(good())[:100], r"json"), bad("cut_at_once", ADD_SUB, b"{", r"json"),
    bad("not_utf8", ADD_SUB, b'{"inputs": "\xff\xfe"}', r"json|utf-8"),
    bad("utf16", ADD_SUB, json.dumps(good()).encode("utf-16"), r"json|utf-8"),
    bad("rest", ADD_SUB, encoded(good()) + b" x", r"json"), bad("two_documents", ADD_SUB, encoded(good()) * 2, r"json"),
    bad("single_quotes", ADD_SUB, b"{'inputs': []}", r"json"),
    bad("trailing_comma", ADD_SUB, b'{"inputs": [],}', r"json"),
    bad("comment", ADD_SUB, b'{"inputs": [] /* none */}', r"json"),
    bad("control_character", ADD_SUB, b'{"id": "a\x01b", "inputs": []}', r"json"),
    bad("form", ADD_SUB, b"inputs=1&id=2", r"json"), bad("deep", ADD_SUB, b"[" * 100_000, r"json|deep|nest|object"),
    bad("deep_closed", ADD_SUB, b'{"inputs": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", r"json|deep|nest|input"),
    bad("deep_objects", ADD_SUB, b'{"a":' * 50_000 + b"1" + b"}" * 50_000, r"json|deep|nest|input"),
    *(bad(f"document_{name}", ADD_SUB, text, r"object") for name, text in (
        ("list", b"[]"), ("text", b'"x"'), ("number", b"1"), ("null", b"null"), ("true", b"true"))),
]  # fmt: skip

OF_THE_REQUEST: Final[Any] = (
    ("inputs", "inputs", {"absent": ABSENT, **NOT_A_LIST}), ("inputs", "INPUT0|inputs", {"empty": []}),
    ("inputs", "inputs", {f"with_{name}": [value, ramp("INPUT1")] for name, value in (NOT_AN_OBJECT | NULL).items()}),
    ("inputs", "INPUT1", {"missing": [ramp("INPUT0")]}),
    ("inputs", "INPUT2", {"unknown": [ramp("INPUT0"), ramp("INPUT1"), ramp("INPUT2")]}),
    ("inputs", "INPUT0", {"twice": [ramp("INPUT0"), ramp("INPUT1"), ramp("INPUT0")]}),
    ("inputs", "input0", {"case": [ramp("input0"), ramp("INPUT1")]}),
    ("inputs", "INPUT|inputs", {"10000": [ramp(f"INPUT{i}") for i in range(10_000)]}),
    ("id", r"\bid\b", {name: value for name, value in NOT_TEXT.items() if name != "null"}),
    ("parameters", "parameters", NOT_AN_OBJECT),
    ("parameters", "binary_data_output", {"text": {"binary_data_output": "yes"}, "2": {"binary_data_output": 2}}),
)  # fmt: skip
"""Each row has the member, the culprit, and values by what is wrong with them."""
OF_AN_INPUT: Final[Any] = (
    ("name", "name", {"absent": ABSENT, **NOT_TEXT}), ("name", "name|input", {"empty": ""}),
    ("name", "nnn", {"long": "n" * 5000}), ("name", "name|input|utf|surrogate|json", {"surrogate": "\ud800"}),
    ("datatype", "datatype", {"absent": ABSENT, **NOT_TEXT}),
    *(("datatype", value, {name: value}) for name, value in (
        ("unknown", "INT33"), ("lower_case", "int32"), ("string", "STRING"), ("numpys", "<i4"))),
    *(("datatype", f"INPUT0.*{value}|{value}.*INPUT0", {name: value}) for name, value in (
        ("another", "FP32"), ("wider", "INT64"))),
    ("shape", "shape", {"absent": ABSENT, **NOT_A_LIST, "of_text": ["16"], "of_null": [None], "of_true": [True],
                        "of_lists": [[16]], "of_objects": [{}], "fraction": [15.5]}),
    ("shape", "shape|-16", {"negative": [-16]}), ("shape", "shape|-4", {"negative_twice": [-4, -4]}),
    ("shape", "shape|-1", {"to_infer": [-1]}),
    ("shape", "INPUT0", {"less": [15], "more": [17], "other_rank": [4, 4], "scalar": [],
                         "many_dimensions": [1] * 1000 + [16], "many_dimensions_of_numpy": [1] * 64 + [16]}),
    ("data", "INPUT0.*data|data.*INPUT0", NOT_A_LIST),
    ("data", "INPUT0", {"absent": ABSENT, "less": [1] * 15, "more": [1] * 17, "none": [], "of_text": ["x"] * 16,
                        "of_null": [1] * 15 + [None], "of_objects": [1] * 15 + [{}], "of_lists": [1] * 15 + [[]],
                        "deep": json.loads("[" * 200 + "1" + "]" * 200)}),
    ("parameters", "parameters", NOT_AN_OBJECT),
    ("parameters", "shared", {"shared_memory": {"shared_memory_region": "r", "shared_memory_byte_size": 64}}),
    ("parameters", "INPUT0", {"binary_size_without_header": {"binary_data_size": 64}}),
)  # fmt: skip
SIZES = {"64": 64, "negative": -1, "text": "64", "fraction": 64.5, "true": True, "list": [64]}
MEMBERS = [
    *(top(f"{key}_{name}", key, value, culprit) for key, culprit, odd in OF_THE_REQUEST for name, value in odd.items()),
    *(first(f"{key}_{name}", key, value, culprit) for key, culprit, odd in OF_AN_INPUT for name, value in odd.items()),
    *(top(f"binary_only_{name}", "inputs", [changed(
        {**ramp("INPUT0"), "parameters": {"binary_data_size": size}}, "data", ABSENT)], "INPUT0")
      for name, size in SIZES.items()),
]  # fmt: skip

HUGE_SHAPES = {
    "of_the_issue": "[1, 1099511627776]", "one_great_dimension": "[1099511627776]",
    "product_64": "[4294967296, 4294967296]", "product_64_and_one": "[4294967296, 4294967296, 1]",
    "product_wraps_to_two": "[9223372036854775809, 2]", "int64": "[9223372036854775807]",
    "beyond_int64": "[9223372036854775808]", "uint64": "[18446744073709551615]",
    "beyond_uint64": "[18446744073709551616]", "thirty_digits": "[1000000000000000000000000000000]",
    "five_thousand_digits": f"[{'9' * 5000}]", "float": "[1e300]", "infinite": "[1e999]", "nan": "[NaN]",
    "many": str([2] * 200),
}  # fmt: skip
SHAPES = [
    values(f"shape_{name}", datatype, data, "INPUT0|shape", shape)
    for name, shape in HUGE_SHAPES.items()
    for datatype, data in (("FP32", "[1]"), ("BYTES", '["a", "b"]'))
]

OUTPUTS = [
    *(asked(f"outputs_{name}", value, "outputs") for name, value in NOT_A_LIST.items() if name != "null"),
    asked("output_null", [None], "output"), asked("output_text", ["OUTPUT0"], "output"),
    asked("output_list", [[]], "output"), asked("output_name_absent", [{}], "name"),
    asked("output_name_null", [{"name": None}], "name"), asked("output_name_number", [{"name": 0}], "name"),
    asked("output_unknown", [{"name": "OUTPUT9"}], "OUTPUT9"),
    asked("output_is_an_input", [{"name": "INPUT0"}], "INPUT0"),
    asked("output_twice", [{"name": "OUTPUT0"}, {"name": "OUTPUT0"}], "OUTPUT0"),
    asked("output_parameters_text", [{"name": "OUTPUT0", "parameters": "x"}], "parameters"),
    asked("output_parameters_list", [{"name": "OUTPUT0", "parameters": []}], "parameters"),
    asked("output_binary_text", [{"name": "OUTPUT0", "parameters": {"binary_data": "no"}}], "binary_data"),
    asked("output_shared_memory", [{"name": "OUTPUT0", "parameters": {"shared_memory_region": "r"}}], "shared"),
    *(asked(f"classification_{name}", [{"name": "OUTPUT0", "parameters": {"classification": value}}],
            "classif") for name, value in {"0": 0, "negative": -1, "text": "2", "fraction": 1.5, "true": True}.items()),
]  # fmt: skip

LIMITS = {f"{sign}INT{bits}": (sign, bits) for sign in ("", "U") for bits in (8, 16, 32, 64)}
RANGES = [
    case
    for datatype, (sign, bits) in LIMITS.items()
    for case in (
        values("above", datatype, f"[0, {2 ** (bits - (sign == ''))}]", f"INPUT0.*{2 ** (bits - (sign == ''))}"),
        values("below", datatype, f"[0, {-1 if sign else -(2 ** (bits - 1)) - 1}]", "INPUT0.*-"),
        values("far_above", datatype, f"[0, {10**40}]", "INPUT0"),
        values("above_as_float", datatype, "[0, 1e30]", "INPUT0"),
        values("above_nested", datatype, f"[[0], [{2 ** (bits - (sign == ''))}]]", "INPUT0", "[2, 1]"),
        values("fraction", datatype, "[0, 1.5]", r"INPUT0.*1\.5"),
        values("small_fraction", datatype, "[0, 1e-3]", "INPUT0"),
    )
]
ELEMENTS = [
    values("maybe", "BOOL", '["maybe", true]', "INPUT0.*maybe"), values("two", "BOOL", "[2, true]", "INPUT0"),
    values("fraction", "BOOL", "[0.5, true]", "INPUT0"), values("null", "BOOL", "[null, true]", "INPUT0"),
    values("digits_19", "BOOL", f"[{2**63}, true]", f"INPUT0.*{2**63}"),
    values("null_behind_a_whole_float", "INT32", "[1.0, null]", "INPUT0.*null"),
    values("object", "BOOL", "[{}, true]", "INPUT0"), values("word", "FP32", '["one", 1]', "INPUT0.*one"),
    values("empty_text", "FP64", '["", 1]', "INPUT0"), values("object", "FP32", '[{"a": 1}, 1]', "INPUT0"),
    values("hexadecimal", "FP32", '["0x10", 1]', "INPUT0"), values("word", "FP16", '["one", 1]', "INPUT0.*one"),
    values("word", "INT64", '["one", 1]', "INPUT0.*one"), values("object", "INT8", "[{}, 1]", "INPUT0"),
    values("digits_5000", "INT64", f"[1, {'9' * 5000}]", "INPUT0|json|number"),
    values("null", "BYTES", '[null, "a"]', "INPUT0"), values("object", "BYTES", '[{"b64": "AA=="}, "a"]', "INPUT0"),
    values("surrogate", "BYTES", '["\\ud800", "a"]', "INPUT0|utf|surrogate|json"),
    values("ragged", "FP32", "[[1, 2], [3]]", "INPUT0", "[2, 2]"),
    values("ragged_depth", "FP32", "[[1, 2], 3]", "INPUT0", "[2, 2]"),
    values("nested_less", "FP32", "[[1, 2]]", "INPUT0", "[2, 2]"),
    values("nested_more", "INT32", "[[1, 2], [3, 4], [5, 6]]", "INPUT0", "[2, 2]"),
    values("nested_in_text", "BYTES", '[["a"], ["b", "c"]]', "INPUT0", "[2]"),
    values("long_word", "FP32", json.dumps(["w" * 100_000, 1]), "INPUT0"), values("in_json", "BF16", "[1, 2]", "BF16"),
]  # fmt: skip

BAD_REQUESTS: Final = [
    *BYTES_OF_NO_DOCUMENT, *MEMBERS, *SHAPES, *OUTPUTS, *RANGES, *ELEMENTS,
]  # fmt: skip

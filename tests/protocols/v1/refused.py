"""Requests that V1 refuses: rows of the catalogue, target, documents, the form of the text, and the status.

A text is given whole, or with "..." for any part. Every request is sent short and long.
"""

import base64
import itertools
import json
import urllib.parse
from typing import Any, Final

from tests.support import checks

MODELS: Final = "/v1/models"
HALF: Final = "half_plus_two:predict"
BYTES: Final = "identity_bytes:predict"
AT: Final = "Failed to process element: "
MALFORMED: Final = "Malformed request: "
VERBS: Final = ("classify", "regress")


def refused(rows: str, target: str, *documents: Any, **more: Any) -> list[Any]:
    """Returns a case for each document, for a request below /v1/models or of a path."""
    method, _, path = target.rpartition(" ")
    path = path if path.startswith("/") else f"{MODELS}/{path}"
    return checks.refused(rows, f"{method} {path}".strip(), *documents, **more)


def instances(*values: Any) -> list[dict[str, Any]]:
    """Returns a document of rows for each value."""
    return [{"instances": value} for value in values]


def inputs(*values: Any) -> list[dict[str, Any]]:
    """Returns a document of columns for each value."""
    return [{"inputs": value} for value in values]


def wrapped(template: str, *texts: str) -> list[str]:
    """Returns the template with each text in the place of "%s"."""
    return [template.replace("%s", text) for text in texts]


def examples(verb: str, *features: Any, **more: Any) -> dict[str, Any]:
    """Returns a document of the person model's signature that is called as the verb."""
    return {"signature_name": verb, "examples": list(features), **more}


def of_both_verbs(rows: str, features: Any, text: str = "...") -> list[Any]:
    """Returns a refused example for classify and regress."""
    return [each for verb in VERBS for each in refused(rows, f"person:{verb}", examples(verb, features), text=text)]


NO_JSON = (
    b"{", b"[", b"}", b"nonsense", b"instances=1", b'{"instances": [1.0}', b'{"instances": [1.0', b"\xff\xfe", b"\0",
    b'{"instances": [1.0]', b'"', b'{"instances"}', b'{"instances": [1.0], "b": tru}',
)  # fmt: skip
LOOSE = (
    '{"instances": [1.]}', '{"instances": [.5]}', '{"instances": [01]}', '{"instances": [+1]}', '{"instances": [1e]}',
    '{"instances": [0x1]}', '{"instances": [1.0] /* x */}', '{"instances": [1.0]} // x', '{"instances": [1.0,]}',
    '{"instances": [1.0],}', "{'instances': [1.0]}", "{instances: [1.0]}", '{"instances": [1.0 2.0]}',
    '{"instances": [,1.0]}', '{"instances": [1_0]}', '{"instances" [1.0]}', '{"instances": ["a\nb"]}',
    '{"instances": [-]}', '{"instances": [--1]}', '{"instances": [True]}',
)  # fmt: skip
TOKENS = ("Nan", "nan", "infinity", "NAN", "INF", "inf", "+Infinity", "Infinit", "-", '"NaN"')
LONG = (
    {"instances": ["x" * 100_000]}, {"instances": [["y"] * 50_000]}, {"inputs": {"x": "z" * 100_000}},
    {"signature_name": "n" * 100_000, "instances": [1.0]}, {"instances": [{"k" * 100_000: 1}]},
    {"instances": {"k": ["v"] * 50_000}}, {"i": "x" * 100_000}, {"instances": ["é" * 50_000]},
)  # fmt: skip
DOCUMENT: Final = [
    *refused("V1-022", HALF, b"", b" ", b"\n\t ", text="JSON Parse error: The document is empty"),
    *refused("V1-023", HALF, *NO_JSON, text="JSON Parse error: ..."),
    *refused("V1-023", HALF, '{"instances": [1.0', text="JSON Parse error: ... at offset: ..."),
    *refused("V1-024", HALF, "[]", "1", "null", '"x"', "true", '[{"instances": [1.0]}]', "1.5e3", "[1.0]",
             text="...Is not object"),
    *refused("V1-026", "identity_fp32:predict", *wrapped('{"instances": [1.0, %s]}', *TOKENS)),
    *refused("V1-027", "identity_fp64:predict", *wrapped('{"instances": [1.0, %s]}', "1e400", "-1e999", "1" * 400),
             '{"foreign": 1e400, "instances": [1.0]}',
             text="JSON Parse error: Number too big to be stored in double. at offset: ..."),
    *(case for key in ("instances", "foreign") for case in refused(
        "V1-023", HALF, f'{{"{key}": [1.0, tru]}}', f'{{"{key}": [1.0,]}}',
        text="JSON Parse error: Invalid value. at ...")),
    *refused("V1-032", HALF, b'{"instances": [1.0], "instances": [2.0]}',
             text="JSON Parse error: ...'instances' twice..."),
    *refused("V1-056", HALF, b'{"instances": [{"x": 1.0, "x": 2.0}, {"x": 3.0}]}',
             text="JSON Parse error: ...'x' twice..."),
    *refused("V1-028", HALF, *LOOSE),
    *refused("V1-029", HALF, *wrapped('{"instances": [1.0, 2.0, 5.0]}%s', "x", "}", "{}", ' {"instances": [1.0]}', "\0",
                                      ",", "[]", "\n1")),
    *refused("V1-029", HALF, *wrapped('{"instances": [1.0, 2.0, 5.0]}' + " " * 20_000 + "%s", "x", "}", "{}", "\0", ",",
                                      ' {"instances": [1.0]}', "[]", "\n1")),
    *refused("V1-030", BYTES, *wrapped('{"instances": [%s]}', '"\\ud800"', '"\\udc00 x"', '"\\ud800\\u0041"')),
    *refused("V1-035", HALF, *({"signature_name": name, "instances": [1.0]}
                               for name in (None, 1, 1.5, True, [], {}, ["serving_default"])),
             '{"signature_name": 5}', text="'signature_name' key must be a string value."),
    *(case for name in ("X", "regress", "serving_default ", "é", "__init__")
      for case in refused("V1-036", HALF, {"signature_name": name, "instances": [1.0]},
                          text=f'Serving signature name: "{name}" not found in signature def...')),
    *refused("V1-037", "constant:predict", *instances([1.0], [{"x": 1.0}])),
    *refused("V1-038 V1-116", HALF, {"instances": [1.0], "inputs": [1.0]},
             text="Not formatted correctly expecting only one of 'inputs' or 'instances' keys to exist..."),
    *refused("V1-039 V1-115", HALF, {}, {"Instances": [1.0]}, {"examples": [{"x": 1.0}]}, {"signature_name": ""},
             text="...Missing 'inputs' or 'instances' key..."),
    *refused("V1-040", HALF, *LONG),
    *(case for word in ('quote " and \\', "line\nbreak", "nul\0", "é🦜", "</script>")
      for case in refused("V1-086", HALF, {"instances": [1.0], "signature_name": word},
                          *instances([word], [{word: 1.0}]))),
    *refused("V1-088", HALF, b'{"instances": [1.0, 2.0, 5.0]}', b"", b"\x1f\x8b", Content_Encoding="gzip"),
]  # fmt: skip

RAGGED = (
    [[1.0, 2.0], [1.0, 2.0, 3.0]], [[1.0, 2.0], [1.0]], [1.0, [1.0]], [[1.0], 1.0],
    [[[1.0], [2.0]], [[1.0], [2.0, 3.0]]], [[[1.0, 2.0]], [1.0, 2.0]], [[], [1.0]], [[1.0], []],
)  # fmt: skip
RAGGED_ROWS = ([[1.0, 2.0], [3.0]], [[1.0], 2.0], [1.0, [2.0]], [[[1.0]], [[2.0], [3.0]]])
RAGGED_COLUMNS = ([[1.0], [2.0, 3.0]], [1.0, [2.0]], [[1.0], 2.0], [[], [1.0]], [[[1.0]], [1.0]])
WRONG_KEYS = [
    ({"tag": "a", "signal": 1.0}, "sensor"), ({"tag": "a", "signal": 1.0, "sensor": 1.0, "z": 1.0}, "z"),
    ({"tag": "a", "signal": 1.0, "z": 1.0}, "z"), ({}, "sensor"), ({"Tag": "a", "signal": 1.0, "sensor": 1.0}, "ag"),
]  # fmt: skip
SEED = {"tag": "a", "signal": 1.0, "sensor": 1.0}
SEEDS = {"tag": ["foo"], "signal": [[1.0, 2.0]], "sensor": [[[1.0], [2.0]]]}
ROWS: Final = [
    *refused("V1-045", "fixed:predict", *instances([1.0, 2.0], [[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.0, 3.0]]),
             text="...INPUT0...[2, 3]..."),
    *refused("V1-046 V1-115", HALF, *instances(*(None, 1, 1.5, "x", True, {}, {"x": 1.0}, {"b64": "AA=="})),
             text="Expecting 'instances' to be an list/array..."),
    *(case for model in ("half_plus_two", "seeds", "identity_bytes")
      for case in refused("V1-046 V1-117", f"{model}:predict", {"instances": []},
                          text="No values in 'instances' array")),
    *refused("V1-047 V1-115", HALF, *instances(*RAGGED, *([{"x": value} for value in rows] for rows in RAGGED))),
    *refused("V1-047", "photo:predict", {"instances": [{"b64": "AAAA"}, {"b64": "AA=="}]}),
    *refused("V1-047", HALF, {"instances": [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0, 3.0]]},
             text=f"{AT}2 of 'instances' list. Error: INVALID_ARGUMENT: Expecting tensor size: 2 but got: 3"),
    *refused("V1-047", HALF, {"instances": [1.0, [1.0]]},
             text=f"{AT}1 of 'instances' list. Error: INVALID_ARGUMENT: Expecting shape [] but got: [1]"),
    *refused("V1-048 V1-115", HALF, *instances(*([value] * count for count in (1, 2) for row_ in RAGGED_ROWS
                                                 for value in (row_, {"x": row_})))),
    *refused("V1-048", HALF, {"instances": [[[1.0, 2.0], [3.0]]]},
             text="...Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
    *refused("V1-048 V1-115", HALF, *inputs(*RAGGED_COLUMNS, *({"x": value} for value in RAGGED_COLUMNS))),
    *(case for odd, culprit in WRONG_KEYS for rows in ([odd, SEED], [SEED, odd])
      for case in refused("V1-049", "seeds:predict", {"instances": rows}, text=f"...{culprit}...")),
    *refused("V1-049", "seeds:predict", {"instances": [{"tag": "a", "signal": 1.0}]},
             text="...keys must be equal to: sensor,signal,tag"),
    *refused("V1-049", "seeds:predict", {"instances": [{"tag": "a", "signal": 1.0, "z": 1.0}]},
             text="...JSON object: does not have named input: ..."),
    *refused("V1-050", "seeds:predict", *instances([1.0, 2.0], [[1.0]], ["a"], [1.0], [{"b64": "AA=="}, "a"]),
             text="instances is a plain list, but expecting list of objects as multiple input tensors required ..."),
    *refused("V1-051", HALF, {"instances": [{"x": 1.0}, 2.0]}, text="...Expecting object but got ..."),
    *refused("V1-051", HALF, {"instances": [{"x": 1.0}, {"x": 1.0}, [2.0]]},
             text="...Expecting object but got list at item 2..."),
    *refused("V1-051", HALF, {"instances": [1.0, {"x": 2.0}]}, text="...but got object at item 1..."),
    *refused("V1-051", HALF, {"instances": [[1.0], [1.0], {"x": [2.0]}]},
             text="...Expecting value/list but got object at item 2..."),
    *refused("V1-052", "shapes:predict", {"signature_name": "uneven", "instances": [1.0, 2.0, 3.0]},
             text="...has inconsistent batch size: 2 expecting: 3"),
    *refused("V1-053", "shapes:predict", {"signature_name": "total", "instances": [1.0, 2.0]},
             text="Tensor name: total has no shape information"),
    *(case for model in ("scalar", "scalar_by_settings")
      for case in refused("V1-057", f"{model}:predict", {"instances": [1.5]})),
]  # fmt: skip
COLUMNS: Final = [
    *(case for missing in SEEDS
      for case in refused("V1-063", "seeds:predict", {"inputs": {k: v for k, v in SEEDS.items() if k != missing}},
                          text=f"Missing named input: {missing} in 'inputs' object....")),
    *refused("V1-063", "seeds:predict", {"inputs": {"tag": ["a"], "signal": 1.0}},
             text="Missing named input: sensor in 'inputs' object."),
    *refused("V1-063", "offset:predict", {"inputs": {"y": 1.0}}, {"instances": [{"y": 1.0}]}, text="...x..."),
    *refused("V1-065", "seeds:predict", *inputs(*(1.0, [1.0], [[1.0], [2.0]], "a", [], None, True)),
             text="...inputs is a plain value/list, but expecting an object..."),
    *refused("V1-066", HALF, *inputs([{"y": 1.0}], [{"x": 1.0}, 2.0], [1.0, {"x": 1.0}], {"x": {"x": 1.0}},
                                     {"x": [{}]})),
]  # fmt: skip

NO_BASE64 = ("-_-_", "YW*j", "Y", "YWJjZ", "====", "=YWJj", "YQ==YQ==", "é", "YWJj\0", "*")
ELEMENTS = {"FP32": "1.5", "BYTES": '"a"', "INT64": "1", "BOOL": "true"}
VALUES: Final = [
    *refused("V1-067", HALF, {"instances": ["a"]},
             text='...JSON Value: "a" Type: String is not of expected type: float'),
    *refused("V1-068", "identity_int64:predict", {"instances": [1.0]},
             text="...JSON Value: 1.0 Type: Number is not of expected type: int64..."),
    *(case for kind in ("int32", "int64", "uint32", "uint64")
      for case in refused("V1-068", f"identity_{kind}:predict", *wrapped('{"instances": [%s]}', "1.0, 2", "1, 2.5"))),
    *refused("V1-072", "photo:predict", *inputs(*({"image_bytes": [x]} for x in (1, [1, 2], None, {"b64": 5})))),
    *refused("V1-072", BYTES, *inputs(*({"INPUT0": ["a", odd]}
                                        for odd in ({"b64": "AA==", "x": 1}, {"a": "b"}, {"B64": "AA=="}))),
             text="...not formatted correctly for base64 data..."),
    *refused("V1-073", BYTES, *instances(*([{"b64": text}] for text in NO_BASE64)),
             text="...Unable to base64 decode..."),
    *refused("V1-074", BYTES, *instances(*([odd] for odd in ({"b64": 5}, {"b64": None}, {"b64": ["YQ=="]},
                                                             {"b64": "YQ==", "x": 1}))), text="...b64..."),
    *(case for kind, element in ELEMENTS.items() for depth in (65, 100, 300) for key in ("instances", "inputs")
      for case in refused("V1-076", f"identity_{kind.lower()}:predict",
                          f'{{"{key}": {"[" * depth}{element}{"]" * depth}}}')),
]  # fmt: skip

EXAMPLE = {"weight": 1.0}
TWO = ({"weight": 1.5, "count": 2, "name": "a"}, {"weight": [2.5], "count": [4], "name": ["b"]})
OTHER_METHODS = (("regress", "classify"), ("regress", "classify_scores"), ("classify", "regress"))
OTHER_FORMS = (("regress", "regress_two"), ("regress", "regress_text"), ("classify", "classify_uneven"))
NO_EXAMPLES = (
    {}, {"example": [EXAMPLE]}, {"instances": [EXAMPLE]}, {"examples": None}, {"examples": {}}, {"examples": EXAMPLE},
    {"examples": 1}, {"examples": "x"}, {"examples": []}, {"examples": [1]}, {"examples": [None]}, {"examples": [[]]},
    {"examples": [EXAMPLE, 1.0]}, {"examples": [EXAMPLE], "context": []}, {"examples": [EXAMPLE], "context": None},
    {"examples": [EXAMPLE], "context": 1}, {"examples": [EXAMPLE], "context": {"count": None}},
)  # fmt: skip
NULLS = (
    (None, "Null"), ([None], "Null"), ({"a": 1}, "Object"), ([{}], "Object"), ([[1.0]], "Array"), ([[]], "Array"),
)  # fmt: skip
KINDS = (([1, "a"], "int64"), (["a", 1], "bytes"), ([1.5, "a"], "float"), ([True, "a"], "int64"), (["a", 1.5], "bytes"))
COUNTS = (
    ("weight", [1.0, 2.0], "Number of float values != expected. Values size: 2 but output shape: [1]"),
    ("pair", [1], "Number of int64 values != expected. Values size: 1 but output shape: [2]"),
    ("pair", [1, 2, 3], "Number of int64 values != expected. Values size: 3 but output shape: [2]"),
    ("pair", 1, "Number of int64 values != expected. Values size: 1 but output shape: [2]"),
    ("name", ["a", "b"], "Number of"),
)
EXAMPLES: Final = [
    *(case for verb, signature in OTHER_METHODS
      for case in refused("V1-092", f"person:{verb}", examples(signature, *TWO))),
    *(case for verb, word in (("regress", "regression"), ("classify", "classification"))
      for case in refused("V1-093", f"half_plus_two:{verb}", *({"examples": [{"x": 1.0}], **name} for name in (
          {}, {"signature_name": ""}, {"signature_name": "serving_default"})),
          text=f"No {word} inputs found in SignatureDef...")),
    *(case for verb in VERBS for case in (
        *refused("V1-094", f"person:{verb}", examples("nope", *TWO),
                 text="No signature was found with the name: nope"),
        *refused("V1-035", f"person:{verb}", *(examples(name, *TWO) for name in (None, 1, [], {})),
                 text="'signature_name' key must be a string value."),
        *refused("V1-104 V1-115", f"person:{verb}", *({"signature_name": verb, **more} for more in NO_EXAMPLES)),
        *refused("V1-104", f"person:{verb}", {"signature_name": verb},
                 text=f"When method is {verb}, key 'examples' is expected..."),
        *refused("V1-104", f"person:{verb}", {"signature_name": verb, "examples": []},
                 text="'examples' value is an empty array"),
        *refused("V1-104", f"person:{verb}", *({"signature_name": verb, "examples": [EXAMPLE], "context": context}
                                               for context in ([], None, 1)),
                 text="Example must be JSON object but got JSON ..."),
        *refused("V1-022 V1-023 V1-024 V1-029", f"person:{verb}", b"", b"[", b"[]", b"1",
                 b'{"examples": [{"weight": 1.0}]} x'))),
    *(case for verb, signature in OTHER_FORMS
      for case in refused("V1-105", f"person:{verb}", examples(signature, *TWO))),
    *refused("V1-105", "person:regress", examples("regress_two", *TWO), text="...[2, 2]..."),
    *refused("V1-105", "shapes:regress", examples("regress_head", *({"x": 1.0},) * 3),
             text="Input batch size did not match output batch size: 3 vs. 2"),
    *(case for odd in ({"weight": "1.0"}, {"weight": 1.0, "count": 1.5}, {"weight": 1.0, "count": "1"},
                       {"weight": 1.0, "name": 1}) for case in of_both_verbs("V1-095", odd, "...type...")),
    *(case for value, word in NULLS for case in of_both_verbs(
        "V1-096", {"weight": value}, f"Feature: weight ...has element with unexpected JSON type...{word}...")),
    *(case for value, kind in KINDS for case in of_both_verbs(
        "V1-097", {**EXAMPLE, "pair": value}, f"Unexpected element type in feature: pair expecting type: {kind}...")),
    *(case for value in (2**63, 2**64 - 1, [2**63], -(2**63) - 1)
      for case in of_both_verbs("V1-098", {**EXAMPLE, "count": value})),
    *of_both_verbs("V1-098", {**EXAMPLE, "count": 2**63}, "...Only int64_t is supported..."),
    *(case for odd, verb, first in itertools.product(({}, {"weight": []}, {"count": 1}), VERBS, ([], [EXAMPLE]))
      for case in refused("V1-100", f"person:{verb}", examples(verb, *first, odd),
                          text="Feature: weight (data type: float) is required but could not be found...")),
    *(case for name, value, text in COUNTS for case in of_both_verbs(
        "V1-102", {**EXAMPLE, name: value}, f"...{text}...")),
]  # fmt: skip

EXPLAINED = (
    b"", b"{", b"[]", {}, *instances([], 1, [[1.0, 2.0]], [["a"] * 3], [[1.0, 2.0, 3.0], [1.0]], [{"y": 1.0}]),
    {"instances": [[1.0] * 3], "inputs": []}, {"instances": [[1.0] * 3], "signature_name": 5},
    {"instances": [[1.0] * 3], "signature_name": "nope"},
)  # fmt: skip
EXPLAIN: Final = [
    *refused("V1-122", "half_plus_two:explain", *instances([1.0], [{"x": 1.0}]), {"inputs": [1.0]},
             text="...half_plus_two...explainer...", status=501),
    *refused("V1-018 V1-122", "labelled/labels/stable:explain", {"instances": [0]}, status=501),
    *refused("V1-018 V1-122", "labelled/labels/canary:explain", {"instances": [0]}),
    *(case for target, status in (("half", 404), ("linear/versions/9", 404), ("broken_onnx", 503),
                                  ("linear/labels/x", 400))
      for case in refused("V1-016 V1-021", f"{target}:explain", {"instances": [[1.0, 2.0, 3.0]]}, status=status)),
]  # fmt: skip

ASKED = {"predict": {"instances": [0]}} | {verb: examples("s", {"x": 0}) for verb in VERBS}
NO_VERSIONS = (
    ("labelled", 99), ("versions_latest", 1), ("versions_latest_two", 1), ("versions_specific", 10), ("half", 7),
)  # fmt: skip
NO_LABEL = "Unrecognized servable version label: "
UNKNOWN: Final = [
    *(case for verb, document in ASKED.items()
      for case in refused("V1-016 V1-114", f"half:{verb}", document,
                          text="Servable not found for request: Latest(half)", status=404)),
    *(case for place in ("", "/versions/1", "/metadata", "/versions/1/metadata")
      for case in refused("V1-016 V1-131", f"half{place}", None, text="...half...", status=404)),
    *(case for (model, version), (verb, document) in itertools.product(NO_VERSIONS, ASKED.items())
      for case in refused("V1-017", f"{model}/versions/{version}:{verb}", document,
                          text=f"Servable not found for request: Specific({model}, {version})", status=404)),
    *(case for label, word in (("canary", "canary"), ("STABLE", "STABLE"), ("x%20y", "x y"), ("%C3%A9", "é"))
      for verb, document in ((":predict", ASKED["predict"]), (":classify", ASKED["classify"]),
                             (":regress", ASKED["regress"]), ("/metadata", None))
      for case in refused("V1-018", f"labelled/labels/{label}{verb}", document, text=NO_LABEL + word)),
    *(case for label in ("1", "10", "01")
      for case in refused("V1-019", f"labelled/labels/{label}:predict", ASKED["predict"], text=NO_LABEL + label)),
    *(case for model, label, version in (("labelled", "gone", 99), ("labelled_latest", "old", 1))
      for case in refused("V1-018", f"{model}/labels/{label}:predict", ASKED["predict"],
                          text=f"Servable not found for request: Specific({model}, {version})", status=404)),
    *(case for label in ("stable%2F", "a%2F%2Fb", "a%2Fb%3Apredict")
      for case in refused("V1-005 V1-018", f"labelled/labels/{label}:predict", ASKED["predict"],
                          text=NO_LABEL + urllib.parse.unquote(label))),
    *refused("V1-018", "half_plus_two/labels/stable:predict", ASKED["predict"]),
    *refused("V1-018", "unheard_of/labels/stable:predict", ASKED["predict"], status=404),
    *refused("V1-020", "half:predict", b"[", text="JSON Parse error..."),
    *refused("V1-020", "half:predict", {"signature_name": 1}, text="'signature_name' key must be a string value."),
    *refused("V1-020", "half:predict", {"signature_name": "s"}, {}, text="Servable not found...", status=404),
    *refused("V1-020", "labelled/versions/99:predict", {"instances": 5}, text="Servable not found...", status=404),
    *refused("V1-020", HALF, {"signature_name": "s"}, text='...Serving signature name: "s" not found...'),
    *refused("V1-020", "half:classify", b"[]", text="...Is not object..."),
    *refused("V1-020", "half:regress", {"examples": [{"x": 1.0}]}, text="Servable not found...", status=404),
    *(case for target in ("some_broken", "some_broken/versions/2", "some_broken/labels/bad", "broken_onnx")
      for case in refused("V1-021 V1-125", f"{target}:predict", ASKED["predict"],
                          text=f"...{target.partition('/')[0]}...", status=503)),
    *(case for model in ("broken_onnx", "py_broken_import")
      for case in refused("V1-134", f"{model}/metadata", None, text=f"...{model}...", status=503)),
    *refused("V1-131", "labelled/versions/9", None, text="Could not find version 9 of model labelled", status=404),
    *refused("V1-131", "versions_latest/versions/1", None, text="Could not find version 1 of model versions_latest",
             status=404),
    *refused("V1-131", "unheard_of", None, text="Could not find any versions of model unheard_of", status=404),
    *refused("V1-114", "half", None, text="Could not find any versions of model half", status=404),
    *refused("V1-131", "unheard_of/versions/1", None, text="... of model unheard_of", status=404),
    *(case for label in ("canary", "1") for case in refused("V1-132", f"labelled/labels/{label}", None,
                                                            text=NO_LABEL + label)),
    *refused("V1-132", "labelled/labels/gone", None, text="...99...", status=404),
]  # fmt: skip

PREDICT = f"{MODELS}/{HALF}"
OTHER_PATHS = (
    *(f"POST {MODELS}/half_plus_two{rest}" for rest in (
        "/versions/HELLO:predict", "/versions/-1:predict", "/versions/1.0:predict", "/versions/:predict",
        "/version/50:predict", "/label/x:predict", "/versions/123/labels/x:predict", ":foo", ":", "", ":predict/",
        "/metadata")),
    f"POST {MODELS}",
    *(f"GET {MODELS}/half_plus_two{rest}" for rest in (
        "/versions/HELLO", "/version/50", "/label/x", "/nonsense", ":predict", ":regress")),
    f"PUT {PREDICT}", f"DELETE {PREDICT}", f"PATCH {PREDICT}", f"PUT {MODELS}/half_plus_two",
    f"DELETE {MODELS}/half_plus_two", f"DELETE {MODELS}", "GET /v1/nonsense", "POST /v1",
)  # fmt: skip
NO_SUCH = ("POST half_plus_two:foo", "PUT half_plus_two:predict", "GET half_plus_two:predict", "GET a/b/c")
PATHS: Final = [
    *(case for each in OTHER_PATHS
      for case in refused("V1-007 V1-124", each, {"instances": [1.0]}, text=MALFORMED + each)),
    *(case for method, target in map(str.split, NO_SUCH)
      for case in refused("V1-123 V1-124", f"{method} {MODELS}/{target}", None,
                          text=f"{MALFORMED}{method} {MODELS}/{target}")),
    *(case for verb in ("PREDICT", "Predict")
      for case in refused("V1-004", f"half_plus_two:{verb}", {"instances": [1]})),
    *refused("V1-004", "Half_plus_two:predict", {"instances": [1]}, status=404),
    *refused("V1-004", "labelled/labels/Stable:predict", {"instances": [1]}),
    *(case for version in (str(2**63), "9" * 40, "0" * 300 + "9" * 19)
      for verb, document in ((":predict", {"instances": [1]}), (":regress", {"instances": [1]}), ("", None),
                             ("/metadata", None))
      for case in refused("V1-008", f"half_plus_two/versions/{version}{verb}", document)),
    *refused("V1-008", f"half_plus_two/versions/{2**63}:predict", b"", b"{", b"[]", text="version ... beyond 64 bits"),
    *refused("V1-007", "half_plus_two/versions/x:predict", b"", b"{", text="Malformed request: ..."),
    *(case for path in (PREDICT, f"{MODELS}/half_plus_two") for case in (
        *refused("V1-013", f"OPTIONS {path}", None, text=f"{MALFORMED}OPTIONS {path}"),
        *refused("V1-013", f"OPTIONS {path}", None, text=f"{MALFORMED}OPTIONS {path}", Origin="https://example.com",
                 Access_Control_Request_Method="POST"))),
]  # fmt: skip

ATTRIBUTES = {"id": "1", "source": "https://example.com/event-producer", "type": "com.example.sampletype1"}
EVENT = {**ATTRIBUTES, "specversion": "1.0"}
DATA = {"instances": [1.0, 2.0, 5.0]}
BINARY = {f"ce_{name}": value for name, value in EVENT.items()}
CODED = base64.b64encode(json.dumps(DATA).encode()).decode()
EVENTS: Final = [
    *(case for name in ATTRIBUTES
      for case in refused("V1-126", HALF, DATA, **{k: v for k, v in BINARY.items() if k != f"ce_{name}"})),
    *refused("V1-126", HALF, DATA, **{**BINARY, "ce_specversion": "99.0"}),
    *refused("V1-126", HALF, b"", b"[1, 2", [1], **BINARY),
    *refused("V1-126", HALF, b"", b"{", [], DATA, EVENT, {**EVENT, "data": None}, {**EVENT, "data": 5},
             {**EVENT, "specversion": 1, "data": DATA}, {**ATTRIBUTES, "data": DATA},
             {**EVENT, "data_base64": "*"}, {**EVENT, "data_base64": 7},
             {"specversion": "1.0", "type": "t", "id": "1", "data": DATA}, {**EVENT, "data_base64": CODED[:-3]},
             Content_Type="application/cloudevents+json"),
]  # fmt: skip

FAILURES: Final = [
    case for model, document, status in (
        ("half_plus_two", {"instances": ["a"]}, 400), ("offset", {"inputs": {"x": [1.0, 2.0], "y": [1.0] * 3}}, 400),
        ("unheard_of", {"instances": [1.0]}, 404),
        ("broken_onnx", {"instances": [1.0]}, 503), ("py_raises", {"instances": ["exception"]}, 500),
        ("py_returns", {"instances": ["nothing"]}, 500), ("fails", {"instances": [7]}, 500),
        ("py_raises", {"instances": ["system_exit"]}, 500), ("py_raises", {"instances": ["recursion"]}, 500),
        ("py_raises", {"instances": ["base"]}, 500))
    for case in refused("V1-087 V1-129", f"{model}:predict", document, status=status)
]  # fmt: skip

REFUSED: Final = [
    *DOCUMENT, *ROWS, *COLUMNS, *VALUES, *EXAMPLES, *EXPLAIN, *UNKNOWN, *PATHS, *EVENTS, *FAILURES,
]  # fmt: skip

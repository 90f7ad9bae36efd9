"""Requests that V1 answers: rows of the catalogue, target, document and the whole answer.

Every document is sent short and long. Numbers are compared by value; other tests check how they are written.
"""

import json
from base64 import b64encode
from typing import Any, Final, NamedTuple

from tests.support.catalogue import row

MODELS: Final = "/v1/models"
HALF: Final = "half_plus_two:predict"
FP32: Final = "identity_fp32:predict"
BYTES: Final = "identity_bytes:predict"
SEEDS: Final = "seeds:predict"
REGRESS, CLASSIFY = "person:regress", "person:classify"


class Asked(NamedTuple):
    """A request and its answer."""

    path: str
    body: bytes
    answer: Any
    headers: dict[str, str]


def answered(rows: str, target: str, *pairs: tuple[Any, Any], **headers: str) -> list[Any]:
    """Returns a case for each pair of a document and its answer; bytes are sent unchanged."""
    path = target if target.startswith("/") else f"{MODELS}/{target}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    bodies = [(sent if isinstance(sent, bytes) else json.dumps(sent).encode(), answer) for sent, answer in pairs]
    return [row(rows, Asked(path, body, answer, named), name=target.replace(" ", "")) for body, answer in bodies]


def rows(given: Any, found: Any = ..., **more: Any) -> tuple[Any, Any]:
    """Returns rows and their predictions, which are the same if none are given."""
    return {"instances": given, **more}, {"predictions": given if found is ... else found}


def columns(given: Any, found: Any = ..., **more: Any) -> tuple[Any, Any]:
    """Returns columns and their outputs; those of a plain list without a signature also have KServe's names."""
    outputs = {"outputs": given if found is ... else found}
    both = isinstance(given, list) and "signature_name" not in more
    return {"inputs": given, **more}, outputs | ({"predictions": outputs["outputs"]} if both else {})


def results(signature: str, examples: list[Any], found: Any, **more: Any) -> tuple[Any, Any]:
    """Returns examples of a signature and their results."""
    return {"signature_name": signature, "examples": examples, **more}, {"results": found}


LIST = [1.0, 2.0, 5.0]
HALVES = rows(LIST, [2.5, 3.0, 4.5])
TYPES = (
    "application/x-www-form-urlencoded", "text/plain", "application/json; charset=utf-8", "application/json",
    "application/octet-stream", "multipart/form-data; boundary=x", "nonsense", "",
)  # fmt: skip
TEXT = b'{"instances": [1.0, 2.0, 5.0]}'
EXTRAS = ({"parameters": {"a": [1]}}, {"id": 5}, {"examples": 1}, {"": None, "predictions": []})
PATHS: Final = [
    *(case for place in ("", "/versions/123") for case in (
        *answered("V1-001", f"half_plus_two{place}:predict", HALVES),
        *answered("V1-001", f"half_plus_two{place}:regress", results("regress_x_to_y", [{"x": 1.0}], [2.5])),
        *answered("V1-001", f"half_plus_two{place}:classify",
                  results("classify_x_to_y", [{"x": 1.0}], [[["", 2.5]]])))),
    *(case for rows_, target, found in (
        ("V1-001", "labelled/labels/stable", 1), ("V1-001", "labelled/labels/pre%20release", 10),
        ("V1-005", "labelled/labels/a%2Fb", 1), ("V1-005", "labelled/labels/%61%2fb", 1),
        ("V1-005", "labelled/labels/b%3Apredict", 2), ("V1-005", "labelled/labels/c%2Fmetadata", 10),
        ("V1-005", "labelled/labels/%4050%252F%3F%23%5B%5D", 2), ("V1-005", "labelled/labels/@50%252F%3F%23[]", 2),
        ("V1-006", "labelled/versions/01", 1), ("V1-006", "labelled/versions/0000000010", 10),
        ("V1-006", "labelled", 10), ("V1-006", "versions_padded/versions/7", 7),
        ("V1-006", "versions_padded/versions/0007", 7), ("V1-014", "version_zero/versions/0", 0),
        ("V1-014", "version_zero", 3), ("V1-015", "versions_latest", 10), ("V1-015", "versions_latest/versions/10", 10),
        ("V1-015", "versions_latest_two", 10), ("V1-015", "versions_latest_two/versions/2", 2),
        ("V1-015", "versions_specific", 2), ("V1-015", "versions_specific/versions/1", 1), ("V1-015", "versions", 10),
        ("V1-015", "versions/versions/1", 1), ("V1-015", "versions/versions/2", 2),
        ("V1-018", "labelled_latest/labels/new", 2), ("V1-021 V1-125", "some_broken/versions/1", 1),
        ("V1-021 V1-125", "some_broken/labels/good", 1)) for case in answered(rows_, f"{target}:predict",
                                                                            rows([0], [found]))),
    *(case for path in ("/v1/MODELS/labelled/versions/1", "/v1/models/labelled/Versions/1",
                        "/v1/models/labelled/LABELS/stable", "/V1/models/labelled/versions/1")
      for case in answered("V1-004", f"{path}:predict", rows([0], [1]))),
    *(case for target in ("half_plus_two%3Apredict", "half_plus_two%3apredict", "half%5Fplus%5ftwo:predict",
                          "half_plus_two/versions/123%3Apredict") for case in answered("V1-005", target, HALVES)),
    *(case for query in ("?", "?a=1", "?a=1&b=:regress", "?x=/versions/7")
      for case in answered("V1-009", HALF + query, HALVES)),
    *answered("V1-014", "labelled/versions/0:predict", columns({"x": [0]}, [10])),
    *answered("V1-025", HALF, HALVES),
    *(case for kind in TYPES for case in answered("V1-025", HALF, HALVES, Content_Type=kind)),
    *(case for space in (b" ", b"\n", b"\r\n\t ", b" " * 20_000)
      for case in answered("V1-029", HALF, (space + TEXT + space, HALVES[1]))),
    *answered("V1-030", HALF, (b"\xef\xbb\xbf" + TEXT, HALVES[1])),
    *answered("V1-031", HALF, *(rows([1.0], [2.5], **extra) for extra in EXTRAS),
              (b'{"\\u0069nstances": [1.0]}', {"predictions": [2.5]})),
    *answered("V1-034", HALF, *(rows([1.0], [2.5], signature_name=name) for name in ("", "serving_default"))),
    *answered("V1-027", "identity_fp64:predict", (b'{"instances": [1e-400, -1e-400]}', {"predictions": [0.0, -0.0]})),
]  # fmt: skip

SEED = [
    {"tag": "foo", "signal": [1.0, 2.0, 3.0, 4.0, 5.0], "sensor": [[1.0, 2.0], [3.0, 4.0]]},
    {"sensor": [[4.0, 5.0], [6.0, 8.0]], "tag": "bar", "signal": [3.0, 4.0, 1.0, 2.0, 5.0]},
]
"""The specification's example, with the keys of the second in another order."""
SHAPES = "shapes:predict"
SAME = [{"same": 1.0, "head": 1.0}, {"same": 2.0, "head": 2.0}]
ROWS: Final = [
    *answered("V1-041 V1-127", FP32, *map(rows, ([1.5], LIST, [[1.0, 2.0]], [[[1.0, 2.0]], [[3.0, 4.0]]], [[[[[1.0]]]]],
                                                 [[1.0]] * 2000))),
    *answered("V1-041", BYTES, rows(["foo", "bar", "baz"])),
    *answered("V1-042 V1-044 V1-127", SEEDS, rows(SEED)),
    *answered("V1-043", HALF, rows([{"x": 1.0}, {"x": 2.0}], [2.5, 3.0])),
    *answered("V1-043 V1-108 V1-110", HALF, ({"inputs": [{"x": 1.0}, {"x": 2.0}]}, {"predictions": [2.5, 3.0]}),
              ({"inputs": [{"x": 1.0}]}, {"predictions": [2.5]})),
    *answered("V1-045", HALF, rows([1.0, 2.0], [2.5, 3.0]), rows([[1.0, 2.0], [3.0, 4.0]], [[2.5, 3.0], [3.5, 4.0]])),
    *answered("V1-045", "fixed:predict", rows([[1.0, 2.0, 3.0]] * 2)),
    *answered("V1-052", SHAPES, rows([1.0, 2.0], SAME, signature_name="uneven"),
              columns({"x": LIST}, {"same": LIST, "head": [1.0, 2.0]}, signature_name="uneven")),
    *answered("V1-053", SHAPES, columns({"x": [1.0, 2.0]}, 3.0, signature_name="total")),
    *answered("V1-034 V1-054", SHAPES, rows([1.0, 2.0, 3.0], [1.0, 2.0], signature_name="head")),
    *(case for model in ("identity_fp32", "identity_bytes", "identity_int64")
      for case in answered("V1-055", f"{model}:predict", *map(rows, ([[], []], [[]], [[[], []]])))),
    *(case for model in ("scalar", "scalar_by_settings")
      for case in answered("V1-057", f"{model}:predict", columns(1.5), columns({"INPUT0": 1.5}, 1.5))),
    *answered("V1-085", SHAPES, columns({"x": []}, [], signature_name="head"),
              columns({"x": [1.0]}, [1.0], signature_name="head")),
    *answered("V1-085", "counts:predict", ({"inputs": {"n": [0]}}, {"outputs": [[]]}), rows([0], [[]])),
]  # fmt: skip

MANY = {name: [row_[name] for row_ in SEED] for name in ("tag", "signal", "sensor")}
UNEQUAL = {"tag": ["a", "b", "c"], "signal": [1.0], "sensor": [[1.0, 2.0], [3.0, 4.0]]}
OBJECTS = [{"tag": "foo", "signal": [1.0], "sensor": [[1.0, 2.0]]},
           {"tag": "bar", "signal": [2.0], "sensor": [[3.0, 4.0]]}]  # fmt: skip
HELLO = {"b64": "aGVsbG8="}
PINS = (("tfs", "outputs"), ("kserve", "predictions"))
COLUMNS: Final = [
    *answered("V1-058 V1-109", SEEDS, columns(MANY)),
    *answered("V1-058 V1-109", FP32, *(columns({"INPUT0": x}, x) for x in ([1.0, 2.0, 5.0], [[1.0], [2.0]], 1.0))),
    *answered("V1-059 V1-110", FP32, *map(columns, (1.0, [1.0], [1.0, 2.0], LIST, [[1.0, 2.0], [3.0, 4.0]], [[[]]]))),
    *(case for model, x in (("identity_bytes", "text"), ("identity_bool", True), ("identity_int64", 7))
      for case in answered("V1-059", f"{model}:predict", columns(x))),
    *answered("V1-060", SEEDS, columns(UNEQUAL), columns({**UNEQUAL, "signal": 1.5})),
    *(case for model in ("identity_fp32", "identity_int64", "identity_bytes", "vector_fp32")
      for case in answered("V1-061", f"{model}:predict", columns([]), columns({"INPUT0": []}, []))),
    *answered("V1-062 V1-120", BYTES, columns(HELLO, "hello"), columns({"INPUT0": HELLO}, "hello"),
              columns([HELLO, "b"], ["hello", "b"])),
    *answered("V1-063", "offset:predict", columns({"x": [1.0, 2.0]}, [11.0, 12.0]),
              columns({"x": [1.0, 2.0], "y": 5.0}, [6.0, 7.0]), rows([{"x": 1.0}, {"x": 2.0}], [11.0, 12.0]),
              rows([{"x": 1.0, "y": 5.0}, {"x": 2.0, "y": 6.0}], [6.0, 8.0])),
    *answered("V1-064", HALF, columns({"x": [1.0], "z": "anything", "w": {"deep": []}}, [2.5])),
    *(case for place in ("", "/versions/1")
      for case in answered("V1-066 V1-108", f"seeds{place}:predict", ({"inputs": OBJECTS}, {"predictions": OBJECTS}))),
    *(case for place in ("/versions/1", "/labels/stable")
      for case in answered("V1-110", f"labelled{place}:predict", ({"inputs": [0]}, {"outputs": [1]}))),
    *answered("V1-110", HALF, columns(LIST, [2.5, 3.0, 4.5], signature_name="serving_default")),
    *(case for dialect, key in PINS
      for case in answered("V1-110", f"pinned_{dialect}:predict", ({"inputs": LIST}, {key: LIST}))),
]  # fmt: skip

TEXTS = ["", "a", "één", "日本", "🦜", "nul\0", '"\\/\b\f\n\r\t', "\u2028\uffff", " ", "NaN", "aGVsbG8=", "<&>"]
ASCII = json.dumps(TEXTS).encode()
UTF8 = json.dumps(TEXTS, ensure_ascii=False).encode()
ONE = {"b64": "w6nDqW4="}
BASE64 = (
    ("", ""), ("YQ==", "a"), ("YQ", "a"), ("YQ=", "a"), ("YWI=", "ab"), ("YWI", "ab"), ("YW\nJj", "abc"),
    (" YWJj ", "abc"), ("Y W J j", "abc"), ("YWJj\r\n\tZA==", "abcd"),
)  # fmt: skip
CODED = {"b64": "aGk="}
NAMES = "binary_names:predict"
RAW = "py_raw_bytes:predict"
FULL = ("int32", "int64", "uint32", "uint64")
UNTYPED = (
    ({"inputs": {"a": [1.5, 2.5], "b": [[1], [2]]}}, ["a <f8 [2]", "b <i8 [2, 1]"]),
    ({"inputs": {"flags": [True, False], "text": ["x"]}}, ["flags |b1 [2]", "text |O [1]"]),
    ({"inputs": {"one": 1}}, ["one <i8 []"]),
    ({"inputs": {"mixed": [1, 2.5]}}, ["mixed <f8 [2]"]),
    ({"inputs": {"coded": [{"b64": "/w=="}]}}, ["coded |O [1]"]),
)
CONTENTS = (bytes(range(256)), b"\xff\0", b"text", b"\0" * 10_000)
"""Files, each of which `encoding: bytes` feeds to a tensor of bytes."""
VALUES: Final = [
    *(case for content in CONTENTS for value in [{"b64": b64encode(content).decode()}] for case in answered(
        "V1-072 V1-078", "photo:predict", rows([value, value]), columns({"image_bytes": [value]}, [value]),
        rows([value], [list(content)], signature_name="numbers"))),
    *(case for kind in FULL for case in answered("V1-068", f"identity_{kind}:predict", rows([1, 2]))),
    *(case for texts in (ASCII, UTF8) for case in answered(
        "V1-072 V1-075 V1-120", BYTES, (b'{"instances": %s}' % texts, {"predictions": TEXTS}),
        (b'{"inputs": {"INPUT0": %s}}' % texts, {"outputs": TEXTS}))),
    *answered("V1-072 V1-073 V1-120", BYTES, rows([ONE, "a", ONE], ["één", "a", "één"]),
              rows([["a", ONE], [ONE, "b"]], [["a", "één"], ["één", "b"]]),
              rows([{"INPUT0": ONE}, {"INPUT0": "a"}], ["één", "a"]), rows([{"INPUT0": [ONE, "a"]}], [["één", "a"]]),
              columns({"INPUT0": [ONE, "a"]}, ["één", "a"]), columns([[ONE], ["a"]], [["één"], ["a"]])),
    *answered("V1-073", BYTES, *(rows([{"b64": text}], [value]) for text, value in BASE64)),
    *answered("V1-074", BYTES, columns({"INPUT0": "a", "b64": "YQ=="}, "a")),
    *answered("V1-078 V1-120", NAMES, rows(["hi"], [{"image_bytes": CODED, "caption": "hi"}]),
              ({"inputs": ["hi"]}, {"predictions": [{"image_bytes": CODED, "caption": "hi"}],
                                    "outputs": {"image_bytes": [CODED], "caption": ["hi"]}}),
              rows(["hi", ""], [CODED, {"b64": ""}], signature_name="one"),
              columns({"text": "hi"}, CODED, signature_name="one")),
    *answered("V1-078", NAMES, rows(["aGk="], signature_name="input_only")),
    *(case for text in ("/w==", "//4A", "aGn/") for case in answered(
        "V1-079", RAW, rows([{"b64": text}, "hi"]), columns({"data": [{"b64": text}, "hi"]}, [{"b64": text}, "hi"]))),
    *answered("V1-084", BYTES, rows(["é日🦜", "a\0\x1f\n"])),
    *answered("", "py_untyped:predict", *((document, {"outputs": seen}) for document, seen in UNTYPED),
              columns([[1.5, 2.5]], ["input-0 <f8 [1, 2]"]), rows([[1.5], [2.5]], ["input-0 <f8 [2, 1]"]),
              rows([{"a": 1}, {"a": 2}], ["a <i8 [2]"]), rows(["x", "y"], ["input-0 |O [2]"])),
]  # fmt: skip

TWO = [{"weight": 1.5, "count": 2, "name": "a"}, {"weight": [2.5], "count": [4], "name": ["b"]}]
FEATURES = (
    ({"weight": 1.5}, 4.5), ({"weight": [1.5]}, 4.5), ({"weight": 1e2}, 103.0), ({"weight": 0.0, "count": 7}, 7.0),
    ({"weight": 0.0, "count": [-7]}, -7.0), ({"weight": 0.0, "count": True}, 1.0),
    ({"weight": 0.0, "count": False}, 0.0), ({"weight": 0.0, "pair": [True, 5]}, 9.0),
    ({"weight": 0.0, "pair": [5, False]}, 8.0),
)  # fmt: skip
LABELS = (("a", "a"), (["é"], "é"), (CODED, "hi"), ([CODED], "hi"), ("", ""))
WEIGHTS = ((80, 83.0), ([80], 83.0), (-1, 2.0), (2**20, 2.0**20 + 3))
ENDS = ((2**63 - 1, 9.223372e18), (-(2**63), -9.223372e18))
HEIGHTS = ([{"features": [0.25, 4.0, 1.0, 0.5]}], [[["ant", 0.25], ["bee", 4.0], ["cat", 1.0], ["dog", 0.5]]])
CONTEXT = {"weight": 1.0, "count": 1, "unheard_of": "x"}
EXAMPLES: Final = [
    *answered("V1-089 V1-090", REGRESS, results("regress", TWO, [3.5, 6.5])),
    *answered("V1-089 V1-090", CLASSIFY, results("classify", TWO, [[["a", 3.5]], [["b", 6.5]]])),
    *answered("V1-090 V1-093", "classifier_batch:classify", results("", *HEIGHTS),
              ({"examples": HEIGHTS[0]}, {"results": HEIGHTS[1]})),
    *answered("V1-091", CLASSIFY,
              results("classify_scores", [{"weight": 1.0, "count": 2}], [[["", 3.0], ["", 1.0]]]),
              results("classify_labelled", [{"weight": 1.0, "count": 2}], [[["sum", 3.0], ["weight", 1.0]]]),
              results("classify_classes", [{"weight": 1.0, "name": "a"}], [[["a", 0.0]]])),
    *answered("V1-103", REGRESS, results("regress", [{"weight": 1.0}, {"weight": 2.0, "count": 100}], [11.0, 102.0],
                                         context={"count": 10}),
              results("regress", [{}, {}, {}], [2.0, 2.0, 2.0], context=CONTEXT)),
    *answered("V1-105", REGRESS, *(results(name, TWO, [3.5, 6.5]) for name in ("regress", "regress_flat",
                                                                               "regress_double"))),
    *answered("V1-105", CLASSIFY, results("classify_double", TWO, [[["", 3.5]], [["", 6.5]]])),
    *answered("V1-095 V1-097", REGRESS, *(results("regress", [example], [found]) for example, found in FEATURES)),
    *answered("V1-095", CLASSIFY, *(results("classify_classes", [{"weight": 1.0, "name": name}], [[[label, 0.0]]])
                                    for name, label in LABELS)),
    *answered("V1-098", REGRESS, *(results("regress", [{"weight": 0.0, "count": count}], [found])
                                   for count, found in ENDS)),
    *answered("V1-099", REGRESS, *(results("regress", [{"weight": weight}], [found]) for weight, found in WEIGHTS),
              results("regress", [{"weight": 1}, {"weight": 1.5}, {"weight": 2}], [4.0, 4.5, 5.0])),
    *answered("V1-100", REGRESS, *(results("regress", [{"weight": 1.0, **count}, {"weight": 1.0, "count": 1}],
                                           [4.0, 2.0]) for count in ({}, {"count": []}))),
    *answered("V1-101", REGRESS, *(results("regress", [{"weight": 1.0, "shoe_size": value}], [4.0])
                                   for value in (1, "a", [1.5, 2.5], {"b64": "AA=="}))),
    *answered("V1-122", "py_explains:explain", (
        {"instances": [[1.0, 2.0], [3.0, 4.0]]},
        {"predictions": [[2.0, 4.0], [6.0, 8.0]],
         "explanations": [{"importance_scores": [1.0, 2.0]}, {"importance_scores": [3.0, 4.0]}]})),
]  # fmt: skip
ANSWERED: Final = [*PATHS, *ROWS, *COLUMNS, *VALUES, *EXAMPLES]

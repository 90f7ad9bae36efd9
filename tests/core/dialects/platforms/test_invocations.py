"""core.dialects.platforms: each body that platforms' clients send becomes inputs, and is answered in kind."""

import io
import json
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.dialects.platforms import frames, invocations, npy, table
from core.dtype import DATATYPES
from core.encoding import simd
from core.engine import result_of
from core.errors import InvalidInput, ServingError, TooLarge, TooMany
from core.operations import Deferred, Explainer, Infer, ModelRef, ModelSpec
from core.signature import plain
from core.tensor import Tensor, TensorSpec
from core.wire import Call, HttpError, HttpRequest, HttpResponse, Options
from tests.support import needs
from tests.support.strategies import byte_mutants, mutants, values

HEAD = "Inference-Header-Content-Length"


def spec(outputs: Sequence[TensorSpec] = (), **inputs: tuple[str, Sequence[int] | None]) -> ModelSpec:
    """Returns a model's description; an input whose name ends in _opt is optional."""
    made = tuple(
        TensorSpec(name, DATATYPES[kind], None if shape is None else tuple(shape), optional=name.endswith("_opt"))
        for name, (kind, shape) in inputs.items()
    )
    outputs = tuple(outputs) or (TensorSpec("y", DATATYPES["FP32"], (-1, 1)),)
    return ModelSpec("m", "1", "test", made, outputs, signatures=plain(made, outputs))


MATRIX = spec(x=("FP32", (-1, 2)))
INTS = spec(x=("INT32", (-1, 2)))
TABLE = spec(age=("FP64", (-1, 1)), name=("BYTES", (-1, 1)), n=("INT64", (-1,)))
MIXED = spec(a=("FP32", (-1, 1)), b=("INT64", (-1, 1)), c_opt=("BOOL", (-1, 1)))
ROWS = spec(a=("FP32", (-1, 1)), b=("INT64", (-1, 1)))
CUBE = spec(image=("FP32", (-1, 2, 2)))
LIST = spec(x=("FP32", (-1,)))
TEXTS = spec(x=("BYTES", (-1, 2)))
FLAGS = spec(x=("BOOL", (-1, 2)))
BRAIN = spec(x=("BF16", (-1, 2)))
ANY = ModelSpec("m", "1", "test", None, None)
ORDERED = MATRIX._replace(explainer=Explainer({}, feature_names={"x": ("width", "height")}))


def decoded(kind: str, body: Any, model: ModelSpec, **headers: str) -> tuple[Infer, Any]:
    """Returns the inference and its reply."""
    body = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    named = {name.replace("_", "-").lower().encode(): text.encode() for name, text in headers.items()}
    request = HttpRequest("POST", "/invocations", {b"content-type": kind.encode(), **named}, body)
    operation, reply = invocations.decode(Call(request, {}))
    if isinstance(operation, Deferred):
        operation, reply = operation.decode(model)
    assert isinstance(operation, Infer)
    return operation, reply


def inputs(kind: str, body: Any, model: ModelSpec, **headers: str) -> dict[str, Any]:
    """Returns the inputs as lists, by name."""
    return {tensor.name: tensor.array.tolist() for tensor in decoded(kind, body, model, **headers)[0].inputs}


def headed(head: bytes) -> bytes:
    """Returns an array's file up to its elements."""
    return b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head


def saved(values: Any, dtype: str, order: Any = "C") -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(values, dtype, order=order))
    return stream.getvalue()


NAN = float("nan")
FRAME, RECORDS = "dataframe_split", "dataframe_records"
JSON, CSV, NPY = "application/json", "text/csv", "application/x-npy"
SPLIT = {"columns": ["n", "name", "age", "more"], "index": [7, 9], "data": [[1, "a", 2.5, 0], [2, "b", None, 0]]}
PEOPLE = {"age": [[2.5], [float("nan")]], "name": [[b"a"], [b"b"]], "n": [1, 2]}


@pytest.mark.parametrize(("kind", "body", "model", "expected"), [
    (JSON, {FRAME: SPLIT}, TABLE, PEOPLE),
    (JSON, {RECORDS: [{"n": 1, "name": "a", "age": 2.5}, {"age": None, "n": 2.0, "name": "b"}]}, TABLE, PEOPLE),
    (JSON, {"input_data": SPLIT}, TABLE, PEOPLE),
    (JSON, {FRAME: {"data": [[1, 2], [3, 4]]}}, MATRIX, {"x": [[1, 2], [3, 4]]}),
    (JSON, {FRAME: {"columns": [0, 1], "data": [[1, 2.5]]}}, MATRIX, {"x": [[1, 2.5]]}),
    (JSON, {FRAME: {"columns": ["height", "width"], "data": [[1, 2]]}}, ORDERED, {"x": [[2, 1]]}),
    (JSON, {RECORDS: [{"height": None, "width": 2}]}, ORDERED, {"x": [[2, float("nan")]]}),
    (JSON, {FRAME: {"columns": ["a", "width"], "data": [[1, 2]]}}, ORDERED, {"x": [[1, 2]]}),
    (JSON, {FRAME: {"columns": ["pixels"], "data": [[[[1, 2], [3, 4]]]]}}, CUBE, {"image": [[[1, 2], [3, 4]]]}),
    (JSON, {FRAME: {"columns": ["q"], "data": [[1], [2]]}}, LIST, {"x": [1, 2]}),
    (JSON, {FRAME: {"columns": ["a", "b"], "data": [[1, "t"], [2, "u"]]}}, ANY, {"a": [1, 2], "b": [b"t", b"u"]}),
    (JSON, {FRAME: {"data": [[1, 2], [3, 4]]}}, ANY, {"input-0": [[1, 2], [3, 4]]}),
    (JSON, {FRAME: {"columns": ["a", "b"], "data": [[1.5, 7], [None, 8]]}}, ANY, {"a": [1.5, NAN], "b": [7, 8]}),
    (JSON, {RECORDS: [{"a": None, "b": [1, None]}]}, ANY, {"a": [NAN], "b": [[1, NAN]]}),
    (JSON, {FRAME: {"data": [[1, None], [3, 4]]}}, ANY, {"input-0": [[1, NAN], [3, 4]]}),
    (JSON, {"instances": [[1, 2], [3, 4]]}, MATRIX, {"x": [[1, 2], [3, 4]]}),
    (JSON, {"instances": [{"a": 1, "b": 2}]}, ROWS, {"a": [[1]], "b": [[2]]}),
    (JSON, {"inputs": [[1, 2]]}, MATRIX, {"x": [[1, 2]]}),
    (JSON, {"inputs": {"x": [[1, 2]]}, "params": None}, MATRIX, {"x": [[1, 2]]}),
    (JSON, {"inputs": [{"x": [1, 2]}]}, MATRIX, {"x": [[1, 2]]}),
    (JSON, {"input_data": [[1, 2]]}, MATRIX, {"x": [[1, 2]]}),
    (JSON, {"instances": [[1, 2]]}, ANY, {"input-0": [[1, 2]]}),
    (JSON, {"inputs": {"datatype": [[1, 2]]}}, ANY, {"datatype": [[1, 2]]}),
    (JSON, {"signature_name": "serving_default", "inputs": [[1, 2]]}, MATRIX, {"x": [[1, 2]]}),
    (JSON, {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}, MATRIX, {"x": [[1, 2]]}),
    (JSON, '{"inputs": [{"name": "x", "datatype": "INT64", "shape": [1], "data": [18014398509481985.0]}]}', LIST, None),
    (JSON, {"inputs": [{"name": "x", "datatype": "INT64", "shape": [2048], "data": [2**60 + 1, *[0.0] * 2047]}]}, LIST,
        {"x": [2**60 + 1, *[0] * 2047]}),
    ("", {"instances": [[1, 2]]}, MATRIX, {"x": [[1, 2]]}),
    ("application/json; charset=utf-8", {"instances": [[1, 2]]}, MATRIX, {"x": [[1, 2]]}),
    (CSV, "1,2\r\n3,4\r\n", MATRIX, {"x": [[1, 2], [3, 4]]}),
    (CSV, "1,2", INTS, {"x": [[1, 2]]}),
    (CSV, "+1.,.5\n,nan", MATRIX, {"x": [[1, 0.5], [float("nan")] * 2]}),
    (CSV, "-inf,Infinity", MATRIX, {"x": [[float("-inf"), float("inf")]]}),
    (CSV, "2020_01,2020_02\n1,2", MATRIX, {"x": [[1, 2]]}),
    (CSV, "height,width\n1,2", ORDERED, {"x": [[2, 1]]}),
    (CSV, "height,width\n1,\n\n", ORDERED, {"x": [[float("nan"), 1]]}),
    (CSV + "; header=present", "1,2\n3,4", MATRIX, {"x": [[3, 4]]}),
    (CSV + "; header=absent", "1,2\n3,4", MATRIX, {"x": [[1, 2], [3, 4]]}),
    (CSV, 'name,age,n\n"a",2.5,1\nb,,2', TABLE, PEOPLE),
    (CSV, 'name,age,n\r\n"a",2.5,1\r\n\r\nb,,2\r\n', TABLE, PEOPLE),
    (CSV, '"a\r\n\r\nb",c\r\n"d\ne",f\r\n', TEXTS, {"x": [[b"a\r\n\r\nb", b"c"], [b"d\ne", b"f"]]}),
    (CSV, '5" pipe,a\n7" rod,b', TEXTS, {"x": [[b'5" pipe', b"a"], [b'7" rod', b"b"]]}),
    (CSV, 'age,inch",n\n1,2,3\n4,5,6', ANY, {"age": [1, 4], 'inch"': [2, 5], "n": [3, 6]}),
    (CSV, '"na\nme",age,n\n1,2,3\n4,5,6', ANY, {"na\nme": [1, 4], "age": [2, 5], "n": [3, 6]}),
    (CSV, '"a ""b"", c",007', TEXTS, {"x": [[b'a "b", c', b"007"]]}),
    (CSV, "true,0\nFALSE,1", FLAGS, {"x": [[True, False], [False, True]]}),
    (CSV, "1.5,2,0\n2,3,1", MIXED, {"a": [[1.5], [2]], "b": [[2], [3]], "c_opt": [[False], [True]]}),
    (CSV, "b,a\n2,1.5", MIXED, {"a": [[1.5]], "b": [[2]]}),
    (CSV, "a,b\n1,2", ANY, {"a": [1], "b": [2]}),
    (CSV, "a,b\nx,2", ANY, {"a": [b"x"], "b": [b"2"]}),
    (CSV, "a,b\nx,\ny,2", ANY, {"a": [b"x", b"y"], "b": [b"", b"2"]}),
    (CSV, "a,b\r\n1.5,\r\n\r\n , 3\r\n", ANY, {"a": [1.5, NAN], "b": [NAN, 3]}),
    (CSV, "a,b\ntrue,1\n,2", ANY, {"a": [b"true", b""], "b": [b"1", b"2"]}),
    (CSV, "a,b\ntrue,\nfalse,3", ANY, {"a": [True, False], "b": [NAN, 3]}),
    (CSV, "\ufeff1,2\n3,4", ANY, {"input-0": [[1, 2], [3, 4]]}),
    (CSV, ",1\n2, ", ANY, {"input-0": [[NAN, 1], [2, NAN]]}),
    (CSV, "1\n\n2", ANY, {"input-0": [[1], [2]]}),
    (CSV, "a,b\n02134,\n2,3", ANY, {"a": [b"02134", b"2"], "b": [b"", b"3"]}),
    (CSV, 'a,b\n"1",\n2,3', ANY, {"a": [b"1", b"2"], "b": [b"", b"3"]}),
    (CSV, "a" * 131_073 + ",b", TEXTS, {"x": [[b"a" * 131_073, b"b"]]}),
    (NPY, saved([[1, 2]], "<f4"), MATRIX, {"x": [[1, 2]]}),
    (NPY, saved([[1, 2]], ">f8"), MATRIX, {"x": [[1, 2]]}),
    (NPY, saved([[1, 2], [3, 4]], "u1", "F"), INTS, {"x": [[1, 2], [3, 4]]}),
    (NPY, saved([[True, False]], "?"), FLAGS, {"x": [[True, False]]}),
    (NPY, saved([1, 2], "<i8"), ANY, {"input-0": [1, 2]}),
    (NPY, saved([1, 2], "<f4"), spec(x=("FP32", (-1, 1))), {"x": [[1], [2]]}),
    (NPY, saved([["a", "\u20ac"], ["", "bc"]], "<U2", "F"), TEXTS, {"x": [[b"a", b"\xe2\x82\xac"], [b"", b"bc"]]}),
    (NPY, saved([["a", "b"]], ">U3"), TEXTS, {"x": [[b"a", b"b"]]}),
    (NPY, saved([[b"a", b"\xff"]], "S1"), TEXTS, {"x": [[b"a", b"\xff"]]}),
    (NPY, saved(["a", "b"], "U1"), spec(x=("BYTES", (-1, 1))), {"x": [[b"a"], [b"b"]]}),
    (NPY, saved(["a"] * 70_000, "U1"), ANY, {"input-0": [b"a"] * 70_000}),
    (NPY, saved(["a", "b"], "S1"), ANY, {"input-0": [b"a", b"b"]}),
    (NPY, saved([[1, 2]], "<f4"), BRAIN, {"x": [[0x3F80, 0x4000]]}),
    (CSV, "1,-0.1\n,2", BRAIN, {"x": [[0x3F80, 0xBDCD], [0x7FC0, 0x4000]]}),
    (JSON, {FRAME: {"data": [[1, 2]]}}, BRAIN, {"x": [[0x3F80, 0x4000]]}),
])  # fmt: skip
def test_a_body_becomes_the_inputs(kind: str, body: Any, model: ModelSpec, expected: Any) -> None:
    """The JSON of MLflow, Databricks, Vertex AI, Azure ML, TensorFlow Serving and V2; CSV; numpy's arrays.

    Sources: https://mlflow.org/docs/latest/ml/deployment/deploy-model-locally/,
    https://docs.databricks.com/aws/en/machine-learning/model-serving/score-custom-model-endpoints,
    https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements,
    https://learn.microsoft.com/en-us/azure/machine-learning/how-to-deploy-mlflow-models-online-endpoints,
    https://docs.aws.amazon.com/sagemaker/latest/dg/cdf-inference.html.
    """
    if expected is None:
        with pytest.raises(InvalidInput):
            inputs(kind, body, model)
        return
    found = inputs(kind, body, model)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(np.array(found[name]), np.array(value))


@pytest.mark.parametrize(("kind", "body", "model", "message"), [
    (JSON, "{", MATRIX, "JSON Parse error"),
    (JSON, [1], MATRIX, "Is not object"),
    (JSON, {}, MATRIX, r"the body has the members \[\]; expected exactly one of dataframe_split, dataframe_records"),
    (JSON, {"inputs": 1, "instances": 1}, MATRIX, "expected exactly one of"),
    (JSON, {"instances": [[1, 2]], "params": [1]}, MATRIX, r"'params' is \[1\]; expected an object"),
    (JSON, {FRAME: [[1]]}, MATRIX, r"'dataframe_split' is \[\[1\]\]; expected an object with 'columns'"),
    (JSON, {FRAME: {"columns": "ab", "data": [[1]]}}, MATRIX, "'columns' is 'ab'; expected an array of names"),
    (JSON, {FRAME: {"columns": [0.5], "data": [[1]]}}, MATRIX, "expected an array of names"),
    (JSON, {FRAME: {"columns": ["a", "a"], "data": [[1, 2]]}}, MATRIX, "'columns' has 'a' twice"),
    (JSON, {FRAME: {"columns": ["a", "b"], "data": []}}, MATRIX, "'dataframe_split' has no rows"),
    (JSON, {FRAME: {"columns": ["a", "b"], "data": 5}}, MATRIX, "'dataframe_split' has no rows"),
    (JSON, {FRAME: {"columns": ["a", "b"], "data": [[1, 2], [3]]}}, MATRIX,
        r"has the row \[3\] at index 1; expected 2 cells"),
    (JSON, {FRAME: {"columns": ["a", "b"], "data": [1, 2]}}, MATRIX, "has the row 1 at index 0; expected 2"),
    (JSON, {FRAME: {"columns": [], "data": [[]]}}, MATRIX, "rows without cells"),
    (JSON, {FRAME: {"columns": ["a", "b"], "data": [[[1, 3], 2]] * 2}}, MATRIX, "input 'x' has 6 elements"),
    (JSON, {FRAME: {"columns": ["age", "name", "n"], "data": [[1, 2, 3]]}}, TABLE,
        "input 'name' has 2 where BYTES needs strings"),
    (JSON, {FRAME: {"columns": ["age", "name", "n"], "data": [[json.loads("[" * 64 + "]" * 64), "a", 1]]}}, TABLE,
        "input 'age' has 65 dimensions; at most 32 are possible"),
    (JSON, {FRAME: {"columns": ["age", "name", "n"], "data": [[1, "a", None]]}}, TABLE,
        "input 'n' has null where INT64 needs integers"),
    (JSON, {FRAME: {"columns": ["age", "name", "n"], "data": [[[1, 2], "", 1], [[1], "", 1]]}}, TABLE, "size"),
    (JSON, {FRAME: {"columns": ["a"], "data": [["x"], [None]]}}, ANY, "null Type: Null is not of expected type"),
    (JSON, {FRAME: {"columns": ["a"], "data": [[json.loads("[" * 64 + "null" + "]" * 64)]]}}, ANY,
        "input 'a' has 65 dimensions; at most 32 are possible"),
    (JSON, {FRAME: {"columns": ["age"], "data": [[1]]}}, TABLE,
        r"has the columns \('age',\); model 'm' also needs \['name', 'n'\]"),
    (JSON, {FRAME: {"columns": ["age", "name", "n"], "data": [[1, "a", 2**64]]}}, TABLE,
        "input 'n' has 18446744073709551616, which is out of range for INT64"),
    (JSON, {FRAME: {"data": [[1, 2]] * 600 + [[1, -(2**64)]]}}, INTS,
        "input 'x' has -18446744073709551616, which is out of range for INT32"),
    (JSON, {RECORDS: []}, MATRIX, r"'dataframe_records' is \[\]; expected an array of objects"),
    (JSON, {RECORDS: [{"a": 1}, {"b": 1}]}, MATRIX, r"has {'b': 1} at index 1; expected an object with"),
    (JSON, {RECORDS: [{"a": 1}, 5]}, MATRIX, "has 5 at index 1"),
    (JSON, {"instances": [[1, "a"]]}, MATRIX, 'JSON Value: "a" Type: String is not of expected type: float'),
    (JSON, {"instances": [{"z": 1}]}, MATRIX, "^Failed to process element: 0 of 'instances' list. Error: INVALID_ARGU"),
    (JSON, {"inputs": [{"z": 1}]}, MATRIX, "^Failed to process element: 0 of 'inputs' list. Error: INVALID_ARGUMENT"),
    (JSON, {"inputs": [{"x": [1, 2]}, 5]}, MATRIX, "^Expecting object but got list at item 1 of input list$"),
    (JSON, {"inputs": {"z": 1}}, MATRIX, "^Missing named input: x in 'inputs' object"),
    (JSON, {"input_data": [{"z": 1}]}, MATRIX, "^Failed to process element: 0 of 'input_data' list. Error: INVALID_A"),
    (JSON, {"input_data": {"z": 1}}, MATRIX, "^Missing named input: x in 'input_data' object"),
    (JSON, {"input_data": [1]}, ROWS, "^input_data is a plain value/list, but expecting an object as multiple input"),
    (JSON, {"input_data": {"data": []}}, MATRIX, "^'input_data' has no rows; expected at least one"),
    (JSON, {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}, {"name": "y"}]}, MATRIX,
        "'datatype' of input 'y' is missing"),
    (JSON, {"inputs": [{"name": "x", "datatype": "FP3", "shape": [1], "data": [1]}]}, MATRIX, "'datatype' of input"),
    (CSV, "", MATRIX, "'text/csv' has no rows"),
    (CSV + ";header=present", "a,b", MATRIX, "'text/csv' has no rows"),
    (CSV, "1,NA\n3,4", MATRIX, "NA"),
    (CSV + ";header=maybe", "1,2", MATRIX, "header='maybe'; expected present or absent"),
    (CSV, "1,2\n3", MATRIX, r"has the row \['3'\] at index 1; expected 2 cells"),
    (CSV, "1,x", MATRIX, "input 'x' has 'x' where FP32 needs numbers"),
    (CSV, "1,2.5", INTS, "input 'x' has 2.5 where INT32 needs integers"),
    (CSV, "1,-1e400", MATRIX, "input 'x' has -1e400, which is out of range for FP32"),
    (CSV, "1," + "9" * 5000, MATRIX, "input 'x' has 9{9,256}.*, which is out of range for FP32"),
    (CSV, "1e400,0", FLAGS, "input 'x' has 1e400, which is out of range for BOOL"),
    (CSV, "1_0,2", MATRIX, "input 'x' has '1_0' where FP32 needs numbers"),
    (CSV, "\u0661,2", MATRIX, "input 'x' has '.*' where FP32 needs numbers"),
    (CSV, "a,a\n1,2", MATRIX, "expected each name once"),
    (CSV, "1,2,3,4", TABLE, r"has 4 columns without names; model 'm' also needs \['age', 'name', 'n'\]"),
    (CSV, b"\xff,1", MATRIX, "the CSV is not UTF-8: byte 0"),
    (CSV, '"a', MATRIX, "the body is not CSV"),
    (CSV, "1,[2\n3,4]", MATRIX, "where FP32 needs numbers"),
    (NPY, b"", MATRIX, "the body is not an array in numpy's format"),
    (NPY, b"\x93NUMPY\x03\x00", MATRIX, "version .3, 0. of the format is not known"),
    (NPY, b"\x93NUMPY\x01\x00\x10\x00{'descr': (((((((", MATRIX, "not an array in numpy's format"),
    (NPY, b"\x93NUMPY\x01\x00\x10", MATRIX, "not an array in numpy's format"),
    (NPY, headed(b"{'descr': '<f4'}"), MATRIX, "expected a type in 'descr', 'fortran_order' and 'shape'"),
    (NPY, headed(b"{'descr': '<f9', 'fortran_order': False, 'shape': (1, 2)}"), MATRIX, "'<f9' not understood"),
    (NPY, headed(b"{'descr': 'f4,f4', 'fortran_order': False, 'shape': (1,)}"), MATRIX, "its head is .*f4,f4"),
    (NPY, headed(b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2)}"), MATRIX, r"its head is .*\(-1,2\)"),
    (NPY, headed(b" " * 5000), MATRIX, "its head has 5000 bytes; expected at most 4096"),
    (NPY, headed(b"{'descr': '<f4', 'fortran_order': False, 'shape': (%b)}" % (b"1," * 40)), MATRIX,
        "input 'x' has 40 dimensions; at most 32 are possible"),
    (NPY, saved([[1, 2]], "<f4")[:-1], MATRIX, r"the array has 7 bytes; float32 \[1, 2\] needs 8"),
    (NPY, saved([[1, 2]], "<c8"), MATRIX, "the array's type is 'complex64'; expected numbers or booleans"),
    (NPY, saved([[1, 2]], "<g"), ANY, "the array's type is 'float128'|the array's type is 'longdouble'"),
    (NPY, saved([["a"]], "U1"), MATRIX, "the array's type is '<U1'; expected numbers or booleans, or texts for BYTES"),
    (NPY, saved([["\ud800", "b"]], "U1"), TEXTS, "input 'x' has a string with a lone surrogate"),
    (NPY, saved([["a", "b"]], "U1")[:-4] + b"\0\0\x11\0", TEXTS, "has a number that is not a character"),
    (NPY, headed(b"{'descr': '<U0', 'fortran_order': False, 'shape': (1000000000, 2)}"), TEXTS, "type is '<U0'"),
    (NPY, headed(b"{'descr': '|O', 'fortran_order': False, 'shape': (1, 2)}"), TEXTS, "type is 'object'; expected"),
    (NPY, saved([["a", "b"]], "U1")[:-1], TEXTS, r"the array has 7 bytes; <U1 \[1, 2\] needs 8"),
    (NPY, saved([[1.5, 2]], "<f8"), INTS, "input 'x' has 1.5 where INT32 needs integers"),
    (NPY, saved([[1, float("nan")]], "<f8"), INTS, "input 'x' has NaN where INT32 needs integers"),
    (NPY, saved([1], "<f4"), TABLE, r"one array is one input, and model 'm' needs \['age', 'name', 'n'\]"),
])  # fmt: skip
def test_a_wrong_body_is_refused_with_the_place_and_what_was_expected(
    kind: str, body: Any, model: ModelSpec, message: str
) -> None:
    """No body raises anything but an error for its client."""
    with pytest.raises(InvalidInput, match=message):
        decoded(kind, body, model)


@pytest.mark.parametrize(
    "head",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (1or 2,)}",
        b"{'descr': '\\d', 'fortran_order': False, 'shape': (1,)}",
        b"{'descr': '<f4', 'fortran_order': 1 is 1, 'shape': (1,)}",
        b"-" * 4000,
    ],
)
def test_the_head_of_an_array_is_not_pythons(head: bytes, capfd: pytest.CaptureFixture[str]) -> None:
    """Python's parser would write a warning beside the log each time, and its errors have the addresses of objects."""
    with pytest.raises(InvalidInput, match="its head is") as caught:
        npy.read(headed(head), MATRIX)
    assert " object at 0x" not in caught.value.message
    assert capfd.readouterr() == ("", "")


def test_an_array_without_elements_claims_few_rows() -> None:
    """Each would be a line, or an empty list, of the answer."""
    with pytest.raises(InvalidInput, match="the array has no elements in its shape"):
        npy.read(headed(b"{'descr': '<f4', 'fortran_order': False, 'shape': (10000000, 0)}"), MATRIX)


@pytest.mark.parametrize("head", [
    b'{"shape": (1,2), "descr": "<f4", "fortran_order": False}',
    b"{'descr':'<f4','fortran_order':False,'shape':(1L, 2L)}",
    b"{'descr': 'float32', 'fortran_order': True, 'shape': (1, 2,), }  \n",
])  # fmt: skip
def test_other_writers_of_arrays_are_read(head: bytes) -> None:
    """Writers in other languages, and Python 2, use other orders and quotes, which the format permits."""
    assert npy.read(headed(head) + np.array([1, 2], "<f4").tobytes(), MATRIX).array.tolist() == [[1, 2]]


@pytest.mark.parametrize("other", ["2", "02", " 2"])
def test_null_is_a_missing_number_whatever_the_other_cells_are(other: str) -> None:
    """`02` is not a number of JSON, so the cells are read one by one."""
    (tensor,) = table.read(f"1,null\n{other},3".encode(), MATRIX)
    np.testing.assert_array_equal(tensor.array, [[1, np.nan], [2, 3]])


def test_odd_csv_is_counted_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that is a number takes an eighth of the memory of one that has to be looked at as text."""
    monkeypatch.setattr(table, "MOST_CELLS", 10)
    assert inputs(CSV, "1,2\n" * 10, MATRIX)["x"] == [[1, 2]] * 10
    most = "at most 10 are read, or 262143 rows of plain numbers"
    with pytest.raises(TooLarge, match=f"the CSV has 20 cells; {most}"):
        inputs(CSV, "1,.2\n" * 10, MATRIX)
    assert len(inputs(CSV, "1,2\n" * 262_143, MATRIX)["x"]) == 262_143
    with pytest.raises(TooLarge, match=f"the CSV has 524288 cells; {most}"):
        inputs(CSV, "1,2\n" * 262_144, MATRIX)


@needs.SIMD
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_more_rows_of_plain_numbers_are_read_if_they_have_sixteen_bytes_each(
    end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SageMaker's payload of 6 MB has 375,000 rows of four numbers. The refusal has the bound that applies."""
    model, rows = spec(x=("FP32", (-1, 4))), f"5.1,3.5,1.4,0.2{end}" * 300_000
    (tensor,) = table.read(rows.encode(), model)
    np.testing.assert_array_equal(tensor.array, np.full((300_000, 4), [5.1, 3.5, 1.4, 0.2], "f4"))
    for odd in ("1,2,3,4.5678901,5", "1,2\n3,4,5,6.7", "5.1,3.5,1.4,NA."):
        with pytest.raises(TooLarge, match="at most 1000000 are read, or 30000[12] rows of plain numbers"):
            table.read((rows + odd).encode(), model)
    monkeypatch.setattr(simd, "_simd", lambda: None)
    with pytest.raises(TooLarge, match="1200000 cells; at most 1000000 are read, or 262143 rows of plain numbers"):
        table.read(rows.encode(), model)


def answer(form: dict[str, str], *outputs: tuple[str, str, Any], kind: str = JSON, body: Any = None) -> HttpResponse:
    """Returns the answer of a model with these outputs (name, datatype, values)."""
    made = [Tensor(name, DATATYPES[datatype], np.array(array)) for name, datatype, array in outputs]
    model = spec([TensorSpec(t.name, t.datatype, t.shape) for t in made], x=("FP32", (-1, 2)))
    operation, reply = decoded(kind, {"instances": [[1, 2]]} if body is None else body, model, **form)
    found: HttpResponse = reply(result_of(operation, model, made))
    return found


ONE = ("y", "FP32", np.array([[0.5, 1.5], [float("nan"), 2]], "f4"))
TWO = ("z", "BYTES", np.array([b"a", b'b,"c'], object))
LINES = "application/jsonlines"
WORDS = "the outputs have the shapes"


@pytest.mark.parametrize(("form", "body", "outputs", "expected"), [
    ({}, None, [ONE], b'{"predictions":[[0.5,1.5],[NaN,2.0]]}'),
    ({}, None, [ONE, TWO], b'{"predictions":[{"y":[0.5,1.5],"z":"a"},{"y":[NaN,2.0],"z":"b,\\"c"}]}'),
    ({}, {"inputs": [[1, 2]]}, [ONE, TWO], b'{"predictions":{"y":[[0.5,1.5],[NaN,2.0]],"z":["a","b,\\"c"]}}'),
    ({}, {"input_data": [[1, 2]]}, [TWO], b'["a","b,\\"c"]'),
    ({}, {"inputs": [[1, 2]], "signature_name": "serving_default"}, [TWO], b'{"outputs":["a","b,\\"c"]}'),
    ({"accept": "text/csv"}, None, [ONE, TWO], b'0.5,1.5,a\nNaN,2.0,"b,""c"\n'),
    ({"accept": "image/png, text/csv;q=0.5"}, None, [TWO], b'a\n"b,""c"\n'),
    ({"accept": "application/json; Q=0.0, text/csv; q=0.01"}, None, [TWO], b'a\n"b,""c"\n'),
    ({"accept": "text/*"}, None, [TWO], b'a\n"b,""c"\n'),
    ({"accept": "application/json;q=0, */*"}, None, [TWO], b'a\n"b,""c"\n'),
    ({"accept": "text/*, */*"}, "1,2", [TWO], b'a\n"b,""c"\n'),
    ({"accept": "application/*"}, "1,2", [TWO], b'{"predictions":["a","b,\\"c"]}'),
    ({"accept": "text/csv;q=0, */*"}, "1,2", [TWO], b'{"predictions":["a","b,\\"c"]}'),
    ({"accept": "text/*;q=0, text/csv"}, "1,2", [TWO], b'a\n"b,""c"\n'),
    ({"accept": "text/csv"}, None, [("y", "BF16", np.array([0x3FC0], "u2"))], b"1.5\n"),
    ({"accept": "text/csv"}, None, [("y", "FP32", np.zeros((2, 0), "f4")), ("n", "INT8", np.arange(2))], b",0\n,1\n"),
    ({"accept": "text/csv"}, None, [("y", "FP32", np.zeros((0, 2), "f4"))], b""),
    ({"accept": "text/csv"}, None, [("z", "BYTES", np.array([b"", b"a", b""], object))], b'""\na\n""\n'),
    ({"accept": "text/csv"}, None, [("z", "BYTES", np.array([[b"", b""]], object))], b",\n"),
    ({"accept": LINES}, None, [ONE], b"[0.5,1.5]\n[NaN,2.0]\n"),
    ({"accept": LINES}, None, [ONE, TWO], b'{"y":[0.5,1.5],"z":"a"}\n{"y":[NaN,2.0],"z":"b,\\"c"}\n'),
])  # fmt: skip
def test_accept_and_the_body_decide_on_the_form(
    form: dict[str, str], body: Any, outputs: list[Any], expected: bytes
) -> None:
    """JSON has predictions by row for rows, whole for columns; CSV a line for each row."""
    kind = CSV if isinstance(body, str) else JSON
    assert b"".join(answer(form, *outputs, kind=kind, body=body).parts) == expected


@pytest.mark.parametrize("output", [ONE, TWO, ("y", "BF16", np.array([0x3FC0], "u2")), ("s", "INT64", np.array(3))])
def test_an_array_is_answered_as_one(output: Any) -> None:
    """Numpy reads it without pickle."""
    found = np.load(io.BytesIO(b"".join(answer({"accept": "application/x-npy"}, output).parts)), allow_pickle=False)
    name, kind, array = output
    expected = {"z": np.array(["a", 'b,"c']), "y": np.array([1.5]) if kind == "BF16" else array, "s": array}[name]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(("form", "outputs", "error", "message"), [
    ({"accept": "text/html"}, [ONE], HttpError, "Accept is 'text/html'; expected one of application/json, text/csv"),
    ({"accept": "application/json;q=0"}, [ONE], HttpError, "Accept is 'application/json;q=0'; expected one of"),
    ({"accept": "text/csv;q=0, text/*"}, [ONE], HttpError, "Accept is 'text/csv;q=0, text/.'; expected one of"),
    ({"accept": "text/csv"}, [("s", "FP32", np.float32(1))], InvalidInput, WORDS),
    ({"accept": "text/csv"}, [ONE, ("s", "FP32", np.zeros(3, "f4"))], InvalidInput, WORDS),
    ({"accept": LINES}, [("s", "FP32", np.float32(1))], InvalidInput, "the shape .* for 0 records; expected 0 rows"),
    ({"accept": "application/x-npy"}, [ONE, TWO], InvalidInput, r"the model has the outputs \['y', 'z'\]: accept JSON"),
    ({"accept": "application/x-npy"}, [("z", "BYTES", np.array([b"\xff"], object))], Exception, "not UTF-8"),
])  # fmt: skip
def test_an_answer_that_the_form_cannot_carry_is_refused(
    form: dict[str, str], outputs: list[Any], error: type[Exception], message: str
) -> None:
    """The refusal names what the client can accept instead."""
    with pytest.raises(error, match=message):
        answer(form, *outputs)


def test_a_long_text_does_not_take_its_memory_for_each_text_of_an_array() -> None:
    """In numpy's array of texts each is as long as the longest: a small body would have an answer of gigabytes."""
    texts = np.array([b"a" * 100_000, *[b"a"] * 10_000], object)
    tracemalloc.start()
    try:
        with pytest.raises(
            InvalidInput, match=r"^output 'z' has 10001 texts of up to 100000 characters, .*: accept JSON$"
        ):
            answer({"accept": "application/x-npy"}, ("z", "BYTES", texts))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 16 * 1024 * 1024
    for fitting in ([b"a" * 100_000, *[b"a"] * 40], [b"a" * 100_000] * 60):
        found = answer({"accept": "application/x-npy"}, ("z", "BYTES", np.array(fitting, object)))
        array = np.load(io.BytesIO(b"".join(found.parts)), allow_pickle=False)
        assert array.tolist() == [text.decode() for text in fitting]


@pytest.mark.parametrize(("model", "body", "expected"), [
    (MATRIX, "[1, 2]\r\n\n [3, 4.5]\n", {"x": [[1, 2], [3, 4.5]]}),
    (MATRIX, "[1, 2]\n" * 3000, {"x": [[1, 2]] * 3000}),
    (LIST, "1\n" * 262_144, {"x": [1] * 262_144}),
    (MATRIX, '{"x": [1, 2]}', {"x": [[1, 2]]}),
    (MATRIX, '{"features": [1, 2]}\n{"features": [3, 4]}', {"x": [[1, 2], [3, 4]]}),
    (spec(features=("FP32", (-1, 1))), '{"features": 1}\n{"features": 2}', {"features": [[1], [2]]}),
    (ROWS, '{"a": 1.5, "b": 2}\n{"b": 3, "a": 4}', {"a": [[1.5], [4]], "b": [[2], [3]]}),
    (ANY, "1\n2", {"input-0": [1, 2]}),
])  # fmt: skip
def test_lines_are_rows(model: ModelSpec, body: str, expected: Any) -> None:
    """As "instances" has them, or SageMaker's "features". The answer has lines, too, unless Accept says otherwise."""
    operation, reply = decoded(LINES, body, model)
    assert {tensor.name: tensor.array.tolist() for tensor in operation.inputs} == expected
    assert b"".join(answer({}, ONE, kind=LINES, body="[1, 2]\n[3, 4]").parts) == b"[0.5,1.5]\n[NaN,2.0]\n"
    found = answer({"accept": JSON}, ONE, kind=LINES, body="[1, 2]\n[3, 4]")
    assert b"".join(found.parts) == b'{"predictions":[[0.5,1.5],[NaN,2.0]]}'
    assert callable(reply)


@pytest.mark.parametrize(("body", "error", "message"), [
    ("[1, 2]\n\n[3, 4\n5]", InvalidInput, "line 3 is not JSON: "),
    ("\r\n \n[1, 2]\n\n\n[2", InvalidInput, "line 6 is not JSON: "),
    ('{"x": [1, 2], "x": [1, 2]}\n[', InvalidInput, "the JSON has the member 'x' twice"),
    ("\n \r\n", InvalidInput, "the body has no lines; expected a row in each"),
    ('[1, 2]\n\n[1, "a"]', InvalidInput, '^line 3 is not a row of the model: JSON Value: "a" Type: String is not'),
    ('\n{"x": [1, 2]}\n{"y": 1}', InvalidInput, "^line 3 is not a row of the model: JSON object: does not have named"),
    ('[1, 2]\n\n{"x": [1, 2]}', InvalidInput, "^line 3 is not a row of the model: Expecting value/list but got obj"),
    ('\n{"x": [1, 2]}\n[1, 2]', InvalidInput, "^line 3 is not a row of the model: Expecting object but got list$"),
    ("1\n" * 262_144 + "2", TooMany, "the body has 262145 lines; at most 262144 are read"),
    ("[[" * 200_000, TooMany, "arrays and objects"),
])  # fmt: skip
def test_lines_that_are_not_rows_are_refused(body: str, error: type[Exception], message: str) -> None:
    """The refusal names the line, and lines are counted before they are read."""
    with pytest.raises(error, match=message):
        decoded(LINES, body, MATRIX)


def test_without_a_preference_the_answer_has_the_form_of_the_request() -> None:
    """MLflow's server answers with JSON always."""
    for accept in ("*/*", "text/*", "application/*;q=0, */*"):
        assert b"".join(answer({"accept": accept}, ONE, kind=CSV, body="1,2").parts) == b"0.5,1.5\nNaN,2.0\n"
    call = Call(HttpRequest("POST", "/", {b"content-type": b"text/csv"}, b"1,2"), {})
    deferred, as_it_is = invocations.decode(call, as_mlflow=True)
    assert isinstance(deferred, Deferred)
    _, reply = deferred.decode(MATRIX)
    result = result_of(Infer(ModelRef("m"), ()), MATRIX, [Tensor("y", DATATYPES["FP32"], np.ones((1, 1), "f4"))])
    assert b"".join(as_it_is(reply(result)).parts) == b'{"predictions":[[1.0]]}'


LONG = [[index + 123456789012.0, index + 123456789012.0625] for index in range(600)]
PAIR = spec(x=("FP64", (-1, 2)))
TWICE = spec(a=("FP64", (-1, 1)), b=("INT64", (-1,)))
FRAMES: list[tuple[ModelSpec, Any, dict[str, Any]]] = [
    (PAIR, ["p", "q"], {"x": LONG}),
    (PAIR, [0, 1], {"x": LONG}),
    (PAIR._replace(explainer=ORDERED.explainer), ["height", "width"], {"x": [row[::-1] for row in LONG]}),
    (TWICE, ["b", "a"], {"a": [[row[1]] for row in LONG], "b": [row[0] for row in LONG]}),
    (ANY, ["b", "a"], {"a": [row[1] for row in LONG], "b": [row[0] for row in LONG]}),
]


@pytest.mark.parametrize(("model", "columns", "expected"), FRAMES)
def test_a_long_frame_is_read_without_a_list_of_its_numbers(model: ModelSpec, columns: Any, expected: Any) -> None:
    """It becomes the same inputs, in JSON and in CSV."""
    found = inputs(JSON, {FRAME: {"data": LONG, "columns": columns}}, model)
    assert inputs(JSON, {FRAME: {"columns": columns, "data": LONG}}, model) == found
    lines = "\n".join(f"{a},{b}" for a, b in LONG)
    names = "" if columns == [0, 1] else ",".join(columns) + "\n"
    assert found == inputs(CSV, names + lines, model) == expected


def test_a_long_row_of_names_is_read() -> None:
    """Pandas numbers the columns of a frame without names."""
    wide = {"columns": list(range(3000)), "data": [list(range(3000))]}
    assert inputs(JSON, {FRAME: wide}, spec(x=("FP32", (-1, 3000)))) == {"x": [list(range(3000))]}
    with pytest.raises(InvalidInput, match="'dataframe_split' has the row"):
        decoded(JSON, {FRAME: {"columns": ["a"], "data": list(range(3000))}}, MATRIX)


def test_parameters_reach_the_model() -> None:
    """MLflow's are "params", Vertex AI's "parameters"."""
    for name in ("params", "parameters"):
        assert decoded(JSON, {"instances": [[1, 2]], name: {"k": 1}}, MATRIX)[0].parameters == {"k": 1}


def test_a_client_may_name_a_model() -> None:
    """In the words of SageMaker's container for TensorFlow Serving; otherwise the default model answers.

    Source: https://github.com/aws/sagemaker-tensorflow-serving-container, README, "Deploying more than one model".
    """
    tensor = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}
    words = {"x_amzn_sagemaker_custom_attributes": "tfs-model-name=a, tfs-model-version=2,other"}
    assert decoded(JSON, tensor, LIST, **words)[0].ref == ModelRef("a", "2")
    assert decoded(JSON, tensor, LIST)[0].ref == ModelRef("", dashed=True)
    assert decoded(JSON, tensor, LIST, x_amzn_sagemaker_custom_attributes="c")[0].ref == ModelRef("", dashed=True)
    assert invocations.ref(Call(HttpRequest("POST", "/"), {"model": "b"})) == ModelRef("b")


@pytest.mark.parametrize(("words", "path", "ref"), [
    ("tfs-model-version=9", {}, ModelRef("", "9", dashed=True)), ("tfs-model-version=", {}, ModelRef("", dashed=True)),
    ("tfs-model-version=9", {"model": "b"}, ModelRef("b", "9")),
    ("tfs-model-version=9,tfs-model-name=a", {"model": "b"}, ModelRef("b", "9")),
    ("tfs-model-name=,tfs-model-version=9", {}, ModelRef("", "9", dashed=True)),
])  # fmt: skip
def test_a_client_may_name_a_version_alone(words: str, path: dict[str, str], ref: ModelRef) -> None:
    """It is a version of the path's model, else of the default one. SageMaker's container does the same."""
    headers = {invocations.ATTRIBUTES: words.encode()}
    assert invocations.ref(Call(HttpRequest("POST", "/", headers), path)) == ref


def test_tensors_behind_json() -> None:
    """With the protocol's header, or the length in Triton's types: SageMaker drops the header, on the way back, too.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/deploy-models-frameworks-triton.html.
    """
    told = {"binary_data_size": 8}
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": told}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    body = head.encode() + np.array([1, 2], "<f4").tobytes()
    result = result_of(Infer(ModelRef("m"), ()), MATRIX, [Tensor("y", DATATYPES["FP32"], np.ones((1, 1), "f4"))])
    for kind in ("", *invocations.WITH_TENSORS):
        sent = {} if kind else {HEAD.replace("-", "_"): str(len(head))}
        operation, reply = decoded(f"{kind};json-header-size={len(head)}" if kind else "", body, MATRIX, **sent)
        assert operation.ref.dashed
        assert operation.inputs[0].array.tolist() == [[1, 2]]
        answered = reply(result)
        named, size = dict(answered.headers), b"%d" % len(answered.parts[0])
        if kind:
            assert named == {b"content-type": kind.encode() + b";json-header-size=" + size}
        else:
            assert named == {b"content-type": b"application/octet-stream", HEAD.lower().encode(): size}
    plain_head = json.dumps({"inputs": [tensor]})
    body = plain_head.encode() + bytes(8)
    _, reply = decoded(f"{invocations.TRITON};json-header-size={len(plain_head)}", body, MATRIX)
    assert dict(reply(result).headers) == {b"content-type": b"application/json"}


@pytest.mark.parametrize("accept", [invocations.TRITON, "application/octet-stream", "text/csv", "application/json;q=0"])
def test_the_answer_to_v2_does_not_depend_on_accept(accept: str) -> None:
    """Triton ignores it, and its clients send its own type. No other body is answered in that type."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    operation, reply = decoded(JSON, {"inputs": [tensor]}, MATRIX, accept=accept)
    answered = reply(result_of(operation, MATRIX, [Tensor("y", DATATYPES["FP32"], np.ones((1, 1), "f4"))]))
    assert dict(answered.headers) == {b"content-type": b"application/json"}
    if accept != "text/csv":
        with pytest.raises(HttpError, match="Accept is"):
            decoded(JSON, {"instances": [[1, 2]]}, MATRIX, accept=accept)


def test_tensors_behind_the_answer_to_json() -> None:
    """Triton's clients on SageMaker read the length of the JSON in the content type, also if they sent JSON alone."""
    tensor = {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    operation, reply = decoded(JSON, {"inputs": [tensor], "parameters": {"binary_data_output": True}}, MATRIX)
    answered = reply(result_of(operation, MATRIX, [Tensor("y", DATATYPES["FP32"], np.ones((1, 1), "f4"))]))
    size = b"%d" % len(answered.parts[0])
    kind = invocations.TRITON.encode() + b";json-header-size=" + size
    assert dict(answered.headers) == {b"content-type": kind, HEAD.lower().encode(): size}


@pytest.mark.parametrize(("size", "told"), [
    ("x", "content-type's json-header-size is 'x'; expected a decimal number of bytes"),
    ("99", "content-type's json-header-size is 99, but the body has 2 bytes"),
])  # fmt: skip
def test_a_wrong_length_is_refused_under_its_own_name(size: str, told: str) -> None:
    """The refusal names the parameter of content-type, because the client sent no inference-header-content-length."""
    with pytest.raises(InvalidInput, match=told):
        decoded(f"{invocations.TRITON};json-header-size={size}", "{}", MATRIX)


@pytest.mark.parametrize(("kind", "body"), [
    ("image/png", b"x"), ("application/octet-stream", b"\x89PNG"), ("application/octet-stream", b""),
])  # fmt: skip
def test_a_type_that_nobody_reads_is_refused(kind: str, body: bytes) -> None:
    """The refusal names those that are read. Bytes may be JSON: tools send this type if their user names none."""
    with pytest.raises(invocations.UnsupportedType, match=f"Content-Type is '{kind}'; expected one of application/js"):
        decoded(kind, body, MATRIX)
    assert inputs("application/octet-stream", {"instances": [[1, 2]]}, MATRIX) == {"x": [[1, 2]]}


def test_numbers_that_are_not_finite_are_the_operators_choice() -> None:
    """DRAGOMAN_NON_FINITE applies here, too."""
    request = HttpRequest("POST", "/", {}, b'{"instances": [[1, 2]]}', Options(non_finite="null"))
    deferred, _ = invocations.decode(Call(request, {}))
    assert isinstance(deferred, Deferred)
    _, reply = deferred.decode(MATRIX)
    nan = Tensor("y", DATATYPES["FP32"], np.full((1, 1), np.nan, "f4"))
    assert b"".join(reply(result_of(Infer(ModelRef("m"), ()), MATRIX, [nan])).parts) == b'{"predictions":[[null]]}'


def test_an_array_of_another_alignment_is_copied() -> None:
    """The runtimes read aligned memory only."""
    body = memoryview(b"_" + saved([[1, 2]], "<f4"))[1:]
    assert npy.read(body, MATRIX).array.flags.aligned


VALID = [("", {kind: body}) for kind, body in (
    (FRAME, SPLIT), (FRAME, {"data": [[1, 2]]}), (RECORDS, [{"x": [1, 2]}]), ("instances", [[1, 2]]),
    ("inputs", {"x": [[1, 2]]}), ("input_data", SPLIT),
    ("inputs", [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]),
)]  # fmt: skip
RAW = [
    (CSV, b"age,name,n\n1,a,2\n"), (CSV, b'1,2\n"3",4'), (NPY, saved([[1, 2]], "<f4")), (NPY, saved(3, ">i2")),
    (NPY, saved([["a", "bc"]], "<U2")), (NPY, saved([["a", "bc"]], "S2")),
]  # fmt: skip
KEYS = st.sampled_from(
    [FRAME, RECORDS, "inputs", "instances", "input_data", "columns", "data", "params", "signature_name"]
)
SOME = st.sampled_from([MATRIX, TABLE, MIXED, ANY, LIST, TEXTS, FLAGS, ORDERED])


@given(mutants(VALID, values, KEYS), SOME)
def test_no_json_raises_anything_but_a_refusal(mutant: tuple[str, Any], model: ModelSpec) -> None:
    """Whatever a client sends, it reads why it is refused, or it is answered."""
    with suppress(ServingError):
        decoded(JSON, json.dumps(mutant[1]).encode(errors="replace"), model)


@given(st.sampled_from(RAW).flatmap(lambda raw: st.tuples(st.just(raw[0]), byte_mutants([raw[1]]))), SOME)
def test_no_bytes_raise_anything_but_a_refusal(raw: tuple[str, bytes], model: ModelSpec) -> None:
    """The same for CSV and arrays."""
    with suppress(ServingError):
        decoded(*raw, model)


def test_names_of_columns_are_compared_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was once looked for among all before it: 80 kB took 7 s, and 350 kB a minute. Too many are counted first."""
    names = [str(number) for number in range(100_000)]
    with pytest.raises(InvalidInput, match="'columns' has '99999' twice; expected each name once"):
        decoded(JSON, {FRAME: {"columns": [*names, "99999"], "data": [[1]]}}, MATRIX)
    monkeypatch.setattr(frames, "MOST_MEMBERS", 2)
    with pytest.raises(TooMany, match="'columns' has 3 names; at most 2 are accepted"):
        decoded(JSON, {FRAME: {"columns": ["a", "b", "c"], "data": [[1]]}}, MATRIX)


def test_equal_cells_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cell that is no number costs two exceptions, and a row of them is two bytes long."""
    read: list[str] = []
    value = table._value
    monkeypatch.setattr(table, "_value", lambda cell, kind: (read.append(cell), value(cell, kind))[1])
    with pytest.raises(InvalidInput, match="'a' where FP32 needs numbers"):
        decoded(CSV, "x,y\n" + "a,1.5\n" * 1000, MATRIX)
    assert read == ["a"]

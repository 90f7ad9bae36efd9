"""core.dialects.v1.metadata: signatures, defaults and shapes in TensorFlow Serving's form."""

import base64
import json
import struct
from typing import Any

import numpy as np
import pytest

from core import operations as ops
from core.dialects.v1.metadata import FIELDS
from core.dialects.v1.metadata import metadata as of_spec
from core.dtype import BYTES, DATATYPES
from core.encoding import jsonio
from core.signature import Method, plain
from core.tensor import TensorSpec
from tests.support.samples import sample
from tests.support.v1_samples import binding, model, signature


def metadata(spec: ops.ModelSpec) -> Any:
    """Returns the signatures that a client reads."""
    body = json.loads(jsonio.dumps(of_spec(spec)))
    assert list(body) == ["model_spec", "metadata"]
    assert body["model_spec"] == {"name": "m", "signature_name": "", "version": "3"}
    assert list(body["metadata"]) == list(body["metadata"]["signature_def"]) == ["signature_def"]
    return body["metadata"]["signature_def"]["signature_def"]


def info(name: str, dtype: str, *sizes: str, unknown_rank: bool = False) -> dict[str, Any]:
    """Returns a tensor as TensorFlow Serving describes it."""
    dims = [{"size": size, "name": ""} for size in sizes]
    return {"dtype": dtype, "tensor_shape": {"dim": dims, "unknown_rank": unknown_rank}, "name": name}


def test_metadata_tells_aliases_types_and_shapes() -> None:
    """Sizes are text; a scalar's shape differs from an unknown rank."""
    inputs = {"a": binding("x", "FP32", (-1, 3)), "b": binding("y", "BYTES", ()), "c": binding("z", "BF16")}
    found = metadata(model(serving_default=signature(inputs, {"o": binding("p", "FP16", (2,))})))
    assert found == {
        "serving_default": {
            "inputs": {
                "a": info("x", "DT_FLOAT", "-1", "3"),
                "b": info("y", "DT_STRING"),
                "c": info("z", "DT_BFLOAT16", unknown_rank=True),
            },
            "outputs": {"o": info("p", "DT_HALF", "2")},
            "method_name": "tensorflow/serving/predict",
            "defaults": {},
        }
    }


@pytest.mark.parametrize("method", [Method.CLASSIFY, Method.REGRESS])
def test_classify_and_regress_take_serialized_examples(method: Method) -> None:
    """They are those of TensorFlow Serving, whatever the graph takes; their features do not show defaults."""
    features = {"f": binding("x", "INT64", (-1, 1), [5])}
    (found,) = metadata(model(s=signature(features, {"outputs": "y"}, method))).values()
    assert found["inputs"] == {"inputs": info("input_example_tensor", "DT_STRING", "-1")}
    assert found["method_name"] == f"tensorflow/serving/{method}"
    assert found["defaults"] == {}


def test_an_encoded_tensor_is_one_string_where_the_graph_has_an_axis_of_bytes() -> None:
    """The rule holds for inputs and outputs."""
    image, flat = (binding(n, "UINT8", shape, encoded=True) for n, shape in (("i", (-1, -1)), ("f", None)))
    (found,) = metadata(model(s=signature({"i": image, "f": flat}, {"o": image}))).values()
    assert found["inputs"] == {"i": info("i", "DT_STRING", "-1"), "f": info("f", "DT_STRING", unknown_rank=True)}
    assert found["outputs"] == {"o": info("i", "DT_STRING", "-1")}


def test_a_model_that_says_nothing_has_no_signature() -> None:
    """No client could use one. A model without settings lists its tensors under their own names."""
    assert metadata(model()) == {}
    x, y = TensorSpec("x", DATATYPES["FP32"], (-1,)), TensorSpec("y", BYTES, None)
    own = model()._replace(signatures=plain((x,), (y,)))
    assert metadata(own)["serving_default"]["inputs"] == {"x": info("x", "DT_FLOAT", "-1")}
    assert metadata(own)["serving_default"]["outputs"] == {"y": info("y", "DT_STRING", unknown_rank=True)}
    assert metadata(model(s=signature(None, {"y": "y"})))["s"]["inputs"] == {}


IN_FIELD = {
    "BOOL": ("bool_val", [True, False]), "UINT8": ("int_val", [0, 255]), "UINT16": ("int_val", [0, 65535]),
    "UINT32": ("uint32_val", [0, 2**32 - 1]), "UINT64": ("uint64_val", ["0", str(2**64 - 1)]),
    "INT8": ("int_val", [-128, 127]), "INT16": ("int_val", [-(2**15), 2**15 - 1]),
    "INT32": ("int_val", [-(2**31), 2**31 - 1]), "INT64": ("int64_val", [str(-(2**63)), str(2**63 - 1)]),
    "FP16": ("half_val", [int.from_bytes(struct.pack("<e", x), "little") for x in (0.5, -1.0)]),
    "FP32": ("float_val", [0.5, -1.0]), "FP64": ("double_val", [0.5, -1.0]),
    "BYTES": ("string_val", [base64.b64encode(x).decode() for x in (b"", b"ab")]), "BF16": ("half_val", [0, 255]),
}  # fmt: skip


@pytest.mark.parametrize("name", list(DATATYPES))
def test_a_default_is_told_as_protobufs_json_has_a_tensor(name: str) -> None:
    """Its values stand in the field of their type: 64-bit integers as text, bytes as base64, halves as their bits."""
    flat = [x.encode() if isinstance(x, str) else x for x in sample(DATATYPES[name], 2)]
    (found,) = metadata(model(s=signature({"x": binding("x", name, (2,), flat)}, {"y": "y"}))).values()
    proto = found["defaults"]["x"]
    assert set(proto) == {"dtype", "tensor_shape", "version_number", "tensor_content", *FIELDS}
    assert proto["dtype"] == DATATYPES[name].tensorflow
    assert proto["tensor_shape"] == info("x", "", "2")["tensor_shape"]
    assert {field: proto[field] for field in FIELDS if proto[field]} == dict([IN_FIELD[name]])


def test_a_default_of_one_value_has_no_dimension_and_infinities_are_text() -> None:
    """Proto3's JSON cannot write them otherwise."""
    bound = {"x": binding("x", "FP32", (), np.inf), "y": binding("y", "FP64", (-1, 2), [[0.1, np.nan]])}
    (found,) = metadata(model(s=signature(bound, {"y": "y"}))).values()
    assert found["defaults"]["x"]["float_val"] == ["Infinity"]
    assert found["defaults"]["x"]["tensor_shape"] == {"dim": [], "unknown_rank": False}
    assert found["defaults"]["y"]["double_val"] == [0.1, "NaN"]
    assert json.dumps(found["defaults"]["y"]["tensor_shape"]["dim"][1]) == '{"size": "2", "name": ""}'

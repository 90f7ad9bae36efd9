"""handler.backends.onnx: sequences of maps, as scikit-learn's converter exports probabilities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from core.dtype import DATATYPES
from core.tensor import Tensor, TensorSpec
from handler.backends import Source, onnx_file
from handler.backends import onnx as onnx_backend
from handler.settings import Settings
from handler.settings.model import ModelSettings

if TYPE_CHECKING:
    from pathlib import Path

SETTINGS = Settings.from_env({})
FP32 = DATATYPES["FP32"]


@pytest.mark.parametrize("names", [None, np.array(["setosa", "versicolor", "virginica"])])
def test_scikit_learns_maps_of_probabilities_are_a_tensor_with_labels(tmp_path: Path, names: Any) -> None:
    """skl2onnx exports them by default; the label stays an output beside them."""
    from skl2onnx import to_onnx  # noqa: PLC0415 - takes three seconds of each process that collects the tests
    from sklearn.datasets import load_iris  # noqa: PLC0415 - as above
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - as above

    data, classes = load_iris(return_X_y=True)
    trained = LogisticRegression(max_iter=500).fit(data, classes - 1 if names is None else names[classes])
    (tmp_path / "model.onnx").write_bytes(to_onnx(trained, data[:1].astype(np.float32)).SerializeToString())
    model = onnx_backend.load(Source("m", "1", tmp_path, ModelSettings()), SETTINGS)
    label, probabilities = model.spec.outputs or ()
    assert (label.name, label.datatype.name) == ("output_label", "INT64" if names is None else "BYTES")
    expected = ("-1", "0", "1") if names is None else tuple(names)
    assert probabilities == TensorSpec("output_probability", FP32, (-1, 3), expected)
    rows = Tensor("X", FP32, data[::50].astype(np.float32))
    found = model.predict({"X": rows}, ["output_probability", "output_label"], {})[0]
    np.testing.assert_allclose(found.array, trained.predict_proba(data[::50]), atol=1e-5)
    assert (found.array.dtype, found.array.shape) == (np.float32, (3, 3))


def test_keys_of_maps_are_read_packed_or_not(tmp_path: Path) -> None:
    """Protobuf allows both; the graph says which output has which keys."""
    keys = (-5, 2**40)
    y = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    output = helper.make_value_info("y", helper.make_sequence_type_proto(y))
    node = helper.make_node("ZipMap", ["x"], ["y"], domain="ai.onnx.ml", classlabels_int64s=keys)
    unpacked = b"".join(b"\x40" + _varint(key) for key in keys)
    packed = b"".join(map(_varint, keys))
    assert unpacked in node.SerializeToString()
    for content in (unpacked, b"\x42%c%b" % (len(packed), packed)):
        attribute = b"\x0a\x12classlabels_int64s" + content
        graph = b"\x0a" + _sized(b"\x12\x01y\x22\x06ZipMap" + b"\x2a" + _sized(attribute)) + b"\x62" + _sized(
            output.SerializeToString()
        )  # fmt: skip
        (tmp_path / "model.onnx").write_bytes(b"\x3a" + _sized(graph))
        assert onnx_file.signature(tmp_path / "model.onnx")[1][0].classes == keys


def _varint(number: int) -> bytes:
    digits, number = [], number % 2**64
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])


def _sized(content: bytes) -> bytes:
    return _varint(len(content)) + content

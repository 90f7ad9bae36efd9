"""Catalogue section 10: metadata are the JSON form of TF Serving's GetModelMetadataResponse."""

from typing import Any

import pytest

from tests.support.checks import refusal
from tests.support.v1_client import get, predict, read, statuses
from tests.support.wire import Wire


def signatures(wire: Wire, model: str) -> dict[str, Any]:
    """Returns the signatures of a model, from a document that has every member of the form and no other."""
    document = read(get(wire, f"{model}/metadata"))
    assert set(document) == {"model_spec", "metadata"}
    assert set(document["model_spec"]) == {"name", "signature_name", "version"}
    assert (document["model_spec"]["name"], document["model_spec"]["signature_name"]) == (model, "")
    assert list(document["metadata"]) == ["signature_def"]
    assert list(document["metadata"]["signature_def"]) == ["signature_def"]
    found: dict[str, Any] = document["metadata"]["signature_def"]["signature_def"]
    for signature in found.values():
        assert set(signature) == {"inputs", "outputs", "method_name", "defaults"}
        for tensor in (*signature["inputs"].values(), *signature["outputs"].values()):
            assert set(tensor) <= {"name", "dtype", "tensor_shape"}
            for dim in tensor.get("tensor_shape", {}).get("dim", []):
                assert isinstance(dim["size"], str)
                assert int(dim["size"]) >= -1
                assert isinstance(dim["name"], str)
    return found


@pytest.mark.row("V1-134")
def test_the_form_is_tf_servings(wire: Wire) -> None:
    """It has snake case, no @type, and the version as text."""
    assert read(get(wire, "half_plus_two/metadata"))["model_spec"]["version"] == "123"
    found = signatures(wire, "half_plus_two")
    assert set(found) == {"serving_default", "regress_x_to_y", "classify_x_to_y"}
    assert b"@type" not in get(wire, "half_plus_two/metadata").content


@pytest.mark.row("V1-134")
def test_metadata_loads_the_model_if_need_be(wire: Wire) -> None:
    """V2's metadata do so, too."""
    assert statuses(read(get(wire, "idle_for_metadata/versions/1"))) == {"1": "START"}
    assert "serving_default" in signatures(wire, "idle_for_metadata")
    assert statuses(read(get(wire, "idle_for_metadata/versions/1"))) == {"1": "AVAILABLE"}


@pytest.mark.row("V1-134")
@pytest.mark.parametrize("model", ["broken_onnx", "py_broken_import"])
def test_a_model_that_cannot_load_has_no_metadata(wire: Wire, model: str) -> None:
    """The answer is a 503 that names it."""
    assert model in refusal(get(wire, f"{model}/metadata"), 503)


@pytest.mark.row("V1-134")
def test_without_settings_the_graphs_own_names_are_the_default_signature(wire: Wire) -> None:
    """It has every input and output under its name."""
    found = signatures(wire, "add_sub")
    assert list(found) == ["serving_default"]
    assert set(found["serving_default"]["inputs"]) == {"INPUT0", "INPUT1"}
    assert set(found["serving_default"]["outputs"]) == {"OUTPUT0", "OUTPUT1"}
    assert found["serving_default"]["method_name"] == "tensorflow/serving/predict"


DTYPES = {
    "BOOL": "DT_BOOL", "UINT8": "DT_UINT8", "UINT16": "DT_UINT16", "UINT32": "DT_UINT32", "UINT64": "DT_UINT64",
    "INT8": "DT_INT8", "INT16": "DT_INT16", "INT32": "DT_INT32", "INT64": "DT_INT64", "FP16": "DT_HALF",
    "FP32": "DT_FLOAT", "FP64": "DT_DOUBLE", "BYTES": "DT_STRING", "BF16": "DT_BFLOAT16",
}  # fmt: skip


@pytest.mark.row("V1-135")
@pytest.mark.parametrize(("datatype", "dtype"), list(DTYPES.items()))
def test_every_datatype_has_tensorflows_name(wire: Wire, datatype: str, dtype: str) -> None:
    """Inputs and outputs have it, and a graph without a shape is of unknown rank."""
    default = signatures(wire, f"identity_{datatype.lower()}")["serving_default"]
    tensors = {**default["inputs"], **default["outputs"]}
    assert {tensor["dtype"] for tensor in tensors.values()} == {dtype}
    assert set(tensors) == {"INPUT0", "OUTPUT0"}
    for tensor in tensors.values():
        assert tensor["tensor_shape"] == {"dim": [], "unknown_rank": True}


@pytest.mark.row("V1-135", "V1-138")
@pytest.mark.parametrize(("model", "sizes"), [
    ("vector_fp32", ["-1"]), ("matrix", ["-1", "-1"]), ("fixed", ["2", "3"]), ("named_dims", ["-1", "3"]),
    ("scalar", []), ("scalar_by_settings", []),
])  # fmt: skip
def test_a_shape_is_a_list_of_sizes_as_text(wire: Wire, model: str, sizes: list[str]) -> None:
    """-1 is any size; a scalar has no dimension and a known rank."""
    (tensor,) = signatures(wire, model)["serving_default"]["inputs"].values()
    assert [dim["size"] for dim in tensor["tensor_shape"]["dim"]] == sizes
    assert tensor["tensor_shape"]["unknown_rank"] is False


@pytest.mark.row("V1-135")
def test_an_alias_shows_the_tensor_behind_it(wire: Wire) -> None:
    """It shows the tensor's name, with or without TensorFlow's output number."""
    outputs = signatures(wire, "binary_names")["serving_default"]["outputs"]
    assert {alias: tensor["name"].partition(":")[0] for alias, tensor in outputs.items()} == {
        "image_bytes": "first",
        "caption": "second",
    }


@pytest.mark.row("V1-135")
def test_a_default_is_shown(wire: Wire) -> None:
    """It stands under the input's alias, as a tensor; without defaults there is an empty object."""
    defaults = signatures(wire, "offset")["serving_default"]["defaults"]
    assert list(defaults) == ["y"]
    assert defaults["y"]["dtype"] == "DT_FLOAT"
    assert signatures(wire, "half_plus_two")["serving_default"]["defaults"] == {}


@pytest.mark.row("V1-136")
@pytest.mark.parametrize("method", ["regress", "classify"])
def test_classify_and_regress_take_one_string(wire: Wire, method: str) -> None:
    """It is a serialised example, whatever its features; the outputs have TF Serving's fixed aliases."""
    found = signatures(wire, "person")
    assert list(found[method]["inputs"]) == ["inputs"]
    assert found[method]["inputs"]["inputs"]["dtype"] == "DT_STRING"
    assert found[method]["method_name"] == f"tensorflow/serving/{method}"
    expected = {"regress": {"outputs"}, "classify": {"scores", "classes"}}[method]
    assert set(found[method]["outputs"]) == expected


@pytest.mark.row("V1-137")
@pytest.mark.parametrize("model", ["half_plus_two", "person", "constant", "py_raw_bytes"])
def test_no_hidden_signature_is_shown(wire: Wire, model: str) -> None:
    """A tensor without a type is not shown either."""
    found = signatures(wire, model)
    assert not [name for name in found if name.startswith("__")]
    assert b"DT_INVALID" not in get(wire, f"{model}/metadata").content


@pytest.mark.row("V1-138")
def test_v2_shows_the_same_shapes(wire: Wire) -> None:
    """Both protocols have one source."""
    for model in ("matrix", "fixed", "scalar", "named_dims"):
        (tensor,) = signatures(wire, model)["serving_default"]["inputs"].values()
        (other,) = wire.get(f"/v2/models/{model}").json()["inputs"]
        assert [int(dim["size"]) for dim in tensor["tensor_shape"]["dim"]] == other["shape"]


def test_bytes_encoding_is_shown_as_strings_without_the_last_axis(wire: Wire) -> None:
    """A client sends a list of strings for UINT8 [-1, -1]."""
    default = signatures(wire, "photo")["serving_default"]
    for tensor in (*default["inputs"].values(), *default["outputs"].values()):
        assert tensor["dtype"] == "DT_STRING"
        assert [dim["size"] for dim in tensor["tensor_shape"]["dim"]] == ["-1"]


def test_a_python_model_that_says_nothing_has_metadata(wire: Wire) -> None:
    """It has a default signature without tensors, and accepts requests."""
    signatures(wire, "py_untyped")
    assert predict(wire, "py_untyped", {"inputs": {"a": [1]}}).status == 200

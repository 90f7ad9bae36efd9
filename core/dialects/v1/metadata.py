"""A model's signatures in TensorFlow Serving's form: GetModelMetadataResponse in JSON.

As in TF Serving, classify and regress signatures show one input of serialized examples, not the graph's inputs.
"""

from collections.abc import Mapping
from typing import Any, Final

from core.dialects.v1.answer import text
from core.dtype import BF16, BYTES, DataType
from core.encoding import jsonio
from core.encoding.jsonio import NonFinite
from core.operations import ModelSpec
from core.signature import Binding, Method, Signature
from core.tensor import Tensor, TensorSpec

EXAMPLES: Final = {"inputs": Binding(TensorSpec("input_example_tensor", BYTES, (-1,)))}
FIELDS: Final = (
    "half_val", "float_val", "double_val", "int_val", "string_val", "scomplex_val", "int64_val", "bool_val",
    "dcomplex_val", "resource_handle_val", "variant_val", "uint32_val", "uint64_val",
)  # fmt: skip
"""TensorProto's repeated fields."""
OWN_FIELD: Final = {"FLOAT", "DOUBLE", "STRING", "INT64", "BOOL", "UINT32", "UINT64", "HALF"}


def metadata(spec: ModelSpec) -> dict[str, Any]:
    """Returns the members of a GetModelMetadataResponse in proto3's JSON.

    A shape is {"dim": [{"size": decimal text, "name": ""}], "unknown_rank": bool}, with size "-1" for any size.
    Source: TF Serving's get_model_metadata.proto, TensorFlow's meta_graph.proto and tensor.proto.
    """
    signatures = {name: _signature(signature) for name, signature in spec.signatures.items()}
    return {
        "model_spec": {"name": spec.name, "signature_name": "", "version": spec.version},
        "metadata": {"signature_def": {"signature_def": signatures}},
    }


def _signature(signature: Signature) -> dict[str, Any]:
    inputs = (signature.inputs or {}) if signature.method is Method.PREDICT else EXAMPLES
    return {
        "inputs": _infos(inputs),
        "outputs": _infos(signature.outputs),
        "method_name": f"tensorflow/serving/{signature.method}",
        "defaults": {
            alias: _proto(binding.default) for alias, binding in inputs.items() if binding.default is not None
        },
    }


def _infos(bindings: Mapping[str, Binding]) -> dict[str, Any]:
    return {alias: _info(binding) for alias, binding in bindings.items()}


def _info(binding: Binding) -> dict[str, Any]:
    spec = binding.spec
    # An encoded input is one string where the graph has a last axis of bytes.
    shape = spec.shape[:-1] if binding.encoded and spec.shape else spec.shape
    datatype = BYTES if binding.encoded else spec.datatype
    return {"dtype": datatype.tensorflow, "tensor_shape": _shape(shape), "name": spec.name}


def _shape(shape: tuple[int, ...] | None) -> dict[str, Any]:
    return {
        "dim": [{"size": str(size), "name": ""} for size in shape or ()],
        "unknown_rank": shape is None,
    }


def _proto(default: Tensor) -> dict[str, Any]:
    """Returns a TensorProto, with the values in the field of their type."""
    told: dict[str, Any] = {
        "dtype": default.datatype.tensorflow,
        "tensor_shape": _shape(default.array.shape),
        "version_number": 0,
        "tensor_content": "",
        **{field: [] for field in FIELDS},
    }
    told[_field(default.datatype)] = _elements(default)
    return told


def _field(datatype: DataType) -> str:
    name = datatype.tensorflow.removeprefix("DT_")
    if datatype is BF16:
        return "half_val"
    return f"{name.lower()}_val" if name in OWN_FIELD else "int_val"


def _elements(tensor: Tensor) -> Any:
    flat = Tensor(tensor.name, tensor.datatype, tensor.array.reshape(-1))
    if tensor.datatype is BYTES:
        return [text(element, binary=True)["b64"] for element in flat.array]
    if _field(tensor.datatype) == "half_val":  # the bits of each element, as integers
        return flat.array.view("<u2").tolist()
    if tensor.datatype.name in ("INT64", "UINT64"):
        return [str(element) for element in flat.array.tolist()]
    return jsonio.numeric(flat, NonFinite.QUOTED)

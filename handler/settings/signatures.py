"""The key "signatures" of model-settings.json: read with the file, bound to the model's tensors when it is loaded.

    "signatures": {name: {"method": "predict" | "classify" | "regress",
                          "inputs": {alias: tensor | binding}, "outputs": {alias: tensor | binding},
                          "class_labels": [...], "description": text}}
    binding: {"tensor": name, "shape": [...], "default": ..., "encoding": "bytes"}

Without `inputs`, every input of the model has its own name. In classify and regress signatures, the inputs are
features, and the outputs have fixed aliases: "classes" and "scores", or "outputs".
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from core.checks import is_of_shape
from core.errors import InvalidInput, counted
from core.records import NamedTuple
from core.signature import Binding, Method, Signature, Signatures
from core.tensor import Tensor, TensorSpec, is_column
from handler.settings.checked import Wrong, a_shape, an_object, texts

FIXED: Final = {
    Method.CLASSIFY: ({"scores"}, {"classes"}, {"scores", "classes"}),
    Method.REGRESS: ({"outputs"},),
}
"""The sets of output aliases that TF Serving requires for each method."""


class SaidBinding(NamedTuple):
    """A binding as written. `default`: JSON, None without one."""

    tensor: str
    shape: tuple[int, ...] | None = None
    default: Any = None
    encoded: bool = False


class SaidSignature(NamedTuple):
    """A signature as written. `inputs` None: all of the model's."""

    method: Method
    inputs: Mapping[str, SaidBinding] | None
    outputs: Mapping[str, SaidBinding]
    class_labels: tuple[str, ...]


SaidSignatures = Mapping[str, SaidSignature]


def parse(value: Any) -> dict[str, SaidSignature]:
    """Parses the key's value. Raises Wrong."""
    return {name: _signature(member, f"signatures.{name}") for name, member in an_object(value, "signatures").items()}


def _signature(value: Any, path: str) -> SaidSignature:
    members = an_object(value, path, "method", "inputs", "outputs", "class_labels", "description")
    method = members.get("method", Method.PREDICT)
    if method not in list(Method):
        raise Wrong(f"{path}.method", method, f"one of {', '.join(Method)}")
    said = members.get("class_labels")
    labels = () if said is None else texts(said, f"{path}.class_labels")
    inputs = members.get("inputs")
    outputs = _bindings(members.get("outputs"), f"{path}.outputs")
    _check_aliases(Method(method), outputs, f"{path}.outputs")
    if said is not None and "scores" not in outputs:
        raise Wrong(f"{path}.outputs.scores", None, "the name of the output that the labels describe")
    return SaidSignature(
        Method(method),
        None if inputs is None else _bindings(inputs, f"{path}.inputs"),
        outputs,
        labels,
    )


def _check_aliases(method: Method, outputs: Mapping[str, SaidBinding], path: str) -> None:
    known = FIXED.get(method)
    if known is not None and set(outputs) not in known:
        expected = " or ".join(" and ".join(sorted(names)) for names in known)
        raise Wrong(path, sorted(outputs), f"{expected}, as a {method} signature requires")


def _bindings(value: Any, path: str) -> dict[str, SaidBinding]:
    if not isinstance(value, dict) or not value:
        raise Wrong(path, value, "an object with at least one alias")
    return {alias: _binding(member, f"{path}.{alias}") for alias, member in value.items()}


def _binding(value: Any, path: str) -> SaidBinding:
    if isinstance(value, str):
        return SaidBinding(value)
    members = an_object(value, path, "tensor", "shape", "default", "encoding")
    tensor, shape, encoding = members.get("tensor"), members.get("shape"), members.get("encoding")
    if not isinstance(tensor, str):
        raise Wrong(f"{path}.tensor", tensor, "the name of a tensor of the model")
    shape = None if shape is None else a_shape(shape, f"{path}.shape")
    if encoding not in (None, "bytes"):
        raise Wrong(f"{path}.encoding", encoding, "bytes")
    return SaidBinding(tensor, shape, members.get("default"), encoding == "bytes")


# -- binding ------------------------------------------------------------------------------------------------------


def bind(
    said: SaidSignatures, inputs: tuple[TensorSpec, ...] | None, outputs: tuple[TensorSpec, ...] | None
) -> Signatures:
    """Returns the signatures of a model with these inputs and outputs. Raises Wrong."""
    if outputs is None:
        raise Wrong("signatures", list(said), "none, as the model does not declare its outputs")
    labelled = {each.outputs["scores"].tensor for each in said.values() if each.class_labels}
    labels = {spec.name: spec.labels for spec in outputs if spec.name not in labelled}
    return {name: _bound(each, inputs, outputs, labels, f"signatures.{name}") for name, each in said.items()}


def _bound(
    said: SaidSignature,
    inputs: tuple[TensorSpec, ...] | None,
    outputs: tuple[TensorSpec, ...],
    labels: Mapping[str, tuple[str, ...]],
    path: str,
) -> Signature:
    """Returns a signature. `labels`: those that the outputs have by themselves, and not by another signature."""
    bindings = {alias: _tensor(each, outputs, f"{path}.outputs.{alias}") for alias, each in said.outputs.items()}
    own = said.class_labels or ("scores" in bindings and labels.get(bindings["scores"].spec.name)) or ()
    bound = _inputs(said, inputs, f"{path}.inputs")
    renames = bound is not None and any(alias != binding.spec.name for alias, binding in bound.items())
    return Signature(said.method, bound, bindings, own, renames)


def _inputs(said: SaidSignature, inputs: tuple[TensorSpec, ...] | None, path: str) -> dict[str, Binding] | None:
    if inputs is None:
        if said.inputs is not None or said.method is not Method.PREDICT:
            raise Wrong(path, list(said.inputs or ()), f"a model that declares its inputs, for {said.method}")
        return None
    own = [spec for spec in inputs if said.method is Method.PREDICT or not spec.optional]
    features = said.inputs or {spec.name: SaidBinding(spec.name) for spec in own}
    to_default = _whole if said.method is Method.PREDICT else _flat
    bindings = {alias: _tensor(b, inputs, f"{path}.{alias}", to_default) for alias, b in features.items()}
    if said.inputs is None:
        bindings = {name: binding._replace(optional=binding.spec.optional) for name, binding in bindings.items()}
    fed = [binding.tensor for binding in features.values()]
    twice = next((name for name in fed if fed.count(name) > 1), None)
    if twice is not None:
        raise Wrong(path, twice, "each of the model's inputs under one alias")
    unfed = next((spec.name for spec in inputs if spec.name not in fed and not spec.optional), None)
    if unfed is not None:
        raise Wrong(path, list(features), f"an alias for the model's input {unfed!r}, too")
    check = _check_default if said.method is Method.PREDICT else _check_feature
    for alias, binding in bindings.items():
        check(binding, f"{path}.{alias}")
    return bindings


def _check_feature(binding: Binding, path: str) -> None:
    """Raises Wrong unless an example's elements imply its shape, and a default has as many as the shape needs."""
    shape, tensor = binding.feature_shape, binding.spec.shape
    if tensor == ():
        raise Wrong(path, binding.spec.name, "a tensor with an axis for the examples")
    if tensor is not None and not _is_example(shape, tensor):
        raise Wrong(f"{path}.shape", list(shape), f"{list(tensor[1:])}, the shape of one example")
    if shape.count(-1) > 1 or (-1 in shape and 0 in shape):
        raise Wrong(f"{path}.shape", list(shape), "one variable axis at most, beside axes above 0")
    if binding.encoded and binding.default is not None:
        raise Wrong(f"{path}.default", "a value", "none, for a feature with an encoding")
    expected = math.prod(size for size in shape if size != -1)
    count = 0 if binding.default is None else binding.default.array.size
    if count % expected if -1 in shape else binding.default is not None and count != expected:
        raise Wrong(f"{path}.default", counted(count, "element"), f"as many as the shape {list(shape)} needs")


def _is_example(shape: tuple[int, ...], tensor: tuple[int, ...]) -> bool:
    """Decides whether examples of this shape can make up the tensor. An axis may be open in either."""
    pairs = zip(shape, tensor[1:], strict=False)
    return len(shape) == len(tensor) - 1 and all(-1 in pair or pair[0] == pair[1] for pair in pairs)


def _check_default(binding: Binding, path: str) -> None:
    """Raises Wrong unless a default of a predict signature is one row of its input, or the whole input."""
    shape = binding.spec.shape
    if binding.default is None or shape is None:
        return
    own = binding.default.array.shape
    is_row = shape != () and is_of_shape(own, shape[1:])
    if not is_row and not is_of_shape(own, shape) and not (own == () and is_column(shape)):
        expected = f"{list(shape[1:])} for each row, or {list(shape)}" if shape else "one value"
        raise Wrong(f"{path}.default", f"a value of shape {list(own)}", expected)


def _flat(spec: TensorSpec, value: Any) -> Tensor:
    from core.dialects.v1.values import elements  # noqa: PLC0415 - for signatures with default values

    values = value if isinstance(value, list) else [value]
    return Tensor(spec.name, spec.datatype, elements(values, spec.datatype))


def _whole(spec: TensorSpec, value: Any) -> Tensor:
    from core.dialects.v1.values import to_tensor  # noqa: PLC0415 - as above

    return to_tensor(spec.name, spec.datatype, value)


def _tensor(
    said: SaidBinding,
    specs: tuple[TensorSpec, ...],
    path: str,
    to_default: Callable[[TensorSpec, Any], Tensor] = _whole,
) -> Binding:
    spec = next((spec for spec in specs if spec.name == said.tensor), None)
    if spec is None:
        raise Wrong(path, said.tensor, f"one of the model's tensors: {', '.join(spec.name for spec in specs)}")
    if said.encoded and (spec.datatype.name != "UINT8" or spec.shape == ()):
        raise Wrong(f"{path}.encoding", "bytes", f"a tensor of UINT8 with an axis, not {spec.datatype.name}")
    default = None
    if said.default is not None:
        try:
            default = to_default(spec, said.default)
        except InvalidInput as error:
            raise Wrong(f"{path}.default", said.default, f"{spec.datatype.name} ({error.message})") from None
    return Binding(spec, said.shape, default, said.encoded)

"""The signatures of a served model for the commands that speak V1: read from its metadata, and chosen by tensors."""

from collections.abc import Iterable, Mapping
from typing import Any

from core.encoding import jsonio
from core.records import NamedTuple
from core.signature import DEFAULT, Binding, Method, Signature, Signatures, plain
from core.tensor import TensorSpec


class ChosenSignature(NamedTuple):
    """The names that V1 has for tensors. `inputs`: aliases by the names of tensors. `outputs`: tensors by aliases."""

    name: str
    inputs: Mapping[str, str]
    outputs: Mapping[str, TensorSpec]


def read(told: Any, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...]) -> Signatures:
    """Returns the signatures of V1's metadata; if it cannot be read, that of a model whose settings name none."""
    known = {spec.name: spec for spec in (*inputs, *outputs)}
    found = {}
    try:
        for name, one in told["metadata"]["signature_def"]["signature_def"].items():
            sides = [dict(one[side]) for side in ("inputs", "outputs")]
            if not {each["name"] for each in sides[0].values()} <= known.keys():  # examples: their features are inputs
                sides[0] = {spec.name: {"name": spec.name} for spec in inputs}
            bound = [{alias: _binding(each, known) for alias, each in side.items()} for side in sides]
            method = Method(str(one.get("method_name", Method.PREDICT)).rpartition("/")[2])
            found[name] = Signature(method, bound[0], bound[1])
    except (KeyError, TypeError, ValueError, AttributeError):
        return plain(inputs, outputs)
    return found


def _binding(told: Mapping[str, Any], known: Mapping[str, TensorSpec]) -> Binding:
    spec = known[told["name"]]
    return Binding(spec, encoded=told.get("dtype") == "DT_STRING" and not spec.datatype.is_bytes)


def chosen(signatures: Signatures, inputs: Iterable[str], outputs: Iterable[str]) -> ChosenSignature | None:
    """Returns a signature that has these tensors, if possible the default one; None if no signature has them."""
    wanted = set(inputs), set(outputs)
    ranked = sorted(signatures.items(), key=lambda item: (item[0] != DEFAULT, item[1].method is not Method.PREDICT))
    for name, each in ranked:
        sides = each.inputs or {}, each.outputs
        if any(binding.encoded for side in sides for binding in side.values()):
            continue  # its strings are not the tensors
        aliases = [{binding.spec.name: alias for alias, binding in side.items()} for side in sides]
        if all(names <= known.keys() for names, known in zip(wanted, aliases, strict=True)):
            return ChosenSignature(name, aliases[0], {alias: each.outputs[alias].spec for alias in each.outputs})
    return None


def body(signature: ChosenSignature | None, values: Mapping[str, Any]) -> bytes:
    """Returns a request with columns. `values`: by the names of tensors, which are the aliases without a signature."""
    if signature is None:
        return jsonio.dumps({"inputs": values})
    named = {} if signature.name == DEFAULT else {"signature_name": signature.name}
    return jsonio.dumps(named | {"inputs": {signature.inputs[name]: value for name, value in values.items()}})

"""A signature's inputs as the settings bind them to the graph's tensors."""

from collections.abc import Iterable
from typing import Any

from handler.commands.convert.features import Feature
from handler.commands.convert.feeds import Feeds
from handler.commands.convert.onnx_model import Tensor
from handler.commands.convert.saved_model import Signature
from handler.commands.convert.values import jsonable

Settings = dict[str, Any]


def override(tensor: Tensor) -> Settings:
    """What ONNX Runtime does not tell: a scalar from any rank."""
    shape = None if tensor.shape is None else list(tensor.shape)
    return {"name": tensor.name, "datatype": tensor.datatype.name, "shape": shape}


def of_inputs(signature: Signature, feeds: Feeds) -> Settings:
    bindings: Settings = {}
    for alias, port in signature.inputs.items():
        binding: Settings = {"tensor": feeds.name(port.tensor)}
        if signature.method != "predict" and port.shape:
            binding["shape"] = list(port.shape[1:])
        if alias in signature.defaults:
            binding["default"] = jsonable(signature.defaults[alias].tolist())
        bindings[alias] = binding["tensor"] if len(binding) == 1 else binding
    return bindings


def of_features(features: Iterable[Feature], feeds: Feeds) -> Settings:
    bindings: Settings = {}
    for feature in sorted(features, key=lambda each: each.name):
        binding: Settings = {"tensor": feeds.name(feature.tensor), "shape": list(feature.shape)}
        default = {} if feature.default is None else {"default": jsonable(feature.default)}
        bindings[feature.name] = binding | default
    return bindings

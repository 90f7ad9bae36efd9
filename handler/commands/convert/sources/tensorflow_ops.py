"""Converts operations of TensorFlow that tf2onnx does not know, for Keras and for SavedModels."""

from typing import Any, Final

import numpy as np

from handler.commands.convert.sources.original import library

OPSET: Final = 13
"""The first in which these conversions are valid."""


def register() -> None:
    """Adds the conversions of this module to tf2onnx. Raises Refused if it is not installed."""
    tf_op = library("tf2onnx.handler", "TensorFlow", "convert").tf_op
    for name, write in (("Erfc", _erfc), ("Log1p", _log1p), ("Expm1", _expm1)):
        tf_op.register_handler(write, OPSET, [name], "", {})


def _erfc(context: Any, node: Any, **_: Any) -> None:
    """Writes 1 - Erf(x). Keras' GELU has it."""
    _rewrite(context, node, "Sub", [_one(context, node), _made(context, node, "Erf", node.input)])


def _log1p(context: Any, node: Any, **_: Any) -> None:
    _rewrite(context, node, "Log", [_made(context, node, "Add", [node.input[0], _one(context, node)])])


def _expm1(context: Any, node: Any, **_: Any) -> None:
    _rewrite(context, node, "Sub", [_made(context, node, "Exp", node.input), _one(context, node)])


def _one(context: Any, node: Any) -> str:
    kind = library("tf2onnx.utils", "TensorFlow", "convert").map_onnx_to_numpy_type(context.get_dtype(node.input[0]))
    name: str = context.make_const(f"{node.name}__one", np.array(1, kind)).output[0]
    return name


def _made(context: Any, node: Any, kind: str, inputs: Any) -> str:
    shapes, dtypes = [context.get_shape(node.output[0])], [context.get_dtype(node.output[0])]
    name: str = context.make_node(kind, list(inputs), shapes=shapes, dtypes=dtypes).output[0]
    return name


def _rewrite(context: Any, node: Any, kind: str, inputs: list[str]) -> None:
    node.type = kind
    context.replace_inputs(node, inputs)

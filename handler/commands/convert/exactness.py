"""Operations that tf2onnx converts into others: converted here, or refused.

Met and checked against TensorFlow's answers: // and % of whole numbers go to zero instead of down, texts are compared
as numbers, and numbers are printed as ONNX's Cast prints them.
"""

from typing import Any, Final

from core.dtype import BY_ONNX
from handler.commands.convert.runtime import math, tf
from handler.commands.refused import Refused

TEXT: Final = frozenset({tf.string.as_datatype_enum})
INEXACT: Final = frozenset(
    tf.as_dtype(name).as_datatype_enum for name in ("half", "bfloat16", "float", "double", "bool")
)
WRONG: Final = {"Equal": TEXT, "NotEqual": TEXT, "AsString": INEXACT}
"""Ops with the types of T that tf2onnx gets wrong."""


def check(graph: Any) -> None:
    """Raises Refused."""
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    wrong = sorted({node.op for node in nodes if node.attr["T"].type in WRONG.get(node.op, ())})
    if wrong:
        raise Refused(
            f"tf2onnx does not convert {', '.join(wrong)} faithfully: it takes text for numbers, or prints them"
        )


def floor_mod(ctx: Any, node: Any, _name: str, _arguments: Any) -> None:
    """ONNX's Mod of whole numbers has the divisor's sign, as TensorFlow's has."""
    if _is_whole(ctx, node):
        node.type = "Mod"
    else:
        math.FloorMod.version_7(ctx, node)


def floor_div(ctx: Any, node: Any, _name: str, _arguments: Any) -> None:
    """The quotient of x - x % y and y, which leaves nothing to round."""
    if not _is_whole(ctx, node):
        math.FloorDiv.version_6(ctx, node)
        return
    kind = {"shapes": [ctx.get_shape(node.output[0])], "dtypes": [ctx.get_dtype(node.output[0])]}
    rest = ctx.make_node("Mod", node.input, **kind)
    whole = ctx.make_node("Sub", [node.input[0], rest.output[0]], **kind)
    node.type = "Div"
    ctx.replace_input(node, node.input[0], whole.output[0], 0)


def _is_whole(ctx: Any, node: Any) -> bool:
    return BY_ONNX[ctx.get_dtype(node.input[0])].numpy.kind in "iu"


HANDLERS: Final[dict[str, tuple[Any, list[str]]]] = {"FloorMod": (floor_mod, []), "FloorDiv": (floor_div, [])}
"""In tf2onnx's own form."""

"""Operations that tf2onnx converts wrongly: this module converts or refuses them, and adds missing ones.

Each was found by comparison with TensorFlow's answers. tf2onnx rounds // and % of whole numbers towards zero instead of
down, compares texts as numbers, and prints numbers as ONNX's Cast does.
"""

from typing import Any, Final

from core.dtype import BY_ONNX
from handler.commands.convert.saved_model.runtime import math, tf
from handler.commands.convert.sources import tensorflow_ops
from handler.commands.refused import Refused

tensorflow_ops.register()
TEXT: Final = frozenset({tf.string.as_datatype_enum})
INEXACT: Final = frozenset(
    tf.as_dtype(name).as_datatype_enum for name in ("half", "bfloat16", "float", "double", "bool")
)
WRONG: Final = {"Equal": TEXT, "NotEqual": TEXT, "AsString": INEXACT}
"""Operation -> the types of T that tf2onnx converts wrongly."""


def check(graph: Any) -> None:
    """Raises Refused for operations in WRONG."""
    nodes = [*graph.node, *(node for function in graph.library.function for node in function.node_def)]
    wrong = sorted({node.op for node in nodes if node.attr["T"].type in WRONG.get(node.op, ())})
    if wrong:
        raise Refused(
            f"tf2onnx does not convert {', '.join(wrong)} faithfully: "
            "it reads text as numbers, or prints numbers differently from TensorFlow"
        )


def floor_mod(ctx: Any, node: Any, _name: str, _arguments: Any) -> None:
    """Converts FloorMod: ONNX's Mod of whole numbers has the divisor's sign, like TensorFlow's."""
    if _is_whole(ctx, node):
        node.type = "Mod"
    else:
        math.FloorMod.version_7(ctx, node)


def floor_div(ctx: Any, node: Any, _name: str, _arguments: Any) -> None:
    """Converts FloorDiv to (x - x % y) / y, whose quotient needs no rounding."""
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
"""The handlers in the form of tf2onnx's custom_op_handlers."""

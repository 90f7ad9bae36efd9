"""Histogram gradient boosting: skl2onnx reads the nodes of its trees as numpy's numbers, which onnx does not take.

They also have FP64 thresholds, which skl2onnx rounds to the nearest FP32 number, and categorical splits, which it
does not notice.
"""

from copy import deepcopy
from typing import Any

from handler.commands.convert.sources.original import lowered
from handler.commands.convert.sources.sklearn_inputs import steps
from handler.commands.refused import Refused


def plain(model: Any) -> Any:
    """Returns a copy whose trees have Python's numbers, and FP32 thresholds; the model itself if it has no such trees.

    Raises Refused for categorical splits.
    """
    if not any(hasattr(step, "_predictors") for step in steps(model)):
        return model
    copy = deepcopy(model)
    for step in steps(copy):
        for predictor in [each for group in getattr(step, "_predictors", ()) for each in group]:
            predictor.nodes = [_node(each) for each in predictor.nodes]
    return copy


def _node(node: Any) -> dict[str, Any]:
    found = {name: node[name].item() for name in node.dtype.names}
    if found["is_categorical"]:
        raise Refused(
            "the model has categorical splits, which skl2onnx does not convert: train on one-hot or ordinal columns "
            "(without categorical_features)"
        )
    return found | {"threshold": lowered(found["num_threshold"]), "value": node["value"]}

"""The inputs of the ONNX graph: signatures' inputs and features, one feed for those that are the same.

Two are the same in three cases. They are one tensor. One is a copy of the other through Identity, like a feature and
the input of a predict signature. Or neither is computed from another tensor, and they have one name, type and shape:
TensorFlow 2 makes a placeholder per signature.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from handler.commands.convert.saved_model.features import Feature
from handler.commands.convert.saved_model.graph import Nodes, node_of, tensor
from handler.commands.convert.saved_model.opened import Port, SavedSignature
from handler.commands.convert.saved_model.runtime import tf

PRESCRIBED: Final = ("inputs", "outputs")
OWN: Final = re.compile(r"(?!\w*PartitionedCall|serving_default_|Identity|Placeholder)[A-Za-z]\w*:0")
"""A node's name that the publisher chose, and not TensorFlow."""


@dataclass(slots=True)
class Feed:
    """A placeholder of our own. `tensors`: those that it replaces. `free`: none of them is computed from another."""

    node: str
    name: str
    alias: str
    dtype: int
    shape: tuple[int, ...] | None
    tensors: set[str]
    free: bool


@dataclass(slots=True)
class Names:
    """Tensor names of the ONNX graph: the alias, with the signature's name before it if another tensor has the alias.

    classify and regress prescribe "inputs" and "outputs", which describe nothing: the publisher's own name is used.
    """

    taken: set[str] = field(default_factory=set)

    def take(self, alias: str, signature: str, tensor: str) -> str:
        own = [node_of(tensor)] if alias in PRESCRIBED and OWN.fullmatch(tensor) else []
        candidates = [*own, alias, f"{signature}_{alias}"]
        while candidates[0] in self.taken:
            candidates.append(f"{candidates[-1]}_")
            del candidates[0]
        self.taken.add(candidates[0])
        return candidates[0]


class Feeds:
    def __init__(self, names: Names) -> None:
        self.all: list[Feed] = []
        self._names = names

    def of(self, name: str) -> Feed | None:
        return next((feed for feed in self.all if tensor(name) in feed.tensors), None)

    def name(self, name: str) -> str:
        """Returns the ONNX name of the feed that replaces this tensor. There must be one."""
        return next(feed.name for feed in self.all if tensor(name) in feed.tensors)

    def add_inputs(self, nodes: Nodes, signature: SavedSignature) -> None:
        """Adds a feed for each of the signature's inputs. Serialized examples are not an input of the graph."""
        if signature.examples is None:
            taken = {tensor(port.tensor) for port in signature.inputs.values()}
            for alias, port in signature.inputs.items():
                free = nodes.op(port.tensor) == "Placeholder"
                self._add(signature.name, alias, port, free=free, elsewhere=taken)

    def add_features(self, signature: SavedSignature, features: list[Feature], copies: Mapping[str, Feed]) -> None:
        """Adds a feed for each feature. `copies`: a feature's tensor -> the feed that replaced a copy of it."""
        for feature in features:
            copy = copies.get(feature.tensor)
            if copy is not None:
                copy.tensors.add(feature.tensor)
                continue
            port = Port(feature.tensor, feature.dtype, (-1, *feature.shape))
            self._add(signature.name, feature.name, port, free=True, elsewhere={each.tensor for each in features})

    def _add(self, signature: str, alias: str, port: Port, *, free: bool, elsewhere: set[str]) -> None:
        name = tensor(port.tensor)
        if self.of(name) is not None:
            return
        for feed in self.all:
            alike = (feed.alias, feed.dtype, feed.shape) == (alias, port.dtype, port.shape)
            if alike and free and feed.free and not feed.tensors & elsewhere:
                feed.tensors.add(name)
                return
        node = f"dragoman_input_{len(self.all)}"
        taken = self._names.take(alias, signature, name)
        self.all.append(Feed(node, taken, alias, port.dtype, port.shape, {name}, free))

    def replacements(self) -> dict[str, str]:
        return {name: feed.node for feed in self.all for name in feed.tensors}

    def plant(self, graph: Any) -> None:
        """Adds the feeds' placeholders to a graph that lacks them."""
        present = {node.name for node in graph.node}
        for feed in self.all:
            if feed.node in present:
                continue
            node = graph.node.add(name=feed.node, op="Placeholder")
            node.attr["dtype"].type = feed.dtype
            node.attr["shape"].shape.CopyFrom(tf.TensorShape(_sizes(feed.shape)).as_proto())


def _sizes(shape: tuple[int, ...] | None) -> list[int | None] | None:
    return None if shape is None else [None if size < 0 else size for size in shape]

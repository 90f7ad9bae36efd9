"""Walks and rewires a GraphDef. Tensors are named "node:0", as everywhere in TensorFlow.

Only the graph itself is walked. The bodies of loops and conditions in its library reach other nodes through it alone.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

SIZES_ONLY: Final = frozenset({"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"})
"""Operations whose results do not depend on the values of their inputs."""


def tensor(name: str) -> str:
    """Returns a tensor's full name: "x:0" for "x"."""
    return name if ":" in name else f"{name}:0"


def node_of(name: str) -> str:
    return name.removeprefix("^").partition(":")[0]


class Nodes(dict[str, Any]):
    """The graph's nodes by name."""

    def __init__(self, graph: Any) -> None:
        super().__init__((node.name, node) for node in graph.node)

    def root(self, name: str) -> str:
        """Returns the tensor that this one copies through any number of Identity nodes."""
        node = self.get(node_of(name))
        while node is not None and node.op in ("Identity", "StopGradient"):
            name = tensor(node.input[0])
            node = self.get(node_of(name))
        return tensor(name)

    def op(self, name: str) -> str:
        node = self.get(node_of(name))
        return "" if node is None else str(node.op)

    def ancestors(self, names: Iterable[str], stop: frozenset[str] = frozenset()) -> set[str]:
        """Returns the nodes that compute these tensors, their own included; none behind operations in `stop`."""
        found: set[str] = set()
        waiting = [node_of(name) for name in names]
        while waiting:
            name = waiting.pop()
            if name in found or name not in self:
                continue
            found.add(name)
            if self[name].op not in stop:
                waiting += [node_of(source) for source in self[name].input]
        return found

    def consumers(self, name: str) -> Iterator[Any]:
        """Yields the nodes that read this tensor or are ordered after its node."""
        for node in self.values():
            if any(tensor(source) == name or source == f"^{node_of(name)}" for source in node.input):
                yield node


def rewire(graph: Any, replaced: Mapping[str, str]) -> None:
    """Lets every node read the new tensor instead of the old, and removes control inputs from the old one's node."""
    gone = {f"^{node_of(old)}" for old in replaced}
    for node in graph.node:
        sources = [
            source if source.startswith("^") else replaced.get(tensor(source), source)
            for source in node.input
            if source not in gone
        ]
        del node.input[:]
        node.input.extend(sources)

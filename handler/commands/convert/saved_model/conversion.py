"""Converts one SavedModel to one ONNX model and its settings.

A placeholder of our own replaces every tensor that a signature feeds. The rest is frozen, and calls are inlined. Then
placeholders replace ParseExample's dense outputs, too. Each signature must then depend on its own feeds alone.
"""

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from core.records import NamedTuple
from handler.commands.convert.saved_model import features, onnx_model
from handler.commands.convert.saved_model.features import Feature, Parser
from handler.commands.convert.saved_model.feeds import Feed, Feeds, Names
from handler.commands.convert.saved_model.graph import Nodes, rewire, tensor
from handler.commands.convert.saved_model.labels import CLASSES, class_labels
from handler.commands.convert.saved_model.opened import SavedModel, SavedSignature, opened
from handler.commands.convert.saved_model.runtime import tf
from handler.commands.refused import Refused

Settings = dict[str, Any]


class Converted(NamedTuple):
    """`unread`: features by signature that no output needs. TensorFlow still requires those without a default."""

    model: bytes
    settings: Settings
    unread: Mapping[str, Sequence[Feature]]


def convert(folder: Path, chosen: Sequence[str] = ()) -> Converted:
    """Converts the `chosen` signatures, all where empty. Raises Refused."""
    with opened(folder, chosen) as saved:
        return converted(saved)


def converted(saved: SavedModel) -> Converted:
    """Converts the signatures of a SavedModel that is open. Raises Refused."""
    return _Conversion(saved).run()


class _Conversion:
    def __init__(self, saved: SavedModel) -> None:
        self._saved = saved
        self._signatures = saved.signatures
        self._names = Names()
        self._feeds = Feeds(self._names)
        self._copies: dict[tuple[str, int], str] = {}
        """Output tensor of the SavedModel -> our node that copies it. A further alias of it has its own copy."""
        self._parsed: dict[str, list[Parser]] = {}
        self._features: dict[str, list[Feature]] = {}
        """Signature -> the features that its outputs need."""
        self._labels: dict[str, list[str]] = {}

    def run(self) -> Converted:
        graph = self._cut_at_inputs()
        graph = self._cut_at_features(graph)
        nodes = Nodes(graph)
        for signature in self._signatures:
            self._check(nodes, signature)
            self._read_labels(nodes, signature)
        names = self._output_names()
        made = onnx_model.make(
            self._saved,
            tf.compat.v1.graph_util.extract_sub_graph(graph, list(names)),
            self._feeds.all,
            names,
            [feed for feed in self._feeds.all if not all(feed in self._fed(each) for each in self._signatures)],
        )
        return Converted(
            made.model, self._settings(made, names), {each.name: self._unread(each) for each in self._signatures}
        )

    def _unread(self, signature: SavedSignature) -> list[Feature]:
        needed = {feature.name for feature in self._features[signature.name]}
        parsed = {feature.name: feature for parser in self._parsed[signature.name] for feature in parser.dense}
        return [feature for name, feature in parsed.items() if name not in needed]

    def _cut_at_inputs(self) -> Any:
        """Returns the frozen graph. Feeds replace the signatures' inputs; outputs and replaced tensors have copies."""
        graph = self._saved.graph()
        nodes = Nodes(graph)
        features.check_examples(self._signatures)
        for signature in self._signatures:
            self._feeds.add_inputs(nodes, signature)
            for key in _keys(signature).values():
                self._copy(graph, key)
        rewire(graph, self._feeds.replacements())
        origins = [_origin(graph, feed) for feed in self._feeds.all if not feed.free]
        self._feeds.plant(graph)
        _use_defaults(graph)
        return self._saved.frozen(graph, [*self._copies.values(), *origins])

    def _copy(self, graph: Any, key: tuple[str, int]) -> None:
        if key not in self._copies:
            self._copies[key] = f"dragoman_output_{len(self._copies)}"
            source = self._saved.session.graph.get_tensor_by_name(key[0])
            _identity(graph, self._copies[key], key[0], source.dtype.base_dtype.as_datatype_enum)

    def _cut_at_features(self, graph: Any) -> Any:
        nodes = Nodes(graph)
        origins = {nodes.root(_origin_name(feed)): feed for feed in self._feeds.all if not feed.free}
        self._signatures = [self._as_it_reads(nodes, signature) for signature in self._signatures]
        for signature in self._signatures:
            used = nodes.ancestors(self._outputs_of(signature))
            parsed = [feature for parser in self._parsed[signature.name] for feature in parser.dense]
            needed = [feature for feature in parsed if _needs(nodes, used, feature, origins.get(feature.tensor))]
            features.check_lengths(signature, needed)
            self._feeds.add_features(signature, needed, origins)
            self._features[signature.name] = needed
        rewire(graph, self._feeds.replacements())
        self._feeds.plant(graph)
        return graph

    def _as_it_reads(self, nodes: Nodes, signature: SavedSignature) -> SavedSignature:
        """Decides by ParseExample: a signature of plain text can have the aliases of one that takes examples."""
        self._parsed[signature.name] = parsed = features.parsers(nodes, signature)
        if signature.examples is None or parsed or signature.declared in ("classify", "regress"):
            return signature
        predicts = signature._replace(method="predict")
        self._feeds.add_inputs(nodes, predicts)
        return predicts

    def _outputs_of(self, signature: SavedSignature) -> list[str]:
        return [self._copies[key] for key in _keys(signature).values()]

    def _fed(self, signature: SavedSignature) -> list[Feed]:
        if signature.examples is None:
            tensors = [port.tensor for port in signature.inputs.values()]
        else:
            tensors = [feature.tensor for feature in self._features[signature.name]]
        return [feed for name in tensors if (feed := self._feeds.of(tensor(name))) is not None]

    def _check(self, nodes: Nodes, signature: SavedSignature) -> None:
        """Raises Refused if the outputs need more than the signature feeds."""
        where = f"signature {signature.name!r}"
        used = nodes.ancestors(self._outputs_of(signature))
        features.check_cut(nodes, signature, self._parsed[signature.name], used)
        own = {feed.node for feed in self._fed(signature)}
        for feed in self._feeds.all:
            if feed.node in used and feed.node not in own:
                raise Refused(
                    f"{where} computes {min(feed.tensors)!r}, which another signature feeds; "
                    "convert them separately with --signature"
                )
        for name in sorted(used - own):
            if nodes[name].op == "Placeholder":
                raise Refused(f"{where} needs the placeholder {name!r}, which it does not feed")

    def _read_labels(self, nodes: Nodes, signature: SavedSignature) -> None:
        if CLASSES in signature.outputs:
            copy = self._copies[_keys(signature)[CLASSES]]
            parsed = [feature for parser in self._parsed[signature.name] for feature in parser.dense]
            labels = class_labels(self._saved, nodes, signature, copy, parsed)
            if labels is not None:
                self._labels[signature.name] = labels

    def _published(self, signature: SavedSignature) -> dict[str, str]:
        """Returns the outputs that stay tensors: alias -> our copy."""
        return {
            alias: self._copies[key]
            for alias, key in _keys(signature).items()
            if alias != CLASSES or signature.name not in self._labels
        }

    def _output_names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for signature in self._signatures:
            for alias, copy in self._published(signature).items():
                if copy not in names:
                    names[copy] = self._names.take(alias, signature.name, tensor(signature.outputs[alias].tensor))
        return names

    def _settings(self, made: onnx_model.Made, names: Mapping[str, str]) -> Settings:
        settings: Settings = {}
        for side, tensors in (("inputs", made.inputs), ("outputs", made.outputs)):
            said = [_override(each) for each in tensors if not each.shape]
            settings |= {side: said} if said else {}
        return settings | {"signatures": {each.name: self._signature(each, names) for each in self._signatures}}

    def _signature(self, signature: SavedSignature, names: Mapping[str, str]) -> Settings:
        if signature.examples is None:
            inputs = _bound_inputs(signature, self._feeds)
        else:
            inputs = _bound_features(self._features[signature.name], self._feeds)
        outputs = {alias: names[copy] for alias, copy in self._published(signature).items()}
        labels = self._labels.get(signature.name)
        settings = {"method": signature.method, "inputs": inputs, "outputs": outputs}
        return settings if labels is None else settings | {"class_labels": labels}


def _keys(signature: SavedSignature) -> dict[str, tuple[str, int]]:
    """Returns alias -> its tensor, and how many earlier aliases of the signature have the same tensor."""
    names = [tensor(port.tensor) for port in signature.outputs.values()]
    return {alias: (names[index], names[:index].count(names[index])) for index, alias in enumerate(signature.outputs)}


def _identity(graph: Any, name: str, source: str, dtype: int) -> None:
    graph.node.add(name=name, op="Identity", input=[source]).attr["T"].type = dtype


def _origin(graph: Any, feed: Feed) -> str:
    """Adds a copy of the tensor that a feed replaces, which may itself be a copy of a feature."""
    _identity(graph, _origin_name(feed), min(feed.tensors), feed.dtype)
    return _origin_name(feed)


def _origin_name(feed: Feed) -> str:
    return f"{feed.node}_origin"


def _use_defaults(graph: Any) -> None:
    """Replaces placeholders with a default that no signature feeds (a dropout's rate, is_training) by the default."""
    for node in graph.node:
        if node.op == "PlaceholderWithDefault":
            node.op = "Identity"
            node.attr["T"].type = node.attr["dtype"].type
            del node.attr["dtype"], node.attr["shape"]


def _needs(nodes: Nodes, used: set[str], feature: Feature, copied: Feed | None) -> bool:
    """Decides whether `used` nodes read a feature, or the feed that replaced a copy of it."""
    if copied is not None and copied.node in used:
        return True
    return any(node.name in used for node in nodes.consumers(feature.tensor))


def _override(made: onnx_model.GraphTensor) -> Settings:
    """Returns the entry that says more than ONNX Runtime does, which reports a scalar and any rank alike."""
    shape = None if made.shape is None else list(made.shape)
    return {"name": made.name, "datatype": made.datatype.name, "shape": shape}


def _bound_inputs(signature: SavedSignature, feeds: Feeds) -> Settings:
    bindings: Settings = {}
    for alias, port in signature.inputs.items():
        binding: Settings = {"tensor": feeds.name(port.tensor)}
        if signature.method != "predict" and port.shape:
            binding["shape"] = list(port.shape[1:])
        if alias in signature.defaults:
            binding["default"] = _jsonable(signature.defaults[alias].tolist())
        bindings[alias] = binding["tensor"] if len(binding) == 1 else binding
    return bindings


def _bound_features(features: Iterable[Feature], feeds: Feeds) -> Settings:
    bindings: Settings = {}
    for feature in sorted(features, key=lambda each: each.name):
        binding: Settings = {"tensor": feeds.name(feature.tensor), "shape": list(feature.shape)}
        default = {} if feature.default is None else {"default": _jsonable(feature.default)}
        bindings[feature.name] = binding | default
    return bindings


def _jsonable(value: Any) -> Any:
    """Returns the result of `tolist` with bytes as text, or as {"b64": ...} where they are not UTF-8."""
    if isinstance(value, list):
        return [_jsonable(element) for element in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}

"""Opens a SavedModel in a TensorFlow session: its signatures, its graph with constants for variables, its tables."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from core.records import NamedTuple
from core.signature import DEFAULT
from handler.commands.convert.saved_model.runtime import convert_to_constants, datatype, tf, tf_optimizer
from handler.commands.refused import Refused

SERVE: Final = "serve"
ALIASES: Final = {"classify": ({"classes"}, {"scores"}, {"classes", "scores"}), "regress": ({"outputs"},)}
"""Method -> the sets of output aliases that it prescribes. Every other signature predicts."""
EXAMPLES: Final = "inputs"
"""The alias under which classify and regress signatures take serialized examples."""


class Port(NamedTuple):
    """An input or output of a signature. `dtype`: tensorflow.DataType. `shape`: None if unknown."""

    tensor: str
    dtype: int
    shape: tuple[int, ...] | None


class SavedSignature(NamedTuple):
    """`defaults`: numpy arrays for inputs that a request may omit. `declared`: the method that the file names."""

    name: str
    method: str
    inputs: Mapping[str, Port]
    outputs: Mapping[str, Port]
    defaults: Mapping[str, Any]
    declared: str

    @property
    def examples(self) -> Port | None:
        """Returns the input that takes serialized tf.train.Examples."""
        port = self.inputs.get(EXAMPLES)
        takes = self.method != "predict" and len(self.inputs) == 1 and port is not None
        return port if takes and port is not None and port.dtype == tf.string.as_datatype_enum else None


class SavedModel:
    def __init__(self, session: Any, signatures: Sequence[SavedSignature]) -> None:
        self.session = session
        self.signatures = signatures

    def graph(self) -> Any:
        """Returns a copy of the graph without its devices."""
        graph = self.session.graph.as_graph_def()
        for node in graph.node:
            node.device = ""
            node.attr.pop("_class", None)  # colocation with nodes that may be removed
        return graph

    def frozen(self, graph: Any, fetches: Sequence[str]) -> Any:
        """Returns the part that these nodes need, with constants for variables and bodies for function calls."""
        constant = convert_to_constants.convert_variables_to_constants_from_session_graph(
            self.session, graph, list(fetches)
        )
        for function in constant.library.function:
            function.attr.pop("_noinline", None)
            _gather_constants(function)
        return _inlined(constant, fetches)

    def tables(self, graph: Any) -> dict[bytes, tuple[Any, Any]]:
        """Returns the keys and values of the graph's hash tables by shared name."""
        found = {}
        with self.session.graph.as_default():
            for node in graph.node:
                if node.op != "HashTableV2" or not node.attr["shared_name"].s:
                    continue
                kinds = node.attr["key_dtype"].type, node.attr["value_dtype"].type
                name = node.attr["shared_name"].s
                handle = tf.raw_ops.HashTableV2(
                    key_dtype=kinds[0], value_dtype=kinds[1], shared_name=name, container=node.attr["container"].s
                )
                export = tf.raw_ops.LookupTableExportV2(table_handle=handle, Tkeys=kinds[0], Tvalues=kinds[1])
                found[name] = tuple(self.session.run(list(export)))
        return found


@contextmanager
def opened(folder: Path, chosen: Sequence[str] = ()) -> Iterator[SavedModel]:
    """Opens a SavedModel with the `chosen` signatures, all where empty. Raises Refused."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        try:
            meta = tf.compat.v1.saved_model.load(session, [SERVE], str(folder))
        except (RuntimeError, OSError, ValueError, tf.errors.OpError) as error:
            raise Refused(f"{folder} cannot be loaded: {_line(error)}") from None
        names = _chosen(list(meta.signature_def), chosen)
        yield SavedModel(session, [_signature(session.graph, name, meta.signature_def[name]) for name in names])


def _chosen(present: Sequence[str], chosen: Sequence[str]) -> list[str]:
    # A name with two underscores is TensorFlow's own, e.g. __saved_model_init_op.
    known = sorted((name for name in present if not name.startswith("__")), key=lambda name: (name != DEFAULT, name))
    for name in chosen:
        if name not in known:
            raise Refused(f"there is no signature {name!r}; the SavedModel has {', '.join(known) or 'none'}")
    if not known:
        raise Refused("the SavedModel has no signature; save it with signatures={'serving_default': ...}")
    return [name for name in known if name in chosen or not chosen]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:256]


def _gather_constants(function: Any) -> None:
    """Lets a function gather from constants: freezing replaces its variables, and leaves ResourceGather as it is."""
    arguments = {argument.name: argument.type for argument in function.signature.input_arg}
    for node in [node for node in function.node_def if node.op == "ResourceGather"]:
        if arguments.get(node.input[0]) == node.attr["dtype"].type:
            axis = function.node_def.add(name=f"{node.name}/dragoman_axis", op="Const")
            axis.attr["dtype"].type = tf.int32.as_datatype_enum
            axis.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(node.attr["batch_dims"].i, tf.int32))
            node.op = "GatherV2"
            node.attr["batch_dims"].i = node.attr["batch_dims"].i  # absent ones are 0
            node.input.insert(2, f"{axis.name}:output:0")
            node.attr["Tparams"].type = node.attr["dtype"].type
            node.attr["Taxis"].type = tf.int32.as_datatype_enum
            for name in ("dtype", "validate_indices"):
                node.attr.pop(name, None)


def _inlined(graph: Any, fetches: Sequence[str]) -> Any:
    config = tf.compat.v1.ConfigProto()
    config.graph_options.infer_shapes = True
    rewrites = config.graph_options.rewrite_options
    rewrites.min_graph_nodes = -1
    rewrites.function_optimization = rewrites.AGGRESSIVE
    rewrites.optimizers.extend(["function", "constfold", "dependency"])
    with tf.Graph().as_default():
        meta = tf.compat.v1.train.export_meta_graph(graph_def=graph)
    meta.collection_def["train_op"].node_list.value.extend(fetches)
    return tf_optimizer.OptimizeGraph(config, meta)


def _signature(graph: Any, name: str, proto: Any) -> SavedSignature:
    what = f"signature {name!r}:"
    inputs = {alias: _port(graph, f"{what} input {alias!r}", info) for alias, info in proto.inputs.items()}
    outputs = {alias: _port(graph, f"{what} output {alias!r}", info) for alias, info in proto.outputs.items()}
    if not inputs:
        raise Refused(f"{what} it has no inputs; choose others with --signature")
    if len({port.tensor for port in inputs.values()}) < len(inputs):
        raise Refused(f"{what} two of its inputs are one tensor; choose others with --signature")
    return SavedSignature(
        name,
        _method(proto.method_name, inputs, set(outputs)),
        dict(sorted(inputs.items())),
        dict(sorted(outputs.items())),
        {alias: tf.make_ndarray(value) for alias, value in proto.defaults.items()},
        proto.method_name.rpartition("/")[2],
    )


def _port(graph: Any, what: str, info: Any) -> Port:
    if info.WhichOneof("encoding") != "name":
        raise Refused(f"{what} is a sparse or composite tensor, which no protocol carries")
    # The tensor's own type: TensorFlow Serving's half_plus_three declares its examples as DT_FLOAT.
    dtype = graph.get_tensor_by_name(info.name).dtype.base_dtype.as_datatype_enum
    datatype(dtype, what)
    shape = info.tensor_shape
    known = info.HasField("tensor_shape") and not shape.unknown_rank
    return Port(info.name, dtype, tuple(dim.size for dim in shape.dim) if known else None)


def _method(method_name: str, inputs: Mapping[str, Port], outputs: set[str]) -> str:
    """Chooses by aliases first, like TensorFlow Serving: TensorFlow 2 writes predict for every signature."""
    if list(inputs) == [EXAMPLES] and inputs[EXAMPLES].dtype == tf.string.as_datatype_enum:
        for method, aliases in ALIASES.items():
            if outputs in aliases:
                return method
    method = method_name.rpartition("/")[2]
    return method if outputs in ALIASES.get(method, ()) else "predict"

"""PyTorch: programs of torch.export (.pt2), and TorchScript (.pt, .ts); by torch.onnx."""

import zipfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from core.dtype import BY_ONNX
from handler.commands.convert.sources import graph
from handler.commands.convert.sources.original import (
    Arrays,
    LibraryModel,
    Progress,
    SourceOptions,
    library,
    refusing,
    versioned,
)
from handler.commands.refused import Refused

TITLE: Final = "PyTorch"
EXTRA: Final = "convert-torch"
OPSET: Final = 20


def convert(file: Path, options: SourceOptions, progress: Progress) -> LibraryModel:
    """Converts a program. Raises Refused."""
    torch = library("torch", TITLE, EXTRA)
    library("onnxscript", TITLE, EXTRA)
    if file.suffix.lower() == ".pt2":
        return _program(torch, file, progress)
    return _script(torch, file, options, progress)


def _program(torch: Any, file: Path, progress: Progress) -> LibraryModel:
    with refusing(f"{file} cannot be read as a program of torch.export"):
        program = _loaded(torch, file)
    progress(f"exporting with {versioned('torch')}")
    return exported(torch, program, (), _called(torch, program), {})


def _loaded(torch: Any, file: Path) -> Any:
    """Returns the program of a file. Importing transformers registers the output types of its models."""
    try:
        return torch.export.load(file)
    except RuntimeError:
        with suppress(ImportError):
            import_module("transformers.modeling_outputs")
        return torch.export.load(file)


def _called(torch: Any, program: Any) -> Callable[..., Any]:
    """Returns a function that calls a program with tensors in the order of its inputs.

    The program may take them as keywords, or in dicts and lists.
    """
    module: Callable[..., Any] = program.module()
    tree = torch.utils._pytree  # noqa: SLF001 - no other
    if program.example_inputs is None:
        return module
    leaves, spec = tree.tree_flatten(program.example_inputs)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def answer(*tensors: Any) -> Any:
        given = dict(zip(places, tensors, strict=True))
        arguments, keywords = tree.tree_unflatten([given.get(*each) for each in enumerate(leaves)], spec)
        return module(*arguments, **keywords)

    return answer


def exported(
    torch: Any, subject: Any, arguments: Any, original: Callable[..., Any], options: Mapping[str, Any]
) -> LibraryModel:
    """Exports a program or a module. `original`: answers tensors in the order of the inputs. Raises Refused."""
    with refusing("torch.onnx does not export this model", deep=True):
        made = torch.onnx.export(subject, arguments, dynamo=True, verbose=False, **options).model_proto
    return finished(torch, made, original)


def finished(torch: Any, made: Any, original: Callable[..., Any]) -> LibraryModel:
    with refusing("the exported model is not one file of at most 2 GiB"):
        content = graph.without_notes(made).SerializeToString()
    inputs = {value.name: BY_ONNX[value.type.tensor_type.elem_type].numpy for value in made.graph.input}
    return LibraryModel(
        content,
        _Original(torch, original, inputs, graph.outputs(made)),
        versioned("torch"),
        versioned("torch"),
        "network",
    )


# -- TorchScript --------------------------------------------------------------------------------------------------


def _script(torch: Any, file: Path, options: SourceOptions, progress: Progress) -> LibraryModel:
    if not _is_script(file):
        raise Refused(
            f"{file} is not TorchScript: weights alone, as torch.save writes them, have no graph, and loading them "
            "runs code. Save the model with torch.export.save(torch.export.export(model, inputs), 'model.pt2')"
        )
    with refusing(f"{file} cannot be read as TorchScript"):
        script = torch.jit.load(file, map_location="cpu").eval()
    names = [each.name for each in script.forward.schema.arguments[1:]]
    examples = _examples(torch, names, options.examples)
    progress(f"exporting with {versioned('torch')}")
    made = BytesIO()
    with refusing("torch.onnx does not export this model"):
        outputs = [f"output_{index}" for index in range(len(_leaves(torch, script(*examples))))]
        torch.onnx.export(
            script,
            tuple(examples),
            made,
            dynamo=False,
            opset_version=OPSET,
            input_names=names,
            output_names=outputs,
            dynamic_axes={name: {0: "rows"} for name in (*names, *outputs)},
        )
    return finished(torch, library("onnx", TITLE, EXTRA).load_from_string(made.getvalue()), script)


def _is_script(file: Path) -> bool:
    """Decides whether a zip of torch has code beside its weights."""
    with refusing(f"{file} is not a file of torch"), zipfile.ZipFile(file) as archive:
        return any("/code/" in name for name in archive.namelist())


def _examples(torch: Any, names: Sequence[str], given: Mapping[str, NDArray[Any]]) -> list[Any]:
    """Returns a tensor for each input: TorchScript is traced with two rows. Raises Refused."""
    arrays = {names[0]: given[""]} if len(names) == 1 and "" in given else given
    missing = [name for name in names if name not in arrays]
    if missing:
        raise Refused(
            f"TorchScript does not say the shapes of its inputs: give rows of {', '.join(names)} with --data (.npz)"
        )
    return [torch.from_numpy(_narrow(arrays[name][:2])) for name in names]


def _narrow(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array.astype(np.float32) if array.dtype == np.float64 else array)


def _leaves(torch: Any, answer: Any) -> list[Any]:
    """Returns the tensors of an answer, in the order in which an export has them."""
    return [leaf for leaf in torch.utils._pytree.tree_leaves(answer) if isinstance(leaf, torch.Tensor)]  # noqa: SLF001 - no other


class _Original:
    def __init__(
        self, torch: Any, model: Callable[..., Any], inputs: Mapping[str, np.dtype[Any]], outputs: Sequence[str]
    ) -> None:
        self._torch = torch
        self._model = model
        self._inputs = inputs
        self._outputs = outputs

    def __call__(self, inputs: Mapping[str, NDArray[Any]]) -> Arrays:
        torch = self._torch
        tensors = [torch.from_numpy(inputs[name].astype(dtype)) for name, dtype in self._inputs.items()]
        with torch.no_grad():
            answers = _leaves(torch, self._model(*tensors))
        return {name: each.detach().numpy() for name, each in zip(self._outputs, answers, strict=True)}

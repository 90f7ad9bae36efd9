"""The process that optimises one version and compares its answers: `child.py FOLDER NEW`.

It prints one JSON object: {"problem": text} if the version stays as it is, else {"by": runtime, "tolerance": text}.
A process of its own, because ONNX Runtime may crash, and because several copies of the weights are in memory.
"""

import json
import mmap
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from core.errors import ServingError
from core.ports import Model
from handler.backends import Source, onnx
from handler.backends.onnx_fields import MalformedFile
from handler.backends.reasons import one_line
from handler.commands.publish.optimize import answers, rewriting
from handler.settings import Settings
from handler.settings.model import ModelSettings

if TYPE_CHECKING:
    from collections.abc import Callable

MODEL, WEIGHTS, GRAPH = "model.onnx", "model.onnx.data", "graph.onnx"
LEAST: Final = 1_000_000
"""Bytes of a weight from which it is kept beside model.onnx, where it can be mapped."""


class Unfit(Exception):
    """The version stays unchanged, for this reason."""


def main(folder: str, new: str) -> int:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        result = _optimise(Path(folder), Path(new))
    except (Unfit, answers.Unanswered, rewriting.Unjoinable) as error:
        result = {"problem": str(error)}
    except ServingError as error:
        result = {"problem": error.message}
    except (MalformedFile, IndexError, OSError) as error:
        result = {"problem": f"its optimised file cannot be written: {error}"}
    out.write(json.dumps(result))
    out.close()
    return 0


def _optimise(folder: Path, new: Path) -> dict[str, str]:
    import onnxruntime  # noqa: PLC0415 - the parent reports a missing one

    _write(onnxruntime, folder / MODEL, new)
    _compare(folder, new)
    return {"by": f"onnxruntime {onnxruntime.__version__}", "tolerance": answers.TOLERANCE}


def _write(runtime: Any, source: Path, new: Path) -> None:
    """Writes the optimised model and its weights. Raises Unfit.

    The basic level has operations of ONNX itself only, for any processor and execution provider. Those of the levels
    above are chosen for one: the server's own session adds them, on its own machine.
    """
    options = runtime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(new / GRAPH)
    prefix = "session.optimized_model_external_initializers"
    options.add_session_config_entry(f"{prefix}_file_name", WEIGHTS)
    options.add_session_config_entry(f"{prefix}_min_size_in_bytes", str(LEAST))
    options.add_session_config_entry("session.disable_prepacking", "1")
    try:
        runtime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's own classes have no common base
        raise Unfit(f"ONNX Runtime cannot write it: {one_line(error)}") from error
    if not (new / WEIGHTS).is_file() or not (new / WEIGHTS).stat().st_size:
        raise Unfit(f"it has no weights of more than {LEAST // 1_000_000} MB")
    (new / MODEL).write_bytes(rewriting.joined(_mapped(source), _mapped(new / GRAPH)))
    (new / GRAPH).unlink()


def _mapped(path: Path) -> memoryview:
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _compare(folder: Path, new: Path) -> None:
    """Raises Unfit unless the new version answers as the old one does, with both of its sessions."""
    settings = Settings.from_env({})
    old = onnx.load(Source("model", "1", folder, ModelSettings()), settings)
    cases, spec = answers.asked(old), old.spec
    del old
    rest: list[Callable[[], None]] = []
    said = ModelSettings(optimized=True)
    made = onnx.load(Source("model", "1", new, said, later=lambda work, _: rest.append(work)), settings)
    if made.spec != spec:
        raise Unfit("its inputs and outputs would get another description")
    _check(made, cases)
    rest.pop()()
    _check(made, cases)


def _check(model: Model, cases: list[answers.AnsweredCase]) -> None:
    for case in cases:
        for expected, found in zip(case.outputs, answers.answer(model, case.inputs), strict=True):
            if problem := answers.difference(expected, found):
                raise Unfit(f"{problem}, for random inputs")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""THE table of a load's refusals, by their texts, with the cure of each."""

import re
from typing import Final

from handler.commands.doctor.findings import Finding, error

TOO_SLOW: Final = "raise --load-timeout, or move slow work out of the load: on Lambda it counts against the timeout"
TOO_LARGE: Final = (
    "raise --load-memory or DRAGOMAN_MEMORY_LIMIT, or make the model smaller (quantize it, fewer weights)"
)
CRASH: Final = "run `dragoman push` again from the original, or export it with this machine's version of onnxruntime"
CURES: Final = (
    (
        "memory-limit",
        r"DRAGOMAN_MEMORY_LIMIT|MemoryError|bad_alloc",
        "raise DRAGOMAN_MEMORY_LIMIT, or keep fewer models in DRAGOMAN_PRELOAD",
    ),
    (
        "package-missing",
        r"No module named '([\w.]+)'",
        "pip install {0} where the server runs; on Lambda add it to the artifact's requirements",
    ),
    ("runtime-missing", r"needs ONNX Runtime", "pip install 'dragoman[onnx]'"),
    ("no-predict", r"no function predict", "define predict(inputs, parameters) in model.py; it returns arrays by name"),
    ("python-error", r"model\.py raised", "mend model.py; `python model.py` in its folder shows the whole traceback"),
    (
        "weights-missing",
        r"external data|[Ee]xternal initializer|No such file|weights",
        "put the weights' file beside model.onnx: push the whole folder, and not the one file",
    ),
    ("signature", r"model\.sig|signature|signed", "sign it again with `dragoman sign`, or push it with --sign-key"),
    (
        "settings-mismatch",
        r"model-settings\.json|metadata of model",
        "let the settings repeat what the model's file says, or remove the key",
    ),
    ("opset", r"opset|IR version|ir_version", "export it with an older opset, or install a newer onnxruntime"),
    ("sequence-output", r"is a sequence|zipmap", "convert it with skl2onnx and options={{'zipmap': False}}"),
    ("provider", r"rovider", "name a provider of this machine, or none"),
    ("fetch", r"the store|access denied|broke off", "check s3:GetObject on the repository's prefix, and the network"),
    ("pipeline", r"pipeline|step", "mend the step that the text names; each of its models must load by itself"),
    (
        "model-file",
        r"Protobuf parsing failed|no ONNX model|is empty|cut short|[Ii]nvalid",
        "export the model again: the file is damaged, or a Git LFS pointer (`git lfs pull`)",
    ),
)
"""Code, pattern and cure. The first that matches counts; the cure may quote the pattern's groups."""
OTHERS: Final = "export the model again, and publish it with `dragoman push`, which loads it first"


def of_refusal(where: str, text: str, cause: str) -> Finding:
    """Returns the finding for a load that a server would refuse. `cause`: what is behind it, "" if nothing is."""
    whole = f"{text} ({cause})" if cause and cause not in text else text
    for code, pattern, cure in CURES:
        if found := re.search(pattern, whole):
            return error(code, where, whole, cure.format(*found.groups()))
    return error("load-refused", where, whole, OTHERS)

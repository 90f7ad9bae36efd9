"""THE table of a load's refusals, by their texts, with the cure of each."""

import re
from typing import Final

from handler.commands.doctor.findings import Finding, error

TOO_SLOW: Final = "raise --load-timeout, or move slow work out of the load: on Lambda it counts against the timeout"
TOO_LARGE: Final = (
    "raise --load-memory or DRAGOMAN_MEMORY_LIMIT, or make the model smaller (quantize it, fewer weights)"
)
CRASH: Final = "run `dragoman push` again from the original, or export it with this machine's version of onnxruntime"
RUNTIMES_OWN: Final = re.compile(
    r"\[ONNXRuntimeError\] : \d{1,9} : \w{1,40} : |Load model from \S{1,999} failed:"
    r"|(?<!\S)\S{1,300}\.(?:cc|h):\d{1,9} (?:[^()]{0,300}\(.{0,300}?\)(?: const)? |\w{1,99} )"
)
"""What ONNX Runtime says of itself around the reason: codes, files of its own source, functions with their types."""
CURES: Final = (
    (
        "warm-up",
        r"failed its warm-up",
        "repair the request in `warmup` of its settings, or its file, which has to be in the version's folder",
    ),
    ("code-not-allowed", r"unless DRAGOMAN_ALLOW_CODE", "set DRAGOMAN_ALLOW_CODE=true, or leave that model out"),
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
    ("runtime-broken", r"its import fails", "`python -c 'import onnxruntime'` where the server runs shows the reason"),
    ("folder-name", r"is not UTF-8, which", "rename the folder, or the one above it that has other letters"),
    ("text-missing", r"needs the package tokenizers|operators of onnxruntime-ext", "pip install 'dragoman[text]'"),
    ("no-predict", r"no function predict", "define predict(inputs, parameters) in model.py; it returns arrays by name"),
    ("python-error", r"model\.py raised", "repair model.py; `python model.py` in its folder shows the whole traceback"),
    (
        "signature",
        r"model\.sig|is signed|sign it|digest",
        "sign it again with `dragoman sign`, or push it with --sign-key",
    ),
    ("explainer", r"\bexplainer\b", "correct `explainer` in its settings as the text says (docs/explain.md)"),
    ("two-models", r"and a pipeline in its settings", "remove the pipeline, or the model's own file"),
    (
        "settings-mismatch",
        r"its settings|the settings describe|model-settings\.json|metadata of model",
        "let the settings repeat what the model's file says, or remove the key",
    ),
    (
        "model-file",
        r"not an ONNX model|is empty|cut short|Protobuf parsing failed",
        "export the model again: the file is damaged, or a Git LFS pointer (`git lfs pull`)",
    ),
    (
        "weights-missing",
        r"[Ee]xternal (?:data|initializer)|No such file",
        "put the weights' file beside model.onnx: push the whole folder, not only the one file",
    ),
    (
        "zipmap",
        r"Type Error.*ZipMap",
        "export it with data of float32, such as to_onnx(model, X[:1].astype('float32')) (docs/tables.md)",
    ),
    ("operator", r"No Op registered|No opset import", "export it for the standard operators of ONNX (opset ai.onnx)"),
    ("opset", r"[Oo]pset|IR version", "export it with an older opset, or install a newer onnxruntime"),
    (
        "sequence-output",
        r"is a sequence|zipmap",
        "join it by ConcatFromSequence in the graph, or export each of a MultiOutputClassifier's estimators alone",
    ),
    ("provider", r"^providers|execution provider", "name a provider of this machine, or none"),
    ("fetch", r"the store|access denied|broke off", "check s3:GetObject on the repository's prefix, and the network"),
    ("pipeline", r"^steps\[|pipeline", "repair the step that the text names; each of its models must load by itself"),
)
"""Code, pattern and cure. The first that matches counts; the cure may quote the pattern's groups."""
OTHERS: Final = "export the model again, and publish it with `dragoman push`, which loads it first"


def of_refusal(where: str, text: str, cause: str) -> Finding:
    """Returns the finding for a load that a server would refuse. `cause`: the error behind it, "" without one."""
    whole = _whole(text, cause)
    for code, pattern, cure in CURES:
        if found := re.search(pattern, whole):
            return error(code, where, whole, cure.format(*found.groups()))
    return error("load-refused", where, whole, OTHERS)


def _whole(text: str, cause: str) -> str:
    """Returns a refusal with its cause. A server cuts ONNX Runtime's text for clients; the cause has all of it."""
    reason = cause.partition(": ")[2]
    if "[ONNXRuntimeError]" in reason:
        return RUNTIMES_OWN.sub("", " ".join(reason.split()))
    return text if not reason or reason in text else f"{text} ({cause})"

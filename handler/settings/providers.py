"""ONNX Runtime's execution providers, by the names that the settings give them, such as CUDAExecutionProvider."""

from collections.abc import Sequence
from typing import Any, Final

from core.errors import nearest, shown

CPU: Final = ("CPUExecutionProvider",)
"""The providers of models without a setting. Every build has this one, which takes what no other one does."""
SHORT: Final = 0.3
"""How near a name must be to one that was meant: "cuda" means CUDAExecutionProvider."""


def parse(value: str) -> tuple[str, ...]:
    """Parses a list with commas between. Raises ValueError for a provider that ONNX Runtime does not have here."""
    names = tuple(dict.fromkeys(name for part in value.split(",") if (name := part.strip())))
    try:
        import onnxruntime  # noqa: PLC0415 - 144 ms of cold start, for servers with this setting
    except ImportError as error:
        why = "is not installed: pip install 'dragoman[onnx]'" if is_absent(error) else f"cannot be imported: {error}"
        raise ValueError(f"nothing, as ONNX Runtime {why}") from None
    if problem := refusal(names, onnxruntime):
        raise ValueError(f"execution providers: {problem}")
    return names


def is_absent(error: ImportError) -> bool:
    """Decides whether ONNX Runtime is not installed; otherwise it is, and its own import fails."""
    return isinstance(error, ModuleNotFoundError) and error.name == "onnxruntime"


def refusal(names: Sequence[str], runtime: Any) -> str:
    """Returns why one of the providers cannot be used, "" if all can. `runtime`: the module onnxruntime."""
    available = runtime.get_available_providers()
    absent = next((name for name in names if name not in available), None)
    if absent is None:
        return ""
    known = runtime.get_all_providers()
    built = f"this build of ONNX Runtime has {', '.join(available)}"
    if absent in known:
        return f"{shown(absent)} is not available; {built}"
    near = nearest(absent.lower(), [name.lower() for name in known], SHORT)
    hint = [f"did you mean {name!r}? " for name in known if name.lower() == near]
    return f"{shown(absent)} is unknown; {''.join(hint)}{built}"

"""THE table of model formats beside SavedModels: how each is recognised, what converts it, and the extra for that."""

import json
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from core.records import NamedTuple
from handler.commands.refused import Refused
from handler.stores import paths

HEAD: Final = 4096
"""The bytes of a file that are read to recognise it."""


class Format(NamedTuple):
    """One format. `module`: has `convert(file, options, progress)`. `suffixes`: of its files, () for folders.

    `head`: decides by the first bytes of a file whose suffix other formats have, too.
    """

    title: str
    module: str
    extra: str
    suffixes: tuple[str, ...]
    head: Callable[[bytes], bool] | None = None


def _is_xgboost(head: bytes) -> bool:
    return b"learner" in head


def _is_lightgbm(head: bytes) -> bool:
    return head.startswith((b"tree\n", b"tree\r\n"))


SOURCES: Final = "handler.commands.convert.sources"
PICKLED: Final = (".pkl", ".pickle", ".joblib")
FORMATS: Final = {
    "sklearn": Format("scikit-learn", f"{SOURCES}.sklearn", "convert-sklearn", (".skops", *PICKLED)),
    "xgboost": Format("XGBoost", f"{SOURCES}.xgboost", "convert-xgboost", (".json", ".ubj"), _is_xgboost),
    "lightgbm": Format("LightGBM", f"{SOURCES}.lightgbm", "convert-lightgbm", (".txt",), _is_lightgbm),
    "catboost": Format("CatBoost", f"{SOURCES}.catboost", "convert-catboost", (".cbm",)),
    "torch": Format("PyTorch", f"{SOURCES}.torch", "convert-torch", (".pt2", ".pt", ".ts")),
    "keras": Format("Keras", f"{SOURCES}.keras", "convert", (".keras", ".h5", ".hdf5")),
    "huggingface": Format("Hugging Face", f"{SOURCES}.huggingface", "convert-huggingface", ()),
}
"""Each format's name, as `--format` has it. The order is that in which they are tried."""
KNOWN: Final = ", ".join(suffix for row in FORMATS.values() for suffix in row.suffixes)


def recognised(path: Path, name: str | None) -> Format | None:
    """Returns the format of a file or folder; None for a folder that only SavedModels can be in, or if there is none.

    `name`: what `--format` says; it is believed. Raises Refused for a file of no known format.
    """
    if name is not None:
        return FORMATS[name]
    if paths.is_dir(path):
        return FORMATS["huggingface"] if _is_transformers(path) else None
    rows = [row for row in FORMATS.values() if path.suffix.lower() in row.suffixes]
    if not rows and not paths.exists(path):
        return None
    if path.suffix.lower() == ".onnx":
        raise Refused(f"{path} is a model of ONNX already: publish it with `dragoman push`")
    if not rows:
        raise Refused(
            f"{path} has an unknown format; expected a SavedModel's folder, or one of {KNOWN}; --format names it"
        )
    head = first_bytes(path)
    found = next((row for row in rows if row.head is None or row.head(head)), None)
    if found is None:
        known = " or ".join(row.title for row in rows)
        raise Refused(f"{path} does not begin like a model of {known} does; --format names another format")
    return found


def _is_transformers(folder: Path) -> bool:
    """Decides whether a folder is one of Hugging Face: its config.json names the model's type."""
    try:
        with (folder / "config.json").open("rb") as file:
            said = json.loads(file.read(1 << 20))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(said, dict) and "model_type" in said


def first_bytes(path: Path) -> bytes:
    """Returns the beginning of a file. Raises Refused; also for a pipe, which would wait for a writer."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise Refused(f"{path} is neither a file nor a folder")
        with path.open("rb") as file:
            return file.read(HEAD)
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None

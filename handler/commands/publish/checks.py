"""Refuses a version that servers could not serve, before anything is sent, with a server's own reason."""

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from core.errors import ServingError
from handler import backends
from handler.backends import Source
from handler.commands.publish import external
from handler.commands.publish.versions import LocalVersion, PushJob, missing
from handler.commands.refused import Refused
from handler.lifecycle import warming
from handler.settings import Settings, model, pipeline
from handler.settings.checked import Wrong
from handler.settings.functions import TokenizerSettings
from handler.settings.model import FILE
from handler.settings.providers import CPU

ONNX = backends.BACKENDS["onnx"].marker
PYTHON = backends.BACKENDS["python"].marker
PIPELINE = backends.PIPELINE


def check(job: PushJob, model_settings_text: bytes | None, settings: Settings, *, load: bool) -> bool:
    """Checks a version, and loads it if `load` is set. Returns whether it was loaded. Raises Refused."""
    name, version = job.model, job.version
    own = version.source(FILE)
    try:
        its = None if own is None else own.read_bytes()
        said = model.parse(name, model_settings_text, its, folder=str(job.number))
        loader = backends.choose(name, {file.path for file in version.files}, said)
        if version.last == ONNX:
            _check_weights(version)
            if load and has_runtime():
                with as_folder(version) as folder:
                    # The servers' execution providers need not be this machine's.
                    loaded = loader(Source(name, str(job.number), folder, said._replace(providers=CPU)), settings)
                    if said.warmup:
                        warming.warm(loaded, said.warmup, folder, said.timeout or settings.timeout)
                return True
        if version.last == PYTHON:
            _compile(version)
        if version.last == PIPELINE:
            _read_pipeline(version)
    except ServingError as error:
        raise Refused(error.message) from None
    except OSError as error:
        raise Refused(f"{FILE} cannot be read: {error.strerror}") from None
    return False


def has_runtime() -> bool:
    return find_spec("onnxruntime") is not None


def _check_weights(version: LocalVersion) -> None:
    path = version.source(ONNX)
    assert path is not None  # noqa: S101 - the version's last file
    if absent := missing(version, external.locations(path)):
        raise Refused(f"{path} keeps weights in {', '.join(absent)}, which is missing beside it")


@contextmanager
def as_folder(version: LocalVersion) -> Iterator[Path]:
    """Yields a folder with the version's files. A single file is linked under the name that it will have.

    So are all files if the folder's path has bytes that are not UTF-8, which ONNX Runtime does not take.
    """
    if version.folder is not None and os.fsencode(version.folder) == str(version.folder).encode(errors="replace"):
        yield version.folder
        return
    with TemporaryDirectory(prefix="push-") as made:
        for file in version.files:
            target = Path(made) / file.path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(file.source.resolve())
        yield Path(made)


def _read_pipeline(version: LocalVersion) -> None:
    """Checks the file alone. Whether its tensors fit can be checked only beside the models of its steps."""
    path = version.source(PIPELINE)
    assert path is not None  # noqa: S101 - the version's last file
    try:
        said = pipeline.read(path.read_bytes())
    except Wrong as wrong:
        other = "" if path.name == PIPELINE else "; for a file of another library's: `dragoman convert`"
        raise Refused(f"{path}: {wrong}{other}") from None
    for call in said.functions:
        file = call.function.file if isinstance(call.function, TokenizerSettings) else None
        if file is not None and version.source(str(PurePosixPath(file))) is None:
            raise Refused(f"{path}: {call.path}.tokenizer.file is {file!r}, which is not beside it: push its folder")


def _compile(version: LocalVersion) -> None:
    """Checks the syntax alone. Only servers that allow code run it."""
    path = version.source(PYTHON)
    assert path is not None  # noqa: S101 - the version's last file
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(path.read_bytes(), PYTHON, "exec")
    except (SyntaxError, ValueError) as error:  # ValueError: a null byte, in some versions of Python
        line = getattr(error, "lineno", None)
        raise Refused(f"{path}{f', line {line}' if line else ''}: {getattr(error, 'msg', error)}") from None

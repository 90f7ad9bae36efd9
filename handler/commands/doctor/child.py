"""The process that loads one model for doctor, as a server does, and measures it: `child.py MODEL VERSION`.

Without arguments it imports the function, as Lambda's INIT phase does. It prints one JSON object; what a model prints
goes to stderr. The environment has the settings.
"""

import json
import logging
import os
import sys
import time
import traceback
from typing import Any

from core.errors import ServingError
from core.operations import ModelRef
from handler.lifecycle.room import memory

LONGEST = 4096


def main(arguments: list[str]) -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    result = _load(*arguments) if arguments else _init()
    out.write(json.dumps(result))
    out.close()


def _init() -> dict[str, Any]:
    """Imports the function: `seconds`, and `bytes` that are resident after it."""
    began = time.perf_counter()
    from handler.aws import lambda_handler  # noqa: F401, PLC0415 - this is what is measured

    return {"seconds": time.perf_counter() - began, "bytes": memory.resident() or 0}


def _load(model: str, number: str) -> dict[str, Any]:
    """Loads a version.

    Seconds: `runtime` to import it, `fetch`, `load`. Bytes: `runtime_bytes` of the imported runtime, `cost` of the
    model for good, `peak` while it is loaded, `size` of its files. `pipeline`: it calls other models, and its bytes are
    theirs. `logged`: the warnings of this load.
    """
    from handler.commands.doctor.logged import listening  # noqa: PLC0415 - not for INIT

    with listening(logging.getLogger("handler")) as logged:
        measured: dict[str, Any] = {}
        try:
            _measure(model, number, measured)
        except (ServingError, OSError, MemoryError) as error:
            text = error.message if isinstance(error, ServingError) else f"{type(error).__name__}: {error}"
            return {"error": text, "cause": _cause(error), "logged": logged}
    return {**measured, "logged": logged}


def _measure(model: str, number: str, measured: dict[str, Any]) -> None:
    from handler import backends  # noqa: PLC0415 - as above
    from handler.lifecycle.registry import Registry  # noqa: PLC0415
    from handler.lifecycle.repository import Repository  # noqa: PLC0415
    from handler.lifecycle.single_flight import Background  # noqa: PLC0415
    from handler.settings import Settings  # noqa: PLC0415
    from handler.stores import open_store  # noqa: PLC0415
    from handler.stores.progress import Progress  # noqa: PLC0415

    settings = Settings.from_env()
    repository, registry = Repository(open_store(settings)), Registry(settings)
    listing = repository.look(model, int(number))
    version = next(each for each in listing.versions if each.number == int(number))
    started, before = time.perf_counter(), memory.resident() or 0
    is_pipeline = backends.is_pipeline(version.paths, repository.settings(listing, version))
    # The models of a pipeline may need any runtime, and that counts for none of them.
    backends.prepare({backends.BACKENDS["onnx"].marker} if is_pipeline else version.paths)
    imported, began = memory.resident() or 0, time.perf_counter()
    folder = repository.fetch(listing, version, Progress())
    fetched = time.perf_counter()
    memory.reset_peak()
    registry.use(ModelRef(model, str(version.number)), Background())
    ended, after = time.perf_counter(), memory.resident() or 0
    measured |= {"runtime": began - started, "fetch": fetched - began, "load": ended - fetched}
    measured["pipeline"] = is_pipeline
    measured |= {"runtime_bytes": imported - before, "cost": max(0, after - imported)}
    # Memory can also go back to the system while a small model loads.
    measured |= {"peak": max(0, memory.peak() - imported, after - imported)}
    measured |= {"size": sum(file.size or 0 for file in version.files)}
    del folder


def _cause(error: BaseException) -> str:
    """Returns what is behind an error, with the last line of a file of the model: doctor's reader owns the model."""
    cause = error.__cause__
    if cause is None:
        return ""
    frames = [each for each in traceback.extract_tb(cause.__traceback__) if each.filename.endswith("/model.py")]
    place = f"model.py, line {frames[-1].lineno}: " if frames else ""
    if isinstance(cause, SyntaxError) and cause.lineno:
        place = f"{os.path.basename(cause.filename or 'model.py')}, line {cause.lineno}: "  # noqa: PTH119 - a text
    return f"{place}{type(cause).__name__}: {cause}"[:LONGEST]


if __name__ == "__main__":
    main(sys.argv[1:])
    os._exit(0)  # an exit would wait for the threads of the model

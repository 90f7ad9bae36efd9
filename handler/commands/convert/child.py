"""The process that converts models: `python -m handler.commands.convert.child`.

Stdin has JSON: {"memory": the bytes that the process may take or null, "jobs": [[a name of KINDS, the job], ...]}.
Stdout has a JSON object a line: {"step": words} for each step, {"done": report} for each job in turn, and {"refused":
reason} instead of the first that fails, which ends the process. What libraries print goes to stderr.
"""

import json
import os
import sys
from contextlib import suppress
from importlib import import_module
from typing import Any, Final

from handler.commands.refused import Refused

KINDS: Final = {
    "LibraryJob": "handler.commands.convert.work",
    "SavedModelJob": "handler.commands.convert.saved_model.work",
}
"""A job's type -> the module that has it, and `convert(job, progress)`."""


def main() -> int:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    said = json.loads(sys.stdin.read())
    _limit(said["memory"])

    def tell(**line: Any) -> None:
        out.write(json.dumps(line) + "\n")

    try:
        for kind, job in said["jobs"]:
            module = import_module(KINDS[kind])  # within the limit
            tell(done=module.convert(getattr(module, kind)(**job), lambda step: tell(step=step)))
    except Refused as refusal:
        tell(refused=str(refusal))
    except MemoryError:
        most = "this machine gives it" if said["memory"] is None else "--memory permits"
        tell(refused=f"the conversion needs more memory than {most}")
    except Exception as error:  # noqa: BLE001 - a library's own; the publisher can read its last words
        text = " ".join(str(error).split())
        tell(refused=f"the conversion failed: {type(error).__name__}: {text}"[:500])
    out.close()
    return 0


def _limit(size: int | None) -> None:
    """Limits the private memory of this process, if the system can. Its address space would count too much."""
    if size is None:
        return
    with suppress(ImportError, ValueError, OSError):
        import resource  # noqa: PLC0415 - not on Windows

        resource.setrlimit(resource.RLIMIT_DATA, (size, size))


if __name__ == "__main__":
    sys.exit(main())

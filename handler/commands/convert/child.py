"""The process that converts a model of another library: `python -m handler.commands.convert.child`.

Stdin has a LibraryJob as JSON, and the bytes that the process may take. Stdout has a JSON object a line: {"step":
words} for each step, and {"done": report} or {"refused": reason} at the end. What libraries print goes to stderr.
"""

import json
import os
import sys
from contextlib import suppress
from typing import Any

from handler.commands.refused import Refused


def main() -> int:
    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    said = json.loads(sys.stdin.read())
    _limit(said.pop("memory"))

    def tell(**line: Any) -> None:
        out.write(json.dumps(line) + "\n")

    try:
        from handler.commands.convert.work import LibraryJob, convert  # noqa: PLC0415 - within the limit

        tell(done=convert(LibraryJob(**said), lambda step: tell(step=step)))
    except Refused as refusal:
        tell(refused=str(refusal))
    except MemoryError:
        tell(refused="the conversion needs more memory than --memory permits")
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

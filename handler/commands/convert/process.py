"""Runs a conversion in a child process, within its time and memory: libraries of models run native code on files."""

import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Final

from core.records import NamedTuple
from handler.commands import children
from handler.commands.convert.saved_model.work import SavedModelJob
from handler.commands.convert.work import LibraryJob
from handler.commands.meter import human
from handler.commands.refused import Refused

Job = LibraryJob | SavedModelJob
AZURE: Final = ("AZURE_", "IDENTITY_", "MSI_")
GOOGLE: Final = ("GOOGLE_", "CLOUDSDK_", "SERVICE_ACCOUNT")
WITHHELD: Final = ("AWS_", *AZURE, *GOOGLE, "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "DRAGOMAN_")
"""The beginnings of variables that the child does not get. It publishes nothing, so it needs neither the credentials
that the stores and the libraries read nor the settings."""


class ChildLimits(NamedTuple):
    """`seconds`, and `memory` in bytes, None for no limit."""

    seconds: float
    memory: int | None


def converted(job: Job, limits: ChildLimits, say: Callable[[str], None]) -> dict[str, Any]:
    """Returns the report. `say`: takes the words of each step. Raises Refused with the child's reason, or its end."""
    (report,) = each([job], limits, say)
    return report


def each(jobs: Sequence[Job], limits: ChildLimits, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """Converts in one child, which imports a library once. Yields a report for each job. The time is that of a job."""
    with TemporaryFile() as errors:
        child = subprocess.Popen(  # noqa: S603 - this interpreter
            children.command("handler.commands.convert.child"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=_environment(),
            start_new_session=True,
        )
        lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        reader = threading.Thread(target=_read, args=(child.stdout, lines), daemon=True)
        reader.start()
        try:
            _ask(child, {"memory": limits.memory, "jobs": [(type(job).__name__, job._asdict()) for job in jobs]})
            for _ in jobs:
                yield _followed(child, lines, limits, say, errors)
        finally:
            _end(child)
            reader.join()
            child.stdout.close()  # type: ignore[union-attr] # it is a pipe


def _ask(child: subprocess.Popen[bytes], said: Mapping[str, Any]) -> None:
    assert child.stdin is not None  # noqa: S101 - it is a pipe
    with suppress(BrokenPipeError), child.stdin:
        child.stdin.write(json.dumps(said).encode())


def _followed(
    child: subprocess.Popen[bytes],
    lines: "queue.SimpleQueue[bytes]",
    limits: ChildLimits,
    say: Callable[[str], None],
    errors: IO[bytes],
) -> dict[str, Any]:
    deadline = time.monotonic() + limits.seconds
    step = "starting"
    while True:
        try:
            line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            what = f"the conversion took more than {limits.seconds:g} s ({step})"
            raise Refused(f"{what}; --timeout permits more") from None
        if not line:
            raise Refused(_ended(child, limits, step, errors))
        said: Mapping[str, Any] = json.loads(line)
        if "refused" in said:
            raise Refused(said["refused"])
        if "done" in said:
            return dict(said["done"])
        step = said["step"]
        say(step)


def _read(stream: IO[bytes], lines: "queue.SimpleQueue[bytes]") -> None:
    for line in stream:
        lines.put(line)
    lines.put(b"")


def _ended(child: subprocess.Popen[bytes], limits: ChildLimits, step: str, errors: IO[bytes]) -> str:
    """Returns why a child ended without an answer: its signal or exit code, and its last words."""
    code = child.wait()
    how = f"{'by' if code < 0 else 'with'} {children.end_of(code)}"
    last = children.last_line(errors)
    limit = "" if limits.memory is None else f", with {human(limits.memory)} of memory permitted"
    return f"the conversion ended {how} ({step}){limit}{': ' + last if last else ''}"


def _environment() -> dict[str, str]:
    """Returns the child's variables. The current folder may have modules of a file's types; it comes behind our own."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(WITHHELD)}
    return {**children.environment(kept, str(Path.cwd())), "PYTHONUNBUFFERED": "1"}


def _end(child: subprocess.Popen[bytes]) -> None:
    """Ends the child and its own children."""
    with suppress(OSError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()

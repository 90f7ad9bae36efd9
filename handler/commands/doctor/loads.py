"""Loads every model in a process of its own, which may crash, hang or take too much memory without harm."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, Final

from core.deadline import within
from core.records import NamedTuple
from handler.commands import children
from handler.commands.doctor import cures
from handler.commands.doctor.findings import Finding, error, note
from handler.commands.doctor.model_files import FoundModel
from handler.lifecycle.repository import Version

CHILD: Final = "handler.commands.doctor.child"
LOOK: Final = 0.02
"""Seconds between two looks at the child's memory. A process that fills memory writes some 50 MB meanwhile."""
MB: Final = 1_000_000


class LoadLimits(NamedTuple):
    """What one load may take. `memory`: resident bytes of its process, None for no limit."""

    seconds: float
    memory: int | None


class Ended(NamedTuple):
    """How a child ended. `why`: "" by itself, else the limit that it has passed. `last`: the end of its stderr."""

    code: int
    why: str
    answer: dict[str, Any]
    last: str


def initialisation(environ: Mapping[str, str], limits: LoadLimits) -> dict[str, Any]:
    """Returns the seconds and bytes of importing the function; empty if it cannot be imported.

    The first of two imports may compile modules and read them from the disk. An artifact has compiled ones.
    """
    # The function makes the folder of its payload log.
    more = {"AWS_LAMBDA_FUNCTION_NAME": "doctor", "DRAGOMAN_PRELOAD": "", "DRAGOMAN_PAYLOAD_LOG": ""}
    answers = [_run([], {**environ, **more}, limits).answer for _ in range(2)]
    return min(filter(None, answers), key=lambda each: float(each["seconds"]), default={})


def examine(
    models: list[FoundModel],
    environ: Mapping[str, str],
    limits: LoadLimits,
    measured: dict[str, Any],
    tell: Callable[[str], None],
) -> Iterator[Finding]:
    """Loads each version. Yields what went wrong, and puts what was measured under "model/version".

    `tell`: gets the name of each before its load.
    """
    with TemporaryDirectory(prefix="dragoman-doctor-") as folder:
        # What is in the server's own cache would not be fetched, and so not be measured.
        own = {**environ, "DRAGOMAN_CACHE": f"{folder}/cache", "DRAGOMAN_CACHE_SHARED": "", "DRAGOMAN_PRELOAD": ""}
        own["TMPDIR"] = folder  # a child does not remove its temporary files
        for model in models:
            for version in model.versions:
                tell(f"{model.name}/{version.folder}")
                yield from _loaded(model, version, own, limits, measured)


def _loaded(
    model: FoundModel, version: Version, environ: Mapping[str, str], limits: LoadLimits, measured: dict[str, Any]
) -> Iterator[Finding]:
    where = f"{model.name}/{version.folder}"
    ended = _run([model.name, str(version.number)], environ, limits)
    answer = ended.answer
    if ended.why:
        cure = cures.TOO_SLOW if "seconds" in ended.why else cures.TOO_LARGE
        yield error("load-limit", where, f"its load was ended: {ended.why}", cure)
    elif "error" in answer:
        yield cures.of_refusal(where, answer["error"], answer["cause"])
    elif not answer:
        yield error("load-crash", where, _crash(ended), cures.CRASH)
    else:
        measured[where] = {key: value for key, value in answer.items() if key != "logged"}
        for line in answer["logged"]:
            # Unused keys are findings of their own.
            if " unknown key" not in line and "has no effect here" not in line:
                yield note("load-warning", where, line, "see docs/ for the setting that it names")


def _crash(ended: Ended) -> str:
    died = f"the process that loaded it died ({children.end_of(ended.code)})"
    return f"{died}: {ended.last}" if ended.last else died


def _run(arguments: list[str], environ: Mapping[str, str], limits: LoadLimits) -> Ended:
    """Runs a child to its end, or to its limits."""
    command = children.command(CHILD, *arguments)
    with TemporaryFile() as out, TemporaryFile() as errors:
        with subprocess.Popen(  # noqa: S603 - this interpreter
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=errors, env=children.environment(environ),
            start_new_session=True,
        ) as process:  # fmt: skip
            why = _waited(process, limits)
        return Ended(process.returncode, why, _answer(out), children.last_line(errors))


def _waited(process: "subprocess.Popen[bytes]", limits: LoadLimits) -> str:
    """Waits for the end, and ends what passes a limit. Returns which one, "" for none.

    Ctrl-C does not reach the child, which is in a session of its own: it is ended whatever ends the wait, with all that
    the model has started there.
    """
    deadline = within(limits.seconds)
    try:
        while process.poll() is None:
            used = _resident(process.pid) if limits.memory is not None else 0
            if deadline.left <= 0:
                return f"it took more than {limits.seconds:g} seconds"
            if limits.memory is not None and used > limits.memory:
                return f"its process took {used // MB} MB of memory, and may take {limits.memory // MB} MB"
            time.sleep(LOOK)
    finally:
        with suppress(ProcessLookupError, PermissionError):  # macOS refuses a group that has ended
            os.killpg(process.pid, signal.SIGKILL)
        _reap(process)
    return ""


def _reap(process: "subprocess.Popen[bytes]") -> None:
    """Waits for the end without Popen's lock, which poll() leaves locked if a signal's handler raises within it."""
    if process.returncode is None:
        status = signal.SIGKILL.value
        with suppress(ChildProcessError):  # poll() has waited for it
            _, status = os.waitpid(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)


def _resident(pid: int) -> int:
    """Returns a process's bytes in memory, 0 where the system does not report them."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_bytes().split()[1]) * os.sysconf("SC_PAGESIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _answer(out: IO[bytes]) -> dict[str, Any]:
    out.seek(0)
    try:
        found: dict[str, Any] = json.loads(out.read())
    except ValueError:
        return {}
    return found

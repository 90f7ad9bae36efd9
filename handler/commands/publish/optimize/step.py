"""Optimises a version before it is pushed; one that would be changed by it is pushed as it was, with the reason."""

import json
import os
import subprocess
from io import BytesIO
from pathlib import Path
from typing import Any, Final

from handler.commands import children
from handler.commands.publish import checks, external
from handler.commands.publish.files import digest, local_file
from handler.commands.publish.versions import LocalVersion
from handler.commands.refused import Refused, WrongOption
from handler.settings.checked import members_of
from handler.settings.model import FILE
from handler.stores.signing.envelope import FILE as SIGNATURE

CHILD: Final = "handler.commands.publish.optimize.child"
MODEL, WEIGHTS = checks.ONNX, f"{checks.ONNX}.data"


def optimized(version: LocalVersion, to: Path, *, resigned: bool) -> tuple[LocalVersion, str]:
    """Returns the version with its optimised files in the folder `to`, or as it is, and what was done with it.

    `resigned`: it gets a new signature; one that it has is of its files as they are.

    Raises Refused for files that cannot be read or written.
    """
    if version.last != MODEL:
        return version, f"not optimised: it is not an ONNX model, but {version.last}"
    files = {file.path: file for file in version.files}
    if SIGNATURE in files and not resigned:
        return version, f"not optimised: {SIGNATURE} signs its files as they are, and there is no --sign-key"
    own = {MODEL, *external.locations(files[MODEL].source)}
    if WEIGHTS in files.keys() - own:
        return version, f"not optimised: it has a file {WEIGHTS}, which is not its weights"
    with checks.as_folder(version) as folder:
        answer = _answer(folder, to)
    if "problem" in answer:
        return version, f"not optimised: {answer['problem']}"
    sources = {path: f"sha256:{digest(files[path])}" for path in sorted(own)}
    settings = members_of(files[FILE].source.read_bytes()) if FILE in files else {}
    settings["optimized"] = {"from": sources, **answer}
    (to / FILE).write_bytes(f"{json.dumps(settings, indent=2, ensure_ascii=False)}\n".encode())
    new = {path: file for path, file in files.items() if path not in own}
    new |= {path: local_file(path, to / path) for path in (MODEL, WEIGHTS, FILE)}
    return version._replace(files=tuple(new[path] for path in sorted(new))), "optimised"


def _answer(folder: Path, to: Path) -> dict[str, Any]:
    """Runs the child, whose end by a signal is a problem of the model."""
    command, environ = children.command(CHILD, str(folder.absolute()), str(to)), children.environment(os.environ)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, env=environ)  # noqa: S603 - this interpreter
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        last = children.last_line(BytesIO(done.stderr)) if done.returncode >= 0 else ""
        why = last or children.end_of(done.returncode)
        return {"problem": f"the process that does it died ({why})"}
    return answer


def check_possible(*, wanted: bool, checked: bool) -> None:
    """Raises Refused where `--optimize` cannot be done."""
    if wanted and not checked:
        raise WrongOption("--optimize compares answers of the loaded model: it cannot be combined with --no-check")
    if wanted and not checks.has_runtime():
        raise Refused("--optimize needs ONNX Runtime: pip install 'dragoman[onnx]'")

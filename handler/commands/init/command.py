"""`dragoman init [FOLDER]`: a repository of models to start from, or with --aws what deploys it as a function."""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import Distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from handler.commands.called import called
from handler.commands.init.wheel import installed, wheel
from handler.commands.refused import Refused

FILES: Final = Path(__file__).parent / "files"
RENAMED: Final = {"gitignore": ".gitignore", "github": ".github", "check.txt": "check.py"}
"""Names that packaging tools, git and linters would take for their own where the files are kept."""
LONGEST_NAME: Final = 100
"""Characters of a stack's name; the names of its log and its alarms begin with it."""
FUNCTIONS_EXTRA: Final = "onnx"
UNNEEDED: Final = ("boto3", "click", "rich")
"""Packages that a function does without: Lambda's runtime has the first, and only a command line needs the others."""
SERVING: Final = ("uvicorn", "onnxruntime")
"""The packages that `dragoman serve` needs for the example. They can be missing."""
CALL: Final = """curl -d '{"instances": [[5.9, 3.0, 5.1, 1.8]]}' http://127.0.0.1:8080/v1/models/iris:predict"""


def run(target: str, *, is_aws: bool) -> None:
    """Writes the files and prints what to do next. Raises Refused, and has written nothing, if a file is there."""
    folder = Path(target)
    files = _aws(folder) if is_aws else _repository()
    for name in files:
        _check(folder, folder / name)
    _write(folder, files)
    lines = [f"{len(files)} files are in {folder}; README.md says what each is for. Next:", ""]
    lines += [f"  {command}" for command in _next(folder, is_aws=is_aws)]
    print(*lines, sep="\n")  # noqa: T201 - the command's answer


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes the files, or none: one that was left would be in the way of the next attempt. Raises Refused."""
    try:
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(content)
    except BaseException as error:
        for name in files:
            with suppress(OSError):
                (folder / name).unlink()
        if isinstance(error, OSError):
            raise Refused(f"{error.filename or folder} cannot be written: {error.strerror}") from None
        raise


def _check(folder: Path, file: Path) -> None:
    """Raises Refused if a file is there, or another one in the place of a folder that it needs."""
    taken = [file] if os.path.lexists(file) else []
    taken += [each for each in file.parents if each.is_relative_to(folder) and each.exists() and not each.is_dir()]
    if taken:
        raise Refused(f"{taken[-1]} exists already; remove it, or choose another folder")


def _repository() -> dict[str, bytes]:
    """Returns the files of a repository of models, by their names in its folder."""
    this = installed()
    return _copied("repository", {"@VERSION@": this.version}) | _wheels(this)


def _aws(folder: Path) -> dict[str, bytes]:
    """Returns the files that deploy a function, by their names in its folder."""
    this = installed()
    files = _copied("aws", {"@NAME@": _stack(folder)}) | _wheels(this)
    return files | {"requirements.txt": "".join(f"{each}\n" for each in _needed(this)).encode()}


def _copied(kind: str, values: Mapping[str, str]) -> dict[str, bytes]:
    """Returns the files of a kind, with values in the place of their names."""
    found = {}
    for path in sorted((FILES / kind).rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            for name, value in values.items():
                content = content.replace(name.encode(), value.encode())
            parts = (RENAMED.get(part, part) for part in path.relative_to(FILES / kind).parts)
            found["/".join(parts)] = content
    return found


def _wheels(this: Distribution) -> dict[str, bytes]:
    name, content = wheel(this)
    return {f"wheels/{name}": content}


def _needed(this: Distribution) -> list[str]:
    """Returns the requirements of the function."""
    found = []
    for requirement in this.requires or ():
        what, _, marker = (part.strip() for part in requirement.partition(";"))
        extra = re.search(r"""\bextra\s*==\s*['"]([^'"]+)""", marker)
        if extra is None and not what.startswith(UNNEEDED):
            found.append(requirement)
        elif extra is not None and extra[1] == FUNCTIONS_EXTRA:
            found.append(what)
    return found


def _stack(folder: Path) -> str:
    """Returns a name for CloudFormation's stack: letters, digits and hyphens behind a letter."""
    name = re.sub("[^A-Za-z0-9]+", "-", folder.resolve().name)
    return f"dragoman-{name}"[:LONGEST_NAME].rstrip("-")


def _next(folder: Path, *, is_aws: bool) -> list[str]:
    """Returns commands that work from this folder and with this Python."""
    here = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    python = shlex.quote(sys.executable)
    if is_aws:
        return [*here, "sam build", "sam deploy --guided"]
    lacking = [name for name in SERVING if find_spec(name) is None]
    needed = [f"{python} -m pip install -r requirements.txt"] if lacking else []
    return [*here, *needed, f"{called()} serve", "# and in another terminal", CALL]

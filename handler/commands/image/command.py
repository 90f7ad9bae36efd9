"""Writes an image's context (a wheel of this installation, the models, the Dockerfile), and has the engine build it."""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from core.errors import nearest
from handler.commands.init.wheel import installed, wheel
from handler.commands.options import CommandOptions
from handler.commands.refused import Refused, WrongOption
from handler.settings.routing import VERSION
from handler.stores import paths
from handler.stores.directory import is_loop

DOCKERFILE: Final = Path(__file__).with_name("Dockerfile")
IGNORED: Final = shutil.ignore_patterns(".*", "__pycache__")
Copy = Callable[[str, str], object]
FOLDER: Final = "repository"
"""The models' folder in the context."""


def run(options: CommandOptions) -> int:
    """Returns the engine's exit code, or 0 after the context alone. Raises Refused."""
    if "://" in (options.models or ""):
        raise Refused("the models of an image come from a folder; `dragoman pull` fetches them from a bucket")
    models = None if options.models is None else Path(options.models)
    constraints = None if options.constraints is None else Path(options.constraints)
    _check(models, constraints)
    _check_extras(options.extras)
    if options.base is not None and options.target != "server":  # its Python would choose other wheels than Lambda's
        raise WrongOption(
            f"--base is the base of a server's image; a function has AWS's own (--target {options.target})"
        )
    if options.context is not None:
        folder = Path(options.context)
        write(folder, models, constraints)
        print(f"{folder} is written. Next:\n\n  {shlex.join(command(options, folder))}")  # noqa: T201 - the answer
        return 0
    if shutil.which(options.engine) is None:
        raise Refused(f"there is no program {options.engine} to build an image with; --engine names another one")
    with tempfile.TemporaryDirectory(prefix="dragoman-image-") as made:
        write(Path(made), models, constraints, copy=_link)
        done = subprocess.run(command(options, Path(made)), check=False)  # noqa: S603 - the user's own engine
    return done.returncode


def _check(models: Path | None, constraints: Path | None) -> None:
    if models is not None and not paths.is_dir(models):
        raise Refused(f"the folder {models} does not exist")
    if models is not None and not any(_has_versions(each) for each in models.iterdir()):
        if _has_versions(models):
            raise Refused(f"{models} is one model: name the folder of the models, {models.resolve().parent}")
        raise Refused(f"{models} has no models: expected a folder for each, such as {models}/iris/1/model.onnx")
    if constraints is not None and not paths.is_file(constraints):
        raise Refused(f"there is no file {constraints}")


def _check_extras(text: str | None) -> None:
    """Raises WrongOption for an extra that this installation does not have: pip would only warn."""
    known = installed().metadata.get_all("Provides-Extra") or []
    for name in text.split(",") if text else ():
        plain = re.sub(r"[-_.]+", "-", name.strip()).lower()  # as pip compares them
        if plain not in known:
            near = nearest(plain, known)
            wanted = f"did you mean {near}?" if near else f"expected {', '.join(known)}"
            raise WrongOption(f"--extras has {name[:64]!r}; {wanted}")


def _has_versions(folder: Path) -> bool:
    return folder.is_dir() and any(each.is_dir() and VERSION.fullmatch(each.name) for each in folder.iterdir())


def write(folder: Path, models: Path | None, constraints: Path | None = None, copy: Copy = shutil.copyfile) -> None:
    """Writes the context into a folder that is empty, or not there. `copy`: of a model's file. Raises Refused."""
    if models is not None and folder.resolve().is_relative_to(models.resolve()):
        raise Refused(f"{folder} lies in {models}, whose files are copied there; choose another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise Refused(f"{folder} is not empty; choose another folder")
        try:
            _write(folder, models, constraints, copy)
        except BaseException:  # what was left would be in the way of the next attempt
            for each in folder.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()
            raise
    except shutil.Error as several:  # a source, a target and a reason for each file
        raise Refused(f"the image's parts cannot be written: {several.args[0][0][2]}") from None
    except OSError as error:
        raise Refused(f"the image's parts cannot be written: {error}") from None


def _write(folder: Path, models: Path | None, constraints: Path | None, copy: Copy) -> None:
    """Raises OSError, whose subclass shutil.Error has the failures of several files."""
    name, content = wheel(installed())
    (folder / "wheels").mkdir()
    (folder / "wheels" / name).write_bytes(content)
    shutil.copyfile(DOCKERFILE, folder / "Dockerfile")
    if constraints is not None:
        shutil.copyfile(constraints, folder / "constraints.txt")
    if models is not None:
        shutil.copytree(models, folder / FOLDER, copy_function=copy, ignore=partial(_left_out, models))


def _left_out(models: Path, folder: str, names: list[str]) -> set[str]:
    """Returns the entries of a folder that a server does not look at: hidden ones, and loops of links."""
    depth = len(Path(folder).relative_to(models).parts) + 1
    links = (path for path in map(Path(folder).joinpath, names) if path.is_symlink())
    return IGNORED(folder, names) | {link.name for link in links if is_loop(link, depth)}


def _link(source: str, target: str) -> str:
    """Takes a file into a context that nobody edits, without a copy of its bytes where the file system can."""
    try:
        os.link(os.path.realpath(source), target)
    except OSError:
        shutil.copyfile(source, target)
    return target


def command(options: CommandOptions, context: Path) -> list[str]:
    """Returns the engine's command line."""
    words = [options.engine, "build", "--target", options.target, "--tag", options.tag]
    words += ["--platform", options.platform] if options.platform else []
    arguments = {
        "PYTHON": options.base,
        "EXTRAS" if options.target == "server" else "LAMBDA_EXTRAS": options.extras,
    }
    for name, text in arguments.items():
        words += ["--build-arg", f"{name}={text}"] if text else []
    return [*words, str(context)]

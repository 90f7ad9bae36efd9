"""Refuses a place that is a repository where a model is expected: the model's name was probably forgotten."""

from pathlib import Path

from handler.commands.publish import shelf, targets, versions
from handler.commands.refused import Refused
from handler.lifecycle.repository import VERSION
from handler.settings import Settings
from handler.stores.directory import is_name


def check(typed: str, target: targets.Target, there: shelf.RepositoryModel, settings: Settings) -> None:
    """Raises Refused for a target that is a repository, or would be a version, or has two readings.

    `typed`: the argument that names the target. Raises ServingError.
    """
    if there.models:
        raise Refused(_refusal(str(target), there.models[0]))
    if (above := shelf.above(settings, target)) is not None:
        raise Refused(f"{target} is the place of a version of {above}: push to {above} with --version {target.name}")
    if not there.taken and is_name(typed) and (model := beside(typed, target)) is not None:
        raise Refused(
            f"{typed!r} can be the repository in this folder, which has model {model}, or a new model of "
            f"{target.repository}: type {typed}/NAME or {target}"
        )


def check_folder(folder: Path) -> None:
    """Raises Refused for a folder that is a repository."""
    if (model := model_in(folder)) is not None:
        raise Refused(_refusal(str(folder), model))


def model_in(folder: Path) -> str | None:
    """Returns the name of a model in a folder that is a repository, None if it is a model or a version.

    A model whose name is a number is not returned: a version could have that name.
    """
    markers = versions.MARKERS
    if any((folder / marker).is_file() for marker in markers):
        return None
    below = [path.parent.name for marker in markers for path in folder.glob(f"*/{marker}")]
    if any(map(VERSION.fullmatch, below)):
        return None
    found = sorted(path.parts[-3:-1] for marker in markers for path in folder.glob(f"*/*/{marker}"))
    named = (name for name, number in found if VERSION.fullmatch(number) and not VERSION.fullmatch(name))
    return next(named, None)


def beside(name: str, target: targets.Target) -> str | None:
    """Returns the name of a model in the repository `name` of the current folder, None if it is the target itself."""
    return None if targets.is_same(name, str(target)) else model_in(Path(name))


def _refusal(place: str, model: str) -> str:
    return f"{place} is a repository, with model {model}: add the model's name, {place}/NAME"

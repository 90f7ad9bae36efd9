"""The refusals of unknown names, of unknown versions, and of folders without a model."""

from collections.abc import Collection

from core.errors import ModelNotFound, ModelNotLoadable, VersionNotFound, shown
from handler.backends import EXPECTED
from handler.settings.routing import VERSION


def absent(name: str) -> ModelNotFound:
    """Returns the refusal of a name that the repository does not have."""
    return ModelNotFound(f"model {shown(name)} is not in the repository", model=name)


def misnamed(name: str) -> ModelNotFound:
    """Returns the refusal of a name that no model can have."""
    hint = "that is not a model's name"
    return ModelNotFound(f"model {shown(name)} does not exist: {hint}", model=name, hint=hint)


def no_version(name: str, version: str, hint: str) -> VersionNotFound:
    """Returns the refusal of a version that the model does not have. `version`: the client's text."""
    number = version if VERSION.fullmatch(version) else shown(version)
    return VersionNotFound(f"model {name!r} has no version {number}; {hint}", version, model=name, hint=hint)


def incomplete(name: str, folder: str, files: Collection[str], flaw: str) -> ModelNotLoadable:
    """Returns the refusal of a model without a complete version.

    `folder`: of its newest version, "" if it has none with files. `files`: in that folder. `flaw`: of a file or folder.
    """
    if folder:
        its = f"{', '.join(sorted(files))[:256]}; `dragoman doctor` names the cure"
        why = f"{name}/{folder} has no {EXPECTED}; its files: {its}"
    elif flaw:
        return ModelNotLoadable(f"model {name!r} has no version: {flaw}")
    else:
        why = f"expected a folder such as {name}/1, a number below 9 * 10**18, with model.onnx"
    return ModelNotLoadable(f"model {name!r} has no version: {why}" + (f"; {flaw}" if flaw else ""))

"""`dragoman convert`: from its arguments to what is printed. TensorFlow is imported when all else has been checked."""

from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from handler.commands.convert import models_config, publishing
from handler.commands.refused import Refused
from handler.lifecycle.repository import VERSION
from handler.settings.model import parse

MARKERS: Final = ("saved_model.pb", "saved_model.pbtxt")


class Job(NamedTuple):
    """One SavedModel to become one version of a model."""

    folder: Path
    model: Path
    version: int


def run(options: Namespace) -> None:
    """Raises Refused."""
    if options.models_config is None:
        model = publishing.target(options.target)
        _convert(_jobs(_folder(options), model, options.version), options)
    elif options.saved_model is not None or options.version is not None:
        raise Refused("--models-config says itself what to convert: give it REPOSITORY alone")
    else:
        _convert_all(options)


def _folder(options: Namespace) -> Path:
    if options.saved_model is None:
        raise Refused("two folders are needed: SAVED_MODEL_DIR REPOSITORY/NAME")
    return Path(options.saved_model)


def _convert_all(options: Namespace) -> None:
    repository = publishing.repository(options.target)
    configs = models_config.read(Path(options.models_config))
    jobs = []
    for config in configs:
        found = _jobs(config.base_path, repository / config.name, None)
        jobs += _served(found, config)
    _convert(jobs, options)
    for config in configs:
        settings: dict[str, Any] = {}
        if config.version_policy is not None:
            settings["version_policy"] = config.version_policy
        if config.version_labels:
            settings["version_labels"] = dict(config.version_labels)
        if settings:
            publishing.publish_settings(repository / config.name, settings)


def _served(jobs: Sequence[Job], config: models_config.ModelConfig) -> list[Job]:
    """Those that the policy serves: TensorFlow Serving would not load the others either."""
    text = publishing.text({} if config.version_policy is None else {"version_policy": config.version_policy})
    policy = parse(config.name, text.encode()).version_policy
    present = sorted(job.version for job in jobs)
    for version in policy.specific:
        if version not in present:
            raise Refused(f"model {config.name!r} has no version {version}; base_path has {present}")
    served = policy.choose(present)
    return [job for job in jobs if job.version in served]


def _jobs(folder: Path, model: Path, version: str | None) -> list[Job]:
    """What there is to convert in a folder, which is a SavedModel or has numbered ones."""
    if _is_saved_model(folder):
        name = folder.resolve().name
        number = version if version is not None else name if VERSION.fullmatch(name) else "1"
        if not VERSION.fullmatch(number):
            raise Refused(f"--version is {number!r}; expected a whole number of at most 18 digits")
        return [Job(folder, model, int(number))]
    if not folder.is_dir():
        raise Refused(f"there is no folder {folder}")
    found = [entry for entry in folder.iterdir() if VERSION.fullmatch(entry.name) and _is_saved_model(entry)]
    if not found:
        raise Refused(f"{folder} is no SavedModel: it has neither {MARKERS[0]} nor numbered versions with one")
    if version is not None:
        raise Refused(f"--version is for one SavedModel, and {folder} has {len(found)} numbered ones")
    return [Job(entry, model, int(entry.name)) for entry in sorted(found, key=lambda entry: int(entry.name))]


def _is_saved_model(folder: Path) -> bool:
    return any((folder / marker).is_file() for marker in MARKERS)


def _convert(jobs: Sequence[Job], options: Namespace) -> None:
    if not options.force:
        for job in jobs:
            publishing.check_free(job.model, job.version)
    from handler.commands.convert.conversion import convert  # noqa: PLC0415 - seconds, and all of TensorFlow

    for job in jobs:
        made = convert(job.folder, options.signature)
        publishing.publish(job.model, job.version, made.model, made.settings)
        signatures = ", ".join(f"{name} ({each['method']})" for name, each in made.settings["signatures"].items())
        print(f"{job.model / str(job.version)}: {signatures}; {len(made.model)} bytes of ONNX")  # noqa: T201 - the result

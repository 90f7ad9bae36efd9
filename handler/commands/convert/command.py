"""`dragoman convert`: from arguments to published versions. The conversion begins when all else has been checked."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from core.errors import escaped
from core.records import NamedTuple
from handler.commands import results
from handler.commands.convert import library_model, models_config, process, sources
from handler.commands.convert.saved_model.work import SavedModelJob
from handler.commands.convert.work import written
from handler.commands.meter import Meter, human
from handler.commands.options import CommandOptions
from handler.commands.publish import places, push, shelf, targets, versions
from handler.commands.refused import Refused, WrongOption
from handler.lifecycle.repository import VERSION
from handler.settings import Settings
from handler.settings.model import FILE, parse
from handler.stores import parity, paths

MARKERS: Final = ("saved_model.pb", "saved_model.pbtxt")


class ConvertJob(NamedTuple):
    """One SavedModel to become one version of a model."""

    folder: Path
    number: int


class ModelJobs(NamedTuple):
    """`jobs`: its versions. `settings`: the model's own, empty where those that are published stay."""

    target: targets.Target
    jobs: Sequence[ConvertJob]
    settings: Mapping[str, Any]


def run(options: CommandOptions, settings: Settings) -> None:
    """Converts everything before it publishes anything. Raises Refused, ServingError."""
    if options.models_config is None and options.source is not None:
        row = sources.recognised(Path(options.source), options.format)
        if row is not None:
            _run_library(options, row, settings)
            return
    one = options.models_config is None
    named = [_model(options, settings)] if one else _configured(options)
    typed = options.target if one else None
    models = [_checked(model, settings, force=options.force, typed=typed) for model in named]
    with TemporaryDirectory(prefix="convert-") as made:
        _convert(models, Path(made), options, Meter(quiet=options.quiet))
        for model in models:
            _push(model, Path(made) / model.target.name, options, settings)


def _run_library(options: CommandOptions, row: sources.Format, settings: Settings) -> None:
    """Converts the model of another library in a child process, and publishes it. Raises Refused, ServingError."""
    target, source = targets.model(options.target, settings.repository), Path(options.source)
    if options.signature:
        raise WrongOption(
            "--signature is for a SavedModel: a model of another library has no signatures to choose from"
        )
    job = ConvertJob(source, _number(source, versions.number(options.version)))
    _checked(ModelJobs(target, [job], {}), settings, force=options.force, typed=options.target)
    meter = Meter(quiet=options.quiet)
    with TemporaryDirectory(prefix="convert-") as made:
        model = Path(made) / target.name
        library_model.convert(job.folder, row, model / str(job.number), options, meter)
        _push(ModelJobs(target, [job], {}), model, options, settings)


def _model(options: CommandOptions, settings: Settings) -> ModelJobs:
    target = targets.model(options.target, settings.repository)
    if options.source is None:
        raise WrongOption("two arguments are needed: SOURCE REPOSITORY/NAME")
    return ModelJobs(target, _jobs(Path(options.source), versions.number(options.version)), {})


def _configured(options: CommandOptions) -> list[ModelJobs]:
    if options.source is not None or options.version is not None:
        raise WrongOption("--models-config names the models to convert: give only REPOSITORY")
    if options.data is not None:
        raise WrongOption("--data has the rows of one model, and --models-config names several")
    repository = targets.repository(options.target) or "."
    models = []
    for config in models_config.read(Path(options.models_config)):
        said: dict[str, Any] = {}
        if config.version_policy is not None:
            said["version_policy"] = config.version_policy
        jobs = _served(_jobs(config.base_path, None), config.name, said)
        if config.version_labels:
            said["version_labels"] = dict(config.version_labels)
        models.append(ModelJobs(targets.model(f"{repository}/{config.name}"), jobs, said))
    return models


def _served(jobs: Sequence[ConvertJob], name: str, policy: Mapping[str, Any]) -> list[ConvertJob]:
    """Returns the jobs whose versions the policy serves: TensorFlow Serving would not load the others either."""
    chosen = parse(name, _text(policy)).version_policy
    present = sorted(job.number for job in jobs)
    for version in chosen.specific:
        if version not in present:
            raise Refused(f"model {name!r} has no version {version}; base_path has {present}")
    served = chosen.choose(present)
    return [job for job in jobs if job.number in served]


def _jobs(folder: Path, version: int | None) -> list[ConvertJob]:
    """Returns the SavedModels to convert: the folder itself, or its numbered folders."""
    if _is_saved_model(folder):
        return [ConvertJob(folder, _number(folder, version))]
    if not paths.is_dir(folder):
        raise Refused(f"there is no file or folder {folder}")
    found = [entry for entry in folder.iterdir() if VERSION.fullmatch(entry.name) and _is_saved_model(entry)]
    if not found:
        raise Refused(f"{folder} is not a SavedModel: it has neither {MARKERS[0]} nor numbered versions with one")
    if version is not None:
        raise Refused(f"--version is for one SavedModel, and {folder} has {len(found)} numbered ones")
    return [ConvertJob(entry, int(entry.name)) for entry in sorted(found, key=lambda entry: int(entry.name))]


def _number(source: Path, version: int | None) -> int:
    """Returns the number to publish. `version`: the one that `--version` names."""
    name = source.resolve().name
    default = int(name) if VERSION.fullmatch(name) and paths.is_dir(source) else 1
    return default if version is None else version


def _is_saved_model(folder: Path) -> bool:
    return any((folder / marker).is_file() for marker in MARKERS)


def _checked(model: ModelJobs, settings: Settings, *, force: bool, typed: str | None) -> ModelJobs:
    """Returns the model with the other keys of its published settings. Raises Refused, ServingError.

    A push would refuse the same places, versions and settings, but only after the conversion. `typed`: the argument
    that names the target, None if the argument names a repository.
    """
    there = shelf.model(settings, model.target)
    places.check(typed or str(model.target), model.target, there, settings)
    for job in () if force else model.jobs:
        there.check_free(job.number, model.target)
    parse(model.target.name, there.settings)
    if not model.settings or there.settings is None:
        return model
    return model._replace(settings=json.loads(there.settings) | model.settings)


def _convert(models: Sequence[ModelJobs], made: Path, options: CommandOptions, meter: Meter) -> None:
    """Writes each model into a folder as `dragoman push` takes it. Raises Refused."""
    folders = [(job.folder, made / model.target.name / str(job.number)) for model in models for job in model.jobs]
    asked = (options.signature, options.data, options.tolerance, options.flips, options.seed)
    jobs = [SavedModelJob(str(source), str(folder), *asked) for source, folder in folders]
    limits = process.ChildLimits(options.timeout, options.memory)
    for job, report in zip(jobs, process.each(jobs, limits, meter.say), strict=True):
        names = ", ".join(f"{each['name']} ({each['method']})" for each in report["signatures"])
        line = escaped(f"{job.source}: {names}; {parity.sentence(report)}; {human(report['bytes'])} of ONNX")
        named = [each["name"] for each in report["signatures"]]
        results.tell(options, line, source=job.source, signatures=named, bytes=report["bytes"], parity=report)
        for note in report["notes"]:
            meter.say(note)
    for model in models:
        if model.settings:
            written(made / model.target.name / FILE, _text(model.settings))


def _text(settings: Mapping[str, Any]) -> bytes:
    return f"{json.dumps(settings, indent=2, ensure_ascii=False)}\n".encode()


def _push(model: ModelJobs, made: Path, options: CommandOptions, settings: Settings) -> None:
    """Publishes a folder's versions as `dragoman push` does. Raises Refused, ServingError."""
    asked = {
        "model": made,
        "target": str(model.target),
        "version": None,
        "no_check": False,
        "optimize": options.optimize,
        "sign_key": None,
        "sign_cert": (),
    }
    push.run(CommandOptions(**asked, force=options.force, quiet=options.quiet, json=options.json), settings)

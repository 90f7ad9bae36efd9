"""`dragoman doctor`: looks at everything that a deployment needs, in the order in which a server would."""

import os
import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from core.errors import counted
from handler.commands.doctor import (
    artifact,
    bucket,
    function,
    layout,
    loads,
    model_files,
    permissions,
    report,
    sizing,
    template,
    tree,
    variables,
)
from handler.commands.doctor.findings import Visit, error
from handler.commands.doctor.loads import LoadLimits
from handler.commands.meter import Meter
from handler.commands.models import reported
from handler.commands.options import CommandOptions
from handler.lifecycle.repository import Repository
from handler.settings import InvalidSettings, Settings, parsers
from handler.settings.sources import FILE
from handler.stores import open_store, paths
from handler.stores.paths import expanded, path_of
from handler.stores.s3.location import locate

if TYPE_CHECKING:
    from handler.commands.doctor.model_files import FoundModel

TEMPLATES: Final = ("template.yaml", "template.yml", "template.json")
BUILT: Final = Path(".aws-sam/build")
ONNX: Final = "model.onnx"
LOGIN: Final = re.compile(r"//(?:[^/@]*|[^/:@]*:[^@]*)@")
"""Credentials in a URI. They are a fault, and not for a report."""
ANSWERED: Final = ("listing-denied", "repository-empty")
"""Findings of a bucket that has taken the credentials."""
LOOSE: Final = "models: the repository may be one model's folder, of which `dragoman serve` tells more"
ELSEWHERE: Final = "repository: a function's folder needs no models; `dragoman doctor s3://...` examines its bucket"
VALIDATE: Final = "`sam validate` shows the line"
MISSING: Final = "the folder does not exist"
CUT: Final = f"models: those after the first {bucket.MOST:,} objects of the bucket"
UNLISTED: Final = "models: the repository has none to examine"


def run(options: CommandOptions) -> int:
    """Prints the findings. Returns 0 without an error among them, 1 with one, 2 for wrong arguments."""
    try:
        limits = _limits(options)
    except ValueError as wrong:
        print(f"dragoman: {wrong}", file=sys.stderr)  # noqa: T201 - a command's error line
        return 2
    visit = Visit()
    with reported():  # what the stores log is among the findings
        examination = Examination(options, limits, visit)
        examination.settings_and_repository()
        examination.template_and_artifact()
    print(report.as_json(visit) if options.json else report.as_text(visit))  # noqa: T201 - the result
    return 1 if visit.failed else 0


def _limits(options: CommandOptions) -> LoadLimits:
    """Raises ValueError for a limit that is not one."""
    found = []
    for flag, text, parse in (
        ("--load-timeout", options.load_timeout, parsers.seconds), ("--load-memory", options.load_memory, parsers.size),
    ):  # fmt: skip
        try:
            found.append(parse(text) if text else 0)
        except ValueError as wrong:
            raise ValueError(f"{flag} is {text[:64]!r}; expected {wrong}") from None
    for flag, path in (("--template", options.template), ("--artifact", options.artifact)):
        if path is not None and not paths.exists(Path(path)):
            raise ValueError(f"{flag} is {path[:256]!r}, which does not exist")
    return LoadLimits(found[0], int(found[1]) or None)


class Examination:
    """One run. Later parts use what earlier ones have found: the served models, and what their loads measured."""

    def __init__(self, options: CommandOptions, limits: LoadLimits, visit: Visit) -> None:
        self._options = options
        self._limits = limits
        self._visit = visit
        self._models: list[FoundModel] = []

    def settings_and_repository(self) -> None:
        own = {} if self._options.repository is None else {"DRAGOMAN_REPOSITORY": self._options.repository}
        file = Path(FILE)
        wrong, said, host = variables.of_file(file) if file.is_file() else ([], {}, "")
        self._visit.add(wrong)
        given = {name: text for name, text in os.environ.items() if text or name not in said}
        found, environ = variables.examine({**said, **given, **own})
        settings = Settings.from_env(environ)
        self._visit.examined.append("settings")
        self._visit.add(found)
        self._visit.add(variables.of_platform(settings))
        self._visit.add(variables.contradictions(settings, self._options.host or host or "127.0.0.1"))
        files = self._files(settings, named="DRAGOMAN_REPOSITORY" in environ)
        if files is None:
            self._visit.skipped.append(UNLISTED)
            return
        self._repository(settings, files, environ)

    def _files(self, settings: Settings, *, named: bool) -> tree.Tree | None:
        """Returns the repository's files, None if they cannot be listed. `named`: it is not the default."""
        self._visit.examined.append(f"repository {_public(settings.repository)}")
        scheme, separator, _ = settings.repository.partition("://")
        if scheme == "s3" and separator:
            found, files = bucket.examine(settings)
            self._visit.add(found)
            if files is not None or any(each.code in ANSWERED for each in found):
                permissions.examine(settings, locate(settings.repository, os.environ), self._visit)
            return files
        if separator and scheme != "file":
            found, files = bucket.of_store(settings)
            self._visit.add(found)
            return files
        try:
            return self._folder(path_of(settings.repository), named=named)
        except InvalidSettings as wrong:
            self._visit.add([variables.refused("DRAGOMAN_REPOSITORY", wrong)])
            return None

    def _folder(self, path: str, *, named: bool) -> tree.Tree | None:
        """Returns a folder's files, None without a model."""
        root = expanded(path)
        what = _not_a_folder(root)
        if what == MISSING and not named and self._template() is not None:
            self._visit.examined.pop()
            self._visit.skipped.append(ELSEWHERE)
            return None
        if what:
            made = f"mkdir -p {shlex.quote(str(root))}, or " if what == MISSING else ""
            cure = f"{made}name a folder: dragoman doctor REPOSITORY (DRAGOMAN_REPOSITORY)"
            self._visit.add([error("repository-missing", str(root.absolute()), what, cure)])
            return None
        found, files = tree.of_folder(root)
        return None if self._visit.add(found) and not files.models else files

    def _repository(self, settings: Settings, files: tree.Tree, environ: Mapping[str, str]) -> None:
        if settings.is_loose:
            self._visit.skipped.append(LOOSE)
            self._visit.add(variables.name_of_model(settings))
            return
        if (misnamed := layout.of_model(files, settings.repository)) is not None:
            self._visit.add([misnamed])
            return
        folders = list(layout.examine(files, settings.repository))
        self._visit.add(folders)
        try:
            repository = Repository(open_store(settings))
        except InvalidSettings:
            self._visit.skipped.append("models: the settings do not open the repository")  # and that is a finding
            return
        found, self._models = model_files.examine(settings, repository, files, folders)
        self._visit.add(found)
        self._visit.examined.append(counted(len(self._models), "model"))
        if files.is_whole:
            self._visit.add(variables.named_models(settings, list(files.models)))
        else:
            self._visit.skipped.append(CUT)
        self._load(settings, environ)

    def _load(self, settings: Settings, environ: Mapping[str, str]) -> None:
        if self._options.no_load:
            self._visit.skipped.append("loads, memory and cold start: --no-load")
            return
        measured: dict[str, Any] = {}
        self._visit.measured["models"] = measured
        self._visit.measured["init"] = loads.initialisation(environ, self._limits)
        may = [each for each in self._models if settings.allow_code or not any(map(model_files.is_code, each.versions))]
        with Meter(quiet=False) as meter:
            self._visit.add(
                loads.examine(may, environ, self._limits, measured, lambda name: meter.show(f"loading {name}"))
            )
        every = (f"{model.name}/{version.folder}" for model in self._models for version in model.versions)
        self._visit.measured["unmeasured"] = [name for name in every if name not in measured]
        self._visit.measured["memory"] = sizing.recommend(self._visit.measured)
        self._visit.measured["cold_start"] = sizing.cold_start(self._visit.measured)
        self._visit.add(sizing.of_settings(settings, self._visit.measured))

    def template_and_artifact(self) -> None:
        path = self._template()
        facts = None if path is None else self._of_template(path)
        built = self._artifact(None if facts is None else facts.name)
        if built is not None:
            self._of_artifact(built, {} if facts is None else facts.properties)

    def _template(self) -> Path | None:
        if self._options.template is not None:
            return Path(self._options.template)
        return next((path for path in map(Path, TEMPLATES) if path.is_file()), None)

    def _of_template(self, path: Path) -> function.FunctionFacts | None:
        where = str(path)
        try:
            document = template.read(path)
            return self._of_document(document, path)
        except ImportError:
            self._visit.skipped.append(f"{where}: reading YAML needs PyYAML (pip install 'dragoman[doctor]')")
        except (template.NotATemplate, OSError) as wrong:
            self._visit.add([error("template-unreadable", where, str(wrong), VALIDATE)])
        except template.MISFORMED as wrong:  # its parts can have any form, and be any number of expressions deep
            what = f"it cannot be computed: {type(wrong).__name__}: {wrong}"
            self._visit.add([error("template-unreadable", where, what, VALIDATE)])
        return None

    def _of_document(self, document: Mapping[str, Any], path: Path) -> function.FunctionFacts | None:
        where = str(path)
        given, problem = function.overrides(path.parent)
        if problem:
            self._visit.add([error("samconfig", "samconfig.toml", problem, "correct the file")])
        expanded = template.Expanded(document, given)
        facts = function.find(expanded, (document.get("Globals") or {}).get("Function") or {})
        if facts is None:
            self._visit.skipped.append(f"{where}: it has no function with the handler handler.aws.lambda_handler")
            return None
        self._visit.examined.append(where)
        if not self._visit.add(function.parameters(expanded, given, where)):  # else they are wrong for that
            self._visit.add(function.examine(expanded, facts, where))
        largest = max((each.size for each in self._models), default=0)
        self._visit.add(sizing.of_function(facts, self._visit.measured, largest, where))
        return facts

    def _artifact(self, name: str | None) -> Path | None:
        if self._options.artifact is not None:
            return Path(self._options.artifact)
        return BUILT / name if name is not None and (BUILT / name).is_dir() else None

    def _of_artifact(self, path: Path, properties: Mapping[str, Any]) -> None:
        where = str(path)
        onnx = any(ONNX in version.paths for model in self._models for version in model.versions)
        try:
            built = artifact.Artifact(path)
            self._visit.add(artifact.examine(built, where, properties, onnx=onnx))
        except artifact.UNREADABLE as wrong:
            cure = "name the folder or the zip that `sam build` makes"
            self._visit.add([error("artifact-unreadable", where, str(wrong) or type(wrong).__name__, cure)])
            return
        self._visit.examined.append(f"artifact {where} ({built.size / artifact.MB:.0f} MB)")


def _public(uri: str) -> str:
    """Returns a repository's URI without credentials, and without a query, which can be a signature."""
    uri = LOGIN.sub("//", uri)
    return re.split("[?#]", uri)[0] if "://" in uri else uri


def _not_a_folder(path: Path) -> str:
    """Returns why a path is not a folder, "" if it is one, or cannot be looked at: its listing says why."""
    try:
        if paths.is_dir(path):
            return ""
        return "it is a file, and not a folder" if paths.exists(path) else MISSING
    except OSError:
        return ""

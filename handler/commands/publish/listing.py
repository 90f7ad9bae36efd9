"""`dragoman list`: a repository's versions and their states. It reads one listing and the settings files."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from core.errors import ModelNotLoadable, escaped
from core.records import NamedTuple
from handler.backends import EXPECTED
from handler.commands import tables
from handler.commands.meter import Meter, human
from handler.commands.options import CommandOptions
from handler.commands.publish import places, shelf, targets
from handler.commands.publish.buckets.port import ListedFile
from handler.commands.refused import Refused
from handler.commands.tables import TableRow
from handler.lifecycle.repository import Listing, Repository, Version, folders_of
from handler.settings import Settings
from handler.settings import model as model_settings
from handler.stores import File, open_store, parity
from handler.stores.directory import is_name

SERVED, NOT_SERVED, INCOMPLETE, BROKEN = "served", "not served", "incomplete", "broken"
COLUMNS: Final = ("MODEL", "VERSION", "FILES", "SIZE", "MODIFIED", "STATE")
STYLES: Final = {SERVED: "green", NOT_SERVED: "", INCOMPLETE: "yellow", BROKEN: "red"}
RIGHT: Final = (2, 3)
"""The columns of numbers, which are aligned to the right."""
WHOLE: Final = (1, 2, 3, 4)
"""The columns that a narrow terminal does not break."""


class Row(NamedTuple):
    """A version, or a model without one (`version` is empty). `modified`: its newest file's time."""

    model: str
    version: str
    files: int
    size: int
    modified: datetime
    state: str
    reason: str


def run(options: CommandOptions, settings: Settings) -> None:
    """Prints the versions and their states. Raises Refused, ServingError."""
    text = options.target or settings.repository
    repository, models = _models(settings, text)
    store = shelf.Listed(open_store(settings._replace(repository=repository)), models)
    rows = [row for name in store.models() for row in _rows(store, name, models[name])]
    reports = [_parity(store, row) if options.verbose else None for row in rows]
    if options.json:
        more = [{} if report is None else {"parity": report} for report in reports]
        found = [_json(row) | each for row, each in zip(rows, more, strict=True)]
        print(json.dumps(found, indent=2, ensure_ascii=False))  # noqa: T201 - the result
    elif rows:
        tables.show(COLUMNS, [*map(_row_of, rows, reports)], RIGHT, WHOLE)
    else:
        print(f"there is no model at {text}")  # noqa: T201 - the result


def _parity(store: shelf.Listed, row: Row) -> dict[str, Any] | None:
    """Returns the parity report that `dragoman convert` wrote beside a version, None if there is no such report."""
    path = f"{row.version}/{parity.FILE}"
    size = next((file.size for file in store.files(row.model) if file.path == path), None)
    if size is None or size > parity.LARGEST:
        return None
    return parity.from_json(store.read(row.model, path))


def _models(settings: Settings, text: str) -> tuple[str, dict[str, list[ListedFile]]]:
    """Returns the repository's URI and its models' files by name; only one model's if `text` names it."""
    whole = targets.repository(text)
    if text != settings.repository and is_name(text):
        whole = _named(settings, text)
    found = shelf.items(settings, whole, "")
    paths = [item.path for item in found]
    if any(map(shelf.is_of_model, paths)) and not any(map(shelf.is_below_model, paths)):
        target = targets.model(whole)
        return target.repository, {target.name: found}
    models: dict[str, list[ListedFile]] = {}
    for item in found:
        name, separator, path = item.path.partition("/")
        if separator and is_name(name):
            models.setdefault(name, []).append(item._replace(path=path))
    return whole, models


def _named(settings: Settings, name: str) -> str:
    """Returns the URI of the repository's model, or the name itself if only a folder here has it."""
    target = targets.model(name, settings.repository)
    if not Path(name).is_dir():
        return str(target)
    try:
        if not shelf.items(settings, str(target), ""):
            return name
    except Refused:
        return name
    if places.beside(name, target) is not None:
        Meter(quiet=False).say(f"{name!r} is a model of {target.repository}; ./{name} is the repository in this folder")
    return str(target)


def _rows(store: shelf.Listed, name: str, items: Sequence[ListedFile]) -> Iterator[Row]:
    judge = _Judge(store, name)
    folders = sorted(folders_of(File(item.path, item.size) for item in items))
    for folder in folders:
        own = [item for item in items if item.path.startswith(f"{folder.folder}/")]
        yield _row(name, folder.folder, own, *judge.state(folder))
    if not folders:
        only = judge.implied()
        state = (INCOMPLETE, "no numbered folder with a model") if only is None else (SERVED, "")
        yield _row(name, "" if only is None else only.folder, items, *state)


def _row(model: str, version: str, items: Sequence[ListedFile], state: str, reason: str) -> Row:
    newest = max(item.modified for item in items)
    return Row(model, version, len(items), sum(item.size for item in items), newest, state, reason)


class _Judge:
    """Decides the state of a model's versions as a server would. Raises ServingError if the store does not answer."""

    def __init__(self, store: shelf.Listed, name: str) -> None:
        self._repository = Repository(store)
        self._name = name
        self._text: bytes | None = None
        self._said, self._wrong = model_settings.ModelSettings(), ""
        self._served: tuple[Version, ...] = ()
        try:
            self._text = self._repository.settings_text(name, store.files(name))
            self._said = model_settings.parse(name, self._text)
        except ModelNotLoadable as error:
            self._wrong = error.message
        with suppress(ModelNotLoadable):  # no version, or none that the policy serves
            self._served = self._repository.look(name, None).versions

    def implied(self) -> Version | None:
        """Returns the version of a model without numbered folders: a pipeline in its settings has one."""
        return next(iter(self._served), None)

    def state(self, folder: Version) -> tuple[str, str]:
        if not self._repository.is_complete(self._name, folder, self._said):
            return INCOMPLETE, f"no {EXPECTED} yet"
        if self._wrong:
            return BROKEN, self._wrong
        try:  # the version's own settings, too
            said = self._repository.settings(Listing(self._name, (folder,), self._text, self._said), folder)
        except ModelNotLoadable as error:
            return BROKEN, error.message
        for served in self._served:
            if served.number == folder.number:
                return (SERVED, said.note) if served.folder == folder.folder else (NOT_SERVED, f"{served.folder} is")
        return NOT_SERVED, "by the version policy"


def _json(row: Row) -> dict[str, Any]:
    return row._asdict() | {"modified": f"{row.modified:%Y-%m-%dT%H:%M:%SZ}"}


def _row_of(row: Row, report: dict[str, Any] | None) -> TableRow:
    state = escaped(f"{row.state}: {row.reason}") if row.reason else row.state
    modified = f"{row.modified:%Y-%m-%d %H:%M:%S}"
    cells = row.model, row.version or "-", str(row.files), human(row.size), modified, state
    notes = () if report is None else [*map(escaped, parity.lines(report))]
    return TableRow(cells, notes, STYLES[row.state])

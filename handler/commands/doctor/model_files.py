"""The settings of each model, and the versions that they choose, with a server's own readers."""

import logging
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

from core.errors import ModelNotLoadable, ServingError
from core.records import NamedTuple
from handler.commands.doctor import layout
from handler.commands.doctor.findings import ERROR, Finding, error, expected, note, warning
from handler.commands.doctor.logged import listening
from handler.commands.doctor.tree import Tree
from handler.lifecycle.repository import MARKERS, Listing, Repository, Version, folders_of
from handler.settings import Settings
from handler.settings.model import FILE, ModelSettings, parse
from handler.settings.triton import FILE as TRITON
from handler.stores import File
from handler.stores.directory import is_name

KEYS: Final = "rename {0} as suggested, or remove {0}: docs/model-settings.md has the keys"
NO_KEY: Final = "no such key"
READER: Final = "handler.settings.triton.config"
PYTHON: Final = "model.py"
UNCODED: Final = "it is Python code, and DRAGOMAN_ALLOW_CODE is not true: every request for it gets an error"
CODED: Final = (
    "set DRAGOMAN_ALLOW_CODE=true (`serve --allow-code`) if every user with write access to the repository may run "
    "code here; else export the model to ONNX"
)


class FoundModel(NamedTuple):
    """A model that servers would serve, and its versions."""

    name: str
    versions: tuple[Version, ...]
    said: ModelSettings

    @property
    def size(self) -> int:
        """The bytes of all files of its versions."""
        return sum(file.size or 0 for version in self.versions for file in version.files)


def examine(
    settings: Settings, repository: Repository, tree: Tree, known: Sequence[Finding]
) -> tuple[list[Finding], list[FoundModel]]:
    """Returns what is wrong with the models' files, and the models that servers would serve.

    `known`: what is wrong with their folders; a model without a version because of that has no second finding.
    """
    found: list[Finding] = []
    models = []
    for name, files in sorted(tree.models.items()):
        if is_name(name) and files:
            own = [*_own(settings, repository, name, files)]
            found += own
            if not any(each.code == "settings-value" for each in own):
                ill = {_model_of(each) for each in (*known, *own) if each.severity == ERROR}
                served = _served(repository, settings.repository, (name, files), found, ill)
                models += [served] if served is not None else []
    found += [each for served in models for each in _coded(settings, served)]
    return found, models


def _own(settings: Settings, repository: Repository, name: str, files: Sequence[File]) -> Iterator[Finding]:
    with listening(logging.getLogger(READER)) as heard:
        try:
            text = repository.settings_text(name, files)
            said = parse(name, text)
        except ServingError as wrong:
            yield _wrong(f"{name}/{TRITON if wrong.message.startswith(TRITON) else FILE}", wrong)
            return
    for line in heard:
        yield note("config-ignored", f"{name}/{TRITON}", line, "docs/triton.md lists the equivalents")
    yield from _noted(f"{name}/{FILE}", said)
    for version in folders_of(files):
        yield from _of_version(settings, repository, Listing(name, (version,), text, said), version)


def _of_version(settings: Settings, repository: Repository, listing: Listing, version: Version) -> Iterator[Finding]:
    where = f"{listing.name}/{version.folder}/{FILE}"
    try:
        said = repository.settings(listing, version)
    except ServingError as wrong:
        yield _wrong(where, wrong)
        return
    if said.note != listing.said.note:
        yield from _noted(where, said)
    if not repository.is_complete(listing.name, version, said):
        yield layout.incomplete(settings.repository, listing.name, version)


def _wrong(where: str, refusal: ServingError) -> Finding:
    what, wanted = expected(refusal.message)
    if wanted.startswith(NO_KEY):
        return error("settings-value", where, what, f"remove the key{wanted.removeprefix(NO_KEY)}")
    return error("settings-value", where, what, f"give {wanted}" if wanted else "correct the file")


def _noted(where: str, said: ModelSettings) -> Iterator[Finding]:
    if said.note:
        yield warning(
            "unknown-key",
            where,
            said.note.replace(f"{FILE} has ", "it has "),
            KEYS.format("them" if " keys " in said.note else "it"),
        )


def _model_of(finding: Finding) -> str:
    return finding.where.partition("/")[0]


def _served(
    repository: Repository,
    where: str,
    model: tuple[str, Sequence[File]],
    found: list[Finding],
    ill: AbstractSet[str],
) -> FoundModel | None:
    """Returns the model, a name and its files, as servers would serve it. `where`: the repository, as it was named.

    Adds to `found` why they do not, but not for a model in `ill`.
    """
    name, files = model
    try:
        listing = repository.look(name, None, files=files)
    except ModelNotLoadable as wrong:
        if "none of which its policy serves" in wrong.message:
            cure = "name versions that are there in version_policy, or push those"
            found.append(error("no-version-served", f"{name}/{FILE}", wrong.message, cure))
        elif name not in ill:
            found.append(error("no-version", name, wrong.message, layout.NamedRepository(where).made(name)))
        return None
    except ServingError as wrong:
        found.append(error("unreadable", name, wrong.message, "see the first finding"))
        return None
    found += _routed(listing)
    return FoundModel(name, listing.versions, listing.said)


def _routed(listing: Listing) -> Iterator[Finding]:
    """Yields the versions that the settings name, and servers do not serve."""
    served = {version.number for version in listing.versions}
    wanted = [(f"version_labels.{label}", number) for label, number in listing.said.version_labels.items()]
    wanted += [(f"canary.{number}", number) for number in listing.said.canary]
    for key, number in wanted:
        if number not in served:
            what = f"{key} names version {number}; served are {', '.join(map(str, sorted(served)))}"
            policy = "" if key.startswith("canary") else "name it in version_policy, "  # which canaries do not need
            cure = f"push version {number}, {policy}or let {key} name a version that is served"
            yield error("version-missing", f"{listing.name}/{FILE}", what, cure)


def _coded(settings: Settings, served: FoundModel) -> Iterator[Finding]:
    if settings.allow_code:
        return
    for version in served.versions:
        if is_code(version):
            yield error("code-not-allowed", f"{served.name}/{version.folder}/{PYTHON}", UNCODED, CODED)


def is_code(version: Version) -> bool:
    """Decides whether a version is Python code: its marker comes after ONNX's."""
    return MARKERS & version.paths == {PYTHON}

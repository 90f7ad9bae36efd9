"""handler.lifecycle.repository: which models and versions a directory holds."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from core.deadline import NEVER
from core.errors import ModelNotFound, ModelNotLoadable, ModelUnavailable, VersionNotFound
from core.operations import ModelRef
from handler.lifecycle.registry import Registry
from handler.lifecycle.repository import Repository
from handler.settings import Settings
from handler.stores import Folder, Proof
from handler.stores.directory import DirectoryStore
from tests.handler.lifecycle.samples import EVERY, ONNX, PATIENT, M, add, get, listed, registry, say, served


def test_versions_compare_as_numbers_and_may_have_leading_zeros(root: Path) -> None:
    """Version 10 is newer than 9, and 00000007 is version 7."""
    for version in ("9", "10", "00000007", "draft", "v11"):
        add(root, "m", version)
    (root / "m" / "model-settings.json").write_text('{"version_policy": {"all": {}}}')
    models = registry(root)
    assert served(models) == "10"
    assert served(models, ModelRef("m", "7")) == "7"
    assert models.describe(M, PATIENT).versions == ("1", "7", "9", "10")
    assert [s.version for s in models.statistics(M, PATIENT)] == ["1", "7", "9", "10"]
    assert [s.version for s in models.statistics(ModelRef("m", "9"), PATIENT)] == ["9"]
    assert len(models.statistics(None, PATIENT)) == 4
    for odd in ("07", "11", "v10", "-1", "1.0", "", "\u0661", "9" * 30):
        with pytest.raises(VersionNotFound, match="has no version"):
            get(models, ModelRef("m", odd))


def test_a_folder_without_a_models_file_is_no_version_yet(root: Path) -> None:
    """A folder counts once its marker file is there, and until then the older version is the newest."""
    (root / "m" / "2").mkdir()
    (root / "m" / "2" / "weights.bin").touch()
    (root / "m" / "2" / "model-settings.json").write_text("{")
    models = registry(root)
    assert served(models) == "1"
    with pytest.raises(VersionNotFound, match="has no version 2; it serves 1"):
        get(models, ModelRef("m", "2"))
    (root / "m" / "2" / "model-settings.json").unlink()
    shutil.copy(ONNX, root / "m" / "2")
    assert served(models, ModelRef("m", "2")) == "2"


@pytest.mark.parametrize("where", ["model-settings.json", "2/model-settings.json"])
def test_a_third_partys_version_needs_no_marker(root: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Its settings name an installed runtime; a runtime that is not installed does not count."""
    monkeypatch.setattr("handler.plugins.find", lambda name, *_: object() if name == "theirs" else None)
    (root / "m" / "2").mkdir()
    (root / "m" / "2" / "model.theirs").touch()
    found = Repository(DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(root)})))
    for implementation, folders in (("theirs", ["1", "2"]), ("others", ["1"])):
        say(root, **EVERY)
        (root / "m" / where).write_text(json.dumps({"implementation": implementation, **EVERY}))
        assert [version.folder for version in found.look("m", None).versions] == folders


def test_a_version_that_the_policy_leaves_out_is_not_found(root: Path) -> None:
    """The refusal names the versions that are served."""
    add(root, "m", "2")
    models = registry(root)
    with pytest.raises(VersionNotFound, match="has no version 1; it serves 2"):
        get(models, ModelRef("m", "1"))
    with pytest.raises(VersionNotFound):
        models.readiness(ModelRef("m", "1"), PATIENT)


@pytest.mark.parametrize("name", ["q", "..", ".", "", ".git", "a/b", "a\\b", "a\0", "x" * 300, "a\nb"])
def test_an_unknown_or_hostile_name_is_not_found(root: Path, name: str) -> None:
    """No question about it gets another answer."""
    models = registry(root)
    words = "is not in the repository" if name == "q" else "does not exist: that is not a model's name"
    for call in (models.use, models.readiness, models.describe, models.statistics):
        with pytest.raises(ModelNotFound, match=words):
            call(ModelRef(name), PATIENT)
    with pytest.raises(ModelNotFound):
        models.load(name, PATIENT)


@pytest.mark.parametrize(("files", "message"), [
    ({"model.onnx": b""}, "has no version: expected a folder such as m/1"),
    ({"20261123191523123456/model.onnx": b""}, "m/1, a number below 9 * 10**18, with model.onnx"),
    ({"1/weights.bin": b""}, "no version: m/1 has no model.onnx, model.py or pipeline.json; its files: weights.bin"),
    ({"1/model.onnx": b"", "model-settings.json": b"{"}, "is not JSON"),
    ({"1/model.onnx": b"", "1/model-settings.json": b"[]"}, "expected an object"),
    ({"1/model.onnx": b"", "model-settings.json": b'{"version_policy": {"specific": {"versions": [7]}}}'},
     "none of which"),
])  # fmt: skip
def test_a_model_that_makes_no_sense_is_there_and_says_why(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    """Its refusal, its readiness and the index have the reason."""
    for path, content in files.items():
        file = tmp_path / "m" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    models = registry(tmp_path)
    with pytest.raises(ModelNotLoadable, match=re.escape(message)):
        get(models)
    readiness = models.readiness(M, PATIENT)
    assert not readiness.ready
    assert message in readiness.reason
    assert message in listed(models)[0][3]


def test_the_broken_settings_of_a_signed_version_are_refused_with_the_models_name(root: Path) -> None:
    """The refusal has the file and the reason, too."""
    (root / "m" / "1" / "model-settings.json").write_text("[")
    found = Repository(DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(root)})))
    listing = found.look("m", None)
    folder = Folder(root / "m" / "1", Proof("0" * 64, "somebody"))
    refusal = "^model 'm' version 1: model-settings.json: the file is not JSON"
    with pytest.raises(ModelNotLoadable, match=refusal):
        found.settings(listing, listing.versions[0], NEVER, folder)


def flawed(root: Path, how: str) -> None:
    """Puts something into `m/1` that looks like a model and is not one."""
    place = root / "m" / "1" / "model.onnx"
    place.parent.mkdir(parents=True)
    match how:
        case "link":
            place.symlink_to("/mnt/that/is/not/mounted/model.onnx")
        case "folder":
            place.mkdir()
        case "pipe":
            os.mkfifo(place)


FLAWS = [
    ("link", "'m/1/model.onnx' is a link that leads nowhere"),
    ("folder", "'m/1/model.onnx' is an empty folder"),
    ("pipe", "'m/1/model.onnx' is not a regular file"),
    ("nothing", "'m/1' is an empty folder"),
]


@pytest.mark.parametrize("more", ["", "m/model-settings.json", "m/1/labels.txt"])
@pytest.mark.parametrize(("how", "flaw"), FLAWS)
def test_a_model_without_a_usable_file_is_there_and_says_why(tmp_path: Path, how: str, flaw: str, more: str) -> None:
    """It is listed, so it is never reported as unknown. Once the file is there, the model is served."""
    if (how, more) == ("nothing", "m/1/labels.txt"):
        flaw = "m/1 has no model.onnx, model.py or pipeline.json; its files: labels.txt"
    flawed(tmp_path, how)
    if more:
        (tmp_path / more).write_text("{}")
    models = registry(tmp_path, PRELOAD="m")
    assert models.names(PATIENT) == ["m"]
    for call in (models.use, models.describe, models.statistics):
        with pytest.raises(ModelNotLoadable, match=f"^model 'm' has no version: .*{re.escape(flaw)}"):
            call(M, PATIENT)
    with pytest.raises(ModelNotLoadable):
        models.load("m", PATIENT)
    reasons = [models.readiness(M, PATIENT).reason, models.ready(PATIENT).reason, listed(models)[0][3]]
    reasons += [entry.reason for entry in models.status(M, PATIENT).versions]
    assert [reason for reason in reasons if flaw not in reason or "not in the repository" in reason] == []
    shutil.rmtree(tmp_path / "m")
    add(tmp_path, "m", "1")
    assert served(models) == "1"


def test_a_model_behind_links_says_why_it_has_no_file(tmp_path: Path) -> None:
    """Links to folders are followed, and loops of them are not."""
    flawed(tmp_path / "elsewhere", "link")
    (tmp_path / "root" / "m").mkdir(parents=True)
    (tmp_path / "root" / "m" / "0").symlink_to(tmp_path / "root" / "m")
    (tmp_path / "root" / "m" / "1").symlink_to(tmp_path / "elsewhere" / "m" / "1")
    with pytest.raises(ModelNotLoadable, match="'m/1/model.onnx' is a link that leads nowhere"):
        get(registry(tmp_path / "root"))


def test_without_permission_to_list_a_version_must_be_named(root: Path, unlisted: Callable[[], Registry]) -> None:
    """The request or the settings name it."""
    with pytest.raises(ModelUnavailable, match=r"'m' is missing or forbidden: .* Grant that \(in S3 s3:ListBucket\), "):
        get(unlisted(), M)
    (root / "m" / "model-settings.json").write_text('{"version_policy": {"specific": {"versions": [1]}}}')
    assert get(unlisted(), M).spec.version == "1"
    assert get(unlisted(), ModelRef("m", "1")).spec.version == "1"


class Unreadable(DirectoryStore):
    """Lists every file, and permits reading none of the settings."""

    def read(self, *_: object) -> None:
        return None


@pytest.mark.parametrize("place", ["", "1/"])
def test_settings_that_may_not_be_read_are_not_taken_for_none(
    root: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A canary without its share would get all requests, and a version without its limits would have none."""
    (root / "m" / f"{place}model-settings.json").write_text("{}")
    monkeypatch.setattr("handler.stores.directory.DirectoryStore", Unreadable)
    message = f"{place}model-settings.json of model 'm' is listed, but missing or forbidden: permit reading"
    with pytest.raises(ModelUnavailable, match=f"^{message}$"):
        get(registry(root))


def test_versions_that_clients_make_up_leave_nothing_behind(unlisted: Callable[[], Registry]) -> None:
    """Where versions cannot be listed, made-up ones are not kept, before the model serves or after it."""
    models = unlisted()
    for is_served in (False, True):
        if is_served:
            get(models, ModelRef("m", "1"))
        known = len(models.known()), len(models._catalog.ready)
        for number in range(1000, 1010):
            for ref in (ModelRef("m", str(number)), ModelRef(f"m-{number}", dashed=True)):
                with pytest.raises(ModelUnavailable, match="was removed from the repository"):
                    get(models, ref)
        assert len(models.known()) <= known[0] + 1
        assert len(models._catalog.ready) == known[1]


def test_links_are_followed_and_loops_are_not(root: Path) -> None:
    """Kubernetes mounts volumes through links."""
    (root / "linked").symlink_to(root / "m")
    (root / "m" / "loop").symlink_to(root / "m")
    (root / ".hidden").mkdir()
    models = registry(root)
    assert list(models.names(PATIENT)) == ["linked", "m"]
    assert get(models, ModelRef("linked")).spec.name == "linked"

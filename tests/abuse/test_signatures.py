"""Versions that are unsigned, changed, or signed by somebody else do not load; only the right one does."""

from __future__ import annotations

import gc
import json
import os
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

import pytest

from core.errors import ModelNotLoadable, ServingError
from core.operations import ModelRef, State
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings
from handler.stores.transfer import retries
from tests.support import s3_stand_in
from tests.support.publishing import weighty
from tests.support.registries import get
from tests.support.signing import key, public, sign, unsigned

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CODE = b"def predict(inputs, parameters):\n    return {'y': inputs['x']}\n"
ONNX = {"model.onnx": weighty(1), "sub/labels.txt": b"one\ntwo\n"}
PYTHON = {"model.py": CODE, "sub/labels.txt": b"one\ntwo\n"}
SIG = "model.sig"
M = ModelRef("m")


@dataclass
class Repository:
    """A repository in a folder, or in a bucket."""

    folder: Path
    bucket: s3_stand_in.StandIn | None

    def put(self, files: dict[str, bytes], version: int = 1) -> None:
        """Makes these the files of a version, and removes others."""
        self.remove(version)
        for path, content in files.items():
            if self.bucket is not None:
                self.bucket.put(f"p/m/{version}/{path}", content)
                continue
            target = self.folder / "repository/m" / str(version) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)

    def remove(self, version: int) -> None:
        """Removes the files of a version."""
        if self.bucket is not None:
            for name in [name for name in self.bucket.things if name.startswith(f"p/m/{version}/")]:
                del self.bucket.things[name]
        elif (root := self.folder / "repository/m" / str(version)).exists():
            for path in [path for path in root.rglob("*") if path.is_file()]:
                path.unlink()

    def say(self, **settings: object) -> None:
        """Writes the model's settings."""
        text = json.dumps(settings).encode()
        if self.bucket is not None:
            self.bucket.put("p/m/model-settings.json", text)
        else:
            (self.folder / "repository/m/model-settings.json").write_bytes(text)

    def models(self, verify: str = "signature", **more: str) -> Registry:
        """Returns the models of a process with these settings."""
        place = {"DRAGOMAN_REPOSITORY": str(self.folder / "repository")}
        if self.bucket is not None:
            place = {name: value for name, value in self.bucket.variables().items() if name.startswith("DRAGOMAN")}
        trusted = {"DRAGOMAN_VERIFY": verify, "DRAGOMAN_VERIFY_KEY": public(key())}
        others = {"DRAGOMAN_CACHE": str(self.folder / "cache"), "DRAGOMAN_ALLOW_CODE": "true"}
        return Registry(Settings.from_env(place | trusted | others | more))


@pytest.fixture(params=["folder", "bucket"])
def repository(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Repository]:
    """An empty repository."""
    if request.param == "folder":
        yield Repository(tmp_path, None)
        return
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.001)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with s3_stand_in.running() as store:
        store.settings(monkeypatch)
        yield Repository(tmp_path, store)


def refusal(models: Registry) -> str:
    """Returns why the model does not load."""
    with pytest.raises(ModelNotLoadable) as refused:
        get(models, M)
    return refused.value.message


@pytest.mark.parametrize("files", [ONNX, PYTHON], ids=["onnx", "python"])
def test_a_signed_version_loads(repository: Repository, files: dict[str, bytes]) -> None:
    """Its digest and its signer stand in the model's metadata."""
    repository.put(files | {SIG: sign(files)})
    info = repository.models().describe(M, Background())
    assert info.parameters.keys() == {"digest", "signer"}
    assert info.parameters["signer"].startswith("key:")


def test_the_log_names_the_signer(repository: Repository, caplog: pytest.LogCaptureFixture) -> None:
    """The line that says that the version is loaded contains it."""
    repository.put(ONNX | {SIG: sign(ONNX)})
    with caplog.at_level("INFO"):
        get(repository.models(), M)
    assert [each for each in caplog.messages if "loaded in" in each and ", digest sha256:" in each and "key:" in each]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "it has no model.sig"),
        (unsigned(ONNX), "has digests and no signature"),
        (sign(ONNX, key("another")), "which is not trusted"),
        (sign(PYTHON), "is not listed in model.sig|is listed in model.sig"),
        (b"{}", "model.sig has no mediaType"),
    ],
    ids=["none", "digests", "another's", "of other files", "empty"],
)
def test_other_signatures_are_refused(repository: Repository, text: bytes | None, reason: str) -> None:
    """The message says what is wrong with the signature."""
    repository.put(ONNX | ({} if text is None else {SIG: text}))
    said = refusal(repository.models())
    assert said.startswith("model 'm' version 1 is not verified: ")
    assert any(each in said for each in reason.split("|"))


def flipped(content: bytes, position: int) -> bytes:
    return content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :]


def regions(content: bytes) -> list[int]:
    """Returns positions at the beginning, at the end, and eight between."""
    return sorted({min(len(content) - 1, len(content) * step // 9) for step in range(10)})


@pytest.mark.parametrize("path", [*ONNX, SIG])
def test_a_changed_byte_is_refused(repository: Repository, path: str) -> None:
    """The changed byte may be in any region of any file, or of the signature file."""
    files = ONNX | {SIG: sign(ONNX)}
    for position in regions(files[path]):
        repository.put(files | {path: flipped(files[path], position)})
        assert "is not verified: " in refusal(repository.models()), position
    repository.put(files)
    get(repository.models(), M)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"extra.txt": b""}, "'extra.txt' is not listed in model.sig"),
        ({".hidden": b""}, "'.hidden' is not listed in model.sig"),
        ({"__pycache__/model.cpython-311.pyc": b"x"}, "is not listed in model.sig"),
        ({"model.py": CODE}, "'model.py' is not listed in model.sig"),
        ({"sub/labels.txt": None}, "'sub/labels.txt' is missing, and is listed in model.sig"),
    ],
    ids=["more", "hidden", "compiled", "code", "less"],
)
def test_other_files_are_refused(repository: Repository, change: dict[str, bytes | None], reason: str) -> None:
    """An additional file is refused like a missing one."""
    files = ONNX | {SIG: sign(ONNX)} | change
    repository.put({path: content for path, content in files.items() if content is not None})
    assert reason in refusal(repository.models())


@pytest.mark.parametrize(
    ("verify", "files", "text", "loads"),
    [
        ("digest", PYTHON, unsigned(PYTHON), True),
        ("digest", ONNX, sign(ONNX, key("another")), True),
        ("digest", ONNX, sign(PYTHON), False),
        ("digest", ONNX, None, False),
        ("code", ONNX, unsigned(ONNX), True),
        ("code", ONNX, None, False),
        ("code", PYTHON, unsigned(PYTHON), False),
        ("code", PYTHON, sign(PYTHON, key("another")), False),
        ("code", PYTHON, sign(PYTHON), True),
        ("code", ONNX | PYTHON, unsigned(ONNX | PYTHON), False),
        ("off", ONNX, None, True),
        ("off", ONNX, b"nothing", True),
    ],
    ids=map(str, count()),
)
def test_each_policy_asks_for_what_it_says(
    repository: Repository, verify: str, files: dict[str, bytes], text: bytes | None, *, loads: bool
) -> None:
    """Code needs a signature under `code`, ONNX its digests; `digest` trusts every signer."""
    repository.put(files | ({} if text is None else {SIG: text}))
    models = repository.models(verify)
    if loads:
        assert get(models, M).spec.name == "m"
    else:
        assert "is not verified" in refusal(models)


def test_a_version_that_is_not_verified_replaces_nothing(repository: Repository) -> None:
    """The old version continues to serve, under its number or another, and the index has the reason."""
    repository.put(ONNX | {SIG: sign(ONNX)})
    models = repository.models(DRAGOMAN_REPOSITORY_POLL="0")
    serving = get(models, M)
    repository.put({"model.onnx": weighty(2), SIG: sign(ONNX)}, version=2)
    with pytest.raises(ServingError, match="is not verified"):
        models.load("m", Background())
    assert get(models, M) is serving
    assert any("is not verified" in entry.reason for entry in models.index(Background()))
    repository.remove(2)
    repository.put({**ONNX, "model.onnx": weighty(3), SIG: sign(ONNX)})
    with pytest.raises(ServingError, match="is not verified"):
        models.load("m", Background())
    assert get(models, M) is serving
    ready = [entry for entry in models.index(Background()) if entry.state is State.READY]
    assert [entry.version for entry in ready] == ["1"]


def test_what_was_fetched_unverified_is_verified_later(repository: Repository) -> None:
    """The policy has changed, and the cache has the earlier files."""
    files = ONNX | {SIG: sign(PYTHON)}
    repository.put(files)
    get(repository.models("off"), M)
    assert "is not verified" in refusal(repository.models())


@pytest.mark.parametrize("is_in_use", [False, True])
def test_a_changed_copy_in_the_cache_is_not_loaded(repository: Repository, tmp_path: Path, *, is_in_use: bool) -> None:
    """Another process had verified it; this one reads it again, and fetches it anew."""
    repository.put(ONNX | {SIG: sign(ONNX)})
    other = repository.models()
    get(other, M)
    (cached,) = (tmp_path / "cache").rglob("model.onnx")
    cached.write_bytes(weighty(9))
    if not is_in_use:
        del other
        gc.collect()
    get(repository.models(), M)
    assert cached.read_bytes() == ONNX["model.onnx"]
    assert len([*(tmp_path / "cache").rglob("model.onnx")]) == 1 + is_in_use


def test_settings_that_are_not_signed_change_nothing(repository: Repository) -> None:
    """A model's own settings lie beside its versions, where no signature covers them."""
    repository.put(ONNX | {SIG: sign(ONNX)})
    repository.say(version_policy={"specific": {"versions": [1]}}, name="m")
    get(repository.models(), M)
    repository.say(max_batch_size=7)
    assert "'max_batch_size' in the model's model-settings.json is not" in refusal(repository.models())
    files = ONNX | {"model-settings.json": b'{"max_batch_size": 7}'}
    repository.put(files | {SIG: sign(files)})
    assert get(repository.models(), M).spec.max_batch_size == 7


def test_links_out_of_a_version_are_refused(tmp_path: Path) -> None:
    """They are refused wherever they lead; and a pipe does not block the load."""
    repository = Repository(tmp_path, None)
    folder = tmp_path / "repository/m/1"
    for make in ("link", "pipe"):
        repository.put(ONNX | {SIG: sign(ONNX)})
        labels = folder / "sub/labels.txt"
        labels.rename(tmp_path / "labels.txt")
        if make == "link":
            labels.symlink_to(tmp_path / "labels.txt")
            assert "'sub/labels.txt' is a symbolic link" in refusal(repository.models())
        else:
            os.mkfifo(labels)
            assert "'sub/labels.txt' is not a file" in refusal(repository.models())
        labels.unlink()


def test_without_permission_to_list_the_manifest_says_what_to_fetch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The manifest names the other files, which the server could not know before."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with s3_stand_in.running() as store:
        store.settings(monkeypatch)
        store.listable = False
        repository = Repository(tmp_path, store)
        repository.put(ONNX | {SIG: sign(ONNX), "extra.txt": b""})
        get(repository.models(), ModelRef("m", "1"))
        names = {path.name for path in (tmp_path / "cache").rglob("*") if path.is_file() and "." in path.name}
        assert names >= {"model.onnx", "labels.txt", SIG}
        assert "extra.txt" not in names

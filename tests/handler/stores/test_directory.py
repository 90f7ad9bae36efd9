"""handler.stores and handler.stores.directory: files as the disk has them."""

import os
from collections.abc import Iterator
from errno import EACCES, EIO
from pathlib import Path

import pytest

from core.errors import ModelNotLoadable, ModelUnavailable
from handler.settings import InvalidSettings, Settings
from handler.stores import SMALL, open_store, private
from handler.stores.directory import DirectoryStore, changed, empty, is_name


def test_a_file_that_goes_while_its_folder_is_read_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listing leaves out a file that a push has replaced meanwhile; another fault of the disk is an error."""
    listed = os.scandir

    def scanned(folder: Path) -> Iterator[os.DirEntry[str]]:
        for entry in listed(folder):
            if entry.name == "gone.bin":
                Path(entry.path).unlink()
            yield entry

    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"1")
    store = DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}))
    there = store.files("m")
    assert [file.path for file in there] == ["1/model.onnx"]
    (tmp_path / "m" / "1" / "gone.bin").write_bytes(b"1")
    monkeypatch.setattr(os, "scandir", scanned)
    assert store.files("m") == there

    def broken(_: object) -> None:
        raise OSError(EIO, "Input/output error")

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(ModelUnavailable, match="model 'm' cannot be listed: Input/output error"):
        store.files("m")


def test_settings_that_are_too_long_are_named(tmp_path: Path) -> None:
    """They are read into memory at each look, as those of a remote store are."""
    store = DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}))
    file = tmp_path / "m" / "model-settings.json"
    file.parent.mkdir()
    file.write_bytes(b" " * SMALL)
    assert store.read("m", file.name) == b" " * SMALL
    file.write_bytes(b" " * (SMALL + 1))
    with pytest.raises(ModelNotLoadable, match="^model-settings.json of model 'm' has more than 16777216 bytes$"):
        store.read("m", file.name)


def test_a_link_that_cannot_be_followed_is_named(tmp_path: Path) -> None:
    """It is the error of its own model. The other models are listed and served."""
    for path in ("a/1/model.onnx", "b/1/model.onnx"):
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_bytes(b"1")
    (tmp_path / "b" / "1" / "round").symlink_to("round")
    (tmp_path / "c").symlink_to("c")
    store = DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}))
    assert list(store.models()) == ["a", "b", "c"]
    assert [file.path for file in store.files("a")] == ["1/model.onnx"]
    for model in "bc":
        with pytest.raises(ModelUnavailable, match=f"model '{model}' cannot be listed: Too many levels of symbolic"):
            store.files(model)


def test_a_link_to_a_folder_is_followed_unless_it_is_above(tmp_path: Path) -> None:
    """Each of two loops was followed in the other, 16 folders deep: a look took seconds, and found 65,535 files."""
    (tmp_path / "m" / "1" / "sub").mkdir(parents=True)
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(b"1")
    for name, target in (("1/here", "."), ("1/sub/round", tmp_path / "m"), ("1/sub/up", ".."), ("2", "1")):
        (tmp_path / "m" / name).symlink_to(target)
    store = DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)}))
    assert [file.path for file in store.files("m")] == ["1/model.onnx", "2/model.onnx"]


def test_the_folder_of_one_model_can_have_a_link_that_cannot_be_followed(tmp_path: Path) -> None:
    """The listing names the fault, as that of a repository does."""
    (tmp_path / "model.onnx").write_bytes(b"1")
    (tmp_path / "round").symlink_to("round")
    store = open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path), "DRAGOMAN_MODEL_NAME": "m"}))
    assert list(store.models()) == ["m"]
    with pytest.raises(ModelUnavailable, match="cannot be listed: Too many levels of symbolic links"):
        store.files("m")


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("x" * 255, True),
        ("x" * 256, False),
        ("é" * 127, True),
        ("é" * 128, False),
        ("日" * 85, True),
        ("日" * 86, False),
    ],
)
def test_a_name_has_as_many_bytes_as_a_file_system_permits(*, text: str, may: bool) -> None:
    """File systems count bytes, not characters. A longer name is not a model's."""
    assert is_name(text) is may


def test_a_repository_that_cannot_be_looked_at_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A path that no file system has, and a folder above that this user may not search, are refused in one line."""
    store = DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path / ("x" * 300))}))
    with pytest.raises(ModelUnavailable, match="is not a directory: check DRAGOMAN_REPOSITORY"):
        store.models()
    assert not DirectoryStore(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tmp_path)})).has("x" * 300)

    def closed(path: Path, **_: object) -> os.stat_result:
        raise PermissionError(EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", closed)  # the tests may run as root, who may search everything
    with pytest.raises(ModelUnavailable, match=r"^the repository cannot be listed: Permission denied$"):
        store.models()
    assert store.has("m")


def test_file_uris_are_directories(tmp_path: Path) -> None:
    """A file URI names a directory, percent-encoded as URIs are. Folders of Python and file systems are no models."""
    for name in ("m/1", "__pycache__", "lost+found", ".git"):
        (tmp_path / "a b" / name).mkdir(parents=True)
    store = open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": f"file://{tmp_path}/a%20b"}))
    assert list(store.models()) == ["m"]


@pytest.mark.parametrize("uri", ["file://models", "file://models/iris", "file://", "file://host/srv/models"])
def test_a_file_uri_begins_at_the_root(uri: str) -> None:
    """The first name after the slashes is a host: it was ignored, and file://models/iris was the folder /iris."""
    with pytest.raises(InvalidSettings, match=f"^DRAGOMAN_REPOSITORY is {uri!r}; expected a path, or file://"):
        open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": uri}))


def test_a_file_uri_can_name_this_machine_and_any_letter(tmp_path: Path) -> None:
    """Nothing of it is dropped as a fragment or a query."""
    (tmp_path / "a#b?c" / "m" / "1").mkdir(parents=True)
    store = open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": f"file://localhost{tmp_path}/a#b?c"}))
    assert list(store.models()) == ["m"]


def test_the_home_folder_of_nobody_is_a_folder_that_does_not_exist() -> None:
    """It stays as it was typed, as a shell leaves it; it was a RuntimeError."""
    store = open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": "~nobody-of-this-name/models"}))
    with pytest.raises(ModelUnavailable, match="the repository is not a directory"):
        store.check()


@pytest.mark.parametrize("uri", ["gopher://x", "s3a://key:s3cret@b/p", "abfss://c@a.example/p?sig=s3cret"])
def test_a_store_that_nobody_knows_is_a_wrong_setting(uri: str) -> None:
    """The refusal of an unknown scheme names it and the known ones. What follows it can be a secret."""
    expected = f"begins with '{uri.partition('//')[0]}//'; expected a directory or one of file://, s3://"
    with pytest.raises(InvalidSettings, match=expected) as refusal:
        open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": uri}))
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize(("seconds", "year"), [(0.5, 1970), (-1.0, 1969), (3e11, 9999), (-3e11, 1), (2.0**62, 9999)])
def test_a_time_that_no_calendar_has_is_the_last_or_first_one(seconds: float, year: int) -> None:
    """`dragoman list` and `dragoman index` ended with a traceback for one such file."""
    assert changed(seconds).year == year


def test_an_empty_folder_goes_with_its_version_or_its_process() -> None:
    """SIGTERM of a server left one for each pipeline without files."""
    first, second = empty(), empty()
    paths = [first.path, second.path]
    assert [list(path.iterdir()) for path in paths] == [[], []]
    del first
    assert [path.exists() for path in paths] == [False, True]
    private.forget()
    assert not paths[1].exists()

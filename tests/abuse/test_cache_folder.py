"""Folders for downloads that another user could change: their content is not loaded, and nothing is written there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from core.errors import ModelNotLoadable
from handler.settings import Settings
from handler.stores import private
from handler.stores.cache import Cache
from handler.stores.journal import Identity, Parts
from handler.stores.progress import Progress

if TYPE_CHECKING:
    from pathlib import Path

ANOTHER = 54321


class Users:
    """Gives folders to another user."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patch = monkeypatch

    def give(self, path: Path) -> Path:
        """Lets a path belong to another user; without root's rights this process is another one from now on."""
        if os.getuid() == 0:
            os.chown(path, ANOTHER, -1, follow_symlinks=False)
        else:
            self._patch.setattr(private.os, "geteuid", lambda: ANOTHER)
        return path


@pytest.fixture
def users(monkeypatch: pytest.MonkeyPatch) -> Users:
    """A user other than the one of this process."""
    return Users(monkeypatch)


def made(path: Path, mode: int = 0o700) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    path.chmod(mode)
    return path


def below_a_folder_of_another(folder: Path, users: Users) -> Path:
    return made(users.give(made(folder / "theirs", 0o755)) / "dragoman")


def a_folder_of_another(folder: Path, users: Users) -> Path:
    return users.give(made(folder / "theirs", 0o755))


def below_a_folder_for_all(folder: Path, users: Users) -> Path:
    return made(made(folder / "open", 0o777) / "dragoman")


def below_a_sticky_folder_of_another(folder: Path, users: Users) -> Path:
    return made(users.give(made(folder / "open", 0o1777)) / "dragoman")


def a_folder_for_all(folder: Path, users: Users) -> Path:
    return made(folder / "dragoman", 0o777)


def a_sticky_folder_for_all(folder: Path, users: Users) -> Path:
    return made(folder / "dragoman", 0o1777)


def a_folder_for_the_group(folder: Path, users: Users) -> Path:
    return made(folder / "dragoman", 0o770)


def anothers_in_a_sticky_folder(folder: Path, users: Users) -> Path:
    return users.give(made(made(folder / "tmp", 0o1777) / "dragoman"))


def a_link_of_another(folder: Path, users: Users) -> Path:
    link = made(folder / "tmp", 0o1777) / "dragoman"
    link.symlink_to(made(folder / "victim"))
    return users.give(link)


def a_link_below_a_folder_for_all(folder: Path, users: Users) -> Path:
    link = folder / "dragoman"
    link.symlink_to(made(made(folder / "open", 0o777) / "inside"))
    return link


def a_relative_link_through_a_folder_for_all(folder: Path, users: Users) -> Path:
    made(folder / "open", 0o777)
    made(folder / "mine")
    link = folder / "dragoman"
    link.symlink_to("open/../mine")
    return link


def a_loop_of_links(folder: Path, users: Users) -> Path:
    (folder / "loop").symlink_to("loop")
    return folder / "loop" / "dragoman"


REFUSED = [
    below_a_folder_of_another,
    a_folder_of_another,
    below_a_folder_for_all,
    below_a_sticky_folder_of_another,
    a_folder_for_all,
    a_sticky_folder_for_all,
    a_folder_for_the_group,
    anothers_in_a_sticky_folder,
    a_link_of_another,
    a_link_below_a_folder_for_all,
    a_relative_link_through_a_folder_for_all,
]


def cache(root: Path, **more: str) -> Cache:
    """Returns the cache of a process with DRAGOMAN_CACHE."""
    return Cache.of(Settings.from_env({"DRAGOMAN_CACHE": str(root), **more}))


@pytest.mark.parametrize("make", REFUSED, ids=lambda make: make.__name__)
def test_a_folder_that_others_can_change_is_refused(make: object, tmp_path: Path, users: Users) -> None:
    """The refusal is one line without paths, and it names a cure."""
    root = make(tmp_path, users)  # type: ignore[operator]  # one of the functions above
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE .*who could change models: set a folder") as refused:
        cache(root).place("m", "1")
    assert str(tmp_path) not in refused.value.message
    with pytest.raises(ModelNotLoadable) as unready:
        cache(root).check()
    assert unready.value.message == refused.value.message


def test_a_folder_that_others_can_change_is_fit_if_it_is_shared(tmp_path: Path, users: Users) -> None:
    """So is the usual folder, since another one takes its place."""
    cache(a_folder_for_all(tmp_path, users), DRAGOMAN_CACHE_SHARED="true").check()
    Cache.of(Settings.from_env({"TMPDIR": str(a_folder_for_all(tmp_path, users))})).check()


def test_a_folder_that_cannot_be_written_is_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in its place is not, either."""
    root = made(tmp_path / "dragoman")
    with monkeypatch.context() as patch:
        patch.setattr("handler.stores.cache.os.access", lambda *_: False)  # root can write all folders
        with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE cannot be written: Permission denied"):
            cache(root).check()
    (tmp_path / "file").touch()
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE cannot be written: File exists"):
        cache(tmp_path / "file").check()


def test_a_loop_of_links_is_refused(tmp_path: Path, users: Users) -> None:
    """The message is the system's own."""
    with pytest.raises((ModelNotLoadable, OSError)):
        cache(a_loop_of_links(tmp_path, users)).place("m", "1")


@pytest.mark.parametrize("make", [below_a_folder_of_another, a_folder_for_all, a_folder_for_the_group])
def test_a_setting_permits_a_shared_folder(make: object, tmp_path: Path, users: Users) -> None:
    """A volume that several containers share is an example. Its administrator knows which of them write to it."""
    root = make(tmp_path, users)  # type: ignore[operator]  # one of the functions above
    cache(root, DRAGOMAN_CACHE_SHARED="true").place("m", "1")


def own(folder: Path) -> Path:
    return made(folder / "mine")


def own_in_a_sticky_folder(folder: Path) -> Path:
    return made(folder / "tmp", 0o1777) / "dragoman"


def own_link(folder: Path) -> Path:
    (folder / "link").symlink_to(made(folder / "mine"))
    return folder / "link"


@pytest.mark.parametrize("make", [own, own_in_a_sticky_folder, own_link])
def test_an_own_folder_is_used(make: object, tmp_path: Path) -> None:
    """Nobody else can write it. A check makes it, as a load does."""
    stored = cache(make(tmp_path))  # type: ignore[operator]  # one of the functions above
    stored.check()
    place = stored.place("m", "1")
    assert place.parts.parent.stat().st_mode & 0o777 == 0o700


def complete(stored: Cache) -> Path:
    """Puts a version into a cache, and returns its folder."""
    place = stored.place("m", "1")
    with place.locked(Progress(), "m"):
        parts = Parts(place.parts)
        part = parts.part("sub/model.onnx", 1, "etag")
        part.begin(Identity(1, "etag", None))
        part.write(memoryview(b"x"), 0)
        part.finish()
        parts.close()
        return place.publish("content").path


@pytest.mark.parametrize("level", ["place", "version", "folder", "file"])
@pytest.mark.parametrize("how", ["another's", "for all", "link"])
def test_what_was_planted_below_an_own_folder_is_not_used(level: str, how: str, tmp_path: Path, users: Users) -> None:
    """Owner and mode of each level count: the root may have been open before."""
    folder = complete(cache(tmp_path / "cache"))
    planted = {"place": folder.parent, "version": folder, "folder": folder / "sub", "file": folder / "sub/model.onnx"}
    path = planted[level]
    if how == "another's":
        users.give(path)
    elif how == "for all":
        path.chmod(0o777)
    else:
        path.rename(tmp_path / "elsewhere")
        path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_CACHE .*: set a folder that only this user can write"):
        cache(tmp_path / "cache").place("m", "1").held("content")


def test_no_mask_opens_what_is_fetched(tmp_path: Path) -> None:
    """A process whose umask makes its files readable for everybody still keeps its downloads private."""
    before = os.umask(0)
    try:
        folder = complete(cache(tmp_path / "cache"))
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o077 for path in (folder, *folder.rglob("*"))} == {0}
    assert cache(tmp_path / "cache").place("m", "1").held("content") is not None


def default(temporary: Path, **more: str) -> Path:
    """Returns the folder that a process without DRAGOMAN_CACHE uses."""
    stored = Cache.of(Settings.from_env({"TMPDIR": str(temporary), **more}))
    return stored.place("m", "1").parts.parent.parent


def test_the_usual_folder_is_in_the_temporary_one(tmp_path: Path) -> None:
    """The process makes it for this user alone."""
    assert default(made(tmp_path / "tmp", 0o1777)) == tmp_path / "tmp/dragoman"


def test_a_taken_usual_folder_is_left_alone(tmp_path: Path) -> None:
    """The next one has the user's number; models load without a setting."""
    temporary = made(tmp_path / "tmp", 0o1777)
    made(temporary / "dragoman", 0o777)
    assert default(temporary) == temporary / f"dragoman-{os.geteuid()}"
    assert list((temporary / "dragoman").iterdir()) == []


def test_a_temporary_folder_for_all_gets_a_new_folder(tmp_path: Path) -> None:
    """An empty volume of Kubernetes is such a folder: nobody can have put anything into it yet."""
    temporary = made(tmp_path / "tmp", 0o777)
    first, second = default(temporary), default(temporary)
    assert first != second
    assert {first.parent, second.parent} == {temporary}
    assert first.stat().st_mode & 0o777 == 0o700


def test_a_new_folder_that_is_gone_is_followed_by_another(tmp_path: Path) -> None:
    """The end of an application's lifespan removes it; the same application can start again, as in its tests."""
    stored = Cache.of(Settings.from_env({"TMPDIR": str(made(tmp_path / "tmp", 0o777))}))
    first = stored.place("m", "1").parts
    assert stored.place("m", "1").parts == first
    private.forget()
    second = stored.place("m", "1").parts
    assert second != first
    assert second.parent.is_dir()


@pytest.mark.parametrize("mode", [0o700, 0o777, 0o1777])
def test_lambdas_own_folder_is_trusted(mode: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function is alone on its machine, whatever the mode of its /tmp; what lies below is checked."""
    temporary = made(tmp_path / "tmp", mode)
    monkeypatch.setattr(private, "LAMBDA", temporary)
    function = {"AWS_LAMBDA_FUNCTION_NAME": "f"}
    assert default(temporary, **function) == temporary / "dragoman"
    cache(made(temporary / "mine"), **function).place("m", "1")
    with pytest.raises(ModelNotLoadable, match="can be written by other users"):
        cache(made(temporary / "open", 0o777), **function).place("m", "1")

"""The tests replace a version while a server is about to fetch it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from core.errors import ModelNotLoadable, ModelUnavailable
from core.operations import ModelRef
from handler.lifecycle.registry import Registry
from tests.support import s3_stand_in
from tests.support.registries import get
from tests.support.zoo import models


class Place(NamedTuple):
    """A bucket, and a server that reads it."""

    bucket: s3_stand_in.StandIn
    models: Registry

    def meanwhile(self, change: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
        """Makes the change once, after the server's listing and before its fetch."""
        store = self.models._repository._store
        fetch, changes = store.fetch, [change]

        def changed(*asked: object) -> object:
            while changes:
                changes.pop()()
            return fetch(*asked)

        monkeypatch.setattr(store, "fetch", changed)

    def put(self, folder: str, number: int, **settings: bytes) -> None:
        """Writes a version that adds the number, into a folder."""
        for content in settings.values():
            self.bucket.put(f"p/m/{folder}/model-settings.json", content)
        self.bucket.put(f"p/m/{folder}/model.onnx", models.adds(number).SerializeToString())

    def remove(self, folder: str) -> None:
        """Removes its marker, and all the rest."""
        for key in [key for key in self.bucket.things if key.startswith(f"p/m/{folder}/")]:
            del self.bucket.things[key]


@pytest.fixture
def place(no_aws: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with s3_stand_in.running() as bucket:
        yield Place(bucket, Registry(bucket.settings(monkeypatch, DRAGOMAN_CACHE=str(tmp_path / "cache"))))


def fetched(place: Place) -> bytes:
    """Returns the model file that the server has loaded."""
    get(place.models, ModelRef("m"))
    (version,) = place.models.known()
    assert version.loaded is not None
    return (version.loaded.folder.path / "model.onnx").read_bytes()


@pytest.mark.parametrize(("old", "new"), [("1", "01"), ("01", "1")])
def test_a_version_that_moves_before_its_fetch_is_loaded_from_where_it_is(
    place: Place, monkeypatch: pytest.MonkeyPatch, old: str, new: str
) -> None:
    """The listing's folder is gone: the server looks again."""
    place.put(old, 1)

    def move() -> None:
        place.put(new, 2)
        place.remove(old)

    place.meanwhile(move, monkeypatch)
    assert fetched(place) == models.adds(2).SerializeToString()


def test_a_folder_that_loses_its_marker_before_its_fetch_is_no_version(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its remaining files may be rewritten; the other folder of the number is complete."""
    place.put("1", 1, own=b"{}")

    def replace() -> None:
        place.put("01", 2)
        place.remove("1")
        place.bucket.put("p/m/1/model-settings.json", b'{"platform": "other"}')

    place.meanwhile(replace, monkeypatch)
    assert fetched(place) == models.adds(2).SerializeToString()


def test_a_version_that_is_gone_is_said_to_be(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """No version has taken its place."""
    place.put("1", 1)
    place.meanwhile(lambda: place.remove("1"), monkeypatch)
    with pytest.raises(ModelUnavailable, match="1/model.onnx of model 'm' is missing or forbidden"):
        get(place.models, ModelRef("m"))


def test_a_versions_own_settings_are_those_of_the_files_that_came(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read once before the fetch; at its end they may belong to another version."""
    place.put("1", 1, own=b'{"platform": "old"}')
    place.meanwhile(lambda: place.put("1", 2, own=b'{"platform": "new"}'), monkeypatch)
    assert fetched(place) == models.adds(2).SerializeToString()
    assert get(place.models, ModelRef("m")).spec.platform == "new"


def test_a_version_that_changes_its_runtime_is_loaded_by_the_new_one(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new runtime is not permitted here."""
    place.put("1", 1)

    def replace() -> None:
        place.bucket.put("p/m/01/model.py", b"")
        place.remove("1")

    place.meanwhile(replace, monkeypatch)
    with pytest.raises(ModelNotLoadable, match="DRAGOMAN_ALLOW_CODE"):
        get(place.models, ModelRef("m"))

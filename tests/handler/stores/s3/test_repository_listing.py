"""handler.stores.s3.store: all models in one listing, and stores that deny or lack a part of it, on the stand-in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from core.errors import ModelNotLoadable
from core.operations import ModelRef
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings
from handler.stores import Forbidden
from handler.stores.s3.store import S3Store
from tests.handler.lifecycle.samples import ONNX, get
from tests.support import s3_stand_in

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("no_aws")
DENIED = (403, "AccessDenied", {})


@pytest.fixture
def settings(stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Settings:
    """Returns the settings of a server of the stand-in's bucket."""
    return stand_in.settings(monkeypatch, DRAGOMAN_CACHE=str(tmp_path / "cache"))


@pytest.fixture
def store(settings: Settings) -> S3Store:
    """The store of that bucket."""
    return S3Store(settings)


def fill(stand_in: s3_stand_in.StandIn, models: int) -> list[str]:
    names = [f"m{number:04}" for number in range(models)]
    for name in names:
        stand_in.put(f"p/{name}/1/model.onnx", b"", etag="e")
    return names


def large(stand_in: s3_stand_in.StandIn, name: str, files: int) -> None:
    for number in range(files):
        stand_in.put(f"p/{name}/1/part-{number:05}", b"", etag="e")


def test_one_page_has_everything_or_is_not_enough(store: S3Store, stand_in: s3_stand_in.StandIn) -> None:
    """Files outside of models, folders, and keys that would leave a model's folder are not listed."""
    fill(stand_in, 999)
    for key in ("p/readme.txt", "p/empty/", "p/m0000/../x"):
        stand_in.put(key, b"")
    assert store.glance() is None
    del stand_in.things["p/m0998/1/model.onnx"], stand_in.things["p/m0997/1/model.onnx"]
    found = store.glance()
    assert found is not None
    assert len(found) == 998
    assert (found["empty"], [file.path for file in found["m0000"]]) == ([], ["1/model.onnx"])
    stand_in.listable = False
    with pytest.raises(Forbidden, match="listing bucket 'bucket' is not permitted: grant s3:ListBucket"):
        store.glance()


@pytest.mark.parametrize("skips", [True, False])
def test_a_model_of_whole_pages_is_skipped_where_the_store_can(
    store: S3Store, stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, *, skips: bool
) -> None:
    """A store that ignores start-after is read from the beginning to the end."""
    listing = s3_stand_in.Handler._listing

    def ignoring(handler: s3_stand_in.Handler, query: dict[str, str]) -> str:
        return listing(handler, query if skips else {k: v for k, v in query.items() if k != "start-after"})

    monkeypatch.setattr(s3_stand_in.Handler, "_listing", ignoring)
    large(stand_in, "a", 1)
    large(stand_in, "large", 4500)
    large(stand_in, "large0", 1)
    large(stand_in, "z", 1)
    found = store.everything()
    assert list(found) == ["a", "large", "large0", "z"]
    assert found["large"] is None if skips else len(found["large"] or ()) == 4500
    assert len(stand_in.asked) == 3 if skips else len(stand_in.asked) > 5


def test_folders_that_a_store_leaves_out_are_taken_from_the_keys(
    store: S3Store, stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """s3rver leaves them out below a prefix."""
    listing = s3_stand_in.Handler._listing

    def bare(handler: s3_stand_in.Handler, query: dict[str, str]) -> str:
        return "<ListBucketResult/>" if "delimiter" in query else listing(handler, query)

    monkeypatch.setattr(s3_stand_in.Handler, "_listing", bare)
    names = fill(stand_in, 3)
    assert list(store.models()) == names


def test_keys_that_are_denied_everything_are_not_ready(settings: Settings, stand_in: s3_stand_in.StandIn) -> None:
    """Ceph answers so to wrong keys. The reason names them."""
    stand_in.refusal = DENIED
    told = Registry(settings).ready(Background())
    assert not told.ready
    assert "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or grant s3:ListBucket" in told.reason


def test_a_policy_that_denies_listing_alone_is_served_and_ready(
    settings: Settings, stand_in: s3_stand_in.StandIn
) -> None:
    """The first model that loads shows that the keys are right."""
    stand_in.listable = False
    stand_in.put("p/m/1/model.onnx", ONNX.read_bytes())
    models = Registry(settings)
    assert not models.ready(Background()).ready
    get(models, ModelRef("m", "1"))
    assert models.ready(Background()).ready


def test_a_store_that_names_a_wrong_signature_shows_that_the_keys_are_right(
    store: S3Store, stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Amazon's does so: where only listing is denied, a server is ready before its first model."""
    answer = s3_stand_in.Handler.do_GET
    seen: set[str] = set()

    def checked(handler: s3_stand_in.Handler) -> None:
        signature = handler.headers["Authorization"].rpartition("=")[2][:-1]
        forged = "max-keys=1" in handler.path and "prefix" not in handler.path
        seen.add(signature)
        handler._error(403, "SignatureDoesNotMatch", {}) if forged else answer(handler)

    monkeypatch.setattr(s3_stand_in.Handler, "do_GET", checked)
    stand_in.listable = False
    store.confirm()
    assert store.accepts
    assert len(seen) == 1


def test_what_the_store_accepts_is_found_out_once_a_while(settings: Settings, stand_in: s3_stand_in.StandIn) -> None:
    """Readiness is asked more often than the store."""
    stand_in.refusal = DENIED
    models = Registry(settings)
    reasons = {models.ready(Background()).reason for _ in range(5)}
    assert len(reasons) == 1
    assert len(stand_in.asked) == 2


def test_public_buckets_have_no_keys_to_doubt(settings: Settings, stand_in: s3_stand_in.StandIn) -> None:
    """Listing may be denied to everybody."""
    stand_in.listable = False
    S3Store(settings._replace(s3_anonymous=True)).confirm()
    with pytest.raises(ModelNotLoadable):
        S3Store(settings).confirm()

"""`dragoman push --force` into a bucket with Amazon's rules: at any moment a server finds a complete version."""

import hashlib
import itertools
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from core.errors import ServingError
from handler.commands.meter import Meter
from handler.commands.publish import upload, versions
from handler.commands.publish.buckets.s3 import S3Bucket
from handler.commands.publish.claim import PushClaim
from handler.commands.refused import Refused
from handler.lifecycle.repository import Repository
from handler.stores import Store, open_store
from handler.stores.progress import Progress
from tests.handler.commands.publish.direct import Client
from tests.support import s3_stand_in
from tests.support.s3_writes import Refusal, Thing, md5

URI = "s3://bucket/p"
PART = 1000
"""The bytes in a part here."""
SMALL = {"model.onnx": b"m1", "words.txt": b"w1"}, {"model.onnx": b"m2", "labels.txt": b"l2"}
LARGE = (
    {"model.onnx": b"m1", "weights.bin": b"1" * 2500, "words.txt": b"w1"},
    {"model.onnx": b"m2", "weights.bin": b"2" * 2500, "model-settings.json": b"{}"},
)
ONE = {"model.onnx": b"1" * 2500}, {"model.onnx": b"2" * 2300}
BOTH_LARGE = (
    {"model.onnx": b"1" * 1500, "weights.bin": b"1" * 1500},
    {"model.onnx": b"2" * 1500, "weights.bin": b"2" * 1500},
)


class Place(NamedTuple):
    """A bucket that a publisher writes and a server reads."""

    server: s3_stand_in.StandIn
    store: Store
    bucket: S3Bucket
    client: Client
    path: Path

    def push(self, files: dict[str, bytes], *, number: int = 1, quiet: bool = True) -> None:
        """Pushes as the command does once it has looked at the files here and at the bucket."""
        folder = self.path / f"{abs(hash(frozenset(files.items())))}"
        for name, content in files.items():
            folder.mkdir(exist_ok=True)
            if not (folder / name).exists():
                (folder / name).write_bytes(content)
        (version,) = versions.find(folder, None).versions
        job = versions.PushJob("m", number, version, settings=None, force=True)
        upload.publish(self.bucket, job, Meter(quiet=quiet), PART)

    def tried(self, files: dict[str, bytes], *, number: int = 1) -> Exception | None:
        """Returns how a push fails, or None."""
        try:
            self.push(files, number=number)
        except (Refused, ServingError) as error:
            return error
        return None

    def begin(self, files: dict[str, bytes], folder: str = "1") -> None:
        """Gives the bucket these files of the version, put long ago, and no others."""
        self.server.things.clear()
        self.server.objects.uploads.clear()
        for name, content in files.items():
            meta = {"x-amz-meta-sha256": hashlib.sha256(content).hexdigest()}
            self.server.things[f"p/m/{folder}/{name}"] = Thing(content, md5(content), {}, meta=meta)

    def keys(self) -> set[str]:
        """Returns the keys that the bucket has of the model."""
        return {key.removeprefix("p/m/") for key in self.server.things}

    def served(self) -> dict[str, bytes]:
        """Returns the files that a server loads as version 1."""
        repository = Repository(self.store)
        listing = repository.look("m", None)
        folder = repository.fetch(listing, listing.versions[0], Progress())
        return {path.relative_to(folder.path).as_posix(): path.read_bytes() for path in folder.path.rglob("*.*")}


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """An S3 server that writes like Amazon's, and botocore's client for it, which retries at once."""
    folder = tmp_path_factory.mktemp("replacing")
    with s3_stand_in.running() as server, pytest.MonkeyPatch.context() as patched:
        patched.setattr("botocore.endpoint.time.sleep", lambda _: None)
        settings = server.settings(patched, DRAGOMAN_REPOSITORY=URI, DRAGOMAN_CACHE=str(folder / "cache"))
        store = open_store(settings)
        store.check()  # this connects
        yield Place(server, store, S3Bucket(settings, URI), Client(server.objects), folder)


@pytest.fixture
def place(wired: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """The same for a publisher without a network before the server."""
    client = Client(wired.server.objects)
    monkeypatch.setattr(wired.bucket, "_client", client)
    return wired._replace(client=client)


class At:
    """The fate of the request with a number, from 1; the publisher is dead by the next one if `dies`."""

    def __init__(self, number: int, fate: str, *, dies: bool) -> None:
        self._number, self._fate, self._dies = number, fate, dies
        self._lock, self._numbers = threading.Lock(), itertools.count(1)
        self.reached = False

    def __call__(self) -> str:
        with self._lock:
            number = next(self._numbers)
        self.reached = self.reached or number == self._number
        if number == self._number:
            return self._fate
        return "unasked" if self._dies and number > self._number else ""


@pytest.mark.parametrize("pair", [LARGE, SMALL, ONE, BOTH_LARGE], ids=["large", "small", "one", "both large"])
def test_a_version_is_replaced_as_a_whole(wired: Place, pair: tuple[dict[str, bytes], dict[str, bytes]]) -> None:
    """Amazon does not complete a conditional upload whose key was deleted meanwhile."""
    place, (old, new) = wired, pair
    place.begin(old)
    place.push(new)
    assert place.keys() == {f"1/{name}" for name in new}
    assert place.served() == new
    assert place.server.objects.uploads == {}


@pytest.mark.parametrize(
    ("fate", "dies"), [("unasked", True), ("lost", True), ("lost", False), ("repeated", False), ("refused", False)]
)
@pytest.mark.parametrize("pair", [LARGE, SMALL, ONE], ids=["large", "small", "one"])
def test_whatever_ends_a_push_one_version_is_there_whole_and_the_push_is_run_again(
    place: Place, pair: tuple[dict[str, bytes], dict[str, bytes]], fate: str, *, dies: bool
) -> None:
    """At each request, the push dies before or after it, loses the answer, sends it twice, or is refused."""
    old, new = pair
    for number in itertools.count(1):
        place.begin(old)
        place.client.fate = end = At(number, fate, dies=dies)
        failure = place.tried(new)
        place.client.fate = lambda: ""
        served = place.served()
        assert served in (old, new), (number, place.keys())
        assert failure is not None or served == new, number
        if not end.reached:
            assert failure is None
            break
        place.push(new)
        assert (place.served(), place.keys()) == (new, {f"1/{name}" for name in new}), number
        assert place.server.objects.uploads == {} or (fate, dies) == ("repeated", False), number


def test_a_connection_that_ends_at_any_request_leaves_a_version_whole(wired: Place) -> None:
    """The push uses HTTP; the request was executed, and the client repeats it."""
    old, new = ONE
    for number in itertools.count(1):
        wired.begin(old)
        wired.server.fate = end = At(number, "lost", dies=False)
        failure = wired.tried(new)
        wired.server.fate = lambda: ""
        assert failure is None
        assert wired.served() == new
        if not end.reached:
            break


def test_of_two_pushes_that_replace_a_version_one_gets_through_whole(place: Place) -> None:
    """The second one begins and ends while the first one waits before each of its requests."""
    old, new = LARGE
    other = {"model.onnx": b"m3", "weights.bin": b"3" * 2500, "other.txt": b"o3"}
    for number in itertools.count(1):
        place.begin(old)
        end, failures = At(number, "now", dies=False), []

        def fate(end: At = end, failures: list[Exception | None] = failures) -> str:
            if end() == "now":
                failures.append(place.tried(other))
            return ""

        place.client.fate = fate
        failure = place.tried(new)
        if not end.reached:
            break
        through = [each for each, why in ((new, failure), (other, failures[0])) if why is None]
        assert place.served() in through, (number, failure, failures, place.keys())


def test_an_upload_that_meets_a_change_of_its_key_is_sent_again(place: Place) -> None:
    """The store cannot know whether the key was free all the time: 409 does not mean that another push was faster."""
    old, new = LARGE
    place.begin(old)
    call, completed = place.client._complete_multipart_upload, []

    def disturbed(asked: dict[str, str]) -> None:
        if not completed:
            place.server.objects.write(asked["Key"], place.server.things["p/m/1/model.onnx"])
            place.server.objects.write(asked["Key"], None)
        completed.append(asked["Key"])
        call(asked)

    place.client._complete_multipart_upload = disturbed
    place.push(new)
    assert completed == ["p/m/01/weights.bin"] * 2 + ["p/m/1/weights.bin"]
    assert place.served() == new


def test_a_marker_that_is_written_while_its_successor_is_sent_stays(place: Place) -> None:
    """Of two pushes that replace one file, the first to complete wins: If-Match answers 412 to the second."""
    old, new = ONE
    place.begin(old)
    call = place.client._complete_multipart_upload

    def overtaken(asked: dict[str, str]) -> None:
        place.server.put("p/m/1/model.onnx", b"theirs")
        call(asked)

    place.client._complete_multipart_upload = overtaken
    assert "is being pushed by somebody else" in str(place.tried(new))
    assert place.served() == {"model.onnx": b"theirs"}
    assert place.server.objects.uploads == {}


@pytest.mark.parametrize("folder", ["01", "001"])
def test_a_version_in_a_folder_with_zeros_is_replaced_under_its_plain_name(place: Place, folder: str) -> None:
    """A push that died, or a person, may have left it."""
    old, new = LARGE
    place.begin(old, folder)
    assert place.served() == old
    place.push(new)
    assert (place.served(), place.keys()) == (new, {f"1/{name}" for name in new})


def test_what_a_push_of_something_else_has_left_beside_a_version_is_removed_when_it_is_old(place: Place) -> None:
    """Before that, its push may be in progress: the version stays as it was."""
    old, new = LARGE
    place.begin(old)
    place.server.objects.put("p/m/01/weights.bin", {}, b"theirs")
    assert "m/01/weights.bin was put less than 15 minutes ago by a push that is under way" in str(place.tried(new))
    assert place.served() == old
    place.server.put("p/m/01/weights.bin", b"theirs")
    assert place.tried(new) is None
    assert (place.served(), place.keys()) == (new, {f"1/{name}" for name in new})


def test_a_claim_of_another_push_holds_until_it_is_old(place: Place) -> None:
    """Nothing of the version is changed before that; a claim of the same push does not delay it."""
    old, new = LARGE
    place.begin(old)
    place.server.objects.put("p/m/.push-10", {}, b"of another version")
    place.server.objects.put("p/m/.push-1", {}, b"theirs")
    assert "m/.push-1 was put less than 15 minutes ago by a push that is under way" in str(place.tried(new))
    assert (place.served(), place.server.objects.uploads) == (old, {})
    place.server.put("p/m/.push-1", b"theirs")
    assert place.tried(new) is None
    assert (place.served(), place.keys()) == (new, {".push-10", *(f"1/{name}" for name in new)})


def test_a_push_that_was_overtaken_leaves_the_claim_of_its_successor(place: Place) -> None:
    """It had paused for so long that its claim was old."""
    place.begin(ONE[0])
    (place.path / "model.onnx").write_bytes(b"m1")
    (version,) = versions.find(place.path, None).versions
    claim = PushClaim(place.bucket, versions.PushJob("m", 1, version, settings=None, force=True), ())
    for taken_over, left in ((True, {".push-1", "1/model.onnx"}), (False, {"1/model.onnx"})):
        claim.take()
        if taken_over:
            place.server.put("p/m/.push-1", b"theirs")
        claim.release()
        assert place.keys() == left


def test_a_store_that_copies_no_parts_keeps_the_version_in_its_other_folder(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    """Servers treat both folders alike, and the next push finds it there."""
    old, new = LARGE
    place.begin(old)

    def unknown(_: object) -> None:
        raise Refusal(501, "NotImplemented")

    place.client._upload_part_copy = unknown
    place.push(new, quiet=False)
    assert capsys.readouterr().err.splitlines()[-1] == (
        "m/1 is in the folder 01, which servers read as the same; the next push --force moves it: "
        "the store has no upload_part_copy"
    )
    assert (place.served(), place.keys()) == (new, {f"01/{name}" for name in new})
    place.push(old)
    assert (place.served(), place.keys()) == (old, {f"1/{name}" for name in old})


def test_a_store_that_takes_a_copy_for_an_empty_part_gets_the_bytes(place: Place) -> None:
    """Rclone is such a store: the upload is begun again, and nothing is copied."""
    old, new = LARGE
    place.begin(old)
    place.client._upload_part_copy = lambda _: {}
    place.push(new)
    assert (place.served(), place.keys()) == (new, {f"1/{name}" for name in new})


def test_several_files_without_a_marker_are_not_replaced(place: Place) -> None:
    """A third party's runtime may accept any file as a version: no order of requests hides an incomplete one."""
    old, new = {"a.bin": b"a1", "b.bin": b"b1"}, {"a.bin": b"a2", "b.bin": b"b2"}
    place.begin(old)
    assert "m/1 has several files to replace and no model.onnx, model.py or pipeline.json" in str(place.tried(new))
    assert place.keys() == {"1/a.bin", "1/b.bin"}
    place.push({"a.bin": b"a1", "b.bin": b"b2"})
    assert place.server.things["p/m/1/b.bin"].content == b"b2"


def test_a_number_without_room_for_a_zero_is_not_replaced(place: Place) -> None:
    """Servers read no name of nineteen digits that begins with a zero."""
    old, new = LARGE
    number = 10**17
    place.begin(old, str(number))
    assert f"m/{number} has several files to replace, and its number is too long for a second folder" in str(
        place.tried(new, number=number)
    )
    assert place.keys() == {f"{number}/{name}" for name in old}


def test_a_second_marker_never_stands_alone(place: Place) -> None:
    """Servers use model.onnx of the two: model.py alone would be another model."""
    old, new = ({"model.onnx": b"m%d" % each, "model.py": b"p%d" % each, "a.bin": b"a"} for each in (1, 2))
    place.begin(old)
    seen = []

    def fate() -> str:
        seen.append(place.served())
        return ""

    place.client.fate = fate
    place.push(new)
    assert {served["model.onnx"] for served in seen} == {b"m1", b"m2"}
    assert (place.served(), place.keys()) == (new, {f"1/{name}" for name in new})

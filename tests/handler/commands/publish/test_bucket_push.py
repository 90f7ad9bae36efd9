"""`dragoman push` into a bucket of a real S3 server, and what servers see meanwhile."""

from __future__ import annotations

import hashlib
import itertools
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from core.errors import ServingError, VersionNotFound
from handler.cli import main
from handler.commands.publish import standing
from handler.commands.publish.buckets import s3 as bucket_module
from handler.commands.publish.buckets.s3 import S3Bucket as Publishing
from handler.commands.refused import Refused
from tests.handler.commands.publish.conftest import adds, answer, around, large

if TYPE_CHECKING:
    from handler.lifecycle.repository import Version
    from tests.handler.commands.publish.conftest import Bucket

CHANGES = ("put_object", "complete_multipart_upload", "delete_object")
"""The requests by which an object appears, or disappears."""
LOOKS = 2
"""The number of listings in a push: before it sends, and before anything of it shows."""
ROOT = Path(__file__).parents[4]


def test_versions_are_numbered_on_and_served(run: Any, bucket: Bucket, tmp_path: Path) -> None:
    """Numbers begin at 1. The error stream is empty if the command is to be quiet."""
    folder = adds(1, tmp_path / "m").parent
    target = f"{bucket.uri}/m"
    assert run("push", folder, target, "--quiet") == (0, f"{target}/1: 1 file, 96 B; served\n", "")
    adds(2, folder)
    code, out, err = run("push", folder / "model.onnx", target)
    assert (code, out, err) == (0, f"{target}/2: 1 file, 96 B; served\n", "sent model.onnx, 96 B\n")
    assert bucket.keys() == ["m/1/model.onnx", "m/2/model.onnx"]
    assert answer(bucket.registry(), "m") == 2


def test_thirty_megabytes_go_in_parts_and_come_back_the_same(run: Any, bucket: Bucket, tmp_path: Path) -> None:
    """The test pushes, serves and pulls; every object has its SHA-256, and no upload is left open."""
    folder = large(7, tmp_path / "large")
    code, out, _ = run("push", folder, f"{bucket.uri}/big")
    assert (code, out) == (0, f"{bucket.uri}/big/1: 2 files, 30.0 MB; served\n")
    head = bucket.client.head_object(Bucket=bucket.name, Key="models/big/1/weights.bin")
    assert head["ETag"].endswith('-2"')
    assert head["Metadata"] == {"sha256": hashlib.sha256((folder / "weights.bin").read_bytes()).hexdigest()}
    assert bucket.uploads() == []
    assert answer(bucket.registry(), "big") == 7
    assert run("pull", f"{bucket.uri}/big", tmp_path / "back", "--quiet")[0] == 0
    for name in ("model.onnx", "weights.bin"):
        assert (tmp_path / "back" / "1" / name).read_bytes() == (folder / name).read_bytes()
    assert sorted(path.name for path in (tmp_path / "back").iterdir()) == ["1"]


@pytest.mark.parametrize("size", [3, 20])
def test_whoever_lists_in_between_sees_no_such_version(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """A look follows every single request that changes the bucket, with files that are sent whole and in parts."""
    run("push", adds(1, tmp_path / "one").parent, f"{bucket.uri}/m")
    seen = []

    def look(method: str, key: str, _: Any) -> None:
        if method in (*CHANGES, "upload_part"):
            seen.append((key, answer(bucket.registry(), "m")))

    with monkeypatch.context() as patched:
        around(patched, after=look)
        assert run("push", large(2, tmp_path / "two", size), f"{bucket.uri}/m")[0] == 0
    *before, (last, served) = seen
    assert len(before) >= 1
    assert {served for _, served in before} == {1}
    assert (last, served) == ("m/2/model.onnx", 2)


def test_a_replaced_version_is_never_a_mixture(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After each request that changes something it is complete, old or new; no file of the old one stays."""
    first = large(1, tmp_path / "one", 3)
    (first / "vocabulary.txt").write_text("a b")
    run("push", first, f"{bucket.uri}/m")
    code, out, err = run("push", large(2, tmp_path / "two", 20), f"{bucket.uri}/m", "--version", "1")
    assert (code, out, err) == (1, "", f"dragoman: {bucket.uri}/m/1 exists already: --force replaces it\n")
    seen: list[tuple[int, int]] = []

    def look(method: str, *_: Any) -> None:
        if method in CHANGES:
            (version,) = bucket.served("m")
            seen.append((answer(bucket.registry(), "m"), len(version.files)))

    with monkeypatch.context() as patched:
        around(patched, after=look)
        assert run("push", tmp_path / "two", f"{bucket.uri}/m", "--version", "1", "--force")[0] == 0
    assert [each for each, _ in itertools.groupby(seen)] == [(1, 3), (2, 2)]
    assert bucket.keys() == ["m/1/model.onnx", "m/1/weights.bin"]
    assert bucket.uploads() == []
    assert answer(bucket.registry(), "m") == 2


def test_a_version_of_one_file_is_replaced_in_one_step(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is removed: at every moment there is one."""
    run("push", adds(1, tmp_path / "m").parent, f"{bucket.uri}/m")
    monkeypatch.setattr(Publishing, "delete", None)
    assert run("push", adds(2, tmp_path / "m").parent, f"{bucket.uri}/m", "--version", "1", "--force")[0] == 0
    assert answer(bucket.registry(), "m") == 2


DYING = """
import sys, time
from pathlib import Path
from handler.cli import main
from handler.commands.publish.buckets.s3 import S3Bucket

method, number = sys.argv[1], int(sys.argv[2])
call, calls = S3Bucket._call, [0]

def stuck(self, asked, key=None, **arguments):
    calls[0] += asked == method
    if asked == method and calls[0] == number:
        Path(sys.argv[3]).touch()
        time.sleep(60)
    return call(self, asked, key, **arguments)

S3Bucket._call = stuck
sys.exit(main(sys.argv[4:]))
"""


@pytest.mark.parametrize(("method", "number", "remains"), [
    ("upload_part", 2, []), ("complete_multipart_upload", 1, []), ("put_object", 1, ["m/1/weights.bin"]),
])  # fmt: skip
def test_a_push_that_is_killed_leaves_no_version_and_is_run_again(
    run: Any, bucket: Bucket, tmp_path: Path, method: str, number: int, remains: list[str]
) -> None:
    """It may end anywhere: between parts, before the large object appears, before the marker."""
    folder, there = large(5, tmp_path / "m"), tmp_path / "there"
    command = (sys.executable, "-c", DYING, method, str(number), str(there), "push", str(folder), f"{bucket.uri}/m")
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not there.exists():
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert bucket.keys() == remains
    with pytest.raises(ServingError, match="no version|not in the repository"):
        answer(bucket.registry(), "m")
    code, out, _ = run("push", folder, f"{bucket.uri}/m")
    assert (code, out) == (0, f"{bucket.uri}/m/1: 2 files, 30.0 MB; served\n")
    assert bucket.uploads() == []
    assert answer(bucket.registry(), "m") == 5


@pytest.mark.parametrize(("method", "remains"), [
    ("upload_part", []), ("complete_multipart_upload", []), ("head_object", []), ("put_object", ["m/1/weights.bin"]),
])  # fmt: skip
def test_ctrl_c_leaves_no_part_of_a_version_that_shows(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, remains: list[str]
) -> None:
    """Nothing at all is left before the marker is being sent, which might have arrived."""

    def interrupt(asked: str, *_: Any) -> None:
        if asked == method:
            raise KeyboardInterrupt

    around(monkeypatch, before=interrupt)
    code, out, _ = run("push", large(5, tmp_path / "m", 20), f"{bucket.uri}/m")
    assert (code, out) == (130, "")
    assert bucket.keys() == remains
    assert bucket.uploads() == []


SLOW = """
import os, signal, sys, time
from handler.cli import main
from handler.commands.publish.files import Section

readinto = Section.readinto
def slow(self, buffer):
    if self.counting:
        os.write(1, b".")  # at once: several threads come here
        time.sleep(1)
    return readinto(self, buffer)

Section.readinto = slow
signal.signal(signal.SIGINT, signal.default_int_handler)  # what is started in a shell's background ignores it
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize(("number", "code", "said"), [(signal.SIGINT, 130, b"\n"), (signal.SIGTERM, 143, b"")])
def test_ctrl_c_and_sigterm_end_what_is_under_way(
    bucket: Bucket, tmp_path: Path, number: int, code: int, said: bytes
) -> None:
    """The test sends the real signal in the middle of a slow upload."""
    command = (sys.executable, "-c", SLOW, "push", str(large(5, tmp_path / "m")), f"{bucket.uri}/m")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"."
        assert bucket.uploads() == ["models/m/1/weights.bin"]
        process.send_signal(number)
        process.stdout.read()
        told = process.stderr.read()
    assert (process.returncode, told) == (code, said)
    assert (bucket.keys(), bucket.uploads()) == ([], [])


def watch(monkeypatch: pytest.MonkeyPatch, bucket: Bucket, name: str) -> list[tuple[str | None, list[Version]]]:
    """Notes, after each object that appears or disappears, its key and what a server would serve then."""
    seen = []

    def look(method: str, key: str | None, _: Any) -> None:
        if method in CHANGES:
            seen.append((key, bucket.served(name)))

    around(monkeypatch, after=look)
    return seen


def interpose(monkeypatch: pytest.MonkeyPatch, key: str, *, before: Any = None, after: Any = None) -> None:
    """Runs another client's action just before or after the one PUT of an object."""

    def once(action: Any) -> Any:
        actions = [action] if action else []

        def act(method: str, asked: str | None, _: Any) -> None:
            if actions and (method, asked) == ("put_object", key):
                actions.pop()()

        return act

    around(monkeypatch, before=once(before), after=once(after))


def test_of_two_pushes_of_one_file_the_first_marker_wins(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other push had looked, and found nothing."""
    first, second = (adds(number, tmp_path / f"{number}") for number in (1, 2))
    codes: list[int] = []
    interpose(
        monkeypatch, "m/1/model.onnx", before=lambda: codes.append(main(["push", str(second), f"{bucket.uri}/m"]))
    )
    code, _, err = run("push", first, f"{bucket.uri}/m")
    assert (code, codes) == (1, [0])
    assert "version 1 of 'm' is being pushed by somebody else, or just was" in err
    assert answer(bucket.registry(), "m") == 2


def test_a_push_that_is_refused_gives_up_nothing_of_the_one_under_way(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One object of that push shows and the parts of another have been sent: one of the two pushes succeeds."""
    folders = [large(1, tmp_path / "1", 20), large(2, tmp_path / "2", 1)]
    for folder in folders:
        (folder / "about.txt").write_text(folder.name)
    codes: list[int] = []
    command = ["push", str(folders[1]), f"{bucket.uri}/m", "--version", "1"]
    interpose(monkeypatch, "m/1/about.txt", after=lambda: codes.append(main(command)))
    assert (run("push", folders[0], f"{bucket.uri}/m", "--version", "1")[0], codes) == (0, [1])
    assert answer(bucket.registry(), "m") == 1


def test_a_version_that_somebody_else_writes_into_is_withdrawn(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store whose conditions are not atomic may permit that."""
    interpose(monkeypatch, "m/1/model.onnx", after=lambda: bucket.put("m/1/weights.bin", b"other"))
    code, _, err = run("push", large(1, tmp_path / "m", 3), f"{bucket.uri}/m")
    assert (code, err.count("this push stops")) == (1, 1)
    assert bucket.keys() == ["m/1/weights.bin"]


def test_a_push_that_begins_before_the_others_marker_is_refused(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All files of the first one are there and have been checked: nothing of the second one may come between."""
    first, second = (large(number, tmp_path / f"{number}", 3) for number in (1, 2))
    codes: list[int] = []
    command = ["push", str(second), f"{bucket.uri}/m", "--version", "1"]
    interpose(monkeypatch, "m/1/model.onnx", before=lambda: codes.append(main(command)))
    code, _, err = run("push", first, f"{bucket.uri}/m", "--version", "1")
    assert (code, codes) == (0, [1])
    assert (
        "dragoman: m/1/weights.bin was put less than 15 minutes ago by a push that is under way, or has died: "
        "try again later, or with another --version\n"
    ) in err
    assert answer(bucket.registry(), "m") == 1


def test_what_a_push_of_something_else_has_left_is_removed_when_it_is_old(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The spelling of its folder does not matter."""
    for path in ("m/1/weights.bin", "m/001/words.txt", "m/1/sub/"):
        bucket.put(path, b"other", sha256="0" * 64)
    folder = large(1, tmp_path / "m", 3)
    assert "by a push that is under way, or has died" in run("push", folder, f"{bucket.uri}/m")[2]
    monkeypatch.setattr(standing, "YOUNG", timedelta(days=-1))
    assert run("push", folder, f"{bucket.uri}/m")[0] == 0
    assert bucket.keys() == ["m/1/model.onnx", "m/1/sub/", "m/1/weights.bin"]
    assert answer(bucket.registry(), "m") == 1


def test_another_servers_model_in_a_bucket_is_left_alone_without_force(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push takes the next number, however old the other files are."""
    monkeypatch.setattr(standing, "YOUNG", timedelta(days=-1))
    for path in ("m/1/saved_model.pb", "m/1/variables/variables.index"):
        bucket.put(path, b"other")
    source = adds(1, tmp_path / "m")
    told = "saved_model.pb, which no push has put there: --version 2 leaves it, and --force removes everything"
    assert told in run("push", source, f"{bucket.uri}/m", "--version", "1")[2]
    assert run("push", source, f"{bucket.uri}/m")[0] == 0
    assert bucket.keys() == ["m/1/saved_model.pb", "m/1/variables/variables.index", "m/2/model.onnx"]
    assert run("push", source, f"{bucket.uri}/m", "--version", "1", "--force")[0] == 0
    assert bucket.keys() == ["m/1/model.onnx", "m/2/model.onnx"]


def test_the_same_bytes_pushed_twice_at_the_same_time_are_one_version(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A push that finds its own bytes in place succeeds."""
    path, others = adds(1, tmp_path / "m"), []
    items = Publishing.items

    def overtaken(self: Any, prefix: str) -> Any:
        found = list(items(self, prefix))
        others.append(prefix)
        if len(others) == LOOKS:
            sha256 = {"sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
            key = "models/m/1/model.onnx"
            bucket.client.put_object(Bucket=bucket.name, Key=key, Body=path.read_bytes(), Metadata=sha256)
        return found

    monkeypatch.setattr(Publishing, "items", overtaken)
    assert run("push", path, f"{bucket.uri}/m")[0] == 0
    assert others == ["m/"] * LOOKS


def test_a_push_that_is_overtaken_touches_nothing_of_the_other_one(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused in one line; a version that has appeared meanwhile stays."""
    folder = large(1, tmp_path / "m", 3)
    uploads = Publishing.uploads

    def overtaken(self: Any, prefix: str) -> Any:
        found = uploads(self, prefix)
        assert main(["push", str(large(2, tmp_path / "other", 3)), f"{bucket.uri}/m", "--version", "1"]) == 0
        monkeypatch.setattr(Publishing, "uploads", uploads)
        return found

    def overtaking(self: Any, prefix: str) -> Any:
        monkeypatch.setattr(Publishing, "uploads", uploads)
        return overtaken(self, prefix)

    monkeypatch.setattr(Publishing, "uploads", overtaking)
    code, out, err = run("push", folder, f"{bucket.uri}/m", "--version", "1")
    assert code == 1
    assert "2 files, 3.0 MB; served" in out
    assert err.splitlines()[-1] == (
        "dragoman: version 1 of 'm' is being pushed by somebody else, or just was; this push stops"
    )
    assert answer(bucket.registry(), "m") == 2


def test_a_store_without_conditions_is_written_without_them(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for a store answers 501 to If-None-Match; the last marker counts there."""
    refused = []

    def refuse(_: str, key: str, arguments: Any) -> None:
        if "IfNoneMatch" in arguments:
            refused.append(key)
            raise bucket_module._Unsupported

    around(monkeypatch, before=refuse)
    assert run("push", large(4, tmp_path / "m", 3), f"{bucket.uri}/m")[0] == 0
    assert refused == ["m/1/weights.bin"]
    assert answer(bucket.registry(), "m") == 4


def test_a_file_that_changes_while_it_is_sent_is_refused(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No part of it shows."""
    folder = large(4, tmp_path / "m", 20)
    part = Publishing.part

    def changing(self: Any, *arguments: Any) -> Any:
        os.utime(folder / "weights.bin", ns=(1, 1))
        return part(self, *arguments)

    monkeypatch.setattr(Publishing, "part", changing)
    code, _, err = run("push", folder, f"{bucket.uri}/m")
    assert (code, err) == (1, f"dragoman: {folder / 'weights.bin'} has changed while it was sent: push it again\n")
    assert (bucket.keys(), bucket.uploads()) == ([], [])


def test_a_models_settings_go_with_it_and_a_versions_with_the_version(run: Any, bucket: Bucket, tmp_path: Path) -> None:
    """A model's folder brings every version, or one of them; the output names those that the policy leaves out."""
    for number in (1, 2):
        adds(number, tmp_path / "m" / str(number))
    (tmp_path / "m" / "2" / "model-settings.json").write_text('{"platform": "mine"}')
    (tmp_path / "m" / "model-settings.json").write_text('{"name": "m", "version_labels": {"stable": 1}}')
    target = f"{bucket.uri}/m"
    code, out, _ = run("push", tmp_path / "m", target, "--version", "2")
    assert (code, out) == (0, f"{target}/2: 2 files, 116 B; served\n")
    assert bucket.keys() == ["m/2/model-settings.json", "m/2/model.onnx", "m/model-settings.json"]
    assert run("push", tmp_path / "m", target)[2] == (
        f"dragoman: {target}/2 exists already: --force replaces it; --version pushes another one alone\n"
    )
    code, out, _ = run("push", tmp_path / "m", target, "--version", "1")
    assert (code, out) == (0, f"{target}/1: 1 file, 96 B; not served by the version policy\n")
    with pytest.raises(VersionNotFound):
        answer(bucket.registry(), "m", 1)


def test_a_models_settings_never_name_a_version_that_is_not_there(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are the last object of several versions: after each object, a server serves a version."""
    run("push", adds(1, tmp_path / "one").parent, f"{bucket.uri}/m")
    for number in (2, 3):
        adds(number, tmp_path / "m" / str(number))
    (tmp_path / "m" / "model-settings.json").write_text('{"version_policy": {"specific": {"versions": [2]}}}')
    with monkeypatch.context() as patched:
        seen = watch(patched, bucket, "m")
        assert run("push", tmp_path / "m", f"{bucket.uri}/m")[0] == 0
    assert [(key, [version.number for version in served]) for key, served in seen] == [
        ("m/2/model.onnx", [2]),
        ("m/3/model.onnx", [3]),
        ("m/model-settings.json", [2]),
    ]


def test_a_push_that_is_refused_leaves_the_models_settings(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those of the push that came first."""
    bucket.put("m/model-settings.json", b"{}")
    adds(1, tmp_path / "m" / "1")
    (tmp_path / "m" / "model-settings.json").write_text('{"version_policy": {"all": {}}}')
    interpose(monkeypatch, "m/1/model.onnx", before=lambda: bucket.put("m/1/model.onnx", b"other"))
    code, _, err = run("push", tmp_path / "m", f"{bucket.uri}/m")
    assert (code, err.count("this push stops")) == (1, 1)
    assert bucket.get("m/model-settings.json") == b"{}"


@pytest.mark.parametrize("before", ["nothing", "a version"])
def test_a_version_stays_if_the_models_settings_cannot_follow_it(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    """Servers may have seen it; if it has replaced one, none would be left."""
    large(1, tmp_path / "m" / "1", 3)
    if before == "a version":
        assert run("push", tmp_path / "m", f"{bucket.uri}/m")[0] == 0
    large(2, tmp_path / "m" / "1", 3)
    (tmp_path / "m" / "model-settings.json").write_text('{"version_policy": {"all": {}}}')

    def denied() -> None:
        raise Refused("denied")

    interpose(monkeypatch, "m/model-settings.json", before=denied)
    code, out, err = run("push", tmp_path / "m", f"{bucket.uri}/m", "--force")
    told = "dragoman: m/1 is there, but m/model-settings.json is not put: denied"
    assert (code, out, err.splitlines()[-1]) == (1, "", told)
    assert bucket.keys() == ["m/1/model.onnx", "m/1/weights.bin"]
    assert answer(bucket.registry(), "m") == 2


@pytest.mark.usefixtures("theirs")
def test_a_version_that_the_models_settings_complete_shows_with_them(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third party's runtime has no marker, and any file would do: all files are there before the settings."""
    (tmp_path / "m" / "1").mkdir(parents=True)
    for name in ("a.bin", "b.bin"):
        (tmp_path / "m" / "1" / name).write_text(name)
    (tmp_path / "m" / "model-settings.json").write_text('{"implementation": "theirs"}')
    with monkeypatch.context() as patched:
        seen = watch(patched, bucket, "m")
        assert run("push", tmp_path / "m", f"{bucket.uri}/m")[0] == 0
    assert [(key, [sorted(version.paths) for version in served]) for key, served in seen] == [
        ("m/1/a.bin", []),
        ("m/1/b.bin", []),
        ("m/model-settings.json", [["a.bin", "b.bin"]]),
    ]


@pytest.mark.parametrize(("wrong", "message"), [
    ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "the store refuses the keys: check AWS_ACCESS_KEY_ID and"),
    ({"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"}, "the store at 127.0.0.1 does not answer"),
    ({"AWS_ENDPOINT_URL_S3": "http://"}, "does not answer"),
])  # fmt: skip
@pytest.mark.parametrize("command", ["push", "pull", "list"])
def test_what_is_wrong_with_a_store_is_said_in_one_line_with_its_cure(
    run: Any, bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, wrong: Any, message: str
) -> None:
    """Servers use the same text."""
    for variable, value in wrong.items():
        monkeypatch.setenv(variable, value)
    arguments = (adds(1, tmp_path / "m"), f"{bucket.uri}/m") if command == "push" else (f"{bucket.uri}/m",)
    code, out, err = run(command, *arguments)
    assert (code, out) == (1, "")
    assert err.startswith("dragoman: ")
    assert err.count("\n") == 1
    assert message in err


@pytest.mark.parametrize("command", ["push", "pull", "list"])
def test_a_bucket_that_does_not_exist_is_named(run: Any, bucket: Bucket, tmp_path: Path, command: str) -> None:
    """The message does not name a setting, because none was set here."""
    arguments = (adds(1, tmp_path / "m"), "s3://no-such-bucket/m") if command == "push" else ("s3://no-such-bucket/m",)
    told = "dragoman: bucket 'no-such-bucket' does not exist: check its name and the region or endpoint\n"
    assert run(command, *arguments) == (1, "", told)

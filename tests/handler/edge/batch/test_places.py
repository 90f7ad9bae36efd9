"""handler.edge.batch.places: a result in a folder appears whole or not at all."""

from pathlib import Path
from typing import Any

import pytest

from core.errors import ModelUnavailable
from handler.edge.batch.places import ResultFolder


def test_two_instances_can_write_one_result_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue may deliver a message twice, and the processes of all instances of a function have the same number."""
    place, replace = ResultFolder(tmp_path), Path.replace
    others = iter([b"second"])

    def replaced(new: Path, path: Path) -> Any:
        for content in others:
            place.put("m/1.jsonl", content)
        return replace(new, path)

    monkeypatch.setattr(Path, "replace", replaced)
    place.put("m/1.jsonl", b"first")
    assert place.names("m/") == ["1.jsonl"]
    assert (tmp_path / "m" / "1.jsonl").read_bytes() == b"first"


def test_a_folder_that_cannot_be_listed_is_not_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mount can fail for a while. Lambda tries again; a folder that is not there yet has no results."""
    place = ResultFolder(tmp_path)
    place.put("file", b"x")
    assert place.names("m/") == place.names("file/") == []

    def fail(_: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "iterdir", fail)
    with pytest.raises(ModelUnavailable, match="DRAGOMAN_BATCH_OUTPUT cannot be listed: Input/output error"):
        place.names("m/")


def test_a_result_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt has a name of its own, so that a full disk would collect them."""
    place = ResultFolder(tmp_path)

    def fail(path: Path, _: bytes) -> int:
        path.open("wb").close()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(ModelUnavailable, match="DRAGOMAN_BATCH_OUTPUT cannot be written: No space left on device"):
        place.put("m/1.jsonl", b"x")
    assert place.names("m/") == []

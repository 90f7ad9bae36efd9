"""handler.lifecycle.attempts: loads that a process did not survive."""

import os
from pathlib import Path
from typing import Any

import pytest

from core.deadline import NEVER, Deadline, within
from core.errors import ModelNotLoadable, ModelUnavailable, StillLoading
from handler.lifecycle.attempts import FOLDER, MOST, attempt
from tests.handler.lifecycle.samples import Clock

NEVER_LEFT: list[Any] = []


def cut_off(cache: Path, deadline: Deadline) -> None:
    """Makes a load in whose middle the process ends: the rest is not run."""
    NEVER_LEFT.append(attempt(cache, "m", 1, 0, deadline))
    NEVER_LEFT[-1].__enter__()


def test_a_load_that_was_cut_off_too_often_is_refused_with_its_cure(tmp_path: Path, clock: Clock) -> None:
    """The load is tried again once it has more time."""
    for _ in range(MOST):
        cut_off(tmp_path, within(20))
    with (
        pytest.raises(
            ModelNotLoadable, match=r"cut off 3 times, with 20.0 s .* raise the function's timeout or memory"
        ),
        attempt(tmp_path, "m", 1, 0, within(20)),
    ):
        pytest.fail("not tried")
    with attempt(tmp_path, "m", 2, 0, within(20)), attempt(tmp_path, "n", 1, 0, within(20)):
        pass
    cut_off(tmp_path, within(30))
    with attempt(tmp_path, "m", 1, 0, within(30)):
        pass
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_load_that_fails_leaves_no_trace(tmp_path: Path) -> None:
    """A failure is not an attempt that was cut off."""
    with pytest.raises(ZeroDivisionError), attempt(tmp_path, "m", 1, 0, within(20)):
        raise ZeroDivisionError
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_load_that_would_hardly_end_is_left_to_a_request_with_more_time(tmp_path: Path, clock: Clock) -> None:
    """Its size, or the time of an earlier attempt, decides that once; the next request begins with the time it has."""
    short = within(2)
    for _ in range(2):
        with pytest.raises(StillLoading, match="fetched, but not yet loaded"), attempt(tmp_path, "m", 1, 10**9, short):
            pytest.fail("not tried")
        with attempt(tmp_path, "m", 1, 10**9, short):
            pass
    with attempt(tmp_path, "m", 1, 10**6, short):
        pass
    cut_off(tmp_path, within(20))
    with pytest.raises(StillLoading), attempt(tmp_path, "m", 1, 10**6, short):
        pytest.fail("not tried")


def test_only_the_process_cuts_a_load_off(tmp_path: Path, clock: Clock) -> None:
    """A client's earlier deadline does not put the load off, unless a loaded version can answer the client."""
    client = within(20).with_client(within(0.1))
    cut_off(tmp_path, client)
    (trace,) = (tmp_path / FOLDER).iterdir()
    assert trace.read_text().startswith("20.0 1 0 ")
    with pytest.raises(ModelUnavailable), attempt(tmp_path, "n", 1, 0, client._replace(beside=0.1)):
        pytest.fail("not tried")


def test_what_would_keep_a_loaded_model_from_answering_is_never_begun(tmp_path: Path, clock: Clock) -> None:
    """The load time of the old version and the size of the new one decide that, and no trace is left."""
    for _ in range(3):
        for beside, size in ((2.5, 0), (0.1, 10**9)):
            short = within(2)._replace(beside=beside)
            with pytest.raises(ModelUnavailable, match="more time than"), attempt(tmp_path, "m", 1, size, short):
                pytest.fail("not tried")
    assert not (tmp_path / FOLDER).exists()
    with attempt(tmp_path, "m", 1, 0, within(2)._replace(beside=1.5)):
        pass


def test_the_init_phase_does_not_repeat_what_was_cut_off(tmp_path: Path) -> None:
    """A request has more time than the init phase."""
    cut_off(tmp_path, within(9, init=True))
    with pytest.raises(StillLoading), attempt(tmp_path, "m", 1, 0, within(9, init=True)):
        pytest.fail("not tried")
    with attempt(tmp_path, "m", 1, 0, within(28)):
        pass


def test_processes_that_load_at_the_same_time_were_not_cut_off(tmp_path: Path) -> None:
    """A trace of a living process does not count; the parent of this test stands for that process."""
    for _ in range(MOST):
        cut_off(tmp_path, within(20))
    (trace,) = (tmp_path / FOLDER).iterdir()
    *numbers, _ = trace.read_text().split()
    trace.write_text(" ".join([*numbers, str(os.getppid())]))
    with attempt(tmp_path, "m", 1, 0, within(20)):
        assert trace.read_text().split()[1] == "1"


def test_without_a_deadline_or_a_folder_no_trace_is_left(tmp_path: Path) -> None:
    """The load is still tried if nothing can cut it off, or if no file can be written."""
    with attempt(tmp_path, "m", 1, 0, NEVER):
        assert list(tmp_path.iterdir()) == []
    file = tmp_path / "file"
    file.touch()
    with attempt(file, "m", 1, 0, within(9)):
        pass
    (tmp_path / FOLDER).mkdir()
    with attempt(tmp_path, "m", 1, 0, within(9)):
        (trace,) = (tmp_path / FOLDER).iterdir()
        trace.write_text("what?")
    cut_off(tmp_path, within(9))
    trace.write_text("what?")
    with attempt(tmp_path, "m", 1, 0, within(9)):
        pass

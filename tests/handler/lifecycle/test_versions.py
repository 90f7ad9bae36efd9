"""handler.lifecycle.versions: the states of one version."""

import logging
import threading
from typing import Any

import pytest

from core.deadline import within
from core.errors import Fault, ModelFailed, ModelNotLoadable, ModelUnavailable, ServerBusy, ServingError, StillLoading
from core.operations import IndexEntry, State
from handler.lifecycle import versions
from handler.lifecycle.backoff import FIRST_PAUSE
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import Event, Postponed, ServedVersion, Status, _Standing
from handler.stores.progress import Progress
from tests.handler.lifecycle.samples import Clock
from tests.handler.lifecycle.versions import one_version
from tests.handler.lifecycle.versions.one_version import loads, new, raises

LOADS = {Status.LOADING, Status.REPLACED}
"""The statuses in which a load ends: another thread may replace the version while it is loaded."""
MOVES = {
    Event.BEGIN: (set(Status) - {Status.READY}, Status.LOADING, "loading"),
    Event.PAUSE: (LOADS, Status.LOADING, "loading"), Event.POSTPONE: (LOADS, Status.POSTPONED, "why"),
    Event.FAIL: (LOADS, Status.FAILED, "why"), Event.LOAD: (LOADS, Status.READY, ""),
    Event.EVICT: ({Status.READY}, Status.EVICTED, "unloaded to make room for other models"),
    Event.UNLOAD: (set(Status), Status.UNLOADED, "unloaded"),
    Event.REPLACE: (set(Status), Status.REPLACED, "replaced by a newer version"),
}  # fmt: skip


def standing(status: Status) -> ServedVersion:
    """Returns a version of this status, which serves."""
    version = new()
    version.serves = True
    version._standing = _Standing(status, "before")
    return version


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("status", Status)
def test_an_event_moves_a_version_as_the_table_says_or_not_at_all(event: Event, status: Status) -> None:
    """An event that cannot come in a status raises, and changes nothing."""
    allowed, after, reason = MOVES[event]
    version = standing(status)
    said = "why" if event in (Event.POSTPONE, Event.FAIL) else None
    if status not in allowed:
        with pytest.raises(AssertionError, match=event.name):
            version._move(event, said)
        assert (version.status, version.reason, version.serves) == (status, "before", True)
        return
    version._move(event, said)
    assert (version.status, version.reason) == (after, reason)
    assert version.serves is (event not in (Event.UNLOAD, Event.REPLACE))


def test_a_new_version_is_fresh() -> None:
    """The index tells a version that was never asked for from one that is not loaded any more."""
    version = new()
    assert version.entry == IndexEntry("m", "7", State.UNAVAILABLE, "not loaded yet", None, fresh=True)
    assert (version.loaded, version.serves, version.load_seconds, version.progress) == (None, False, 0, None)
    assert version.use() is None
    assert not version.evict()
    assert version.due == float("inf")


def test_a_loaded_version_is_ready(clock: Clock) -> None:
    """It serves, it knows how long it took, and its next load is not another one."""
    version = new()

    def slow(*arguments: Any) -> Loaded:
        clock.now += 3
        return loads(*arguments)

    version.obtain(slow)
    assert version.entry == IndexEntry("m", "7", State.READY, "")
    assert (version.serves, version.load_seconds) == (True, 3)
    version.obtain(raises(ZeroDivisionError()))
    assert version.status is Status.READY


def test_a_load_knows_its_deadline_and_what_it_spares() -> None:
    """`obtain` passes both on, and the version's progress is that of its load."""
    version, other, deadline = new(), new(), within(60)

    def load(loaded: ServedVersion, progress: Progress, spared: Any) -> Loaded:
        assert loaded is version
        assert progress is version.progress
        assert (progress.deadline, spared) == (deadline, (other,))
        return loads(loaded)

    version.obtain(load, deadline, spared=(other,))
    assert version.loaded is not None


def test_a_version_that_is_loaded_shows_what_it_waits_for() -> None:
    """The index has it for as long as the load waits."""
    version, seen = new(), []

    def load(loaded: ServedVersion, progress: Progress, _: Any) -> Loaded:
        for waits_for in ("", "memory", ""):
            progress.waits_for = waits_for
            seen.append((version.state, version.reason))
        progress.waits_for = "nothing that counts any more"
        return loads(loaded)

    version.obtain(load)
    assert seen == [(State.LOADING, reason) for reason in ("loading", "waiting for memory", "loading")]
    assert version.reason == ""


@pytest.mark.parametrize(("error", "status", "state"), [
    (StillLoading("1 of 2 MB"), Status.LOADING, State.LOADING),
    (Postponed("no time"), Status.POSTPONED, State.UNAVAILABLE),
])  # fmt: skip
def test_a_load_that_goes_on_later_did_not_fail(error: ServingError, status: Status, state: State) -> None:
    """The next request tries at once, and the index has the reason and no fault."""
    version = new()
    with pytest.raises(type(error)) as raised:
        version.obtain(raises(error))
    assert raised.value is error
    assert (version.status, version.entry) == (status, IndexEntry("m", "7", state, error.message))
    assert not version.is_failing
    version.obtain(loads)
    assert version.status is Status.READY


def test_a_failure_is_raised_again_until_its_pause_has_passed(clock: Clock) -> None:
    """The load is not tried meanwhile, and each refusal has the seconds that are left."""
    version = new()
    with pytest.raises(ModelNotLoadable) as raised:
        version.obtain(raises(ModelNotLoadable("broken")))
    assert raised.value.retry_after == FIRST_PAUSE
    failed = IndexEntry("m", "7", State.UNAVAILABLE, "broken", Fault.FAILED_PRECONDITION)
    assert (version.status, version.entry, version.is_failing) == (Status.FAILED, failed, True)
    clock.now += FIRST_PAUSE / 4
    with pytest.raises(ModelNotLoadable, match="^broken$") as again:
        version.obtain(loads)
    assert (again.value is raised.value, again.value.retry_after) == (False, FIRST_PAUSE * 3 / 4)
    clock.now += FIRST_PAUSE * 3 / 4
    assert not version.is_failing
    version.obtain(loads)
    assert version.entry == IndexEntry("m", "7", State.READY, "")


@pytest.mark.parametrize(("error", "skips_pause"), [(ModelUnavailable("gone"), True), (ServerBusy("full"), False)])
def test_a_pause_does_not_hold_for_calls_nor_after_a_lack_of_memory(
    error: ServingError, clock: Clock, *, skips_pause: bool
) -> None:
    """The load is tried again although the pause has not passed."""
    version = new()
    with pytest.raises(type(error)):
        version.obtain(raises(error))
    assert version.is_failing
    version.obtain(loads, skips_pause=skips_pause)
    assert version.status is Status.READY


def test_an_unforeseen_error_fails_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    """Clients read the kind of the error, the log has the rest."""
    version = new()
    with pytest.raises(ModelFailed, match="^model 'm' version 7 cannot be loaded: ZeroDivisionError$"):
        version.obtain(raises(ZeroDivisionError("/secret")))
    assert version.entry.fault is Fault.INTERNAL
    assert "/secret" in caplog.text


def test_an_unloaded_version_does_not_serve() -> None:
    """A request that uses the model goes on with it; the next one may load it again."""
    version = new()
    version.obtain(loads)
    used = version.use()
    assert used is not None
    version.unload()
    assert (version.status, version.loaded, version.serves) == (Status.UNLOADED, None, False)
    with used as model:
        assert model is used.model
    assert version.use() is None
    version.obtain(loads)
    assert version.serves


def test_the_log_has_an_eviction_before_the_next_load(caplog: pytest.LogCaptureFixture) -> None:
    """A load in another thread cannot begin in between."""
    caplog.set_level(logging.INFO)
    version, lines = new(), list[str]()
    version.obtain(loads)
    again = threading.Thread(target=version.obtain, args=(loads,))

    def interrupt(record: logging.LogRecord) -> bool:
        if record.getMessage().endswith("to make room"):
            again.start()
            again.join(0.1)  # would end here if it could
        lines.append(record.getMessage().split(" version 7 ")[1].partition(" in ")[0])
        return True

    logger = logging.getLogger(versions.__name__)
    logger.addFilter(interrupt)
    try:
        assert version.evict()
        again.join()
    finally:
        logger.removeFilter(interrupt)
    assert lines == ["is unloaded to make room", "is being loaded", "loaded"]


def test_an_evicted_version_still_serves() -> None:
    """It is out of memory for another model's sake only."""
    version = new()
    version.obtain(loads)
    assert version.evict()
    assert (version.status, version.loaded, version.serves) == (Status.EVICTED, None, True)
    assert not version.evict()


def test_a_replaced_version_may_be_loaded_by_a_request_that_holds_it() -> None:
    """It is out of memory at once, without its requests having ended."""
    version = new()
    version.obtain(loads)
    version.replace()
    assert (version.status, version.loaded, version.serves) == (Status.REPLACED, None, False)
    version.obtain(loads)
    assert version.status is Status.READY


def test_a_load_that_is_under_way_ends_although_the_version_is_replaced() -> None:
    """Replacing does not wait for it."""
    version = new()

    def load(*arguments: Any) -> Loaded:
        version.replace()
        assert version.reason == "replaced by a newer version"
        return loads(*arguments)

    version.obtain(load)
    assert (version.status, version.serves) == (Status.READY, True)


def test_what_is_forgiven_is_tried_at_once_and_looked_at_again() -> None:
    """The clock may be a different one now, as after a snapshot."""
    version = new()
    with pytest.raises(ModelNotLoadable):
        version.obtain(raises(ModelNotLoadable("broken")))
    version.forgive()
    assert (version.is_failing, version.due) == (False, float("-inf"))
    version.obtain(loads)
    assert version.status is Status.READY


def test_a_version_takes_over_its_newest_listing_and_its_next_look() -> None:
    """Neither changes what is in memory."""
    version, found = new(), one_version.listing(b"{}")
    version.relist(found)
    version.look_again(9.0)
    assert (version.listing, version.due, version.status) == (found, 9.0, Status.NEW)

"""handler.lifecycle.versions: any sequence of events, compared with a simple model of one version."""

import time
from typing import Any, Final

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from core.errors import ModelFailed, ModelNotLoadable, ModelUnavailable, ServerBusy, ServingError, StillLoading
from core.operations import IndexEntry, State
from handler.lifecycle.usage import Loaded
from handler.lifecycle.versions import Postponed, ServedVersion, Status
from handler.stores.progress import Progress
from tests.handler.lifecycle.samples import Clock
from tests.handler.lifecycle.versions.one_version import listing, loads, new

AFTER: Final = {StillLoading: Status.LOADING, Postponed: Status.POSTPONED}
"""The status after a load that did not fail, and did not end; after every other error it is FAILED."""
UNFORESEEN: Final = "model 'm' version 7 cannot be loaded: KeyError"
REASONS: Final = {
    "evict": "unloaded to make room for other models", "unload": "unloaded", "replace": "replaced by a newer version",
}  # fmt: skip
OUTCOMES: Final = [None, StillLoading, Postponed, ModelNotLoadable, ModelUnavailable, ServerBusy, KeyError]
"""The outcome of a load: None is a model in memory."""


class OneVersion(RuleBasedStateMachine):
    """Compares a version with the attributes of this model after any events."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.clock = Clock()
        self.patch.setattr(time, "monotonic", self.clock)
        self.version = new()
        self.status, self.reason = Status.NEW, "not loaded yet"
        self.failure: ServingError | None = None  # the failure of the status
        self.pausing: ServingError | None = None  # the failure that holds until it is forgiven
        self.until = 0.0
        self.failures = 0
        self.loaded: Loaded | None = None
        self.serves = False
        self.due = float("inf")
        self.listing = self.version.listing
        self.uses: list[Loaded] = []
        self.every: list[Loaded] = []
        self.load_seconds = 0.0

    def teardown(self) -> None:
        """Puts the clock back."""
        self.patch.undo()

    def stand(self, status: Status, reason: str = "", failure: ServingError | None = None) -> None:
        self.status, self.reason, self.failure = status, reason, failure

    @property
    def pause(self) -> float:
        """Returns the seconds until the next try."""
        return self.until - self.clock.now if self.pausing is not None else 0.0

    @rule(
        outcome=st.sampled_from(OUTCOMES),
        seconds=st.sampled_from([0.0, 0.5]),
        skips_pause=st.booleans(),
        replaced=st.booleans(),
    )
    def obtain(self, outcome: type[Exception] | None, seconds: float, *, skips_pause: bool, replaced: bool) -> None:
        """Asks for the model, whose load takes some time; meanwhile the version may be replaced."""
        tried: list[ServedVersion] = []

        def load(version: ServedVersion, progress: Progress, _: Any) -> Loaded:
            tried.append(version)
            progress.waits_for = "room"
            assert (version.status, version.reason) == (Status.LOADING, "waiting for room")
            progress.waits_for = ""
            self.clock.now += seconds
            if replaced:
                version.replace()
                assert (version.status, version.loaded, version.serves) == (Status.REPLACED, None, False)
            if outcome is not None:
                raise outcome("why")
            self.every.append(loads(version))
            return self.every[-1]

        refused, wait = self.pausing, self.pause
        may_try = skips_pause or wait <= 0 or isinstance(refused, ServerBusy)
        raised = None
        try:
            self.version.obtain(load, skips_pause=skips_pause)
        except ServingError as error:
            raised = error
        if self.loaded is not None:
            assert (tried, raised) == ([], None)
        elif not may_try:
            assert refused is not None
            assert raised is not None
            assert (tried, type(raised), raised.message) == ([], type(refused), refused.message)
            assert raised.retry_after == wait
        else:
            assert tried == [self.version]
            self.serves = self.serves and not replaced
            self.ended(outcome, raised, seconds)

    def ended(self, outcome: type[Exception] | None, raised: ServingError | None, seconds: float) -> None:
        """Notes how a load ended."""
        if outcome is None:
            assert raised is None
            self.loaded, self.serves, self.load_seconds = self.every[-1], True, seconds
            self.pausing, self.failures = None, 0
            self.stand(Status.READY)
            return
        assert type(raised) is (ModelFailed if outcome is KeyError else outcome)
        if outcome in AFTER:
            self.stand(AFTER[outcome], "why")
            return
        pause = min(60.0, 2.0**self.failures)
        self.pausing, self.until = raised, self.clock.now + pause
        self.failures += outcome is not ServerBusy
        self.stand(Status.FAILED, UNFORESEEN if outcome is KeyError else "why", raised)
        assert raised.retry_after == pause

    @rule()
    def use(self) -> None:
        """Begins to use what is in memory."""
        used = self.version.use()
        assert used is self.loaded
        if used is not None:
            assert used.last_use == max(loaded.last_use for loaded in self.every)
            self.uses.append(used)

    @precondition(lambda self: self.uses)
    @rule(data=st.data())
    def again(self, data: st.DataObject) -> None:
        """Takes another use, for an answer that outlives its request, whether its model left memory or not."""
        used = data.draw(st.sampled_from(self.uses))
        assert used.again() is used
        self.uses.append(used)

    @precondition(lambda self: self.uses)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        used = self.uses.pop(data.draw(st.integers(0, len(self.uses) - 1)))
        with used as model:
            assert model is used.model

    @rule()
    def evict(self) -> None:
        """Evicts the version, because another model needs the memory."""
        may = self.loaded is not None and self.loaded not in self.uses
        assert self.version.evict() is may
        if may:
            self.loaded = None
            self.stand(Status.EVICTED, REASONS["evict"])

    @rule(event=st.sampled_from(["unload", "replace"]))
    def take_out(self, event: str) -> None:
        """Takes the version out: a client unloads it, or a newer version replaces it."""
        getattr(self.version, event)()
        self.loaded, self.serves = None, False
        self.stand(Status.UNLOADED if event == "unload" else Status.REPLACED, REASONS[event])

    @rule()
    def forgive(self) -> None:
        """Forgives the failure, because the process continues elsewhere."""
        self.version.forgive()
        self.pausing, self.failures, self.due = None, 0, float("-inf")

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 60.0]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(seconds=st.sampled_from([0.0, 60.0]))
    def look(self, seconds: float) -> None:
        """Looks at the repository, which still has these files."""
        self.listing, self.due = listing(b"%d" % seconds), self.clock.now + seconds
        self.version.relist(self.listing)
        self.version.look_again(self.due)

    @invariant()
    def is_in_memory_only_if_it_is_ready(self) -> None:
        """Checks that only a ready model is in memory, and that it has as many uses as requests that have not ended."""
        assert self.version.loaded is self.loaded
        assert (self.loaded is not None) == (self.version.status is Status.READY)
        for loaded in self.every:
            assert len(loaded.uses) == self.uses.count(loaded)

    @invariant()
    def says_what_it_is(self) -> None:
        """Checks that status, state, reason and fault are those of the last event."""
        assert (self.version.status, self.version.reason) == (self.status, self.reason)
        state = {Status.READY: State.READY, Status.LOADING: State.LOADING}.get(self.status, State.UNAVAILABLE)
        fault = self.failure.fault if self.failure is not None else None
        is_fresh = self.status is Status.NEW
        assert self.version.entry == IndexEntry("m", "7", state, self.reason, fault, is_fresh)

    @invariant()
    def serves_from_its_load_until_it_is_given_up(self) -> None:
        """Checks that neither an eviction nor a failed load ends serving."""
        assert self.version.serves is self.serves
        assert self.version.load_seconds == self.load_seconds

    @invariant()
    def pauses_after_a_failure(self) -> None:
        """Checks that a success and forgiveness end the pause."""
        backoff = self.version._backoff
        assert (0.0 if backoff is None else backoff.left) == self.pause
        assert self.version.is_failing is (self.loaded is None and self.pause > 0)

    @invariant()
    def knows_its_latest_listing(self) -> None:
        """Checks the listing, and when the next one is due."""
        assert (self.version.listing, self.version.due) == (self.listing, self.due)


TestOneVersion = OneVersion.TestCase
TestOneVersion.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, derandomize=True)

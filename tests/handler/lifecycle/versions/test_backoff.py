"""handler.lifecycle.backoff: when a load that failed may be tried again."""

import pytest

from core.errors import ModelNotLoadable, ModelUnavailable, ServerBusy, ServingError, VersionNotFound
from handler.lifecycle.backoff import FIRST_PAUSE, LONGEST_PAUSE, Backoff
from handler.stores import WrongContent
from tests.handler.lifecycle.samples import Clock


def test_pauses_double_up_to_the_longest(clock: Clock) -> None:
    """However often a load fails, it is tried once a minute."""
    backoff = Backoff()
    pauses = [backoff.fail(ModelNotLoadable("broken")) for _ in range(20)]
    assert pauses == [FIRST_PAUSE * factor for factor in (1, 2, 4, 8, 16, 32)] + [LONGEST_PAUSE] * 14


def test_a_pause_passes(clock: Clock) -> None:
    """The time that is left reaches zero when the load may be tried again, and is negative afterwards."""
    backoff = Backoff()
    assert backoff.left == 0
    backoff.fail(ModelNotLoadable("broken"))
    assert backoff.left == FIRST_PAUSE
    clock.now += FIRST_PAUSE
    assert backoff.left == 0
    clock.now += 1
    assert backoff.left == -1


def test_a_lack_of_memory_does_not_lengthen_the_next_pause(clock: Clock) -> None:
    """The model is not to blame for it."""
    backoff = Backoff()
    errors = [ServerBusy("full"), ServerBusy("full"), ModelUnavailable("gone"), ServerBusy("full")]
    assert [backoff.fail(error) / FIRST_PAUSE for error in errors] == [1, 1, 1, 2]


def test_the_last_failure_is_kept_without_what_it_held() -> None:
    """A copy stands for the error, whose traceback would keep whole requests alive."""
    backoff = Backoff()
    with pytest.raises(ModelUnavailable) as raised:
        raise ModelUnavailable("gone", retry_after=9)
    backoff.fail(raised.value)
    kept = backoff.failure
    assert kept is not None
    assert (type(kept), kept.message, kept.__traceback__) == (ModelUnavailable, "gone", None)
    assert kept is not raised.value


@pytest.mark.parametrize("failure", [VersionNotFound("gone", "7", model="m", hint="h"), WrongContent("model.onnx")])
def test_the_pause_repeats_a_failure_with_its_facts(clock: Clock, failure: ServingError) -> None:
    """Errors have members of their own, from which each protocol makes its words."""
    backoff = Backoff()
    backoff.fail(failure)
    with pytest.raises(type(failure)) as raised:
        backoff.check()
    assert vars(raised.value) == vars(failure) | {"retry_after": FIRST_PAUSE}

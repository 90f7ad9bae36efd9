"""handler.edge.server.h2.resets: which bytes of a client zttp gets."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from handler.edge.server.h2.resets import MOST_REQUESTS, MOST_RESETS, PREFACE, ClientResets
from tests.support.http2 import DATA, HEADERS, PING, RST_STREAM, frame

OTHERS = st.tuples(st.sampled_from([DATA, HEADERS, PING]), st.binary(max_size=40))
RESETS = st.just((RST_STREAM, bytes(4)))
WRONG = st.just((RST_STREAM, bytes(5)))  # zttp refuses it


@given(st.lists(OTHERS | RESETS | WRONG, max_size=60), st.lists(st.integers(0, 2000)), st.integers(0, MOST_RESETS))
def test_zttp_gets_all_but_the_resets_beyond_the_first_ones(
    sent: list[tuple[int, bytes]], cuts: list[int], before: int
) -> None:
    """However the bytes are cut. Each piece ends where the reset was that it lacks."""
    frames = [(RST_STREAM, bytes(4))] * before + sent
    written = [frame(kind, 2 * number + 1, payload) for number, (kind, payload) in enumerate(frames)]
    wire = PREFACE + b"".join(written)
    resets = ClientResets()
    got: list[tuple[bytes, int]] = []
    for start, end in pairwise([0, *sorted(min(cut, len(wire)) for cut in cuts), len(wire)]):
        got += resets.parts(wire[start:end])
    numbers = [number for number, (kind, payload) in enumerate(frames) if kind == RST_STREAM and len(payload) == 4]
    kept = [each for number, each in enumerate(written) if number not in numbers[MOST_RESETS:]]
    assert b"".join(part for part, _ in got) == PREFACE + b"".join(kept)
    assert [stream for _, stream in got if stream] == [2 * number + 1 for number in numbers[MOST_RESETS:]]
    assert resets.count == len(numbers)
    size = 0
    for part, stream in got:
        size += len(part)
        if stream:
            before_it = [
                each for number, each in enumerate(written[: stream // 2]) if number not in numbers[MOST_RESETS:]
            ]
            assert size == len(PREFACE) + sum(map(len, before_it))


def test_zttp_gets_more_resets_than_a_connection_can_have_requests() -> None:
    """It ignores them, or breaks the connection off."""
    resets, one = ClientResets(), frame(RST_STREAM, 1, bytes(4))
    parts = resets.parts(PREFACE + one * (MOST_REQUESTS + 3))
    assert [stream for _, stream in parts] == [1] * (MOST_REQUESTS - MOST_RESETS) + [0]
    assert b"".join(part for part, _ in parts) == PREFACE + one * (MOST_RESETS + 3)

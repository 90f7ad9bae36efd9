"""handler.lifecycle.usage: statistics, and which models are quick."""

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from core.operations import ModelRef, ModelSpec
from core.statistics import BatchCount, Count, Statistics
from handler.lifecycle import usage
from handler.lifecycle.usage import (
    _ENDED,
    MOST_ENDED,
    MOST_PROBATION,
    MOST_QUICK_RUNS,
    PROBATION,
    QUICK_NS,
    QUICK_RUNS,
    SLOW_NS,
    Loaded,
    MemoryGate,
    Pace,
    Traffic,
    most_cpu,
)
from handler.stores import Folder
from tests.handler.lifecycle.samples import PATIENT, M, add, get, record, registry, say


def test_what_ended_is_counted_before_anybody_reads_it(root: Path) -> None:
    """Inferences are counted many at a time: each reader sees all of them, with the times at which they ended."""
    add(root, "m", "1")
    models = registry(root)
    get(models)
    for count in range(1, 2 * MOST_ENDED + 2):
        record(models, M, (1, 2, 3, 4), 9, success=True)
        assert len(_ENDED) < MOST_ENDED
        if count % MOST_ENDED == 1:
            assert models.statistics(M, PATIENT)[0].inference_count == count
            assert not _ENDED
    record(models, M, (1, 2, 3, 4), 9, success=True)
    models.series()
    assert not _ENDED


def test_numbers_are_kept_by_version(root: Path) -> None:
    """Failures count apart from successes."""
    models = registry(root)
    get(models)
    record(models, ModelRef("m", "1"), (1, 2, 3, 4), 9, success=True)
    record(models, M, (5, 6), 9, success=False)
    stats = models.statistics(M, PATIENT)[0]
    assert (stats.success.times, stats.success.ns, stats.fail.times, stats.fail.ns) == (1, 10, 1, 11)
    assert [c.ns for c in (stats.queue, stats.compute_input, stats.compute_infer, stats.compute_output)] == [1, 2, 3, 4]


def test_a_model_is_quick_after_a_run_of_short_requests_of_that_size(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refusals and longer bodies prove nothing, longer requests end the run, and a very long one begins a probation."""
    monkeypatch.setattr(usage, "most_cpu", lambda: SLOW_NS)  # what takes long here computes
    models, ref = registry(root), M
    assert not models.is_quick(ref, 0)
    get(models, ref)
    for _ in range(QUICK_RUNS):  # refusals prove nothing
        record(models, ref, (0, 1000), 100, success=False)
    assert not models.is_quick(ref, 100)

    def run(times: int, ns: int = 1000, size: int = 100) -> bool:
        for _ in range(times):
            record(models, ref, (10**9, 0, ns, 0), size, success=True)
        return models.is_quick(ref, 100)

    assert not run(QUICK_RUNS - 1)
    assert run(1)
    assert not models.is_quick(ref, 101)
    assert not run(1, ns=QUICK_NS)
    assert run(MOST_QUICK_RUNS * QUICK_RUNS * 2)
    assert run(1, ns=QUICK_NS)
    assert not run(2, ns=QUICK_NS)
    assert run(QUICK_RUNS)
    assert not run(1, ns=SLOW_NS + 1)
    assert not run(PROBATION * QUICK_RUNS - 1)
    assert run(1)


def test_a_python_model_is_never_quick(root: Path) -> None:
    """Its code may do anything at any time."""
    folder = root / "p" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("def predict(inputs, parameters): return {}")
    models, ref = registry(root, ALLOW_CODE="true"), ModelRef("p")
    get(models, ref)
    for _ in range(QUICK_RUNS):
        record(models, ref, (0, 0, 1, 0), 1, success=True)
    assert not models.is_quick(ref, 1)


def test_a_canary_is_quick_only_if_the_stable_version_is(root: Path) -> None:
    """Either of them may answer the next request."""
    add(root, "m", "2")
    say(root, canary={"2": 0.5})
    models = registry(root)
    for number in ("1", "2"):
        assert not models.is_quick(M, 1)
        with (held := models.use(ModelRef("m", number), PATIENT)):
            for _ in range(QUICK_RUNS):
                held.record((0, 0, 1, 0), 1, success=True)
    assert models.is_quick(M, 1)


def test_a_version_that_was_never_asked_has_only_zeros() -> None:
    """The extension lists every version that is known."""
    assert Traffic().statistics("m", "1") == Statistics("m", "1")


def test_successes_and_failures_add_up_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure counts its time, and none of the steps; the time of the last success stays."""
    clocks = SimpleNamespace(time=lambda: 1.0, monotonic=lambda: 100.0, thread_time_ns=lambda: 0)
    monkeypatch.setattr("handler.lifecycle.usage.time", clocks)
    traffic = Traffic()
    for at, durations in ((99.005, (1, 2, 3, 4)), (99.007, (10, 20, 30, 40))):
        traffic.record(at, durations, success=True)
    traffic.record(99.009, (5, 6), success=False)
    steps = [Count(2, ns) for ns in (11, 22, 33, 44)]
    assert traffic.statistics("m", "3") == Statistics("m", "3", 2, 7, Count(2, 110), Count(1, 11), *steps, 2)


def test_the_rows_of_a_request_count_as_inferences() -> None:
    """A request with rows counts as one execution. A failure does not count."""
    traffic = Traffic()
    for rows in (1, 8, 0):
        traffic.record(0, (0, 0, 0, 0), "v2", rows, success=True)
    traffic.record(0, (0, 0), "v2", success=False)
    found = traffic.statistics("m", "1")
    assert (found.inference_count, found.success.times, found.execution_count) == (9, 3, 3)


def test_a_batch_is_one_execution() -> None:
    """Its inferences count one by one, and its rows have an entry; a run without a number of rows has none."""
    traffic = Traffic()
    for shared in (False, True, True, True):
        traffic.record(0, (0, 0, 0, 0), success=True)
        if shared:
            traffic.share()
    for rows in (8, 0, 8, 3):
        traffic.executed(rows, 1, 20, 300)
    found = traffic.statistics("m", "1")
    assert (found.inference_count, found.execution_count) == (4, 1 + 4)
    ones, twos = (Count(1, ns) for ns in (1, 20, 300)), (Count(2, ns) for ns in (2, 40, 600))
    assert found.batches == (BatchCount(3, *ones), BatchCount(8, *twos))


def test_no_count_is_lost_between_threads() -> None:
    """Requests of many threads end at the same time."""
    traffic = Traffic()
    with ThreadPoolExecutor(8) as crowd:
        for number in range(800):
            crowd.submit(traffic.record, 0, (1, 1, 1, 1), success=number % 4 > 0)
    found = traffic.statistics("m", "1")
    assert (found.inference_count, found.success, found.fail) == (600, Count(600, 2400), Count(200, 800))


def timed(*runs: tuple[int, int], steady: bool = True, success: bool = True) -> Pace:
    """Returns the pace of a model after runs of (times, nanoseconds), with bodies of 10 bytes."""
    pace = Pace()
    for times, ns in runs:
        for _ in range(times):
            pace.time(ns, 10, success=success, steady=steady)
    return pace


@pytest.mark.parametrize(("runs", "is_quick"), [
    ([], False),
    ([(QUICK_RUNS - 1, 1)], False),
    ([(QUICK_RUNS, 1)], True),
    ([(QUICK_RUNS, QUICK_NS - 1)], True),
    ([(QUICK_RUNS, QUICK_NS)], False),
    ([(QUICK_RUNS, 1), (1, QUICK_NS)], False),
    ([(2 * QUICK_RUNS, 1), (1, SLOW_NS)], True),
    ([(2 * QUICK_RUNS, 1), (2, SLOW_NS)], False),
    ([(1000, 1), (2, QUICK_NS)], True),
    ([(1000, 1), (3, QUICK_NS)], False),
    ([(1000, 1), (3, QUICK_NS), (QUICK_RUNS, 1)], True),
    ([(1000, 1), (1, SLOW_NS + 1)], False),
    ([(1000, 1), (1, SLOW_NS + 1), (PROBATION * QUICK_RUNS - 1, 1)], False),
    ([(1000, 1), (1, SLOW_NS + 1), (PROBATION * QUICK_RUNS, 1)], True),
    ([(2, SLOW_NS + 1), (PROBATION**2 * QUICK_RUNS - 1, 1)], False),
    ([(2, SLOW_NS + 1), (PROBATION**2 * QUICK_RUNS, 1)], True),
    ([(1, SLOW_NS + 1), (10_000, 1), (3, QUICK_NS)], False),
    ([(1, SLOW_NS + 1), (10_000, 1), (2, QUICK_NS)], True),
    ([(9, SLOW_NS + 1), (MOST_PROBATION - 1, 1)], False),
    ([(9, SLOW_NS + 1), (MOST_PROBATION, 1)], True),
])  # fmt: skip
def test_a_pace_is_quick_after_a_run_of_short_requests(runs: list[tuple[int, int]], *, is_quick: bool) -> None:
    """A longer request halves the run, whose length is bounded; a very long one makes the next run longer."""
    assert timed(*runs).is_quick(10) is is_quick


@pytest.mark.parametrize(("runs", "needed"), [
    ([(QUICK_RUNS, SLOW_NS, QUICK_NS // 2 - 1)], 0),
    ([(QUICK_RUNS, QUICK_NS, QUICK_NS // 2)], QUICK_RUNS),
    ([(QUICK_RUNS, SLOW_NS + 1, 1)], QUICK_RUNS),
    ([(4 * QUICK_RUNS, 1, None), (3, SLOW_NS + 1, SLOW_NS // 2 - 1)], QUICK_RUNS - 8),
    ([(QUICK_RUNS, 1, None), (1, SLOW_NS + 1, SLOW_NS // 2)], PROBATION * QUICK_RUNS),
    ([(QUICK_RUNS, 1, None), (1, SLOW_NS + 1, None)], PROBATION * QUICK_RUNS),
])  # fmt: skip
def test_time_without_the_processor_says_nothing_of_a_model(
    runs: list[tuple[int, int, int | None]], needed: int
) -> None:
    """A slow run by the clock alone does not keep a model off the event loop."""
    pace = Pace()
    for times, ns, cpu in runs:
        for _ in range(times):
            pace.time(ns, 10, success=True, steady=True, cpu=cpu)
    found = 0
    while not pace.is_quick(10):
        pace.time(1, 10, success=True, steady=True)
        found += 1
    assert found == needed


@pytest.mark.parametrize(("platform", "providers", "is_quick"), [
    ("onnx", (), True), ("onnx", ("CUDAExecutionProvider",), False), ("pipeline", (), False),
])  # fmt: skip
def test_a_model_that_waits_for_another_device_is_timed_by_the_clock(
    platform: str, providers: tuple[str, ...], *, is_quick: bool
) -> None:
    """Its thread does not compute meanwhile, and would stop an event loop all the same."""
    spec = ModelSpec("m", "3", platform, None, None, providers=providers)
    pace = Pace()
    loaded = Loaded(cast("Any", SimpleNamespace(spec=spec, steady=True)), Folder(Path()), MemoryGate(), Traffic(), pace)
    for _ in range(4 * MOST_ENDED):
        most_cpu()
        loaded.record((0, 2 * QUICK_NS, 0, 0), 10, success=True)
    assert pace.is_quick(10) is is_quick


def test_a_hesitation_without_the_processor_is_forgiven() -> None:
    """The watchdog has ended a run while the machine did something else."""
    model: Any = SimpleNamespace(spec=ModelSpec("m", "3", "onnx", None, None), steady=True)
    pace = timed((4 * QUICK_RUNS, 1))
    loaded = Loaded(model, Folder(Path()), MemoryGate(), Traffic(), pace)
    most_cpu()
    loaded.hesitate()
    assert pace.is_quick(10)


@pytest.mark.parametrize(("durations", "is_quick"), [
    ((10**9, QUICK_NS - 1, 0, 0), True),
    ((0, QUICK_NS // 2, 0, QUICK_NS // 2 - 1), True),
    ((0, QUICK_NS // 2, 0, QUICK_NS // 2), False),
    ((0, 0, QUICK_NS // 2 - 1, 1), True),
    ((0, 0, QUICK_NS // 2, 0), False),
    ((0, QUICK_NS // 4, QUICK_NS // 4, QUICK_NS // 4), False),
    ((0, QUICK_NS // 4, QUICK_NS // 4, QUICK_NS // 4 - 1), True),
])  # fmt: skip
def test_the_models_part_of_a_request_counts_twice_and_the_queue_not_at_all(
    durations: tuple[int, ...], *, is_quick: bool
) -> None:
    """Only the model could run beside the event loop."""
    model: Any = SimpleNamespace(spec=ModelSpec("m", "3", "fake", None, None), steady=True)
    pace = Pace()
    loaded = Loaded(model, Folder(Path()), MemoryGate(), Traffic(), pace)
    for _ in range(QUICK_RUNS):
        loaded.record(durations, 10, success=True)
    assert pace.is_quick(10) is is_quick
    loaded.record((10**9, SLOW_NS + 1), 10, success=False)
    assert not pace.is_quick(10)


def test_a_pace_is_proven_for_bodies_up_to_the_largest_that_was_short() -> None:
    """A shorter body is as quick, a longer one is not proven."""
    pace = timed((QUICK_RUNS, 1))
    assert [pace.is_quick(size) for size in (0, 10, 11)] == [True, True, False]
    pace.time(1, 20, success=True, steady=True)
    assert pace.is_quick(20)
    for ns in (SLOW_NS + 1, *(1,) * PROBATION * QUICK_RUNS):
        pace.time(ns, 10, success=True, steady=True)
    assert [pace.is_quick(size) for size in (10, 11)] == [True, False]


def test_a_model_that_is_not_steady_is_never_quick() -> None:
    """Its next request may take any time."""
    assert not timed((1000, 1), steady=False).is_quick(0)


def test_a_quick_refusal_proves_nothing_and_a_slow_one_does() -> None:
    """A refusal is quick whatever its body; one that takes long is as bad as any request."""
    assert not timed((1000, 1), success=False).is_quick(0)
    pace = timed((QUICK_RUNS, 1))
    pace.time(1, 99, success=False, steady=True)
    assert (pace.is_quick(10), pace.is_quick(99)) == (True, False)
    pace.time(QUICK_NS, 10, success=False, steady=True)
    assert not pace.is_quick(10)


def test_a_use_that_ends_opens_the_gate_for_loads_that_wait() -> None:
    """While no load waits, the gate stays as it is."""
    gate = MemoryGate()
    model: Any = SimpleNamespace(spec=ModelSpec("m", "3", "fake", None, None), steady=True)
    loaded = Loaded(model, Folder(Path()), gate, Traffic(), Pace())
    assert loaded.version == b"3"
    for waiting in (False, True):
        if waiting:
            gate.waiting.append(None)
        loaded.again()
        assert loaded.in_use()
        with loaded as used:
            assert used is model
        assert not loaded.in_use()
        assert gate._freed.is_set() is waiting
    gate.close()
    gate.wait(0.0)
    assert not gate._freed.is_set()


def test_what_a_request_computes_is_looked_at_before_others_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting them looks at the processor's time, too, and the request would seem to have used none."""
    monkeypatch.setattr(usage, "MOST_ENDED", 1)
    model: Any = SimpleNamespace(spec=ModelSpec("m", "3", "onnx", None, None), steady=True)
    pace = Pace()
    loaded = Loaded(model, Folder(Path()), MemoryGate(), Traffic(), pace)
    for _ in range(QUICK_RUNS):
        until = time.thread_time_ns() + QUICK_NS
        while time.thread_time_ns() < until:
            pass
        loaded.record((0, 2 * QUICK_NS, 0, 0), 10, success=True)
    assert not pace.is_quick(10)

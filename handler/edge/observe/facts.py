"""The facts of this process at a scrape, from those who count: requests, inferences, loads, the queue, the memory."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from core.errors import Fault
from handler.edge.observe.counts import CANCELED, Counts, Histogram
from handler.edge.observe.families import FAMILIES, GAUGE
from handler.lifecycle.registry import Registry
from handler.lifecycle.room import memory
from handler.lifecycle.traffic.loads import LOADS

Key = tuple[str, tuple[str, ...]]
Facts = dict[Key, Any]
"""Numbers, and of histograms lists: each step's count, then the nanoseconds."""
REASONS: Final = {
    Fault.UNAVAILABLE.name: "REJECTED",
    Fault.RESOURCE_EXHAUSTED.name: "REJECTED",
    Fault.DEADLINE_EXCEEDED.name: "BACKEND",
    Fault.INTERNAL.name: "BACKEND",
    CANCELED: CANCELED,
}
"""Triton's reasons of failures; every other fault is OTHER."""
OTHER: Final = "OTHER"
ANSWERED: Final = "OK"
ENTRYPOINTS: Final = {"grpc": "GRPC"}
GAUGES: Final = frozenset(family.fact for family in FAMILIES if family.kind == GAUGE)


class Queue(Protocol):
    """The dispatcher, as far as it knows who waits, and takes work that no request waits for."""

    def begin(self, work: Callable[[], None]) -> None: ...

    def pending(self) -> Mapping[tuple[str, str], int]:
        """Returns how many requests wait for a thread, by model and version."""
        ...


def collect(counts: Counts, registry: Registry, queue: Queue) -> Facts:
    """Returns the facts of this process."""
    facts: Facts = {}
    _requests(counts, facts)
    _inferences(counts, registry, facts)
    _loads(registry, facts)
    waiting = queue.pending()
    for labels, number in waiting.items():
        if labels[0]:
            facts["pending", labels] = number
    facts["queue", ()] = sum(waiting.values())
    facts["cold", ()] = counts.cold
    facts |= {("payloads", (outcome,)): number for outcome, number in counts.payloads.copy().items()}
    facts["processes", ()] = 1
    return facts


def add(total: Facts, more: Iterable[tuple[Key, Any]], *, is_alive: bool = True) -> None:
    """Adds another process's facts; of one that has ended only the counters."""
    for key, value in more:
        if not is_alive and key[0] in GAUGES:
            continue
        before = total.get(key)
        if isinstance(value, list):
            total[key] = value if before is None else list(map(sum, zip(before, value, strict=True)))
        else:
            total[key] = value if before is None else before + value


def _requests(counts: Counts, facts: Facts) -> None:
    more: list[tuple[Key, Any]] = []
    for (protocol, status), tally in list(counts.tallies.items()):
        times = _listed(tally.times)
        more += [
            (("requests", (protocol, str(status))), sum(times[:-1])),
            (("times", (protocol,)), times),
            (("received", (protocol,)), tally.received),
            (("sent", (protocol,)), tally.sent),
        ]
    more += [(("refusals", labels), number) for labels, number in list(counts.refusals.items())]
    add(facts, more)


def _listed(histogram: Histogram) -> list[int]:
    return [*histogram.steps, histogram.ns]


def _inferences(counts: Counts, registry: Registry, facts: Facts) -> None:
    more: list[tuple[Key, Any]] = []
    for version in registry.known():
        stats = version.statistics()
        model = (stats.name, stats.version)
        done = stats.success.times
        more += [
            (("success", model), done),
            (("inferences", model), stats.inference_count),
            (("runs", model), stats.execution_count),
            (("request_ns", model), stats.success.ns),
            (("request", model), [done, stats.success.ns]),
            (("queue_ns", model), stats.queue.ns),
            (("input_ns", model), stats.compute_input.ns),
            (("infer_ns", model), stats.compute_infer.ns),
            (("output_ns", model), stats.compute_output.ns),
            (("outcome", (*model, ANSWERED)), 0),
            (("pending", model), 0),
        ]
        more += [(("failure", (*model, reason)), 0) for reason in sorted({OTHER, *REASONS.values()})]
    for (name, number, fault), times in list(counts.failures.items()):
        more.append((("outcome", (name, number, fault)), times))
        numbers = registry.numbers(name)
        if not name or (numbers if not number else number in numbers):  # else it is gone, and its successes with it
            more.append((("failure", (name, number, REASONS.get(fault, OTHER))), times))
    for (name, number, protocol), steps in list(counts.steps.items()):
        labels = (name, number, ENTRYPOINTS.get(protocol, "REST"))
        more += [
            (("decode_steps", labels), _listed(steps.decode)),
            (("infer_steps", labels), _listed(steps.infer)),
            (("encode_steps", labels), _listed(steps.encode)),
            (("request_steps", labels), _listed(steps.request)),
            (("run_steps", labels), _listed(steps.run)),
            (("outcome", (name, number, ANSWERED)), sum(steps.request.steps)),  # also of a version that is gone
        ]
    add(facts, more)


def _loads(registry: Registry, facts: Facts) -> None:
    models, size = registry.in_memory()
    facts.update(
        {
            ("loads", ()): LOADS.loaded,
            ("load_failures", ()): LOADS.failed,
            ("load_seconds", ()): LOADS.seconds,
            ("fetched", ()): LOADS.fetched,
            ("cache_hits", ()): LOADS.cached,
            ("cache_misses", ()): LOADS.fetches,
            ("evictions", ()): LOADS.evicted,
            ("models", ()): models,
            ("models_bytes", ()): size,
            ("resident", ()): memory.resident() or 0,
        }
    )

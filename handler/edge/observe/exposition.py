"""Facts as text, in Prometheus' exposition format 0.0.4 (prometheus.io, "Exposition formats")."""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Any, Final

from handler.edge.observe.facts import Facts
from handler.edge.observe.families import COUNTER, FAMILIES, GAUGE, HISTOGRAM, SUMMARY, Family

ESCAPES: Final = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def text(facts: Facts, servers: Iterable[str]) -> bytes:
    """Returns the metrics under the names of those servers."""
    wanted = frozenset(servers)
    by_name: dict[str, list[tuple[tuple[str, ...], Any]]] = {}
    for (name, labels), value in sorted(facts.items()):
        by_name.setdefault(name, []).append((labels, value))
    lines: list[str] = []
    for family in FAMILIES:
        if family.server in wanted:
            lines += _lines(family, by_name.get(family.fact, []))
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "replace")


def _lines(family: Family, facts: list[tuple[tuple[str, ...], Any]]) -> Iterator[str]:
    yield f"# HELP {family.name} {family.about}"
    yield f"# TYPE {family.name} {family.kind}"
    shown: dict[tuple[str, ...], Any] = {}
    for values, number in facts:
        labels = tuple(each if isinstance(each, str) else values[each] for each in family.shows[: len(family.labels)])
        shown[labels] = _sum(shown.get(labels), number)
    for labels, number in shown.items():
        pairs = [f'{name}="{value.translate(ESCAPES)}"' for name, value in zip(family.labels, labels, strict=True)]
        yield from _SAMPLES[family.kind](family, pairs, number)


def _sum(before: Any, number: Any) -> Any:
    if before is None:
        return number
    return list(map(sum, zip(before, number, strict=True))) if isinstance(number, list) else before + number


def _sample(name: str, pairs: list[str], number: float) -> str:
    labels = f"{{{','.join(pairs)}}}" if pairs else ""
    return f"{name}{labels} {number}"


def _number(family: Family, pairs: list[str], number: Any) -> Iterator[str]:
    yield _sample(family.name, pairs, number if family.scale == 1 else round(number * family.scale, 6))


def _summary(family: Family, pairs: list[str], number: Any) -> Iterator[str]:
    times, ns = number
    yield _sample(f"{family.name}_count", pairs, times)
    yield _sample(f"{family.name}_sum", pairs, ns * family.scale)


def _histogram(family: Family, pairs: list[str], number: Any) -> Iterator[str]:
    *steps, ns = number
    ends = [format(end * family.scale, ".9g") for end in family.ends] + ["+Inf"]
    for end, times in zip(ends, accumulate(steps), strict=True):
        yield _sample(f"{family.name}_bucket", [*pairs, f'le="{end}"'], times)
    yield _sample(f"{family.name}_count", pairs, sum(steps))
    yield _sample(f"{family.name}_sum", pairs, ns * family.scale)


_SAMPLES: Final = {COUNTER: _number, GAUGE: _number, SUMMARY: _summary, HISTOGRAM: _histogram}

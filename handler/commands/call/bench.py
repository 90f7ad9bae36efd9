"""`dragoman bench`: the same request again and again, at several concurrencies, each for some seconds.

Each request at a time is a thread with a connection of its own. Times go into buckets, so that an hour of requests
takes no more memory than a second.
"""

import json
import math
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from core.errors import counted, escaped
from handler.commands.call import chart, defaults, infer
from handler.commands.call.infer import PreparedCall
from handler.commands.call.levels import MOST_REASONS, Level, TimeTally
from handler.commands.call.protocols import answer
from handler.commands.call.transport import LIVE, OK, Packet, Transport, Unreachable, reason
from handler.commands.options import CommandOptions
from handler.commands.refused import Refused, WrongOption
from handler.commands.tables import GrowingTable
from handler.stores import paths

CONTROL_SECONDS: Final = 0.5
FAILED: Final = 1
INTERRUPTED: Final = 130
GIVEN_UP: Final = 10
"""Failures in a row after which a connection gives up: the server has probably ended."""
PAUSE: Final = 0.2
"""Seconds between two notes of how far it is."""
NUMBER: Final = re.compile(r"\s*[0-9]{1,9}\s*")
"""Matches a concurrency. Python does not read thousands of digits."""
COLUMNS: Final = ("AT A TIME", "REQUESTS/S", "P50 MS", "P90 MS", "P99 MS", "MAX MS", "REQUESTS", "ERRORS")


def run(options: CommandOptions) -> int:
    """Measures, and prints a table. Returns 1 if a request failed. Raises Refused if the first one does."""
    concurrencies = _concurrencies(options.concurrency)
    _check_chart(options.svg)
    transport = infer.connect(options)
    try:
        prepared = infer.prepare(options, transport)
        first = transport.call(prepared.packet)  # loads the model, and shows that the request is right
        if first.status != OK:
            raise Refused(reason(first))
        answer(prepared.protocol, prepared.model, first)
        control = None if prepared.protocol.rpc else _control(transport)
    finally:
        transport.close()
    levels: list[Level] = []
    interrupted = False
    with GrowingTable(COLUMNS, shown=not options.json) as table:
        try:
            for each in concurrencies:
                levels.append(_measured(options, prepared, each, table))
                table.add(_cells(levels[-1]))
                if not levels[-1].requests:
                    break  # nothing is answered any more
        except KeyboardInterrupt:
            interrupted = True
    _end(options, prepared, levels, control)
    return INTERRUPTED if interrupted else FAILED if any(each.errors for each in levels) else 0


def _check_chart(file: str | None) -> None:
    """Raises Refused if the chart could not be written. A measurement takes long."""
    if file is None:
        return
    path = Path(file).absolute()
    if not paths.is_dir(path.parent):
        raise Refused(f"{file} cannot be written: its folder does not exist")
    if paths.is_dir(path):
        raise Refused(f"{file} cannot be written: it is a folder")


def _concurrencies(text: str) -> list[int]:
    words = text.split(",")
    if not all(NUMBER.fullmatch(word) and 0 < int(word) <= defaults.MOST for word in words):
        raise WrongOption(
            f"--concurrency is {text[:64]!r}; expected numbers from 1 to {defaults.MOST} with commas between"
        )
    return [int(word) for word in words]


def _control(transport: Transport) -> float | None:
    """Returns the median time of a request that asks for nothing, in seconds: the client's own time, and the way's."""
    tally, end = TimeTally(), time.monotonic() + CONTROL_SECONDS
    while time.monotonic() < end:
        began = time.perf_counter()
        if transport.call(LIVE).status != OK:
            return None
        tally.add(time.perf_counter() - began)
    return tally.quantile(0.5)


def _measured(options: CommandOptions, prepared: PreparedCall, count: int, table: GrowingTable) -> Level:
    """Measures one concurrency."""
    tallies = [TimeTally() for _ in range(count)]
    stop, start = threading.Event(), threading.Barrier(count + 1)
    threads = [
        threading.Thread(target=_work, args=(infer.connect(options), prepared.packet, tally, start, stop), daemon=True)
        for tally in tallies
    ]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.monotonic()
    try:
        _watch(began, options.seconds, tallies, threads, table)
    finally:
        stop.set()
    for thread in threads:
        thread.join()  # answers that are under way count, and so does their time
    seconds, total = time.monotonic() - began, TimeTally()
    for tally in tallies:
        total.join(tally)
    return Level.of(count, seconds, total)


def _work(
    transport: Transport, packet: Packet, tally: TimeTally, start: threading.Barrier, stop: threading.Event
) -> None:
    """Sends requests until the end, or until nothing answers."""
    start.wait()
    row = 0
    while not stop.is_set() and row < GIVEN_UP:
        began = time.perf_counter()
        try:
            landed = transport.call(packet)
        except Unreachable as error:
            tally.fail(str(error))
            row += 1
            continue
        if landed.status == OK:
            tally.add(time.perf_counter() - began)
            row = 0
        else:
            tally.fail(reason(landed))
    transport.close()


def _watch(
    began: float,
    seconds: float,
    tallies: Sequence[TimeTally],
    threads: Sequence[threading.Thread],
    table: GrowingTable,
) -> None:
    """Waits until the time is over or all threads have given up. Reports on a terminal how far it is."""
    while (left := began + seconds - time.monotonic()) > 0 and any(thread.is_alive() for thread in threads):
        threads[0].join(min(left, PAUSE))
        done = sum(tally.count for tally in tallies)
        table.note(f"{len(tallies)} at a time: {seconds - left:.0f} of {seconds:g} s, {done} requests")


def _cells(level: Level) -> tuple[str, ...]:
    times = map(_ms, (level.p50, level.p90, level.p99, level.most))
    return str(level.concurrency), f"{level.rate:.1f}", *times, str(level.requests), str(level.errors)


def _ms(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1000:.2f}"


def _end(options: CommandOptions, prepared: PreparedCall, levels: Sequence[Level], control: float | None) -> None:
    """Prints what failed, and writes the other forms of the table."""
    failed: Counter[str] = Counter()
    for each in levels:
        failed.update(each.failures)
    for text, count in failed.most_common(MOST_REASONS):
        print(f"dragoman: {counted(count, 'request')} failed: {escaped(text)}", file=sys.stderr)  # noqa: T201 - beside the result
    title = f"{prepared.model.name}, {options.protocol}, {len(prepared.packet.body)} bytes a request"
    if options.json:
        found: dict[str, Any] = {"model": prepared.model.name, "protocol": options.protocol, "control_p50": control}
        _print(json.dumps(found | {"levels": [each.members() for each in levels]}))
    else:
        own = "" if control is None else f"; GET /v2/health/live takes this client {_ms(control)} ms"
        _print(f"{escaped(title)}{own}")
    if options.svg is not None:
        try:
            Path(options.svg).write_text(chart.draw(title, levels), encoding="utf-8")
        except OSError as error:
            raise Refused(f"{options.svg} cannot be written: {error.strerror}") from None


def _print(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - the result

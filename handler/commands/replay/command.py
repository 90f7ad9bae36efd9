"""The command: reads the log, sends its requests one after the other, and reports the outcomes."""

import json
import sys
import time
from collections import Counter
from contextlib import closing, suppress
from itertools import islice
from statistics import median
from typing import Any, Final

from core.dialects.custom import NAME
from core.errors import ServingError, counted, escaped
from handler.commands.meter import Meter
from handler.commands.options import CommandOptions
from handler.commands.refused import Refused, WrongOption
from handler.commands.replay import recorded, senders
from handler.commands.replay.compare import Tolerance, differences
from handler.commands.replay.recorded import Exchange, Reached
from handler.commands.replay.translate import Untranslatable

SAME, DIFFERENT, SKIPPED, UNREACHED = "same", "different", "skipped", "unreached"
SHOWN: Final = 300
"""The most bytes of a refusal to print."""
MOST_LINES: Final = 50
"""Requests with a line of their own; the others count."""


def run(options: CommandOptions) -> None:
    """Raises Refused if an answer differs, or if no request was sent."""
    tolerance = Tolerance(options.rtol, options.atol)
    line: Any = senders.OverGrpc if options.protocol == "grpc" else senders.OverHttp
    counts: Counter[str] = Counter()
    times: list[float] = []
    rows: list[dict[str, str]] = []
    meter = Meter(quiet=False)
    with closing(line(options.url, _headers(options.header), options.timeout)) as connection, meter:
        sender = senders.Replayer(connection, options.protocol)
        for exchange in islice(recorded.read(options.files), options.limit):
            began = time.perf_counter()
            outcome, reason = _outcome(sender, exchange, tolerance)
            times.append(time.perf_counter() - began)
            counts[outcome] += 1
            meter.show(f"{counted(counts.total(), 'request')} sent, {counts.total() - counts[SAME]} not the same")
            if outcome != SAME and len(rows) < MOST_LINES:
                rows.append({"id": exchange.id, "path": exchange.path, "outcome": outcome, "reason": reason})
    _tell(options, counts, rows, times)
    if not counts:
        raise Refused("these files have no request with its answer")
    _judge(counts, options.url)


def _judge(counts: Counter[str], url: str) -> None:
    """Raises Refused, unless an answer was the same and none was different or missing."""
    all_of = f"of {counts.total()}"
    bad = [f"{counts[DIFFERENT]} {all_of} answers differ"] if counts[DIFFERENT] else []
    if counts[UNREACHED]:
        bad.append(f"{counts[UNREACHED]} {all_of} requests got no answer from {url}; name the server with --url")
    if bad or not counts[SAME]:
        raise Refused("; ".join(bad) or "no request was sent")


def _headers(texts: list[str]) -> dict[str, str]:
    """Raises WrongOption."""
    found = {}
    for text in texts:
        name, colon, value = text.partition(":")
        if not (colon and NAME.fullmatch(name.strip()) and value.isascii() and value.isprintable()):
            raise WrongOption("--header has the form 'name: value', in ASCII")
        found[name.strip()] = value.strip()
    return found


def _outcome(sender: senders.Replayer, exchange: Exchange, tolerance: Tolerance) -> tuple[str, str]:
    """Returns the outcome of a request, and its reason."""
    try:
        found = _difference(sender.again(exchange), exchange, tolerance)
    except Untranslatable as error:
        return SKIPPED, str(error)
    except OSError as error:
        return UNREACHED, str(error)
    except ServingError as error:
        return DIFFERENT, error.message
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return DIFFERENT, f"the answer cannot be read: {error}"
    return (SAME, "") if found is None else (DIFFERENT, found)


def _difference(answer: Reached, exchange: Exchange, tolerance: Tolerance) -> str | None:
    before = exchange.answer
    if answer.is_good is not before.is_good:
        why = answer.body.content[:SHOWN].decode(errors="replace")
        return f"status {before.status} became {answer.status} {why}".rstrip()
    return next(differences(exchange, answer.body, tolerance), None) if before.is_good else None


def _tell(options: CommandOptions, counts: Counter[str], rows: list[dict[str, str]], times: list[float]) -> None:
    if options.json:
        outcomes = {name: counts[name] for name in (SAME, DIFFERENT, SKIPPED, UNREACHED)}
        summary = {"requests": counts.total(), **outcomes, "exceptions": rows}
        print(json.dumps(summary, indent=2, ensure_ascii=False))  # noqa: T201 - the result
        return
    for row in rows:
        print(escaped(f"{row['outcome']}: {row['path']} {row['id']}: {row['reason']}"))  # noqa: T201 - the result
    if times:
        told = ", ".join(f"{counts[name]} {name}" for name in (SAME, DIFFERENT, SKIPPED, UNREACHED) if counts[name])
        print(f"{counted(counts.total(), 'request')}: {told}; median {median(times) * 1e3:.1f} ms")  # noqa: T201 - the same
    with suppress(OSError):
        sys.stdout.flush()

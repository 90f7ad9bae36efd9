"""Watches the requests of one application: begins their records, and counts and logs each when it has ended."""

import asyncio
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, ClassVar, Final

from core.errors import ServingError
from core.wire import Header, Right
from handler.edge.exchange import CAME_KEY, Scope, Send
from handler.edge.log_lines import LineLimit
from handler.edge.observe.counts import CANCELED, Counts
from handler.edge.observe.record import CANCELLED, ID_KEY, RECORD, Failure, Record, drawn
from handler.lifecycle.registry import Registry
from handler.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from handler.edge.observe.access import Lines
    from handler.edge.observe.facts import Facts, Queue
    from handler.edge.observe.workers import Shared

LEFT: Final = 499
"""The status of a request whose client has left before its answer began, as nginx counts it."""
FAILED: Final = 500
GONE: Final = (LEFT, CANCELLED)
"""The statuses without an answer, of HTTP and of gRPC."""
STEPPED: Final = frozenset(("kserve", "tfserving"))
"""The servers whose metrics are histograms of each step."""
PATH, TFS_PATH = "/metrics", "/monitoring/prometheus/metrics"


def paths(settings: Settings) -> tuple[str, ...]:
    """Returns the paths that have metrics."""
    if not settings.scraped:
        return ()
    return (PATH, TFS_PATH) if "tfserving" in settings.metrics else (PATH,)


class Observer:
    """One application's. `counts`: of its requests. `gather`: has other processes write theirs before a scrape."""

    is_plain: ClassVar = True
    """Whether it sees the records of requests alone, and neither their messages nor their headers."""

    def __init__(self, settings: Settings, registry: Registry, queue: "Queue", *, freezes: bool) -> None:
        """`freezes`: nothing runs after a request, as on Lambda."""
        self.counts = Counts()
        self._lines: Lines | None = None
        self._stdout, self._stderr = sys.stdout, sys.stderr  # a model's code may put others there, for its own output
        self._freezes = freezes
        self._settings = settings
        self._registry = registry
        self._queue = queue
        self._all = settings.access_log and settings.log_level in ("DEBUG", "INFO")
        self._debug = settings.log_level == "DEBUG"
        self._warns = settings.log_level != "ERROR"
        self._stepped = not STEPPED.isdisjoint(settings.metrics)
        self._emf = "emf" in settings.metrics
        self._first = True
        self._is_quiet = not (self._all or self._emf or self._stepped)
        self._limit = LineLimit()
        self._shared: Shared | None = None
        self._is_alone = freezes or not settings.scraped
        self._armed: asyncio.AbstractEventLoop | None = None  # one that has ended runs no timer any more
        self.gather: Callable[[], object] = lambda: None
        self._ending = threading.Lock()  # a function's events end in threads of their own
        self._joining = threading.Lock()  # a process with two files would count as two

    def begin(self, scope: Scope, send: Send) -> Record:
        """Begins the record of a request over HTTP."""
        given: str = scope.get(ID_KEY, "")
        record = Record(scope["method"], scope["path"], drawn(given), send, given)
        record.came = scope.get(CAME_KEY, record.came)
        RECORD.set(record)
        return record

    def end(self, record: Record) -> None:
        """Counts a request that has its answer, or whose client has left, and writes its line."""
        with self._ending:
            self._end(record)
        record.codec = record.timing = None  # they hold the body and the model
        if not self._is_alone:
            self._share()

    def _end(self, record: Record) -> None:
        ns = time.perf_counter_ns() - record.came
        status = record.status
        if not status:
            status = record.status = CANCELLED if record.protocol == "grpc" else LEFT
        self.counts.answered(record.protocol, status, ns, record.received, record.sent)
        timing = record.timing
        is_odd = record.error is not None or record.refusals is not None or status in GONE
        is_odd = is_odd or (timing is not None and (timing.cold or timing.broken))
        if self._is_quiet and not is_odd:
            return
        model, version = self._model(record, ns)
        error = record.error
        if error is not None or status in GONE:
            self._failed(record, model, version)
        if record.refusals is not None:
            self._refused_within(record, record.refusals)
        if self._all or record.error is not None:
            self._log(record, ns, model, version)
        if self._emf:
            self._measure(record, ns, model, version)

    def _model(self, record: Record, ns: int) -> tuple[str, str]:
        """Returns the model and version that have worked on the request, else those that it has named."""
        timing = record.timing
        if timing is not None and timing.cold:
            self.counts.cold += 1
        if timing is None or timing.use is None:
            return self._named(record) if record.codec is not None else ("", "")
        spec = timing.use.model.spec
        if timing.broken is not None and record.error is None and record.refusals is None:
            # Its answer had begun, and has the error.
            record.error = Failure(*timing.broken)
        if self._stepped and timing.durations is not None:
            self.counts.step(spec.name, spec.version, record.protocol, timing.durations, ns)
        return spec.name, spec.version

    def _named(self, record: Record) -> tuple[str, str]:
        """Returns the model and version that a request has named, whether they exist or not."""
        try:
            ref = record.codec.known()
        except ServingError:
            return "", ""
        return ("", "") if ref is None else (ref.name, ref.version or "")

    def _failed(self, record: Record, model: str, version: str) -> None:
        """Counts a refusal. A name without a version on this server does not become a label."""
        error = record.error
        fault = CANCELED if error is None else error.fault
        if error is not None:
            self.counts.refuse(record.protocol, fault)
        if record.right is Right.INFER:
            self._fail(model, version, fault)

    def _fail(self, model: str, version: str, fault: str, count: int = 1) -> None:
        numbers = self._registry.numbers(model)
        self.counts.fail(model if numbers else "", version if version in numbers else "", fault, count)

    def _refused_within(self, record: Record, refusals: Mapping[tuple[str, str, str], int]) -> None:
        """Counts the refused messages of a stream. Its line has one of them, unless the stream itself was refused."""
        for (fault, model, version), count in refusals.items():
            self.counts.refuse(record.protocol, fault, count)
            if record.right is Right.INFER:
                self._fail(model, version, fault, count)
        record.error = record.error or record.within

    # -- the log ------------------------------------------------------------------------------------------------------

    @property
    def lines(self) -> "Lines":
        """The lines on their way, made with the first of them."""
        lines = self._lines
        if lines is None:
            from handler.edge.observe import access  # noqa: PLC0415 - 1 ms of cold start

            form = access.FORMS[self._settings.log_format]()
            lines = self._lines = access.Lines(form, self._stderr, freezes=self._freezes)
        return lines

    def _log(self, record: Record, ns: int, model: str, version: str) -> None:
        if record.error is None:
            is_health = record.right is Right.OPEN
            if is_health and not self._debug:
                return
            self.lines.request(record, ns, model, version, "DEBUG" if is_health else "INFO")
        elif self._warns and (self._all or self._limit.admits(self.lines.add)):
            self.lines.request(record, ns, model, version, "WARNING")

    def _measure(self, record: Record, ns: int, model: str, version: str) -> None:
        from handler.edge.observe import access, emf  # noqa: PLC0415 - a setting that few have

        first, self._first = self._first, False
        settings = self._settings
        entry = access.entry(record, ns, model, version, "INFO")
        line = emf.line(entry, record.given, settings.metrics_namespace, settings.name, is_cold=first)
        access.write(f"{line}\n", self._stdout)

    # -- metrics ------------------------------------------------------------------------------------------------------

    def scrape(self, path: str, accept: str = "") -> tuple[Header, bytes]:
        """Returns the Content-Type and the metrics at a path, of all processes of this server. `accept`: a client's."""
        from handler.edge.observe import exposition, facts  # noqa: PLC0415 - for servers that are scraped

        found = self._facts()
        shared = self._sharing()
        if shared is not None:
            shared.write(found)  # a later scrape must not show less, even if this process is killed now
            self.gather()
            for is_alive, other in shared.others():
                facts.add(found, other, is_alive=is_alive)
        chosen = self._settings.metrics
        servers = (
            ("tfserving",) if path == TFS_PATH else ("dragoman", *(each for each in chosen if each != "tfserving"))
        )
        return exposition.written(found, servers, accept)

    def _facts(self) -> "Facts":
        from handler.edge.observe import facts  # noqa: PLC0415 - as above

        return facts.collect(self.counts, self._registry, self._queue)

    def _sharing(self) -> "Shared | None":
        """Returns the other processes of this server, None if this one is alone."""
        if self._shared is None and not self._is_alone:
            with self._joining:
                self._join()
        return self._shared

    def _join(self) -> None:
        from handler.edge.observe import workers  # noqa: PLC0415 - as above
        from handler.stores import private  # noqa: PLC0415 - the same

        if self._shared is not None or self._is_alone:  # another thread has just done it
            return
        folder = workers.folder_of(
            self._settings.metrics_folder, private.own(self._settings.cache, self._settings.platform)
        )
        with suppress(OSError):
            self._shared = None if folder is None else workers.Shared(folder)
        self._is_alone = self._shared is None

    def _share(self) -> None:
        """Has the others see the numbers of this process within a second."""
        loop = None if self._sharing() is None else asyncio.get_running_loop()
        if loop is None or self._armed is loop:
            return
        from handler.edge.observe.workers import SECONDS as PAUSE  # noqa: PLC0415 - as above

        self._armed = loop
        loop.call_later(PAUSE, self._write)

    def _write(self) -> None:
        self._armed = None
        with suppress(RuntimeError):  # the server is ending, and has written its last numbers
            self._queue.begin(self._share_now)

    def publish(self) -> None:
        """Writes the numbers of this process where a scrape of another one finds them."""
        self._sharing()
        self._share_now()

    def _share_now(self) -> None:
        if self._shared is not None:
            self._shared.write(self._facts())

    def close(self) -> None:
        """Writes what waits. Further requests may come."""
        if self._lines is not None:
            self._lines.flush()
        self._share_now()

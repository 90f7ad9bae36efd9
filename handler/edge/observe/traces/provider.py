"""OpenTelemetry's SDK, set up by its own variables (OTEL_*), and by ours where these are silent."""

import logging
import math
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from core.errors import escaped
from core.records import NamedTuple
from handler.edge.observe.aside import Aside, left
from handler.settings import InvalidSettings, Settings

log = logging.getLogger(__name__)
PACKAGE: Final = "opentelemetry-exporter-otlp-proto-http"
MISSING: Final = f"DRAGOMAN_TRACES=otlp needs {PACKAGE}: pip install 'dragoman[otel]'"
LAMBDA_SECONDS: Final = 1
"""The most seconds that a function's answer waits for its spans to be sent, unless OTEL_EXPORTER_OTLP_TIMEOUT says."""
LAST_SECONDS: Final = 5.0
"""The most that the end of a server waits for its spans."""
PAUSE_SECONDS: Final = 30.0
"""After a failure, so long no answer of a function waits for spans: those of the pause are dropped."""
TIMEOUTS: Final = ("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")
PROTOCOLS: Final = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
HTTP: Final = "http/protobuf"


class Exporting(NamedTuple):
    """`tracer`: OpenTelemetry's. `flush`: sends the spans that have ended. It gets the time when an answer leaves."""

    tracer: Any
    flush: Callable[[float], None]


def connect(settings: Settings, *, freezes: bool) -> Exporting:
    """Sets the SDK up. `freezes`: nothing runs after a request, as on Lambda. Raises InvalidSettings."""
    try:
        from opentelemetry import propagate  # noqa: PLC0415, F401 - an extra, which checks OTEL_PROPAGATORS
    except ImportError:
        raise InvalidSettings(MISSING) from None
    except ValueError as error:
        raise InvalidSettings(f"OTEL_PROPAGATORS is wrong: {error}", "OTEL_PROPAGATORS is wrong") from None
    for protocol in filter(None, map(os.environ.get, PROTOCOLS)):
        if protocol != HTTP:
            log.warning("spans are sent as %s, and not as %s", HTTP, protocol)
    try:
        return _connected(settings, freezes=freezes)
    except ImportError:
        raise InvalidSettings(MISSING) from None
    except ValueError as error:  # some of these texts name the variable, others what it stands for
        raise InvalidSettings(f"a variable OTEL_* is wrong: {error}", "a variable OTEL_* is wrong") from None


def _connected(settings: Settings, *, freezes: bool) -> Exporting:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - an extra
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - the same
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - the same

    provider = TracerProvider(resource=Resource.create(_attributes(settings)))
    exporter = OTLPSpanExporter(timeout=_seconds() if freezes else None)
    tracer = provider.get_tracer("dragoman")
    if not freezes:
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - as above

        batches = BatchSpanProcessor(exporter)
        provider.add_span_processor(batches)
        return Exporting(tracer, partial(_send, batches, Aside(LAST_SECONDS)))
    gathered = Gathered(exporter, _seconds())
    provider.add_span_processor(gathered)  # type: ignore[arg-type] # it has the methods of a SpanProcessor
    return Exporting(tracer, gathered.flush)


def _seconds() -> float:
    """Returns how long a function's answer waits for its spans."""
    try:
        return float(next(filter(None, map(os.environ.get, TIMEOUTS)), LAMBDA_SECONDS))
    except ValueError:
        return LAMBDA_SECONDS


def _send(batches: Any, aside: Aside, until: float = math.inf) -> None:
    """Sends what waits, before a server ends. The SDK sends one batch after the other, each for as long as it takes."""
    try:
        aside.run(batches.force_flush, until)
    except TimeoutError:
        log.warning("the last spans were not sent within %d s", LAST_SECONDS)
    except Exception as error:  # noqa: BLE001 - the server closes other things after this
        log.warning("the last spans were not sent: %s", _named(error))


def _attributes(settings: Settings) -> dict[str, str]:
    """Returns the attributes of this process that the SDK's variables do not name."""
    function = os.environ.get("AWS_LAMBDA_FUNCTION_NAME", "")
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    found = {} if named else {"service.name": function or settings.name}
    if function:
        found |= {"cloud.provider": "aws", "cloud.platform": "aws_lambda", "faas.name": function}
        found["cloud.region"] = os.environ.get("AWS_REGION", "")
    return found


class Gathered:
    """Spans of requests, sent in the thread of one of them before it ends: a SpanProcessor for functions.

    Requests may end in several threads at once. One of them sends, and the others wait for it. `seconds`: the most that
    the exporter takes.
    """

    def __init__(self, exporter: Any, seconds: float) -> None:
        self._exporter = exporter
        self._aside = Aside(seconds)
        self._seconds = seconds
        self._spans: list[Any] = []
        self._gathering, self._sending = threading.Lock(), threading.Lock()
        self._again = 0.0

    def on_start(self, span: Any, parent_context: Any = None) -> None: ...

    def _on_ending(self, span: Any) -> None: ...

    def on_end(self, span: Any) -> None:
        if span.context.trace_flags.sampled:
            with self._gathering:
                self._spans.append(span)

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 0) -> bool:  # noqa: ARG002 - the exporter has its own
        self.flush()
        return True

    def flush(self, until: float = math.inf) -> None:
        """Sends the spans. Drops them within the pause after a failure. `until`: when the answer has to leave."""
        if not self._sending.acquire(timeout=left(until, self._seconds)):
            return  # the next thread takes them along
        try:
            self._flush(until)
        finally:
            self._sending.release()

    def _flush(self, until: float) -> None:
        with self._gathering:
            spans, self._spans = self._spans, []
        if not spans or time.monotonic() < self._again:
            return
        if not self._are_sent(spans, until):
            log.warning("spans were not sent; the next try is in %d s", PAUSE_SECONDS)
            self._again = time.monotonic() + PAUSE_SECONDS

    def _are_sent(self, spans: list[Any], until: float) -> bool:
        try:
            return bool(self._aside.run(partial(self._exporter.export, spans), until).name == "SUCCESS")
        except TimeoutError:
            return False
        except Exception as error:  # noqa: BLE001 - the answer is finished, and must not be lost for its spans
            log.warning("the exporter of spans failed: %s", _named(error))
            return False


def _named(error: Exception) -> str:
    return escaped(f"{type(error).__name__}: {error}")[:256]

"""The record of one HTTP event of a function. It ends with the function's document, which can be another answer."""

from types import TracebackType
from typing import Self

from core.errors import ServingError
from core.wire import REQUEST_ID, HttpResponse
from handler.edge.exchange import Scope, Send
from handler.edge.observe.observer import Observer
from handler.edge.observe.record import ID_KEY, Failure, Record, drawn, sent_in
from handler.edge.timing import Timing


class Invocation:
    """As a context manager: the time of one event. `given`: the id of its invocation.

    `observer`: None where the settings are wrong, and nothing is counted.
    """

    __slots__ = ("_given", "_observer", "_record")

    def __init__(self, observer: Observer | None, given: str) -> None:
        self._observer = observer
        self._given = given
        self._record: Record | None = None

    def begin(self, scope: Scope, send: Send) -> Send:
        """Begins the record. Returns the function through which the answer is sent."""
        if self._observer is None:
            return send
        scope[ID_KEY] = self._given
        self._record = self._observer.begin(scope, send)
        return self._record.send

    def refuse(self, error: ServingError, scope: Scope, response: HttpResponse) -> HttpResponse:
        """Notes a refusal, in place of an answer or before there was a request. Returns it with the request's id."""
        if self._observer is None:
            return response
        if self._record is None:
            given = self._given
            self._record = Record(scope["method"], scope["path"], drawn(given), given=given)
            self._record.take(sent_in(scope["headers"]))
        record = self._record
        record.error, record.status = Failure.of(error), response.status
        record.sent = response.length
        return response._replace(headers=(*response.headers, (REQUEST_ID, record.request_id)))

    @property
    def timing(self) -> Timing:
        """The times of its request, as far as it came."""
        found = None if self._record is None else self._record.timing
        return Timing() if found is None else found

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._observer is not None and self._record is not None:
            self._observer.end(self._record)

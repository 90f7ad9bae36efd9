"""The edge of remote calls over HTTP: Connect and gRPC-Web, on the same port as REST and through its gateways.

So is gRPC, where the server speaks HTTP/2. Imported with the first such request. core.dialects.connect defines the
protocols; this module finds the method, and refuses.
"""

from contextlib import closing
from functools import partial
from typing import Final

from core.dialects.connect import protocol
from core.dialects.connect.codes import UnknownMethod
from core.dialects.rpcs import ABSENT, RPCS
from core.errors import NotSupported, ServingError
from core.rpc import Form
from core.wire import HttpResponse, Part, by_name
from handler.edge import exchange
from handler.edge.calls.call import CallTools, RemoteCall
from handler.edge.calls.codec import CallOptions, EnvelopeCodec
from handler.edge.calls.messages import failed
from handler.edge.exchange import Receive, Scope, Send
from handler.edge.gate.gate import Visitor
from handler.edge.jobs import AT_END, Job, ServedModels, WholeHead
from handler.edge.leaving import Leaving
from handler.edge.observe.record import Record, called, own_id, refused, seconds_since_head
from handler.edge.timing import Timing

LEAST_SECONDS: Final = 1.0
"""A call with less time until its deadline goes through ASGI, which watches the deadline."""


class Calls:
    """All remote calls of an application."""

    methods: Final = {method.path: method for method in RPCS}

    def __init__(self, tools: CallTools, options: CallOptions) -> None:
        self._tools = tools
        self.options = options

    def head(self, scope: Scope, path: str) -> WholeHead | None:
        """Returns the head of a call that may be answered at once; None for a call that goes through ASGI.

        Such a call has one message each way, and LEAST_SECONDS or more until its deadline.
        """
        method = self.methods.get(path)
        if method is None or method.form is not Form.UNARY or scope["method"] != "POST":
            return None
        headers = by_name(scope["headers"])
        try:
            question = protocol.question(method, "POST", path, headers, b"")
        except ServingError:
            return None
        if _is_late(question, 0.0) or question.encoded or (question.kind.native and not exchange.goes_both_ways(scope)):
            return None
        answer = partial(self._at_once, question)
        raw_at = 0 if question.kind.json else AT_END
        return WholeHead(scope, headers, method.rpc.right, None, protocol.carrier(headers), raw_at, answer)

    def _at_once(
        self, question: protocol.Question, body: Part, models: ServedModels, record: Record
    ) -> HttpResponse | None:
        """Returns the answer to a whole call, None if that is not sure to be quick."""
        rpc, options = question.method.rpc, self.options
        if _is_late(question, seconds_since_head()):  # its body took long
            return None
        try:
            frame = question.only(body, options.limit)
        except ServingError as error:
            refused(error)
            return question.kind.refuse(error, own_id())
        codec = record.codec = EnvelopeCodec(question, frame, options)
        try:
            answer: HttpResponse | None = self._tools.dispatcher.at_once(Job(codec, models, record.timing), rpc.waits)
            if answer is not None:
                exchange.admit(answer.length, len(body), options.flight)
        except Exception as error:  # noqa: BLE001 - each has an answer
            failure = failed(error, codec, rpc.name).with_traceback(None)  # it would hold this frame
            answer = codec.instead(failure) or question.kind.refuse(failure, own_id())
        return answer

    async def serve(self, path: str, receive: Receive, send: Send, visitor: Visitor, timing: Timing) -> None:
        """Answers a request for /package.Service/Method. `path`: below the application's mount.

        `timing`: gets the steps of a method with one answer.
        """
        scope, kind = visitor.scope, protocol.kind_of(visitor.headers)
        is_open = exchange.goes_both_ways(scope)
        is_unread = kind.end is None or not (kind.native or is_open)  # a stream over HTTP/2 may have no end
        try:
            call = self._call(path, visitor, timing, is_possible=is_open or not kind.native)
            if is_open and call.is_exchange:
                exchange.let_go(scope)
                await call.exchange(receive, send)
                return
            is_unread = False
            body = await call.body(visitor.headers, receive)
        except ServingError as error:
            refused(error)
            phrased = protocol.trailers_only if kind.native and not is_open else kind.refuse
            response: HttpResponse | None = phrased(error, own_id())
            if is_unread:
                await exchange.skip(visitor.headers, receive)
        else:
            response = None if body is None else await self._response(call, body, receive, send)
        if response is not None:
            more = self._tools.clock.headers(timing)
            await exchange.answer(response, scope["method"], send, more, self.options.flight)

    def _call(self, path: str, visitor: Visitor, timing: Timing, *, is_possible: bool) -> RemoteCall:
        """Returns the call that a head begins. `is_possible`: its server has what its protocol needs.

        Raises EdgeError, InvalidInput, NotSupported, and the gate's refusals.
        """
        scope, method = visitor.scope, self.methods.get(path)
        right = None if method is None else method.rpc.right
        called(protocol.carrier(visitor.headers), right)
        models = visitor.models(right)
        if path in ABSENT:
            raise UnknownMethod(ABSENT[path])
        if not is_possible:
            raise NotSupported(protocol.NO_TRAILERS if scope.get("http_version") == "2" else protocol.NO_HTTP2)
        query = scope.get("query_string", b"")
        question = protocol.question(method, scope["method"], path, visitor.headers, query)
        options = self.options._replace(least=scope.get(exchange.COMPRESS_KEY, self.options.least))
        return RemoteCall(self._tools, models, question, timing, options)

    async def _response(self, call: RemoteCall, body: Part, receive: Receive, send: Send) -> HttpResponse | None:
        """Returns the answer to be sent; None if it is a stream, which is sent by then, or if the client has left."""
        if call.form is not Form.UNARY:
            await call.stream(body, exchange.disconnected(receive), send)
            return None
        with closing(Leaving(receive)) as leaving, leaving:
            leaving.begin()
            response = await call.whole(body)
        return None if leaving.left else response


def _is_late(question: protocol.Question, spent: float) -> bool:
    """Decides whether a call's deadline is so near that its answer needs a timer. `spent`: seconds since its head."""
    return question.seconds is not None and question.seconds - spent < LEAST_SECONDS

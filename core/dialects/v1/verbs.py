"""THE table of the verbs under /v1. It is imported with the first such request: 5 ms of cold start."""

from typing import Final

from core.dialects.v1 import cloudevents
from core.dialects.v1.examples import classify, regress
from core.dialects.v1.predict import explain, predict
from core.dialects.v1.request import Verb, ask, ref
from core.encoding.jsonio import NonFinite
from core.operations import Deferred
from core.wire import Call, Reply

VERBS: Final = {
    "predict": Verb(predict, shaped=True),
    "explain": Verb(explain, shaped=True),
    "classify": Verb(classify),
    "regress": Verb(regress),
}


def decode(verb: str, call: Call) -> tuple[Deferred, Reply]:
    """Returns the question, and the function that wraps its answer. Raises InvalidInput."""
    ref(call)  # a path that is wrong is refused before the body is read
    headers, finish = call.request.headers, None
    if cloudevents.VERSION in headers or b"cloudevents" in headers.get(b"content-type", b"").lower():
        body, finish = cloudevents.opened(call)
    else:
        body = call.request.content()
    return ask(call, body, call.request.options.tokens(NonFinite.BARE), VERBS[verb], finish)

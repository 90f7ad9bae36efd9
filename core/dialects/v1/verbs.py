"""THE table of the verbs under /v1. It is imported with the first such request: 5 ms of cold start."""

from typing import Final, NamedTuple

from core.dialects.v1 import cloudevents
from core.dialects.v1.examples import classify, regress
from core.dialects.v1.predict import explain, predict
from core.dialects.v1.request import Bind, ask
from core.operations import Deferred
from core.wire import Call, Reply


class Verb(NamedTuple):
    """`shaped`: whether long arrays in its documents are worth the quick reading."""

    bind: Bind
    shaped: bool = False


VERBS: Final = {
    "predict": Verb(predict, shaped=True),
    "explain": Verb(explain, shaped=True),
    "classify": Verb(classify),
    "regress": Verb(regress),
}


def decode(verb: str, call: Call) -> tuple[Deferred, Reply]:
    body, finish = cloudevents.opened(call)
    return ask(call, body, VERBS[verb].bind, finish, shaped=VERBS[verb].shaped)

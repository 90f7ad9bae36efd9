"""OpenAI's API for embeddings: its one route. /v1/models is KServe V1's and TensorFlow Serving's (core.dialects.v1).

Source: OpenAI's API reference, "Create embeddings".
"""

from typing import Final

from core import operations as ops
from core.dialects.openai.refusals import refuse
from core.wire import AnyReply, Call, Right, Route, Surface, Waits


def _embeddings(call: Call) -> tuple[ops.Operation, AnyReply]:
    from core.dialects.openai import embeddings  # noqa: PLC0415 - cold start of servers with other clients

    return embeddings.decode(call)


def _named(call: Call) -> ops.ModelRef | None:
    """Returns the model of a long or compressed request whose start names it; None for others."""
    request = call.request
    if not request.is_long:
        return None
    from core.dialects.openai import embeddings  # noqa: PLC0415 - as above

    return embeddings.named(call)


SURFACE: Final = Surface(
    (Route("POST", "/v1/embeddings", _embeddings, "a vector for each text", Waits.MODEL, Right.INFER, _named),), refuse
)

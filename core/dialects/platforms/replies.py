"""The forms of answers on a platform's inference route, chosen by Accept: JSON, its lines, CSV, one array of numpy's.

JSON is {"predictions": ...}, which MLflow, Vertex AI and TensorFlow Serving share. Azure ML's clients, who send
"input_data", get the predictions alone. A client without a preference gets the form of its own request.
"""

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from core.dialects.v1.answer import Output, columns, rows
from core.encoding.jsonio import NonFinite
from core.errors import InvalidInput, shown
from core.wire import HttpError, HttpRequest, HttpResponse, json_answer

AS_JSON, AS_CSV, AS_NPY, AS_LINES = "application/json", "text/csv", "application/x-npy", "application/jsonlines"
FORMS: Final = (AS_JSON, AS_CSV, AS_NPY, AS_LINES)
REFUSED: Final = re.compile(r";q=0(\.0*)?(;|$)")
"""Matches a type that a client does not accept (RFC 9110 12.4.2), in lower case and without spaces."""
RANGES: Final = {"*/*": "", "application/*": "application/", "text/*": "text/"}
"""The media ranges that `Accept` can have (RFC 9110 12.5.1), each with the prefix that its types share."""
Value = Callable[[Sequence[Output], NonFinite | None], Any]


class NotAcceptable(HttpError):
    status = 406


def wanted(request: HttpRequest, own: str) -> str:
    """Returns the form that the client accepts. `own`: without a preference. Raises NotAcceptable.

    The first known one counts, whatever its weight above 0: SageMaker's clients send one. `own` comes first among
    the types of a range.
    """
    accept = request.headers.get(b"accept", b"").decode("latin-1")
    kinds = [kind for part in accept.lower().split(",") if (kind := "".join(part.split()))]
    refused = {kind.partition(";")[0] for kind in kinds if REFUSED.search(kind)}
    for kind in (kind.partition(";")[0] for kind in kinds if not REFUSED.search(kind)):
        if kind in FORMS:
            return kind
        start = RANGES.get(kind)
        able = start is not None and [
            form for form in (own, *FORMS) if form.startswith(start) and not _is_refused(form, refused)
        ]
        if able:
            return able[0]
    if kinds:
        raise NotAcceptable(f"Accept is {shown(accept)}; expected one of {', '.join(FORMS)}")
    return own


def _is_refused(form: str, refused: Collection[str]) -> bool:
    """Decides whether the form is refused by its name or its range: `*/*` is less specific than either."""
    return form in refused or f"{form.partition('/')[0]}/*" in refused


def phrase(outputs: Sequence[Output], form: str, value: Value, non_finite: NonFinite | None) -> HttpResponse:
    """Returns the answer of an inference. `value`: makes the JSON value of the outputs. Raises InvalidInput."""
    if form == AS_JSON:
        return json_answer(value(outputs, non_finite))
    if form == AS_LINES:
        from core.dialects.platforms import lines  # noqa: PLC0415 - for its clients alone

        return HttpResponse(200, ((b"content-type", AS_LINES.encode()),), (lines.write(outputs, non_finite),))
    tensors = [output.tensor for output in outputs]
    if form == AS_CSV:
        from core.dialects.platforms import table  # noqa: PLC0415 - the same

        return HttpResponse(200, ((b"content-type", b"text/csv; charset=utf-8"),), (table.write(tensors),))
    from core.dialects.platforms import npy  # noqa: PLC0415 - the same

    if len(tensors) != 1:
        names = [output.alias for output in outputs]
        raise InvalidInput(f"{AS_NPY} has one array, and the model has the outputs {shown(names)}: accept JSON")
    return HttpResponse(200, ((b"content-type", AS_NPY.encode()),), (npy.write(tensors[0]),))


def by_rows(outputs: Sequence[Output], non_finite: NonFinite | None) -> Any:
    return {"predictions": rows(outputs, non_finite)}


def by_columns(outputs: Sequence[Output], non_finite: NonFinite | None) -> Any:
    return {"predictions": columns(outputs, non_finite)}

"""Compares two answers to one request: tensors and numbers within a tolerance, everything else exactly."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from google.protobuf import json_format

from core.dialects.v2 import infer, rpc_infer
from core.dialects.v2.rpc import SERVICE as V2_SERVICE
from core.dtype import BF16
from core.float16 import bf16_to_float
from core.records import NamedTuple
from core.schema.grps import GrpsMessage
from core.schema.open_inference import ModelInferRequest, ModelInferResponse
from core.tensor import Tensor
from core.wire import Call, HttpRequest
from handler.commands.replay.recorded import CALLS, Exchange, Payload

IGNORED: Final = frozenset(("id", "model_version", "modelVersion", "parameters"))
"""Members that can differ: only a model's outputs are compared, perhaps of another version."""
V2_CALL: Final = f"/{V2_SERVICE}/ModelInfer"


class Tolerance(NamedTuple):
    """As numpy's isclose has it. Integers stay integers: a double does not hold every one of 64 bits."""

    relative: float
    absolute: float

    def takes(self, one: float, other: float) -> bool:
        if math.isnan(one) or math.isnan(other):
            return math.isnan(one) and math.isnan(other)
        if math.isinf(one) or math.isinf(other):
            return one == other
        return abs(one - other) <= self.absolute + self.relative * abs(one)


def differences(exchange: Exchange, answer: Payload, tolerance: Tolerance) -> Iterator[str]:
    """Yields the differences of another answer to the exchange's request. Raises ServingError, ValueError."""
    before = exchange.answer.body
    is_call = exchange.protocol in CALLS
    if exchange.path == V2_CALL or (
        not is_call and exchange.path.startswith("/v2/") and exchange.path.endswith("/infer")
    ):
        old, new = ({each.name: each for each in tensors(body, is_call=is_call)} for body in (before, answer))
        yield from _named(old, new, tolerance)
    else:
        yield from _values("", _plain(before, is_call=is_call), _plain(answer, is_call=is_call), tolerance)


def tensors(body: Payload, *, is_call: bool) -> Sequence[Tensor]:
    """Returns the outputs of an answer of V2's. They have the form of a request's inputs. Raises ServingError."""
    if is_call:
        response = (
            json_format.Parse(body.content, ModelInferResponse(), ignore_unknown_fields=True)
            if "json" in body.kind
            else ModelInferResponse.FromString(body.content)
        )
        request = ModelInferRequest(model_name="-", raw_input_contents=response.raw_output_contents)
        for output in response.outputs:
            request.inputs.add().ParseFromString(output.SerializeToString())
        return rpc_infer.decode(rpc_infer.ProtoRequest(request, request.raw_input_contents))[0].inputs
    length = int(body.length) if body.length else len(body.content)
    head, binary = body.content[:length], body.content[length:]
    document = json.loads(head)
    text = json.dumps({"inputs": document["outputs"]}).encode()
    headers = {infer.HEADER_LENGTH: b"%d" % len(text)}
    return infer.decode(Call(HttpRequest("POST", "/", headers, text + binary), {"model": "-"}))[0].inputs


def _plain(body: Payload, *, is_call: bool) -> Any:
    """Returns the JSON values of an answer in another form than V2's. Raises ValueError."""
    if is_call and "json" not in body.kind:
        return json_format.MessageToDict(GrpsMessage.FromString(body.content))
    return json.loads(body.content) if "json" in body.kind else body.content


def _named(old: Mapping[str, Tensor], new: Mapping[str, Tensor], tolerance: Tolerance) -> Iterator[str]:
    if old.keys() != new.keys():
        yield f"outputs {', '.join(sorted(old))} became {', '.join(sorted(new))}"
        return
    for name, before in old.items():
        yield from _tensor(before, new[name], tolerance)


def _tensor(before: Tensor, after: Tensor, tolerance: Tolerance) -> Iterator[str]:
    one, other, what = before.array, after.array, f"output {before.name}"
    if before.datatype is not after.datatype or one.shape != other.shape:
        yield f"{what} was {before.datatype.name} {list(one.shape)}, became {after.datatype.name} {list(other.shape)}"
    elif before.datatype.is_float or before.datatype is BF16:
        old, new = (bf16_to_float(each) if before.datatype is BF16 else each for each in (one, other))
        close = np.isclose(new.astype(float), old.astype(float), tolerance.relative, tolerance.absolute, equal_nan=True)
        yield from _elements(what, old, new, ~close)
    else:
        yield from _elements(what, one, other, one != other)


def _elements(what: str, one: Any, other: Any, differs: Any) -> Iterator[str]:
    count = int(np.count_nonzero(differs))
    if count:
        place = tuple(map(int, np.argwhere(differs)[0]))
        more = f", and {count - 1} more of {one.size} elements" if count > 1 else ""
        yield f"{what} at {list(place)}: {one[place]} became {other[place]}{more}"


def _values(where: str, old: Any, new: Any, tolerance: Tolerance) -> Iterator[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        known = (old.keys() | new.keys()) - IGNORED
        for name in sorted(known):
            if name in old and name in new:
                yield from _values(f"{where}.{name}", old[name], new[name], tolerance)
            else:
                yield f"{where}.{name} is {'gone' if name in old else 'new'}"
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, pair in enumerate(zip(old, new, strict=True)):
            yield from _values(f"{where}[{index}]", *pair, tolerance)
    elif not _is_like(old, new, tolerance):
        yield f"{where or 'the answer'}: {_shown(old)} became {_shown(new)}"


def _is_like(old: Any, new: Any, tolerance: Tolerance) -> bool:
    numbers = [each for each in (old, new) if isinstance(each, int | float) and not isinstance(each, bool)]
    return tolerance.takes(*numbers) if len(numbers) == 2 else bool(old == new)  # noqa: PLR2004 - both


def _shown(value: Any) -> str:
    text = f"a list of {len(value)}" if isinstance(value, list) else repr(value)
    return text if len(text) <= 80 else text[:80] + "..."  # noqa: PLR2004 - a line's half

"""The Open Inference Protocol's generate extension: members of a flat JSON object are inputs, outputs are members.

A member with the name of an input is its value: a string, a number, a boolean, or an array of these, flat or nested in
the input's shape. "id" and "parameters" mean what they mean in /infer; further members are parameters. The answer of
/generate_stream is server-sent events, each with the JSON of one answer.
Sources: OIP generate_rest.yaml; Triton's extension_generate.md.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Final

import numpy as np

from core.bounds import check_empty, check_parts
from core.checks import is_of_shape
from core.dialects.v2.infer import ref
from core.dialects.v2.parameters import for_model
from core.dtype import BF16, BOOL, BYTES, FP64, INT64, DataType
from core.encoding import jsonio, long_json
from core.encoding.jsonio import NonFinite, numeric
from core.encoding.nesting import Ragged, flatten, regular
from core.encoding.values import Inexact, from_values
from core.errors import InvalidInput, ServingError, counted, shown
from core.operations import Deferred, Infer, InferResult, ModelRef, ModelSpec, Stream
from core.tensor import Tensor, TensorSpec, check_rank, named
from core.wire import ID_MEMBER, JSON, AnyReply, Call, Header, HttpResponse, HttpStream

EVENTS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)
OWN: Final = ("id", "parameters")
"""The members that are not values, unless the model has inputs of these names."""
GUESSED: Final[dict[type, DataType]] = {
    str: BYTES,
    bool: BOOL,
    int: INT64,
    float: FP64,
}
"""The datatypes of values for a model that does not declare its inputs."""


def decode(call: Call, *, stream: bool) -> tuple[Deferred, AnyReply]:
    """Returns the question, to decode once the model is known. Raises InvalidInput, TooLarge, UnsupportedEncoding."""
    body = call.request.content()
    members = _object(jsonio.loads(body))
    request_id = members.get("id")

    def bind(spec: ModelSpec) -> tuple[Infer | Stream, AnyReply]:
        try:
            infer = _infer(members, spec)
        except Inexact:
            infer = _infer(_object(jsonio.loads_exact(body)), spec)
        echoed = None if _has(spec, "id") else request_id
        if echoed is not None and not isinstance(echoed, str):
            raise InvalidInput(f"'id' is {shown(echoed)}; expected a string")
        phrasing = _Phrasing(echoed, call.request.options.tokens(NonFinite.QUOTED), call.request.own_id)
        return (Stream(infer), phrasing.stream) if stream else (infer, phrasing.answer)

    return Deferred(ref(call), bind), lambda answer: answer


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise InvalidInput(f"the body is {shown(body)}; expected an object with the model's inputs as members")
    check_parts(body, "members")
    return body


def _has(spec: ModelSpec, name: str) -> bool:
    return any(tensor.name == name for tensor in spec.inputs or ())


def _infer(members: Mapping[str, Any], spec: ModelSpec) -> Infer:
    """Returns the inference by the version whose spec decoded the values: by now another may be the newest."""
    declared = {tensor.name: tensor for tensor in spec.inputs or ()}
    given = {name: value for name, value in members.items() if value is not None}
    own = {name: given.pop(name) for name in OWN if name in given and name not in declared}
    parameters = own.get("parameters", {})
    if not isinstance(parameters, dict):
        raise InvalidInput(f"'parameters' is {shown(parameters)}; expected an object")
    check_parts(parameters, "parameters")
    if spec.inputs is None:
        inputs = [_tensor(_guessed(name, value), value) for name, value in given.items()]
    else:
        inputs = [_tensor(declared[name], value) for name, value in given.items() if name in declared]
        further = {name: value for name, value in given.items() if name not in declared}
        _check_parameters(further, declared)
        parameters = {**further, **parameters}
    return Infer(ModelRef(spec.name, spec.version), tuple(inputs), parameters=for_model(parameters))


def _check_parameters(further: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    wrong = next((name for name, value in further.items() if not isinstance(value, str | bool | int | float)), None)
    if wrong is not None:
        raise InvalidInput(
            f"{shown(wrong)} is {shown(further[wrong])}; expected one of the model's inputs "
            f"({', '.join(map(shown, declared))}), or a parameter: a string, a number or a boolean"
        )


def _guessed(name: str, value: Any) -> TensorSpec:
    """Returns a spec for a value by its own type, for a model that does not declare its inputs."""
    kinds = set(map(type, flatten(value))) if isinstance(value, list) else {type(value)}
    kind = float if kinds == {int, float} else kinds.pop() if len(kinds) == 1 else None
    if kind not in GUESSED:
        raise InvalidInput(f"{shown(name)} is {shown(value)}; expected strings, numbers or booleans, of one type")
    return TensorSpec(name, GUESSED[kind], None)


def _tensor(spec: TensorSpec, value: Any) -> Tensor:
    elements = value if isinstance(value, list) else [value]
    if list in set(map(type, elements)):
        elements, shape = _nested(spec, elements)
    else:
        shape = _shape(spec, len(elements))
    return from_values(spec.name, spec.datatype, shape, elements)


def _nested(spec: TensorSpec, value: list[Any]) -> tuple[list[Any], tuple[int, ...]]:
    """Returns the elements of nested lists, and their shape as `_fitted` has it.

    Raises InvalidInput for lists of unequal lengths, and TooMany for many empty ones. The engine refuses a shape that
    the model does not have.
    """
    try:
        elements, shape = regular(value)
    except Ragged as error:
        raise InvalidInput(f"input {shown(spec.name)} {error}") from None
    check_rank(len(shape), spec.name)
    if 0 in shape:
        check_empty(shape, named(spec.name))
    return elements, shape if spec.shape is None else _fitted(shape, spec.shape)


def _fitted(shape: tuple[int, ...], expected: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape without surplus leading axes of 1, or with the axes of 1 that the model's shape has beside it.

    A shape that does not become the model's remains as it is. Axes of 1 are inserted behind the first one only if one
    axis at most is variable: the others show which axis is missing.
    """
    surplus = len(shape) - len(expected)
    fitted = shape[surplus:] if surplus > 0 and set(shape[:surplus]) == {1} else (1,) * -surplus + shape
    if is_of_shape(fitted, expected):
        return fitted
    if expected.count(-1) <= 1 and len(shape) == len(expected) - expected.count(1):
        sizes = iter(shape)
        inserted = tuple([1 if size == 1 else next(sizes) for size in expected])
        return inserted if is_of_shape(inserted, expected) else shape
    return shape


def _shape(spec: TensorSpec, count: int) -> tuple[int, ...]:
    """Returns the shape that `count` elements have: the last variable axis takes them, the other ones are 1."""
    if spec.shape is None:
        return (count,)
    if -1 not in spec.shape:
        return spec.shape
    fixed = math.prod(size for size in spec.shape if size != -1)
    if fixed and count % fixed:
        told = f"its shape {list(spec.shape)} takes a multiple of {fixed}"
        raise InvalidInput(f"input {shown(spec.name)} has {counted(count, 'element')}; {told}")
    shape = [1 if size == -1 else size for size in spec.shape]
    shape[len(shape) - 1 - spec.shape[::-1].index(-1)] = count // fixed if fixed else 1
    return tuple(shape)


class _Phrasing:
    """The form of one request's answers. `request_id`: echoed in each of them. `own_id`: repeated in an error."""

    __slots__ = ("_non_finite", "_own_id", "_request_id")

    def __init__(self, request_id: str | None, non_finite: NonFinite | None, own_id: bytes) -> None:
        self._request_id = request_id
        self._own_id = own_id
        self._non_finite = non_finite

    def answer(self, result: InferResult) -> HttpResponse:
        return HttpResponse(200, (JSON,), (self._text(result),))

    def stream(self, results: Iterable[InferResult]) -> HttpStream:
        """Returns the answers as events. A failure before the first one raises: no status line was sent yet."""
        rest = iter(results)
        opening = tuple(self._event(result) for result in islice(rest, 1))
        return HttpStream(200, EVENTS, self._events(opening, rest), self._failed)

    def _events(self, opening: tuple[bytes, ...], rest: Iterator[InferResult]) -> Iterator[bytes]:
        yield from opening
        try:
            for result in rest:
                yield self._event(result)
        except ServingError as error:
            yield self._failed(error)
        finally:
            if isinstance(rest, Generator):  # a tuple's iterator has nothing to close
                rest.close()

    def _failed(self, error: ServingError) -> bytes:
        told = {ID_MEMBER: self._own_id.decode()} if self._own_id else {}
        return b"data: %b\n\n" % jsonio.dumps({"error": error.message, **told})

    def _event(self, result: InferResult) -> bytes:
        return b"data: %b\n\n" % self._text(result)

    def _text(self, result: InferResult) -> bytes:
        told: dict[str, Any] = {} if self._request_id is None else {"id": long_json.text(self._request_id)}
        told |= {"model_name": result.model_name, "model_version": result.model_version}
        return jsonio.dumps(told | {tensor.name: self._value(tensor) for tensor in result.outputs})

    def _value(self, tensor: Tensor) -> Any:
        """Returns a tensor's only element, or the array of all elements in row-major order. Raises InvalidInput."""
        array, datatype = tensor.array, tensor.datatype
        if datatype is BF16:
            raise InvalidInput(f"output {shown(tensor.name)} is BF16, which JSON numbers cannot carry: use /infer")
        flat = np.ascontiguousarray(array).reshape(() if array.size == 1 else -1)
        if datatype is not BYTES:
            return numeric(Tensor(tensor.name, datatype, flat), self._non_finite)
        try:
            texts = [element.decode() for element in array.flat]
        except UnicodeDecodeError:
            told = f"output {shown(tensor.name)} has bytes that are not UTF-8, as JSON needs: use /infer"
            raise InvalidInput(told) from None
        return long_json.text(texts[0]) if len(texts) == 1 else long_json.array(texts)

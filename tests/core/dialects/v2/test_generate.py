"""core.dialects.v2.generate: plain members become inferences, and results plain members or events."""

from __future__ import annotations

import gzip
import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from core.checks import checked
from core.dialects.v2.generate import EVENTS, decode
from core.errors import InvalidInput, ModelFailed
from core.operations import Infer, ModelRef, Stream
from core.wire import Call, HttpRequest, HttpResponse, HttpStream, Options
from tests.support.grps_samples import model, result, spec, tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

LLM = model(spec("text_input", "BYTES", 1), spec("max_tokens", "INT32", 1))
UNDECLARED = LLM._replace(inputs=None)
DEFAULT = Options()
HELLO: dict[str, Any] = {"text_input": "hello", "max_tokens": 3}


def asked(body: Any, known: Any = LLM, options: Options = DEFAULT, **headers: bytes) -> tuple[Any, Any]:
    """Returns the operation of a request, and its reply, once the model is known."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    request = HttpRequest("POST", "/v2/models/m/generate", given, content, options)
    operation, finish = decode(Call(request, {"model": "m", "version": "7"}), stream=False)
    assert operation.ref == ModelRef("m", "7")
    assert finish(operation) is operation  # type: ignore[comparison-overlap, arg-type] # nothing is left to be done
    return operation.decode(known)


def inferred(body: Any, known: Any = LLM, **headers: bytes) -> Infer:
    """Returns the inference of a request."""
    infer, _ = asked(body, known, **headers)
    assert isinstance(infer, Infer)
    return infer


def given(body: Any, known: Any = LLM) -> list[tuple[str, str, tuple[int, ...], list[Any]]]:
    """Returns the inputs of a request: name, datatype, shape, elements."""
    return [(t.name, t.datatype.name, t.array.shape, t.array.ravel().tolist()) for t in inferred(body, known).inputs]


def answer(*outputs: Any, body: Any = HELLO, options: Options = DEFAULT) -> Any:
    """Returns the document that a result with these outputs becomes."""
    response = asked(body, options=options)[1](result(*outputs))
    assert isinstance(response, HttpResponse)
    assert (response.status, response.headers) == (200, ((b"content-type", b"application/json"),))
    return json.loads(b"".join(response.parts))


def streamed(results: Any, body: Any = HELLO, own_id: bytes = b"") -> HttpStream:
    """Returns the stream that results become."""
    request = HttpRequest("POST", "/v2/models/m/generate_stream", {}, json.dumps(body).encode(), own_id=own_id)
    operation, _ = decode(Call(request, {"model": "m"}), stream=True)
    stream, reply = operation.decode(LLM)
    assert isinstance(stream, Stream)
    response = reply(results)
    assert isinstance(response, HttpStream)
    return response


def test_members_with_the_names_of_inputs_are_their_values() -> None:
    """Each is pinned to the version whose spec decoded it."""
    assert given(HELLO) == [("text_input", "BYTES", (1,), [b"hello"]), ("max_tokens", "INT32", (1,), [3])]
    assert inferred(HELLO).ref == ModelRef(LLM.name, LLM.version)
    assert inferred(gzip.compress(json.dumps(HELLO).encode()), content_encoding=b"gzip").inputs


@pytest.mark.parametrize(
    ("shape", "value", "expected"),
    [
        ((), 1, ()),
        ((1,), 1, (1,)),
        ((1, 1), [[1]], (1, 1)),
        ((-1,), [1, 2, 3], (3,)),
        ((-1,), [], (0,)),
        ((-1, 1), [1, 2], (2, 1)),
        ((-1, -1), [1, 2], (1, 2)),
        ((-1, 2), [[1, 2], [3, 4]], (2, 2)),
        ((-1, -1), [[1, 2, 3], [4, 5, 6]], (2, 3)),
        ((-1, -1, 2), [[1, 2], [3, 4]], (1, 2, 2)),
        ((-1, -1), [[], []], (2, 0)),
        ((-1,), [[1, 2]], (2,)),
        ((1,), [[1]], (1,)),
        ((), [[1]], ()),
        ((-1, 1, 2, 2), [[1, 2], [3, 4]], (1, 1, 2, 2)),
        ((-1, 1, 2, 2), [[[1, 2], [3, 4]]] * 3, (3, 1, 2, 2)),
        ((2, 1), [1, 2], (2, 1)),
        ((2, 1, 2, 1), [[1, 2], [3, 4]], (2, 1, 2, 1)),
        (None, [[1, 2], [3, 4]], (2, 2)),
        ((2, -1, 3), [1] * 12, (2, 2, 3)),
        ((-1, 0), [], (1, 0)),
        (None, [1, 2], (2,)),
    ],
)
def test_values_take_the_shape_that_the_model_expects(shape: Any, value: Any, expected: tuple[int, ...]) -> None:
    """The last variable axis takes the elements, and every other one is 1. Nested arrays have their own shape."""
    known = model(spec("x", "FP32", *(shape or ())))
    if shape is None:
        known = known._replace(inputs=(known.inputs[0]._replace(shape=None),))
    ((_, _, found, _),) = given({"x": value}, known)
    assert found == expected


@pytest.mark.parametrize(
    ("body", "parameters"),
    [
        ({**HELLO, "temperature": 0.5, "stream": True}, {"temperature": 0.5, "stream": True}),
        ({**HELLO, "parameters": {"a": [1]}, "id": "7"}, {"a": [1]}),
        ({**HELLO, "a": 1, "parameters": {"a": 2}}, {"a": 2}),
        ({**HELLO, "a": None, "parameters": None, "id": None}, {}),
    ],
)
def test_other_members_are_parameters(body: Any, parameters: dict[str, Any]) -> None:
    """A member that is null is absent."""
    assert inferred(body).parameters == parameters


def test_values_for_a_model_that_declares_no_inputs_have_their_own_types() -> None:
    """A model of Python code may do without metadata."""
    body = {"a": "x", "b": 1, "c": [1, 2.5], "d": True, "e": ["x", "y"], "id": "1", "parameters": {"p": 1}}
    assert given(body, UNDECLARED) == [
        ("a", "BYTES", (1,), [b"x"]), ("b", "INT64", (1,), [1]), ("c", "FP64", (2,), [1.0, 2.5]),
        ("d", "BOOL", (1,), [True]), ("e", "BYTES", (2,), [b"x", b"y"]),
    ]  # fmt: skip
    assert inferred(body, UNDECLARED).parameters == {"p": 1}


def test_an_input_may_have_the_name_of_a_member_of_the_protocol() -> None:
    """The model's names take precedence."""
    known = model(spec("id", "INT64", 1), spec("parameters", "BYTES", 1))
    assert given({"id": 2**63 - 1, "parameters": "p"}, known) == [
        ("id", "INT64", (1,), [2**63 - 1]), ("parameters", "BYTES", (1,), [b"p"]),
    ]  # fmt: skip


def test_integers_keep_all_digits() -> None:
    """If an array has a number beyond a double's digits, the array is read again, exactly."""
    numbers = [2**63 - 1, -(2**63), 0.0]
    assert given({"x": numbers}, model(spec("x", "INT64", -1))) == [("x", "INT64", (3,), [2**63 - 1, -(2**63), 0])]


@pytest.mark.parametrize(
    ("body", "known", "told"),
    [
        ([1], LLM, "the body is [1]; expected an object with the model's inputs as members"),
        (b"{", LLM, "the body is not JSON"),
        ({**HELLO, "id": 1}, LLM, "'id' is 1; expected a string"),
        ({**HELLO, "parameters": 1}, LLM, "'parameters' is 1; expected an object"),
        ({**HELLO, "text": ["a"]}, LLM, "'text' is ['a']; expected one of the model's inputs ('text_input', 'max_tok"),
        ({"max_tokens": [1, 2]}, LLM, "input 'max_tokens' has 2 elements"),
        ({"max_tokens": "3"}, LLM, "'max_tokens'"),
        ({"max_tokens": {}}, LLM, "'max_tokens'"),
        ({"x": [2.0**60]}, model(spec("x", "INT64", -1)), "where INT64 needs integers"),
        ({"x": [1, 2, 3]}, model(spec("x", "FP32", -1, 2)), "input 'x' has 3 elements; its shape [-1, 2] takes a mult"),
        ({"x": [1, "a"]}, UNDECLARED, "'x' is [1, 'a']; expected strings, numbers or booleans, of one type"),
        ({"x": {}}, UNDECLARED, "'x' is {}; expected strings, numbers or booleans, of one type"),
        ({"x": []}, UNDECLARED, "'x' is []; expected strings, numbers or booleans, of one type"),
    ],
)
def test_what_is_wrong_is_named(body: Any, known: Any, told: str) -> None:
    """The refusal has the value and what was expected."""
    with pytest.raises(InvalidInput) as error:
        asked(body, known)
    assert error.value.message.startswith(told) or told in error.value.message


@pytest.mark.parametrize(
    ("shape", "value", "told"),
    [
        ((-1, -1), [[1], [2, 3]], "is ragged: at depth 1 not all members are arrays of one length"),
        ((-1,), [1, [2]], "is ragged: at depth 1 not all members are arrays of one length"),
        ((-1, 4), [[1, 2], [3, 4]], "has shape [2, 2]; the model expects [-1, 4]"),
        ((4,), [[1, 2], [3, 4]], "has shape [2, 2]; the model expects [4]"),
        ((-1, 1, -1), [[1, 2], [3, 4]], "has shape [2, 2]; the model expects [-1, 1, -1]"),
        ((-1, 1, 2, 2), [[[1, 2]]] * 3, "has shape [3, 1, 2]; the model expects [-1, 1, 2, 2]"),
        ((-1, -1), [[]] * 70_000, "has no elements in its shape [70000, 0]; at most"),
        ((-1,), [[[[1]]]] * 2, "has shape [2, 1, 1, 1]; the model expects [-1]"),
        ((-1,), json.loads("[" * 33 + "]" * 33), "has 33 dimensions; at most 32 are possible"),
    ],
)
def test_nested_arrays_that_contradict_the_shape_are_refused(shape: Any, value: Any, told: str) -> None:
    """Otherwise the model would get other rows than the client's. Rows without elements are counted, too."""
    known = model(spec("x", "FP32", *shape))
    with pytest.raises(InvalidInput, match=re.escape(f"input 'x' {told}")):
        checked(inferred({"x": value}, known), known)


def test_outputs_are_members_of_the_answer() -> None:
    """One element is a value, several are an array in row-major order, and the id is echoed."""
    outputs = (
        tensor("text_output", "BYTES", [b"hi"]), tensor("all", "BYTES", [b"a", b"b"]),
        tensor("one", "FP32", [0.1], 1, 1), tensor("many", "INT64", [1, 2, 3, 4], 2, 2),
        tensor("none", "FP64", []), tensor("yes", "BOOL", [True]), tensor("half", "FP16", [0.1]),
    )  # fmt: skip
    assert answer(*outputs, body={**HELLO, "id": "42"}) == {
        "id": "42", "model_name": "m", "model_version": "7", "text_output": "hi", "all": ["a", "b"], "one": 0.1,
        "many": [1, 2, 3, 4], "none": [], "yes": True, "half": 0.1,
    }  # fmt: skip
    assert "id" not in answer(*outputs)


@pytest.mark.parametrize(("setting", "expected"), [("token", "NaN"), ("null", None)])
def test_nan_is_written_as_the_setting_says(setting: str, expected: Any) -> None:
    """JSON does not have a number for it."""
    assert answer(tensor("y", "FP32", [np.nan]), options=Options(non_finite=setting))["y"] == expected


@pytest.mark.parametrize("output", [tensor("y", "BYTES", [b"\xff"]), tensor("y", "BF16", [1])])
def test_what_json_cannot_carry_is_refused(output: Any) -> None:
    """The text says which route can."""
    with pytest.raises(InvalidInput, match="output 'y' .* use /infer"):
        answer(output)


def test_answers_of_a_stream_are_events() -> None:
    """A failure between them is the last event, and the model's generator is closed."""
    closed = []

    def results() -> Iterator[Any]:
        try:
            yield result(tensor("t", "BYTES", [b"a"]))
            yield result(tensor("t", "BYTES", [b"b"]))
            raise ModelFailed("broken")
        finally:
            closed.append(True)

    stream = streamed(results())
    assert (stream.status, stream.headers) == (200, EVENTS)
    assert b"".join(stream.chunks) == (
        b'data: {"model_name":"m","model_version":"7","t":"a"}\n\n'
        b'data: {"model_name":"m","model_version":"7","t":"b"}\n\n'
        b'data: {"error":"broken"}\n\n'
    )
    assert closed == [True]
    assert [*streamed(results(), own_id=b"mine").chunks][-1] == b'data: {"error":"broken","request_id":"mine"}\n\n'
    assert len(list(streamed((result(tensor("t", "BYTES", [b"a"])),)).chunks)) == 1


def test_a_failure_before_the_first_event_is_an_ordinary_refusal() -> None:
    """Its status has not been sent yet."""

    def results() -> Iterator[Any]:
        raise ModelFailed("broken")
        yield

    with pytest.raises(ModelFailed, match="broken"):
        streamed(results())


def test_a_number_beyond_every_double_does_not_reach_the_model() -> None:
    """The refusal has the parameter's name and the number."""
    with pytest.raises(InvalidInput, match="parameter 'scale' of the request has 1e400, which is beyond every double"):
        inferred(b'{"text_input": "hello", "max_tokens": 3, "parameters": {"scale": 1e400}}')

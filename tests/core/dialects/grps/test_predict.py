"""core.dialects.grps.predict: what HTTP adds to a message in both directions: types, the query, and streams."""

import gzip
import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf import json_format

from core.dialects.grps.predict import EMPTY, NO_TYPE, STREAM_OF_NDARRAYS, WRONG_TYPE, Wishes, decode, wishes
from core.errors import InvalidInput, ModelFailed
from core.operations import Deferred, Infer, ModelRef, Stream
from core.schema.grps import GrpsMessage
from core.wire import Call, HttpRequest, HttpResponse, HttpStream, Options
from tests.support.grps_samples import model, result, spec, tensor

OCTETS = b"application/octet-stream"
TEXT_MODEL = model(spec("t", "BYTES", 1))
NUMBERS = model(spec("x", "FP32", -1))
Y = tensor("y", "FP32", [0.5])
A_TEXT = {"str_data": "a"}


def asked(
    body: Any = A_TEXT, query: str = "", kind: bytes | None = b"application/json", options: Options | None = None,
    **headers: bytes,
) -> Deferred:  # fmt: skip
    """Returns the question that a request asks."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {} if kind is None else {b"content-type": kind}
    given |= {name.replace("_", "-").encode(): value for name, value in headers.items()}
    request = HttpRequest("POST", "/grps/v1/infer/predict", given, content, options or Options(), query.encode())
    operation, finish = decode(Call(request, {}))
    assert isinstance(operation, Deferred)
    assert finish(operation) is operation  # type: ignore[comparison-overlap, arg-type] # nothing is left to be done
    return operation


def answer(*outputs: Any, known: Any = TEXT_MODEL, **request: Any) -> HttpResponse:
    """Returns the answer to a result with these outputs."""
    operation, reply = asked(**request).decode(known)
    assert isinstance(operation, Infer)
    response = reply(result(*outputs))
    assert isinstance(response, HttpResponse)
    return response


def streamed(results: Any, **request: Any) -> HttpStream:
    """Returns the streamed answers to these results."""
    operation, reply = asked(query="streaming=true", **request).decode(TEXT_MODEL)
    assert isinstance(operation, Stream)
    response = reply(results)
    assert isinstance(response, HttpStream)
    return response


def told(response: HttpResponse) -> Any:
    assert response.headers == ((b"content-type", b"application/json"),)
    return json.loads(b"".join(response.parts))


@pytest.mark.parametrize(
    "kind", [b"application/json", b"Application/JSON", b"application/json; charset=utf-8", b" application/json ;a=b"]
)
def test_json_is_json_whatever_its_parameters(kind: bytes) -> None:
    """GRPS's python server accepts only one spelling."""
    operation, _ = asked(kind=kind).decode(TEXT_MODEL)
    assert isinstance(operation, Infer)
    assert operation.ref == ModelRef("m", "7")
    (found,) = operation.inputs
    assert (found.name, found.array.tolist()) == ("t", [b"a"])


def test_bytes_are_the_only_input() -> None:
    """They are passed on unchanged; a compressed body is inflated first."""
    for body, more in ((b"{\xff", {}), (gzip.compress(b"{\xff"), {"content_encoding": b"gzip"})):
        operation, _ = asked(body, kind=b"application/OCTET-stream;x=y", **more).decode(TEXT_MODEL)
        assert isinstance(operation, Infer)
        assert operation.inputs[0].array.tolist() == [b"{\xff"]


@pytest.mark.parametrize(("kind", "text"), [
    (None, NO_TYPE), (b"", NO_TYPE), (b";charset=utf-8", NO_TYPE), (b"text/plain", WRONG_TYPE),
    (b"application/jsonx", WRONG_TYPE), (b"\xff", WRONG_TYPE),
])  # fmt: skip
def test_any_other_type_is_refused_in_grps_words(kind: bytes | None, text: str) -> None:
    """The body is not looked at before that."""
    with pytest.raises(InvalidInput, match=f"^{text}$"):
        asked(b"", kind=kind)


@pytest.mark.parametrize("kind", [OCTETS, b"application/json"])
def test_an_empty_body_is_refused_in_grps_words(kind: bytes) -> None:
    """Both types refuse it, compressed bodies included."""
    for body, more in ((b"", {}), (gzip.compress(b""), {"content_encoding": b"gzip"})):
        with pytest.raises(InvalidInput, match=f"^{EMPTY}$"):
            asked(body, kind=kind, **more)


@pytest.mark.parametrize(("query", "expected"), [
    ("", Wishes()),
    ("model=m-1.0&streaming=TRUE", Wishes("m-1.0", streaming=True)),
    ("return-ndarray=True&x", Wishes(ndarray=True)),
    ("model=a%2Db%20c&model2=x", Wishes("a-b c")),
    ("streaming=1&return-ndarray=yes", Wishes()),
    ("streaming=&model=", Wishes()),
    ("Streaming=true&return_ndarray=true", Wishes()),
    ("streaming=true%20", Wishes()),
    ("x=1&x=2", Wishes()),
    ("model=%ff", Wishes("\ufffd")),
    ("&&=&%", Wishes()),
])  # fmt: skip
def test_a_query_says_true_or_nothing(query: str, expected: Wishes) -> None:
    """Upper and lower case do not matter. As in GRPS, 1 does not mean true."""
    assert wishes(query.encode()) == expected


@pytest.mark.parametrize(
    "query", ["model=a&model=b", "streaming=true&streaming=false", "return-ndarray=&return-ndarray="]
)
def test_what_a_query_says_twice_is_refused(query: str) -> None:
    """Proxies and servers might use the first or the last of them."""
    with pytest.raises(InvalidInput, match="the query has '.*' twice"):
        wishes(query.encode())


def test_bytes_of_a_query_that_are_no_ascii_are_no_error() -> None:
    """A model with such a name is not found."""
    assert isinstance(wishes(b"model=\xff\xc5\xbc").model, str)


@pytest.mark.parametrize(("body", "query", "name"), [
    ({"model": "a-1", **A_TEXT}, "model=b-2", "a-1"),
    ({"model": "", **A_TEXT}, "model=b-2", "b-2"),
    (A_TEXT, "model=b-2", "b-2"),
    (A_TEXT, "", ""),
])  # fmt: skip
def test_the_model_of_the_message_goes_before_the_querys(body: Any, query: str, name: str) -> None:
    """If neither names a model, the server's default is meant."""
    assert asked(body, query).ref == ModelRef(name, dashed=True)


def test_a_stream_of_ndarrays_is_refused_in_grps_words() -> None:
    """The body is not looked at before that."""
    with pytest.raises(InvalidInput, match=STREAM_OF_NDARRAYS):
        asked(b"{", "streaming=true&return-ndarray=true")


def test_the_answer_has_the_form_of_the_request() -> None:
    """Text is answered with text, bytes with bytes, and anything else with tensors."""
    status = {"code": 200, "msg": "OK", "status": "SUCCESS"}
    assert told(answer(tensor("t", "BYTES", [b"b"]))) == {"status": status, "str_data": "b"}
    plain = {"name": "y", "dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [0.5]}
    assert told(answer(Y)) == {"status": status, "gtensors": {"tensors": [plain]}}
    assert answer(tensor("t", "BYTES", [b"\xff"]), body=b"a", kind=OCTETS) == HttpResponse(
        200, ((b"content-type", OCTETS),), (b"\xff",)
    )


def test_an_ndarray_is_answered_only_to_who_asks_for_it() -> None:
    """The rule holds whatever was sent."""
    for body, known in (({"ndarray": [1]}, NUMBERS), (A_TEXT, TEXT_MODEL)):
        assert "gtensors" in told(answer(Y, body=body, known=known))
        assert told(answer(Y, body=body, known=known, query="return-ndarray=true"))["ndarray"] == [0.5]
    with pytest.raises(InvalidInput, match="NDArray only support one tensor"):
        answer(Y, Y, query="return-ndarray=true")


def test_the_operators_choice_for_nan_is_kept_where_the_protocol_has_it() -> None:
    """Tensors and maps keep their strings, because protobuf's parsers refuse null there. An ndarray has null."""
    odd, null = tensor("y", "FP32", [float("nan")]), Options(non_finite="null")
    message = json_format.Parse(json.dumps(told(answer(odd, options=null))), GrpsMessage())
    assert math.isnan(message.gtensors.tensors[0].flat_float32[0])
    entry = told(answer(odd, body={"gmap": {"s_f": {"x": 1}}}, options=null))
    assert entry["gmap"]["s_f"] == {"y": "NaN"}
    assert told(answer(odd, options=null, query="return-ndarray=true"))["ndarray"] == [None]
    with pytest.raises(InvalidInput, match="NaN or infinite"):
        answer(odd, options=Options(non_finite="error"))


def texts(*values: bytes) -> list[Any]:
    """Returns a result for each text."""
    return [result(tensor("t", "BYTES", [value])) for value in values]


def test_a_stream_is_documents_with_nothing_between() -> None:
    """Bytes are sent as they are; the whole is an octet stream."""
    stream = streamed(tuple(texts(b"a", b"b")))
    assert (stream.status, stream.headers) == (200, ((b"content-type", OCTETS),))
    ok = b'{"status":{"code":200,"msg":"OK","status":"SUCCESS"},"str_data":"%s"}'
    assert list(stream.chunks) == [ok % b"a", ok % b"b"]
    assert list(streamed(tuple(texts(b"a", b"\xff")), body=b"a", kind=OCTETS).chunks) == [b"a", b"\xff"]
    assert list(streamed(()).chunks) == []


class Source:
    """Yields results one by one, and notes how many were taken and whether it was ended."""

    def __init__(self, *results: Any) -> None:
        self.results = results
        self.given = 0
        self.ended = False

    def each(self) -> Iterator[Any]:
        """Yields the results, and raises an error in its turn."""
        try:
            for each in self.results:
                self.given += 1
                if isinstance(each, Exception):
                    raise each
                yield each
        finally:
            self.ended = True


def test_each_message_is_given_before_the_next_is_made() -> None:
    """All messages are sent."""
    source = Source(*texts(*(b"%d" % index for index in range(1000))))
    chunks = iter(streamed(source.each()).chunks)
    for index in range(1000):
        assert json.loads(next(chunks))["str_data"] == str(index)
        assert source.given == index + 1
    assert next(chunks, None) is None
    assert source.ended


def test_a_failure_before_the_first_message_is_refused_as_everywhere() -> None:
    """The status line has not been sent."""
    with pytest.raises(ModelFailed, match="no"):
        streamed(Source(ModelFailed("no")).each())


@pytest.mark.parametrize("odd", [ModelFailed("no"), result(tensor("t", "BYTES", [b"a", b"\xff"]))])
def test_a_failure_after_it_is_the_last_message(odd: Any) -> None:
    """Its status is the one that the refusal would have had."""
    source = Source(*texts(b"a"), odd, *texts(b"b"))
    first, last = streamed(source.each()).chunks
    assert json.loads(first)["str_data"] == "a"
    status = json.loads(last)["status"]
    assert (status["code"], status["status"]) == (500, "FAILURE")
    assert source.ended


def test_who_leaves_early_ends_the_model() -> None:
    """The rule holds whether or not anything had been sent."""
    for taken in (0, 1, 2):
        source = Source(*texts(b"a", b"b", b"c"))
        chunks: Any = streamed(source.each()).chunks
        for _ in range(taken):
            next(chunks)
        chunks.close()
        del chunks
        assert source.ended
        assert source.given == max(taken, 1)

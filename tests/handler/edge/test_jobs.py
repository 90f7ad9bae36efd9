"""handler.edge.jobs: one request from decoding to its answer, on models that are in memory."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from core.dialects import DIALECTS
from core.errors import InvalidInput, ModelFailed
from core.operations import Infer, ModelRef, ModelSpec, Stream
from core.router import Router
from core.wire import AnyReply, Call, HttpRequest, HttpResponse, HttpStream, Options, Route, Waits
from handler.edge.jobs import QUICKLY_READ, HttpCodec, Job, compressed
from handler.edge.timing import Timing
from handler.lifecycle.single_flight import Pending
from handler.lifecycle.usage import Loaded, MemoryGate, Pace, Traffic
from handler.stores import Folder
from tests.support.samples import told
from tests.support.v1_samples import model, output, signature

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from core.operations import InferResult
    from core.tensor import Tensor

SPEC = model(serving_default=signature({"x": "x"}, {"y": "y"}))
V2 = b'{"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}]}'
V1 = b'{"instances": [1, 2]}'


class Halves:
    """A model that halves x, and fails at a negative number; the explanation of an example is its place."""

    steady = True
    stream = None
    http = None
    spec: ModelSpec = SPEC

    def predict(self, inputs: Mapping[str, Tensor], _: Sequence[str], __: Mapping[str, Any]) -> list[Tensor]:
        """Returns output y."""
        if (inputs["x"].array < 0).any():
            raise ModelFailed("negative")
        return [output("y", "FP32", inputs["x"].array / 2)]

    def explain(self, inputs: Mapping[str, Tensor], _: Mapping[str, Any]) -> list[dict[str, int]]:
        """Returns one member for each example."""
        return [{"place": place} for place in range(len(inputs["x"].array))]


class Counting(Loaded):
    """A model whose inferences are recorded: number of durations, size and success."""

    def record(self, durations: Sequence[int], size: int, protocol: str = "", rows: int = 1, *, success: bool) -> None:
        """Records an inference."""
        assert all(ns >= 0 for ns in durations)
        self.recorded.append((len(durations), size, success))


class Shelf:
    """A registry of one model, which is being loaded the first `pending` times that a job asks for it."""

    def __init__(self, pending: int = 0, model: Halves | None = None) -> None:
        self.pending = pending
        self.asked: list[ModelRef] = []
        self.loaded = Counting(model or Halves(), Folder(Path()), MemoryGate(), Traffic(), Pace())
        self.recorded = self.loaded.recorded = []

    def use(self, ref: ModelRef, _: Timing) -> Loaded:
        """Returns the model."""
        self.asked.append(ref)
        if self.pending:
            self.pending -= 1
            raise Pending(None, final=False, since=0)  # type: ignore[arg-type] # no job waits for it
        return self.loaded.again()

    def is_quick(self, ref: ModelRef, size: int) -> bool:
        """Returns whether a small request asks for the labelled version."""
        return ref == ModelRef("m", None, "fast") and size < 10


def job(
    path: str,
    body: bytes = b"",
    shelf: Shelf | None = None,
    least: int = 10**6,
    options: Options = Options(),  # noqa: B008 - frozen
    **headers: bytes,
) -> Any:
    """Returns a request's job, in the protocol of the path."""
    dialect = next(dialect for dialect in DIALECTS if dialect.owns(path))
    route, values = Router(dialect).find("POST", path)
    named = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    call = Call(HttpRequest("POST", path, named, body, options), values)
    return working(shelf or Shelf(), route, call, least)


def working(shelf: Any, route: Route, call: Call, least: int = 0) -> Job[Any]:
    """Returns the job of a call."""
    return Job(HttpCodec(route, call, least), shelf, Timing())


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v2/models/m/infer", V2),
        ("/v1/models/m:predict", V1),
        ("/v1/models/m/labels/fast:predict", V1),
    ],
)
def test_an_inference_is_counted_with_its_four_durations(path: str, body: bytes) -> None:
    """An inference of any protocol is counted once, names its version, and leaves its model unused."""
    shelf = Shelf()
    answer: Any = job(path, body, shelf).run()
    assert b"[0.5,1.0]" in b"".join(answer.parts)
    assert dict(answer.headers)[b"model-version"] == b"3"
    assert shelf.recorded == [(4, len(body), True)]
    assert not shelf.loaded.in_use()


HEAD = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "parameters": {"binary_data_size": 4}}]}'


@pytest.mark.parametrize(
    ("head", "size", "announced", "coding", "is_long"),
    [
        (HEAD, 4 * 2**20, len(HEAD), {}, False),
        (HEAD, 4 * 2**20 + 1, len(HEAD), {}, True),
        (HEAD, 100, len(HEAD), {"content_encoding": b"gzip"}, True),
        (HEAD, 2**17, 0, {}, True),
        (HEAD.replace(b"FP32", b"BYTES"), 2**17, len(HEAD), {}, True),
        (HEAD.replace(b"FP32", b"\\u0042YTES"), 2**17, len(HEAD), {}, True),
        (HEAD + b" " * 2**16, 2**17, len(HEAD) + 2**16, {}, True),
        (HEAD, 2**16, 0, {}, False),
    ],
)
def test_raw_numbers_behind_a_short_head_are_not_long(
    head: bytes, size: int, announced: int, coding: dict[str, bytes], *, is_long: bool
) -> None:
    """They are not read one by one, as texts are, nor parsed, as JSON is."""
    headers = {name.replace("_", "-").encode(): value for name, value in coding.items()}
    call = Call(HttpRequest("POST", "/v2/models/m/infer", headers, head.ljust(size, b"\0")), {"model": "m"})
    route, _ = Router(DIALECTS[0]).find("POST", "/v2/models/m/infer")
    assert HttpCodec(route, call, 0, announced).is_long() is is_long


def test_an_inference_that_fails_is_counted_as_one() -> None:
    """A failure of the model or of the phrasing is counted, and a request that asks for nothing is not."""
    shelf = Shelf()
    with pytest.raises(ModelFailed, match="negative"):
        job("/v1/models/m:predict", b'{"instances": [-1]}', shelf).run()
    with pytest.raises(InvalidInput, match="DRAGOMAN_NON_FINITE=error"):
        job("/v1/models/m:predict", b'{"instances": [NaN]}', shelf, options=Options(non_finite="error")).run()
    with pytest.raises(InvalidInput, match="Missing 'inputs' or 'instances' key"):
        job("/v1/models/m:predict", b"{}", shelf).run()
    assert [(durations, success) for durations, _, success in shelf.recorded] == [(2, False), (2, False)]


def test_a_job_that_had_to_wait_for_its_model_is_run_again() -> None:
    """The request is decoded once and counted once, however often it waits."""
    shelf = Shelf(pending=2)
    waiting = job("/v1/models/m:predict", V1, shelf)
    for _ in range(2):
        with pytest.raises(Pending):
            waiting.run()
    assert told(waiting.run()) == {"predictions": [0.5, 1.0]}
    assert shelf.asked == [ModelRef("m")] * 3
    assert len(shelf.recorded) == 1
    assert waiting.codec.read() is waiting.codec.read()


def test_an_explanation_is_compressed_and_not_counted() -> None:
    """The statistics are of inferences alone."""
    shelf = Shelf()
    response = job("/v1/models/m:explain", V1, shelf, 1, accept_encoding=b"gzip").run()
    assert dict(response.headers)[b"content-encoding"] == b"gzip"
    assert b'"explanations":[{"place":0},{"place":1}]' in gzip.decompress(b"".join(response.parts))
    assert shelf.recorded == []


class Counts(Halves):
    """A model that returns an answer for each element, and fails at a negative one."""

    def stream(  # type: ignore[override] # Halves has none
        self, inputs: Mapping[str, Tensor], _: Sequence[str], __: Mapping[str, Any]
    ) -> Iterator[list[Tensor]]:
        """Yields output y."""
        for element in inputs["x"].array.reshape(-1):
            if element < 0:
                raise ModelFailed("negative")
            yield [output("y", "FP32", element.reshape(1))]


def of_stream(shelf: Shelf, *elements: float) -> Job[Any]:
    """Returns a request on a route that answers in a stream, with the first output's elements as text."""
    inputs = (output("x", "FP32", np.array(elements, np.float32)),)

    def chunks(results: Iterable[InferResult]) -> Iterator[bytes]:
        for result in results:
            yield str(result.outputs[0].array.tolist()).encode()

    def decode(_: Call) -> tuple[Any, AnyReply]:
        return Stream(Infer(ModelRef("m"), inputs)), lambda results: HttpStream(200, (), chunks(results))

    route = Route("POST", "/stream", decode, "", Waits.MODEL)
    return working(shelf, route, Call(HttpRequest("POST", "/stream", body=b"12345"), {}))


def test_a_stream_is_one_inference_once_it_has_ended() -> None:
    """A stream is counted at its end, however many answers it had."""
    shelf = Shelf(model=Counts())
    stream = of_stream(shelf, 1, 2).run()
    assert isinstance(stream, HttpStream)
    assert shelf.recorded == []
    assert list(stream.chunks) == [b"[1.0]", b"[2.0]"]
    assert shelf.recorded == [(4, 5, True)]


def test_a_stream_that_breaks_off_is_a_failed_inference() -> None:
    """A failing stream is counted as a failure, and one that its client leaves is not counted."""
    shelf = Shelf(model=Counts())
    stream: Any = of_stream(shelf, 1, -1).run()
    assert next(stream.chunks) == b"[1.0]"
    with pytest.raises(ModelFailed, match="negative"):
        next(stream.chunks)
    assert shelf.recorded == [(4, 5, False)]
    left: Any = of_stream(shelf, 1, 2).run()
    next(left.chunks)
    left.chunks.close()
    assert len(shelf.recorded) == 1


def test_a_stream_of_a_model_that_does_not_stream_is_there_at_once() -> None:
    """The only answer is a tuple, and it is counted before it is sent."""
    shelf = Shelf()
    stream: Any = of_stream(shelf, 4).run()
    assert stream.chunks == (b"[2.0]",)
    with pytest.raises(ModelFailed, match="negative"):
        of_stream(shelf, -4).run()
    assert [success for *_, success in shelf.recorded] == [True, False]
    assert not shelf.loaded.in_use()


def test_a_stream_uses_its_model_until_it_ends() -> None:
    """The use ends with the stream's end or failure, and when its client leaves before or after its first answer."""
    shelf = Shelf(model=Counts())
    stream: Any = of_stream(shelf, 1, 2).run()
    assert dict(stream.headers)[b"model-version"] == b"3"
    assert shelf.loaded.in_use()
    assert len(list(stream.chunks)) == 2
    assert not shelf.loaded.in_use()
    for left in (next, lambda chunks: None):
        stream = of_stream(shelf, 1, 2).run()
        left(stream.chunks)
        assert shelf.loaded.in_use()
        stream.chunks.close()
        assert not shelf.loaded.in_use()
    stream = of_stream(shelf, 1, 2).run()
    del stream
    assert not shelf.loaded.in_use()
    stream = of_stream(shelf, -1).run()
    with pytest.raises(ModelFailed):
        next(stream.chunks)
    assert not shelf.loaded.in_use()


def test_a_request_whose_path_names_no_model_is_read_to_know_whether_it_is_quick() -> None:
    """Only a small request is read first, and a stream is never quick."""

    def asking(body: bytes, decode: Any) -> Job[Any]:
        request = HttpRequest("POST", "/infer", body=body)
        return working(Shelf(), Route("POST", "/infer", decode, "", Waits.MODEL), Call(request, {}))

    fast = Infer(ModelRef("m", None, "fast"), ())
    assert asking(b"", lambda _: (fast, None)).is_quick()
    assert not asking(b"", lambda _: (Stream(fast), None)).is_quick()
    assert not asking(bytes(QUICKLY_READ + 1), lambda _: pytest.fail("read")).is_quick()


def test_whether_a_request_is_quick_is_asked_by_the_name_it_has() -> None:
    """A compressed request is never quick, because its size does not tell its work."""
    path = "/v1/models/m/labels/fast:predict"
    assert job(path, b"{}").is_quick()
    assert not job(path, b"{}" * 9).is_quick()
    assert not job("/v1/models/m:predict", b"{}").is_quick()
    assert not job(path, b"{}", content_encoding=b"gzip").is_quick()


def test_a_result_that_another_thread_has_brought_is_phrased() -> None:
    """The job need not have been run in this thread."""
    assert told(job("/v2/repository/models/m/load").phrase(None)) == {}


@pytest.mark.parametrize(
    ("accepted", "least", "coding"),
    [
        (b"gzip", 4, b"gzip"),
        (b"deflate", 4, b"deflate"),
        (b"gzip", 5, None),
        (b"br", 4, None),
        (None, 0, None),
    ],
)
def test_a_large_answer_is_compressed_for_a_client_that_accepts_it(
    accepted: bytes | None, least: int, coding: bytes | None
) -> None:
    """A compressed answer names its coding, and that it varies by Accept-Encoding."""
    headers = {} if accepted is None else {b"accept-encoding": accepted}
    plain = HttpResponse(200, ((b"a", b"b"),), (b"ab", b"cd"))
    response = compressed(plain, HttpRequest("GET", "/", headers), least)
    if coding is None:
        assert response is plain
        return
    assert response.headers == ((b"a", b"b"), (b"content-encoding", coding), (b"vary", b"accept-encoding"))
    inflate = gzip.decompress if coding == b"gzip" else zlib.decompress
    assert inflate(b"".join(response.parts)) == b"abcd"

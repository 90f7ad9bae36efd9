"""Before a body is inflated and read, the server finds its model, its size, and the thread to read it in."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from core.bounds import RATIO
from core.classification import MOST_CLASSES, classify
from core.dtype import DATATYPES
from core.encoding import compression, peek
from core.encoding.compression import FREE, inflate
from core.errors import TooLarge
from core.tensor import Tensor
from core.wire import HttpRequest, Options, UnsupportedEncoding
from handler.edge.jobs import QUICKLY_READ
from tests.handler.edge.client import ask, make, watched
from tests.support.connect_client import GRPS, OIP
from tests.support.zoo.models import graph

if TYPE_CHECKING:
    from pathlib import Path

    from handler.edge.app import App

FP64 = DATATYPES["FP64"]
GZIP = (b"content-encoding", b"gzip")
JSON = (b"content-type", b"application/json")
PROTO = (b"content-type", b"application/proto")
OCTETS = (b"content-type", b"application/octet-stream")
NOISE = b'{"model": "nobody", "modelName": "nobody", ' + b"[" * 2 * QUICKLY_READ
NAMED = b'{"model": "nobody", "x": ' + b"[" * 2 * QUICKLY_READ


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        ("/v2/models/nobody/infer", NOISE, [JSON]),
        ("/v2/models/nobody/infer", b"no gzip", [JSON, GZIP]),
        ("/v2/models/iris/versions/9/infer", NOISE, [JSON]),
        ("/v1/models/nobody:predict", NOISE, [JSON]),
        ("/v1/models/nobody:classify", b"no gzip", [JSON, GZIP]),
        ("/v1/models/iris/versions/9:predict", NOISE, [JSON]),
        ("/grps/v1/infer/predict", NAMED, [JSON]),
        ("/grps/v1/infer/predict", gzip.compress(NAMED), [JSON, GZIP]),
        ("/grps/v1/infer/predict?model=nobody", b"x" * 2 * QUICKLY_READ, [OCTETS]),
        (f"/{OIP}/ModelInfer", b'{"modelName": "nobody", "x": ' + b"[" * 2 * QUICKLY_READ, [JSON]),
        (
            f"/{OIP}/ModelInfer",
            b"\x0a\x06nobody" + b"\x2a\x82\x80\x08" + b"\xff" * 2 * QUICKLY_READ + b"\xff\xff",
            [PROTO],
        ),
    ],
)
def test_a_model_that_is_not_there_is_404_whatever_the_body(
    app: App, path: str, body: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    """A body that no parser could read is not read, and a body that no inflater could read is not inflated."""
    path, _, query = path.partition("?")
    status, _, text = ask(app, "POST", path, body, headers=headers, query_string=query.encode())
    assert status == 404, text


@pytest.mark.parametrize("body", [b'{"a":' * 14_000, b"[" * 70_000, b" " * 70_000, b'{"inputs": [' + b"1, " * 30_000])
@pytest.mark.parametrize(
    ("path", "expected"),
    [(f"/{OIP}/ModelInfer", 400), (f"/{GRPS}/Predict", 200), ("/grps/v1/infer/predict", 400)],  # GRPS fails in 200, too
)
def test_a_long_text_that_is_not_json_is_refused_as_such(app: App, path: str, expected: int, body: bytes) -> None:
    """The mistake is where the text stops being JSON, although no model's name precedes that place."""
    status, _, text = ask(app, "POST", path, body, headers=[JSON])
    assert status == expected
    assert b"JSON" in text, text


@pytest.mark.parametrize("length", [0, 2 * QUICKLY_READ], ids=["short", "long"])
@pytest.mark.parametrize(
    ("late", "expected", "told"),
    [
        (b'"model\\u004eame": "iris"', 400, b"'modelName' twice in one object"),
        (b'"model_\\u006eame": "iris"', 400, b"'model_name' and 'modelName' are the same member"),
        (b'"model\\u0056ersion": "9"', 404, b"version 9"),
    ],
)
def test_a_message_means_the_same_model_whatever_its_length(
    app: App, late: bytes, expected: int, told: bytes, length: int
) -> None:
    """The quick look at a long one finds the model that the parser finds, or leaves the message to it."""
    body = b'{"modelName": "half_plus_three", "x": "%b", %b}' % (b" " * length, late)
    status, _, text = ask(app, "POST", f"/{OIP}/ModelInfer", body, headers=[JSON])
    assert status == expected, text
    assert told in text


def test_a_model_that_the_quick_look_and_the_parser_do_not_agree_on_is_not_used(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever text brings that about, the caller may be permitted to use one of the two alone."""
    monkeypatch.setattr(peek, "member", lambda _, names: "half_plus_three" if "model_name" in names else "")
    body = b'{"modelName": "iris", "x": "%b"}' % (b" " * 2 * QUICKLY_READ)
    status, _, text = ask(app, "POST", f"/{OIP}/ModelInfer", body, headers=[JSON])
    assert status == 400
    assert b"names its model in an unusual way" in text


class Counted:
    """zlib's inflater, which counts the bytes that it makes."""

    made = 0
    real = staticmethod(zlib.decompressobj)

    def __init__(self, bits: int) -> None:
        self._inflater = self.real(bits)

    def decompress(self, data: bytes, most: int) -> bytes:
        """Counts the bytes that come out."""
        plain = self._inflater.decompress(data, most)
        Counted.made += len(plain)
        return plain

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inflater, name)


@pytest.mark.parametrize("limit", [2 * FREE, 64 * 2**20])
@pytest.mark.parametrize("coding", [b"gzip", b"deflate"])
def test_inflating_stops_at_a_ratio(monkeypatch: pytest.MonkeyPatch, coding: bytes, limit: int) -> None:
    """Not one byte is made beyond what the body may inflate to, and the refusal has both sizes."""
    monkeypatch.setattr(zlib, "decompressobj", Counted)
    bomb = (gzip if coding == b"gzip" else zlib).compress(bytes(32 * 2**20))
    Counted.made = 0
    with pytest.raises(
        TooLarge, match=rf"body of {len(bomb)} bytes inflates to more than {max(FREE, RATIO * len(bomb))} bytes"
    ):
        inflate(bomb, coding, limit)
    assert max(FREE, RATIO * len(bomb)) < Counted.made <= max(FREE, RATIO * len(bomb)) + 1


def test_what_tensors_inflate_to_is_accepted() -> None:
    """Small bodies may have any ratio, and large ones may inflate to twenty times what was sent."""
    assert len(inflate(gzip.compress(bytes(FREE)), b"gzip", 2 * FREE)) == FREE
    numbers = np.random.default_rng(0).integers(0, 256, 2**20, np.uint8).tobytes()
    assert len(inflate(gzip.compress(numbers * 4), b"gzip", 2**23)) == 2**22


def test_codings_upon_codings_share_one_ratio() -> None:
    """Two codings of a body do not multiply what it may inflate to, and three codings are refused."""
    twice = gzip.compress(gzip.compress(bytes(8 * 2**20)))
    headers = {b"content-encoding": b"gzip, gzip"}
    with pytest.raises(TooLarge, match=f"body of {len(twice)} bytes inflates to more than {FREE} bytes"):
        HttpRequest("POST", "/", headers, twice, Options()).content()
    with pytest.raises(UnsupportedEncoding, match="has 3 codings; at most 2"):
        HttpRequest("POST", "/", {b"content-encoding": b"gzip," * 3}, twice, Options()).content()
    assert compression.MOST_CODINGS == 2


@pytest.mark.parametrize("zipped", [False, True])
def test_a_body_longer_than_the_model_could_take_is_not_read(tmp_path: Path, *, zipped: bool) -> None:
    """A model with fixed shapes has a longest text; any other model accepts what the server accepts."""
    from onnx import helper, save  # noqa: PLC0415 - for these models alone

    for name, size in (("fixed", 2), ("free", "n")):
        (tmp_path / name / "1").mkdir(parents=True)
        ports = [("x", "FP32", [size])], [("y", "FP32", [size])]
        node = helper.make_node("Identity", ["x"], ["y"])
        save(graph(name, [node], *ports), tmp_path / name / "1" / "model.onnx")
    app = make(tmp_path)
    body = json.dumps({"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1, 2]}], "id": "random"})
    noise = "".join(map(str, np.random.default_rng(0).integers(0, 2**60, 250_000)))
    content = body.replace("random", noise).encode()
    content = gzip.compress(content) if zipped else content
    headers = [GZIP] if zipped else []
    found = {
        name: ask(app, "POST", f"/v2/models/{name}/infer", content, headers=headers)[0] for name in ("fixed", "free")
    }
    assert found == {"fixed": 413, "free": 200}
    app.close()


@pytest.mark.parametrize(
    ("path", "body", "headers"),
    [
        (f"/{OIP}/ServerLive", b"\x7a\x80\x80\x08" + bytes(2 * QUICKLY_READ), [PROTO]),
        (f"/{OIP}/ServerLive", gzip.compress(b"\x7a\x80\x80\x08" + bytes(2 * QUICKLY_READ)), [PROTO, GZIP]),
        (f"/{GRPS}/CheckLiveness", b'{"x": "' + b" " * 2 * QUICKLY_READ + b'"}', [JSON]),
    ],
)
def test_a_long_message_is_read_in_a_thread_also_where_its_method_waits_for_nothing(
    app: App, monkeypatch: pytest.MonkeyPatch, path: str, body: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    """The event loop answers others meanwhile."""
    threads: list[Any] = []
    promptly = app.dispatcher.promptly

    async def noted(work: Any, *arguments: Any) -> Any:
        threads.append(work)
        return await promptly(work, *arguments)

    monkeypatch.setattr(app.dispatcher, "promptly", noted)
    ask(app, "POST", path, body, headers=headers)
    assert len(threads) == 1


def test_a_long_body_leaves_the_event_loop_however_quick_its_model_is(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a model has proved with long bodies does not count for reading them."""
    monkeypatch.setattr(app.registry, "is_quick", lambda *_: True)
    ask(app, "POST", "/v2/repository/models/half_plus_three/load", b"{}")
    changed = watched(app, monkeypatch)
    for size, threads in ((QUICKLY_READ // 2, 0), (2 * QUICKLY_READ, 1)):
        body = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1]}], "id": " " * size}
        ask(app, "POST", "/v2/models/half_plus_three/infer", json.dumps(body).encode())
        assert len(changed) == threads


def test_classes_are_short_texts_that_read_back_as_their_values() -> None:
    """Scores have Triton's six decimals as far as a score could need them, and an exponent beyond."""
    values = [1.7e308, -1.7e308, 0.5, 1e15, np.inf, np.nan]
    texts = classify(Tensor("y", FP64, np.array(values)), len(values), ()).array.tolist()
    assert max(map(len, texts)) < 32
    found = {int(index): float(value) for value, index in (text.decode().split(":") for text in texts)}
    assert [found[index] for index in range(5)] == values[:5]
    assert b"0.500000:2" in texts


def test_the_texts_of_an_answer_are_bounded_by_what_was_sent() -> None:
    """An answer may have more texts than a request has elements only up to a limit."""
    scores = Tensor("y", FP64, np.zeros((2, MOST_CLASSES)))
    assert classify(scores, MOST_CLASSES // 2, (), is_batch=True).array.size == MOST_CLASSES
    assert classify(scores, MOST_CLASSES, (), 2 * MOST_CLASSES, is_batch=True).array.size == 2 * MOST_CLASSES
    with pytest.raises(TooLarge, match=f"{2 * MOST_CLASSES} classes; an answer has at most {MOST_CLASSES}"):
        classify(scores, MOST_CLASSES, (), is_batch=True)

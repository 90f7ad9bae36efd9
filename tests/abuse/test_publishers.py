"""Damaged files of publishers and operators: one line says why, and what served before serves on."""

from __future__ import annotations

import io
import json
import logging
import os
import shutil
import zipfile
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from pyarrow import parquet

from core.errors import InvalidInput
from handler.commands.call import files as given_files
from handler.commands.refused import Refused
from handler.edge.batch.files import FORMATS
from handler.edge.batch.terms import BlockLimits
from handler.settings import InvalidSettings
from handler.settings.sources import in_file
from tests.support import texts
from tests.support.asgi import Local, application
from tests.support.checks import LONGEST_TEXT, refusal
from tests.support.strategies import byte_mutants, mutants, odd_words, v2_keys, values
from tests.support.zoo.models import graph

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Files = dict[str, bytes]
X: Final = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}).encode()
TEXTS: Final = json.dumps({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}]}).encode()
PAGES: Final = ("/v2/models/m", "/v2/models/m/config", "/v1/models/m", "/v2/models", "/models/m", "/openapi.json")
LONG: Final = "x" * 5000
SURROGATE: Final = "\ud800"


def adding(number: float) -> bytes:
    """Returns the model y = x + number, FP32 [-1, 4]."""
    port, constants = ("FP32", [None, 4]), {"c": np.array([number], np.float32)}
    nodes = [helper.make_node("Add", ["x", "c"], ["y"])]
    return bytes(graph("adds", nodes, [("x", *port)], [("y", *port)], constants).SerializeToString())


def said(model: bytes = adding(2), **keys: Any) -> Files:
    """Returns a version with settings."""
    return {"model.onnx": model, "model-settings.json": json.dumps(keys).encode()}


def explained(name: str, content: bytes = b"") -> Files:
    return said(explainer={"background": {"file": name}, "budget": 16}) | {name: content}


def tokenizing(content: bytes) -> Files:
    step = {"name": "t", "tokenizer": {"max_length": 8}}
    return {"pipeline.json": json.dumps({"steps": [step]}).encode(), "tokenizer.json": content}


def array(descr: str, shape: tuple[int, ...], content: bytes = b"") -> bytes:
    """Returns an array's file with any header."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue() + content


def zipped(**members: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return file.getvalue()


class Log(logging.Handler):
    """Keeps the lines with a traceback."""

    def __init__(self) -> None:
        super().__init__()
        self.tracebacks: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self.tracebacks.append(record.getMessage())


class Repository:
    """The models `m` and `good`, which serve version 1."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = Log()
        for name, number in (("m", 1), ("good", 5)):
            self.put({"model.onnx": adding(number)}, f"{name}/1")
        self.local = Local(application(root, inline=True, PRELOAD="m,good"))
        assert (self.sums("m"), self.sums("good")) == ([2, 3, 4, 5], [6, 7, 8, 9])

    def put(self, files: Files, folder: str = "m/2") -> None:
        for name, content in files.items():
            path = self.root / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def sums(self, name: str) -> Any:
        answer = self.local.call("POST", f"/v2/models/{name}/infer", X)
        return answer.json()["outputs"][0]["data"] if answer.status == 200 else refusal(answer)

    def loaded(self) -> str:
        """Loads what the folder has by now. Returns the refusal, "" without one. Version 1 serves after a refusal."""
        answer = self.local.call("POST", "/v2/repository/models/m/load", b"{}")
        assert self.log.tracebacks == []
        reason = "" if answer.status == 200 else refusal(answer, 503)
        assert "\n" not in reason
        assert reason == "" or self.sums("m") == [2, 3, 4, 5]
        assert self.sums("good") == [6, 7, 8, 9]
        return reason

    def judge(self) -> None:
        """Loads what the folder has, and asks for everything that its publisher has a say in."""
        self.loaded()
        self.sums("m")
        self.local.call("POST", "/v2/models/m/explain", X)
        self.local.call("POST", "/v2/models/m/infer", TEXTS)
        assert {self.local.call("GET", path).status for path in PAGES} == {200}

    def tidy(self) -> None:
        self.log.tracebacks.clear()
        shutil.rmtree(self.root / "m/2", ignore_errors=True)
        for name in ("model-settings.json", "config.pbtxt"):
            (self.root / "m" / name).unlink(missing_ok=True)
        assert self.loaded() == ""
        assert self.sums("m") == [2, 3, 4, 5]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Repository]:
    """One for all tests; each removes what it adds."""
    made = Repository(tmp_path_factory.mktemp("repository"))
    logging.getLogger().addHandler(made.log)
    yield made
    logging.getLogger().removeHandler(made.log)
    made.local.close()


WIDE: Final = array("|S250000000", (2, 4))
MANY: Final = array("<f8", (1000, 4000))
NO_OUTPUT: Final = graph("none", [helper.make_node("Neg", ["x"], ["z"])], [("x", "FP32", [None, 4])], [])
DAMAGED: Final[dict[str, tuple[Files, str]]] = {
    "long name": (said(warmup=[{"file": LONG}]), "expected a path in the version's folder"),
    "surrogate": (said(signatures={"s": {"class_labels": [SURROGATE]}}), "surrogates"),
    "long key": (said(explainer={LONG: 1}), "no such key"),
    "long tensor": (said(outputs=[{"name": LONG, "datatype": "FP32", "shape": [-1, 4]}]), "is not in model.onnx"),
    "long background": (said(explainer={"background": {"file": LONG + ".npy"}}), "the name of a file"),
    "wide elements": (explained("b.npz", zipped(x=WIDE)), "'2000000000 bytes'; expected at most 134217728"),
    "many arrays": (explained("b.npz", zipped(**{f"x{i}": MANY for i in range(9)})), "'160000000 bytes'"),
    "no outputs": (said(NO_OUTPUT.SerializeToString()), "the graph has no outputs"),
    "no tokenizer": (tokenizing(b'{"a": 1}'), "expected a tokenizer.json"),
}  # fmt: skip


@pytest.mark.parametrize(("files", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_version_is_refused_in_one_short_line(repository: Repository, files: Files, reason: str) -> None:
    """It names what is wrong, and neither its length nor its characters are the publisher's."""
    repository.put(files)
    found = repository.loaded()
    repository.tidy()
    assert reason in found
    assert len(found) < LONGEST_TEXT


@pytest.mark.parametrize(
    ("files", "name"),
    [(explained(f"b.{kind}"), f"b.{kind}") for kind in ("json", "npy", "npz")]
    + [(said(warmup=[{"file": "w.json"}]), "w.json"), (tokenizing(b""), "tokenizer.json")],
)
def test_a_pipe_blocks_no_load(repository: Repository, files: Files, name: str) -> None:
    """Nobody writes into it. A device without an end would take all memory."""
    repository.put({each: content for each, content in files.items() if each != name})
    os.mkfifo(repository.root / "m/2" / name)
    found = repository.loaded()
    repository.tidy()
    assert "not a regular file" in found


def test_a_panic_of_the_tokenizer_is_an_error_of_its_model(repository: Repository) -> None:
    """Rust's panics are not Exceptions: one would end the thread. This template names a token that the file lacks."""
    document = json.loads(texts.word_pieces().to_str())
    document["post_processor"]["special_tokens"] = {}
    repository.put(tokenizing(json.dumps(document).encode()))
    loads, answer = repository.loaded(), repository.local.call("POST", "/v2/models/m/infer", TEXTS)
    repository.tidy()
    assert loads == ""
    assert "the tokenizer failed" in refusal(answer, 500)


SETTINGS: Final = [
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 4]}], "max_batch_size": 8, "platform": "p"},
    {"signatures": {"serving_default": {"method": "classify", "class_labels": ["a", "b", "c", "d"],
        "inputs": {"x": {"tensor": "x", "shape": [4], "default": [0, 0, 0, 0]}}, "outputs": {"scores": "y"}}}},
    {"version_policy": {"specific": {"versions": [1]}}, "version_labels": {"s": 1}, "timeout": 3},
    {"http": {"path": "/own"}, "max_concurrency": 2},
    {"explainer": {"background": [[1, 2, 3, 4]], "budget": 16, "feature_names": ["a", "b", "c", "d"]}},
    {"warmup": [{"random": True, "count": 2, "shapes": {"x": [2, 4]}}], "batching": {"max_batch_size": 4}},
]  # fmt: skip
CONFIG: Final = b"""name: "m" max_batch_size: 8 input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output { name: "y" data_type: TYPE_FP32 dims: [ 4 ] } version_policy: { latest { num_versions: 1 } }
instance_group [ { count: 2 } ]"""
ROWS: Final = np.arange(8, dtype=np.float32).reshape(2, 4)
NPY: Final = array("<f4", (2, 4), ROWS.tobytes())
TOKENIZER: Final = texts.word_pieces().to_str().encode()
odd_values = st.one_of(values, odd_words, st.just(LONG), st.builds(lambda: [[1], [1, 2]]), st.just(10**400))
settings_files = mutants([("", each) for each in SETTINGS], odd_values, st.one_of(v2_keys, st.just(LONG)))
DAMAGE: Final[dict[str, st.SearchStrategy[Files]]] = {
    "settings": settings_files.map(lambda each: {"../model-settings.json": json.dumps(each[1]).encode()}),
    "own settings": settings_files.map(lambda each: said(**each[1])),
    "config.pbtxt": byte_mutants([CONFIG]).map(lambda text: {"../config.pbtxt": text}),
    "onnx": byte_mutants([adding(2), NO_OUTPUT.SerializeToString()]).map(lambda text: {"model.onnx": text}),
    "npy": byte_mutants([NPY]).map(lambda text: explained("b.npy", text)),
    "npz": byte_mutants([zipped(x=NPY)]).map(lambda text: explained("b.npz", text)),
    "tokenizer": byte_mutants([TOKENIZER]).map(tokenizing),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
@settings(max_examples=25)
@given(data=st.data())
def test_any_damage_is_refused_or_served(repository: Repository, kind: str, data: st.DataObject) -> None:
    """A load of it is answered with 200, or with 503 and a line, without a traceback in the log."""
    (repository.root / "m/2").mkdir()
    try:
        repository.put(data.draw(DAMAGE[kind]))
        repository.judge()
    finally:
        repository.tidy()


def table() -> bytes:
    file = io.BytesIO()
    parquet.write_table(pa.table({"x": [1.0, 2.0]}), file)
    return file.getvalue()


RECORDS: Final[dict[str, tuple[str, bytes]]] = {
    "open bracket": ("npy", NPY.replace(b"}", b" ")),
    "negative": ("npy", array("<f4", (-1, 4), b"\0" * 64)),
    "huge": ("npy", array("<f4", (2**62, 2**62))),
    "zip": ("npy", zipped(x=NPY)),
    "damaged zip": ("npy", b"PK\3\4" + NPY),
    "beyond Unicode": ("npy", array("<U1", (1,), b"\xff\xff\xff\x7f")),
    "damaged": ("parquet", table().replace(b"\x15", b"\x16")),
    "cut": ("parquet", table()[:-9]),
    "damaged end": ("parquet", table()[:-40] + b"\xff" * 32 + table()[-8:]),
}


@pytest.mark.parametrize(("form", "content"), RECORDS.values(), ids=RECORDS)
@pytest.mark.parametrize("is_bucket", [False, True], ids=["folder", "bucket"])
def test_damaged_records_are_invalid_input(tmp_path: Path, form: str, content: bytes, *, is_bucket: bool) -> None:
    """numpy, zipfile and pyarrow raise errors of many kinds for them; some have no text."""
    path = tmp_path / f"records.{form}"
    path.write_bytes(content)
    with io.BytesIO(content) if is_bucket else path.open("rb") as file, pytest.raises(InvalidInput) as refused:
        [block.call(Terms()) for block in FORMATS[form](file, BlockLimits(8, 1000), 0, Terms())]  # type: ignore[arg-type]
    assert "None" not in refused.value.message
    assert len(refused.value.message) < LONGEST_TEXT


class Terms:
    """The terms of a model that does not declare its inputs."""

    has_ids = False
    bindings = spec = None
    signature = ""


@pytest.mark.parametrize(("suffix", "content"), [
    ("npy", NPY.replace(b"}", b" ")), ("npz", zipped(x=WIDE)), ("npz", zipped(x=array("<f8", (2**42, 4)))),
    ("npz", zipped(x=NPY)[:60] + b"\xff\xff" + zipped(x=NPY)[62:]), ("json", b"[" * 100_000), ("csv", b"a,b\n1\n"),
])  # fmt: skip
def test_a_damaged_file_of_inputs_is_refused(tmp_path: Path, suffix: str, content: bytes) -> None:
    """`dragoman infer --file` says so in one line."""
    (tmp_path / f"f.{suffix}").write_bytes(content)
    with pytest.raises(Refused, match=f"is not a .{suffix} file that can be read"):
        given_files.read(tmp_path / f"f.{suffix}")


@pytest.mark.parametrize("value", ["1" * 5000, "0x" + "f" * 5000, "9" * 30, '"a\\u0000b"'])
def test_odd_values_of_a_settings_file_are_refused(tmp_path: Path, value: str) -> None:
    """Numbers that Python cannot write, and texts that the system cannot read."""
    (tmp_path / "dragoman.toml").write_text(f"threads = {value}\n")
    with pytest.raises(InvalidSettings, match=r"is not TOML|64 bits|NUL"):
        in_file(tmp_path / "dragoman.toml")

"""Graphs with the operators of onnxruntime-extensions: a tokenizer inside a model."""

import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, helper

from core.dtype import BYTES
from core.errors import ModelNotLoadable
from core.tensor import Tensor
from handler.backends import Source, onnx_file
from handler.backends.onnx import load
from handler.settings import Settings
from handler.settings.model import ModelSettings
from tests.support import texts
from tests.support.zoo.models import graph

DOMAIN = "ai.onnx.contrib"


def extended(node: Any, datatype: str, outputs: int = 1) -> ModelProto:
    """A graph of one such node: text [n] -> y, z, ..."""
    made = graph("extended", [node], [("text", "BYTES", ["n"])], [(name, datatype, ["m"]) for name in "yzw"[:outputs]])
    made.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return made


UPPER = extended(helper.make_node("StringUpper", ["text"], ["y"], domain=DOMAIN), "BYTES")
VOCABULARY = "\n".join(sorted(texts.WORD_PIECES, key=texts.WORD_PIECES.__getitem__))
TOKENIZER = extended(
    helper.make_node("BertTokenizer", ["text"], ["y", "z", "w"], domain=DOMAIN, vocab_file=VOCABULARY.encode()),
    "INT64",
    3,
)


def ask_apart(folder: Path, model: ModelProto, text: str) -> list[Any]:
    """Does as `ask` in a process of its own: native libraries with threads are loaded and unloaded there."""
    onnx.save(model, folder / "asked.onnx")
    program = (
        "import sys, onnx; from pathlib import Path; from tests.handler.backends.test_onnx_extensions import ask; "
        "print(repr(ask(Path(sys.argv[1]), onnx.load(Path(sys.argv[1]) / 'asked.onnx'), sys.argv[2])))"
    )
    command = [sys.executable, "-c", program, str(folder), text]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    found: list[Any] = literal_eval(done.stdout)
    return found


def ask(folder: Path, model: ModelProto, text: str) -> list[Any]:
    """Loads the model, and asks it about a text."""
    onnx.save(model, folder / "model.onnx")
    loaded = load(Source("m", "1", folder, ModelSettings()), Settings.from_env({"DRAGOMAN_REPOSITORY": str(folder)}))
    names = [output.name for output in loaded.spec.outputs or ()]
    given = Tensor("text", BYTES, np.array([text.encode()], object))
    return [each.array.tolist() for each in loaded.predict({"text": given}, names, {})]


def test_the_operators_are_there_for_a_graph_that_names_their_domain(tmp_path: Path) -> None:
    """Texts go through them, and come out of them."""
    assert ask_apart(tmp_path, UPPER, "a b") == [[b"A B"]]


def test_a_tokenizer_inside_a_graph_splits_as_the_library_does(tmp_path: Path) -> None:
    """The same ids as Hugging Face's tokenizers with the same vocabulary."""
    text = "The old dog, chased by 2 cats!"
    ids, types, mask = ask_apart(tmp_path, TOKENIZER, text)
    expected = texts.word_pieces().encode(text)
    assert (ids, types, mask) == (expected.ids, expected.type_ids, expected.attention_mask)


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph without the domain needs none."""
    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    with pytest.raises(ModelNotLoadable, match=rf"onnxruntime-extensions \({DOMAIN}\): pip install 'dragoman\[text\]'"):
        ask(tmp_path, UPPER, "a")
    plain = graph(
        "plain", [helper.make_node("Identity", ["text"], ["y"])], [("text", "BYTES", ["n"])], [("y", "BYTES", ["n"])]
    )
    assert ask(tmp_path, plain, "a") == [[b"a"]]
    assert onnx_file.domains(tmp_path / "model.onnx") == {""}


def test_the_package_itself_is_not_imported(tmp_path: Path) -> None:
    """In a process of its own: an import would choose another protobuf for later imports."""
    onnx.save(UPPER, tmp_path / "model.onnx")
    program = f"""
import os, sys
from pathlib import Path
from handler.backends import Source
from handler.backends.onnx import load
from handler.settings import Settings
from handler.settings.model import ModelSettings
settings = Settings.from_env({{"DRAGOMAN_REPOSITORY": "/nowhere"}})
print(load(Source("upper", "1", Path({str(tmp_path)!r}), ModelSettings()), settings).spec.name)
print("onnxruntime_extensions" in sys.modules, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION" in os.environ)
import core.dialects.rpcs
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.split() == ["upper", "False", "False"]

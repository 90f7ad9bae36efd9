"""Graphs with the operators of onnxruntime-extensions: a tokenizer inside a model."""

import json
import os
import re
import subprocess
import sys
from ast import literal_eval
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, helper

from core.dtype import BYTES
from core.errors import ModelNotLoadable
from core.tensor import Tensor
from handler.backends import Source
from handler.backends.onnx import EXTENSIONS, load
from handler.settings import Settings
from handler.settings.model import ModelSettings
from tests.support import needs, texts
from tests.support.zoo.models import graph

DOMAIN = "ai.onnx.contrib"
ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "text.md"
TELEMETRY = "ORT_DISABLE_TELEMETRY"


def extended(node: Any, datatype: str, outputs: int = 1, domain: str = DOMAIN) -> ModelProto:
    """A graph of one such node: text [n] -> y, z, ..."""
    made = graph("extended", [node], [("text", "BYTES", ["n"])], [(name, datatype, ["m"]) for name in "yzw"[:outputs]])
    made.opset_import.append(helper.make_opsetid(domain, 1))
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


@needs.EXTENSIONS
def test_the_operators_are_there_for_a_graph_that_names_their_domain(tmp_path: Path) -> None:
    """Texts go through them, and come out of them."""
    assert ask_apart(tmp_path, UPPER, "a b") == [[b"A B"]]


@needs.EXTENSIONS
def test_a_tokenizer_inside_a_graph_splits_as_the_library_does(tmp_path: Path) -> None:
    """The same ids as Hugging Face's tokenizers with the same vocabulary."""
    text = "The old dog, chased by 2 cats!"
    ids, types, mask = ask_apart(tmp_path, TOKENIZER, text)
    expected = texts.word_pieces().encode(text)
    assert (ids, types, mask) == (expected.ids, expected.type_ids, expected.attention_mask)


@pytest.mark.parametrize("domain", sorted(EXTENSIONS))
@pytest.mark.parametrize("place", ["graph", "branch", "function"])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, domain: str, place: str
) -> None:
    """So is the operator, wherever it is. A graph that imports the domain without an operator of it needs none."""
    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    node = helper.make_node("StringUpper", ["text"], ["y"], domain=domain)
    plain = helper.make_node("Identity", ["text"], ["y"])
    branch = helper.make_graph([node], "branch", [], [])
    function = helper.make_function("own", "Loud", ["text"], ["y"], [node], [helper.make_opsetid(domain, 1)])
    models = {
        "graph": extended(node, "BYTES", domain=domain),
        "branch": extended(helper.make_node("If", ["c"], ["y"], then_branch=branch), "BYTES", domain=domain),
        "function": extended(helper.make_node("Loud", ["text"], ["y"], domain="own"), "BYTES", domain=domain),
    }
    models["function"].functions.append(function)
    told = r"onnxruntime-extensions \(StringUpper\): pip install 'dragoman\[text\]'"
    with pytest.raises(ModelNotLoadable, match=told):
        ask(tmp_path, models[place], "a")
    assert ask(tmp_path, extended(plain, "BYTES", domain=domain), "a") == [[b"a"]]


def test_a_long_list_of_operators_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names three of them."""
    monkeypatch.setitem(sys.modules, "onnxruntime_extensions", None)
    model = extended(helper.make_node("D", ["text"], ["y"], domain=DOMAIN), "BYTES")
    model.graph.node.extend(helper.make_node(name, ["y"], [name], domain=DOMAIN) for name in "CAB")
    with pytest.raises(ModelNotLoadable, match=r"\(A, B, C, ...\)"):
        ask(tmp_path, model, "a")


@needs.EXTENSIONS
def test_an_encoder_takes_texts_with_the_librarys_own_step_in_front(tmp_path: Path) -> None:
    """The package's tool joins BERT's tokenizer and an encoder, as on the page: the vectors are Hugging Face's."""
    onnx.save(texts.encoder(len(texts.WORD_PIECES)), tmp_path / "encoder.onnx")
    (tmp_path / "vocabulary.json").write_text(json.dumps(texts.WORD_PIECES))
    made = tmp_path / "models" / "reviews" / "1" / "model.onnx"
    made.parent.mkdir(parents=True)
    (program,) = re.findall(r"test_onnx_extensions.py -->\n```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    subprocess.run([sys.executable, "-c", program], check=True, timeout=100, cwd=tmp_path)
    model = onnx.load(made)
    assert [each.domain for each in model.opset_import if each.domain] == ["com.microsoft.extensions"]
    text = "The old dog, chased by 2 cats!"
    (found,) = ask_apart(tmp_path, model, text)
    encoded = texts.word_pieces().encode(text)
    feed = {"input_ids": encoded.ids, "attention_mask": encoded.attention_mask, "token_type_ids": encoded.type_ids}
    session = onnxruntime.InferenceSession(tmp_path / "encoder.onnx")
    (expected,) = session.run(None, {name: np.array([row], np.int64) for name, row in feed.items()})
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@needs.EXTENSIONS
def test_the_package_itself_is_not_imported_and_the_runtime_collects_nothing(tmp_path: Path) -> None:
    """In a process of its own: an import would choose another protobuf, and ONNX Runtime would write to the home."""
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
    home = tmp_path / "home"
    home.mkdir()
    unset = {name: value for name, value in os.environ.items() if name not in (TELEMETRY, "XDG_CACHE_HOME")}
    command, own = [sys.executable, "-c", program], unset | {"HOME": str(home), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.split() == ["upper", "False", "False"]
    assert not [*home.rglob("*")], "ONNX Runtime collects usage data"

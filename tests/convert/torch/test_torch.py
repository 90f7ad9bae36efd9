"""PyTorch and Hugging Face: converted with parity, and served. Torch is the oracle.

These need torch, whose package on PyPI brings CUDA along: 5.5 GB. `make test-convert-torch` runs them, CI does not.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers
from torch import nn

from handler.backends import Source
from handler.backends.onnx import load
from handler.commands import parity
from handler.settings import Settings
from handler.settings.model import FILE, parse

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch warns of its own code
    pytest.mark.usefixtures("here"),
]
Run = Callable[..., tuple[int, str, str]]


class Tower(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.kinds = nn.Linear(4, 3), nn.Embedding(10, 3)

    def forward(self, x: Any, kind: Any) -> Any:
        hidden = self.numbers(x) + self.kinds(kind)
        return torch.softmax(hidden, 1), hidden.argmax(1)


def perceptron() -> Any:
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(1)).eval()


def pictures() -> Any:
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()


MODELS = {
    "perceptron": (perceptron, (torch.randn(2, 4),), True),
    "pictures": (pictures, (torch.randn(1, 3, 16, 16),), False),
    "tower": (lambda: Tower().eval(), (torch.randn(2, 4), torch.zeros(2, dtype=torch.int64)), True),
}


@pytest.mark.parametrize("name", MODELS)
def test_an_exported_program_answers_as_torch_does(name: str, run: Run, tmp_path: Path) -> None:
    """Inputs of any number of rows stay so."""
    make, arguments, dynamic = MODELS[name]
    model = make()
    rows = tuple({0: torch.export.Dim("rows")} for _ in arguments) if dynamic else None
    torch.export.save(torch.export.export(model, arguments, dynamic_shapes=rows), tmp_path / "m.pt2")
    code, out, err = run("convert", tmp_path / "m.pt2", tmp_path / "models/m", "--quiet")
    assert code == 0, err
    report = json.loads((tmp_path / "models/m/1" / parity.FILE).read_bytes())
    assert report["data"]["rows"] == (1000 if dynamic else 1)
    assert parity.sentence(report) in out
    found = load(Source("m", "1", tmp_path / "models/m/1", parse("m")), Settings.from_env())
    inputs = found.spec.inputs or ()
    assert [each.shape[0] for each in inputs if each.shape] == [-1 if dynamic else 1] * len(arguments)
    assert str(tmp_path).encode() not in (tmp_path / "models/m/1/model.onnx").read_bytes()


def test_torchscript_answers_as_torch_does(run: Run, tmp_path: Path) -> None:
    """It needs rows, of which the first two are an example."""
    torch.jit.trace(perceptron(), torch.zeros(2, 4)).save(tmp_path / "m.pt")
    assert "give rows of input with --data" in run("convert", tmp_path / "m.pt", tmp_path / "m")[2]
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(50, 4)))
    code, out, err = run("convert", tmp_path / "m.pt", tmp_path / "m", "--data", tmp_path / "rows.npy", "--quiet")
    assert code == 0, err
    assert "50 rows given, numbers differ by at most" in out


def test_weights_alone_are_refused(run: Run, tmp_path: Path) -> None:
    """They are a pickle, and have no graph."""
    torch.save(perceptron().state_dict(), tmp_path / "m.pt")
    assert "m.pt is not TorchScript: weights alone" in run("convert", tmp_path / "m.pt", tmp_path / "m")[2]


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *["good", "bad", "film", "story", "not", "very", "the", "a", "is", "was"]]


def texts(kind: str, folder: Path, **settings: Any) -> Path:
    """Saves a small BERT with a tokenizer, as `save_pretrained` does."""
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=WORDS[1]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.BertTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=len(WORDS), max_position_embeddings=64, **sizes, **settings)
    torch.manual_seed(0)
    getattr(transformers, kind)(config).eval().save_pretrained(folder)
    return folder


@pytest.mark.parametrize(
    ("kind", "settings", "output", "labels"),
    [
        ("BertForSequenceClassification", {"id2label": {0: "no", 1: "yes"}}, "logits", ["no", "yes"]),
        ("BertForTokenClassification", {"num_labels": 3}, "logits", None),
        ("BertModel", {}, "last_hidden_state", None),
    ],
)
def test_a_folder_of_hugging_face_answers_as_transformers_does(
    kind: str, settings: dict[str, Any], output: str, labels: list[str] | None, run: Run, tmp_path: Path
) -> None:
    """The tokenizer comes along. Rows and tokens may be of any number."""
    folder = texts(kind, tmp_path / "bert", **settings)
    (tmp_path / "texts.csv").write_text("text\ngood film\na very bad story\nthe film was not good\n", encoding="utf-8")
    code, out, err = run("convert", folder, tmp_path / "models/m", "--data", tmp_path / "texts.csv", "--quiet")
    assert code == 0, err
    assert "3 rows given, numbers differ by at most" in out
    version = tmp_path / "models/m/1"
    assert (version / "tokenizer.json").is_file()
    report = json.loads((version / parity.FILE).read_bytes())
    assert [each["name"] for each in report["outputs"]] == [output]
    said = json.loads((version / FILE).read_bytes()) if (version / FILE).exists() else {}
    assert said.get("signatures", {}).get("classify", {}).get("class_labels") == labels
    found = load(Source("m", "1", version, parse("m")), Settings.from_env())
    assert [each.shape for each in found.spec.inputs or ()] == [(-1, -1)] * len(found.spec.inputs or ())


def test_weights_in_a_pickle_are_refused(run: Run, tmp_path: Path) -> None:
    """A folder without safetensors needs the flag."""
    folder = texts("BertModel", tmp_path / "bert")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "its weights are a pickle, which can run code" in run("convert", folder, tmp_path / "m")[2]


def test_a_model_of_another_task_is_refused(run: Run, tmp_path: Path) -> None:
    """The architecture is named."""
    folder = texts("BertForQuestionAnswering", tmp_path / "bert")
    assert (
        "is a ['BertForQuestionAnswering']; expected a model that ends in" in run("convert", folder, tmp_path / "m")[2]
    )

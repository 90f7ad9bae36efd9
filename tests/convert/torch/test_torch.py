"""PyTorch and Hugging Face: converted with parity, and served. Torch is the oracle.

These need torch, whose package on PyPI brings CUDA along: 5.5 GB. `make test-convert-torch` runs them.
"""

import json
import shutil
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
from handler.settings import Settings
from handler.settings.model import FILE, parse
from handler.stores import parity
from tests.convert.roll import SERVED
from tests.convert.serving import check_explained, check_served, get, inputs
from tests.support.server import Server

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # torch warns of its own code
    pytest.mark.usefixtures("here"),
]
transformers.utils.logging.disable_progress_bar()


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


def signals() -> Any:
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.GELU(), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(4, 1)).eval()


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.steps, self.last = nn.Embedding(10, 4), nn.GRU(4, 5, batch_first=True), nn.Linear(5, 2)

    def forward(self, ids: Any) -> Any:
        return torch.softmax(self.last(self.steps(self.words(ids))[0][:, -1]), 1)


ROWS = 40
MODELS = {
    "perceptron": (perceptron, {"input": torch.randn(ROWS, 4)}),
    "pictures": (pictures, {"input": torch.randn(ROWS, 3, 16, 16)}),
    "tower": (lambda: Tower().eval(), {"x": torch.randn(ROWS, 4), "kind": torch.randint(0, 9, (ROWS,))}),
    "signals": (signals, {"input": torch.randn(ROWS, 2, 12)}),
    "recurrent": (lambda: Recurrent().eval(), {"ids": torch.randint(0, 9, (ROWS, 6))}),
}


def trained(name: str) -> tuple[Any, dict[str, Any]]:
    """Returns a model that has taken a step, and rows of its inputs."""
    torch.manual_seed(0)
    make, rows = MODELS[name]
    model = make()
    answer = model(*rows.values())
    (answer[0] if isinstance(answer, tuple) else answer).square().mean().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    return model, rows


def check(name: str, folder: Path, server: Server, run: Any, model: Any, rows: dict[str, Any]) -> None:
    """Asks the server what the model itself answers."""
    few = {each: tensor[1:6] for each, tensor in rows.items()}
    names = inputs(name, server)
    np.savez(folder / "asked.npz", **dict(zip(names, map(np.asarray, few.values()), strict=True)))
    with torch.no_grad():
        theirs = model(*few.values())
    outputs = [each["name"] for each in get(server, f"/v2/models/{name}")["outputs"]]
    theirs = theirs if isinstance(theirs, tuple) else (theirs,)
    check_served(name, server, run, folder / "asked.npz", dict(zip(outputs, map(np.asarray, theirs), strict=True)))
    row = {each: tensor[0].tolist() for each, tensor in zip(names, few.values(), strict=True)}
    check_explained(name, server, row if len(row) > 1 else row[names[0]])


@pytest.mark.parametrize("name", SERVED["PyTorch"])
def test_an_exported_program_is_converted_with_parity_and_served_over_every_protocol(
    name: str, repository: Path, server: Server, run: Any, tmp_path: Path
) -> None:
    """It answers as torch does, for any number of rows."""
    model, rows = trained(name)
    dims = tuple({0: torch.export.Dim("rows")} for _ in rows)
    arguments = tuple(tensor[:2] for tensor in rows.values())
    torch.export.save(torch.export.export(model, arguments, dynamic_shapes=dims), tmp_path / "m.pt2")
    np.savez(tmp_path / "data.npz", **{each: tensor.numpy() for each, tensor in rows.items()})
    data = ("--data", tmp_path / "data.npz")
    code, out, err = run("convert", tmp_path / "m.pt2", repository / name, "--quiet", *data)
    assert code == 0, err
    report = json.loads((repository / name / "1" / parity.FILE).read_bytes())
    assert report["data"]["rows"] == ROWS
    assert parity.sentence(report) in out
    assert {each["shape"][0] for each in get(server, f"/v2/models/{name}")["inputs"]} == {-1}
    assert str(tmp_path).encode() not in (repository / name / "1" / "model.onnx").read_bytes()
    check(name, tmp_path, server, run, model, rows)


class Eigenvalues(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.linalg.eigvalsh(x)


def test_an_operation_that_torch_does_not_export_is_named(run: Any, tmp_path: Path) -> None:
    """Torch's own text has advice in colours for the author of an exporter, and not the name."""
    torch.export.save(torch.export.export(Eigenvalues(), (torch.eye(3),)), tmp_path / "m.pt2")
    err = run("convert", tmp_path / "m.pt2", tmp_path / "models/m", "--quiet")[2]
    assert "torch.onnx does not export this model: DispatchError: No ONNX function found for" in err
    assert "_linalg_eigh" in err


class Keyed(nn.Module):
    def forward(self, pair: Any, *, scale: Any, doubled: bool = False) -> Any:
        return (pair["a"] - pair["others"][0]) * scale * (2 if doubled else 1)


def bert() -> Any:
    torch.manual_seed(0)
    shape = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return transformers.BertModel(transformers.BertConfig(vocab_size=50, **shape)).eval()


@pytest.mark.parametrize(("make", "positions", "keywords"), [
    (Keyed, ({"a": torch.randn(2, 3), "others": [torch.randn(2, 3)]},), {"scale": torch.randn(2, 3), "doubled": True}),
    (bert, (), {each: torch.ones(2, 7, dtype=torch.long) for each in ("input_ids", "attention_mask")}),
])  # fmt: skip
def test_inputs_of_a_program_may_be_keywords_or_parts(
    make: Any, positions: Any, keywords: Any, run: Any, tmp_path: Path
) -> None:
    """A program remembers how it was called. The answers of Hugging Face's models are types of their package."""
    torch.export.save(torch.export.export(make(), positions, keywords), tmp_path / "m.pt2")
    code, _, err = run("convert", tmp_path / "m.pt2", tmp_path / "models/m", "--quiet")
    assert code == 0, err
    report = json.loads((tmp_path / "models/m/1" / parity.FILE).read_bytes())
    assert [each["different"] for each in report["outputs"]] == [0] * len(report["outputs"])


def test_a_program_of_a_fixed_number_of_rows_stays_so(run: Any, tmp_path: Path) -> None:
    """Its rows are made, one at a time."""
    torch.export.save(torch.export.export(perceptron(), (torch.randn(1, 4),)), tmp_path / "m.pt2")
    assert run("convert", tmp_path / "m.pt2", tmp_path / "models/m", "--quiet")[0] == 0
    assert json.loads((tmp_path / "models/m/1" / parity.FILE).read_bytes())["data"]["rows"] == 1
    found = load(Source("m", "1", tmp_path / "models/m/1", parse("m")), Settings.from_env())
    assert [each.shape for each in found.spec.inputs or ()] == [(1, 4)]


def test_torchscript_is_converted_with_parity_and_served_over_every_protocol(
    repository: Path, server: Server, run: Any, tmp_path: Path
) -> None:
    """It needs rows, of which the first two are an example."""
    model = perceptron()
    torch.jit.trace(model, torch.zeros(2, 4)).save(tmp_path / "m.pt")
    assert "give rows of input with --data" in run("convert", tmp_path / "m.pt", tmp_path / "m")[2]
    rows = torch.randn(50, 4)
    np.save(tmp_path / "rows.npy", rows.numpy())
    data = ("--data", tmp_path / "rows.npy")
    code, out, err = run("convert", tmp_path / "m.pt", repository / "script", "--quiet", *data)
    assert code == 0, err
    assert "50 rows given, numbers differ by at most" in out
    check("script", tmp_path, server, run, model, {"input": rows})


def test_weights_alone_are_refused(run: Any, tmp_path: Path) -> None:
    """They are a pickle, and have no graph."""
    torch.save(perceptron().state_dict(), tmp_path / "m.pt")
    assert "m.pt is not TorchScript: weights alone" in run("convert", tmp_path / "m.pt", tmp_path / "m")[2]


WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *["good", "bad", "film", "story", "not", "very", "the", "a", "is", "was"]]


def texts(kind: str, folder: Path, **settings: Any) -> Path:
    """Saves a small model of BERT's kind with a tokenizer, as `save_pretrained` does."""
    vocabulary = {word: index for index, word in enumerate(WORDS)}
    made = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token=WORDS[1]))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    made.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    transformers.BertTokenizerFast(tokenizer_object=made, **special).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    network = getattr(transformers, kind)
    settings = {"max_position_embeddings": 64, **sizes, **settings}
    torch.manual_seed(0)
    network(network.config_class(vocab_size=len(WORDS), **settings)).eval().save_pretrained(folder)
    return folder


HUGGING_FACE = {
    "reviews": ("BertForSequenceClassification", {"id2label": {0: "no", 1: "yes"}}, "logits", ["no", "yes"]),
    "stars": ("BertForSequenceClassification", {"num_labels": 5}, "logits", [f"LABEL_{each}" for each in range(5)]),
    "words": ("BertForTokenClassification", {"num_labels": 3}, "logits", None),
    "encoder": ("BertModel", {}, "last_hidden_state", None),
}
TEXTS = ["good film", "a very bad story", "the film was not good"]


@pytest.mark.parametrize("name", HUGGING_FACE)
def test_a_folder_of_hugging_face_is_converted_with_parity_and_served_over_every_protocol(
    name: str, repository: Path, server: Server, run: Any, tmp_path: Path
) -> None:
    """The tokenizer comes along; behind it in a pipeline, the model answers texts as transformers does."""
    kind, settings, output, labels = HUGGING_FACE[name]
    folder = texts(kind, tmp_path / "bert", **settings)
    (tmp_path / "texts.csv").write_text("\n".join(["text", *TEXTS]), encoding="utf-8")
    code, out, err = run("convert", folder, repository / name, "--data", tmp_path / "texts.csv", "--quiet")
    assert code == 0, err
    assert "3 rows given, numbers differ by at most" in out
    version = repository / name / "1"
    report = json.loads((version / parity.FILE).read_bytes())
    assert [each["name"] for each in report["outputs"]] == [output]
    said = json.loads((version / FILE).read_bytes()) if (version / FILE).exists() else {}
    assert said.get("signatures", {}).get("classify", {}).get("class_labels") == labels
    assert {tuple(each["shape"]) for each in get(server, f"/v2/models/{name}")["inputs"]} == {(-1, -1)}
    _check_texts(name, folder, repository, output, server, run)


def _check_texts(name: str, folder: Path, repository: Path, output: str, server: Server, run: Any) -> None:
    """Puts the tokenizer before the model, and asks the texts."""
    made = repository / f"{name}-of-texts" / "1"
    made.mkdir(parents=True)
    shutil.copy(repository / name / "1" / "tokenizer.json", made)
    steps = [{"name": "tokenize", "tokenizer": {"max_length": 64}}, {"name": "answer", "model": name}]
    pipeline = {"steps": steps, "inputs": ["text"], "outputs": [output]}
    (made / "pipeline.json").write_text(json.dumps(pipeline), encoding="utf-8")
    explainer = {"background": {"text": ["film", "the story was very bad"]}}
    (made / FILE).write_text(json.dumps({"explainer": explainer}), encoding="utf-8")
    np.savez(folder / "asked.npz", text=np.array(TEXTS))
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, HUGGING_FACE[name][0]).from_pretrained(folder).eval()
    with torch.no_grad():
        theirs = model(**tokenizer(TEXTS, padding=True, return_tensors="pt"))[output]
    check_served(f"{name}-of-texts", server, run, folder / "asked.npz", {output: theirs})
    if name in SERVED["Hugging Face"]:
        check_explained(f"{name}-of-texts", server, TEXTS[0])


@pytest.mark.parametrize("kind", ["BertModel", "RobertaModel"])
def test_made_texts_are_as_short_as_the_model_needs(kind: str, run: Any, tmp_path: Path) -> None:
    """RoBERTa reserves its first positions, and so takes fewer tokens than it has positions."""
    folder = texts(kind, tmp_path / "few", max_position_embeddings=12, pad_token_id=0)
    code, out, err = run("convert", folder, tmp_path / "models/few", "--quiet")
    assert code == 0, err
    assert "32 rows made, numbers differ by at most" in out


def test_weights_in_a_pickle_are_refused(run: Any, tmp_path: Path) -> None:
    """A folder without safetensors needs the flag."""
    folder = texts("BertModel", tmp_path / "bert")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert "its weights are a pickle, which can run code" in run("convert", folder, tmp_path / "m")[2]


def test_a_model_of_another_task_is_refused(run: Any, tmp_path: Path) -> None:
    """The architecture is named."""
    folder = texts("BertForQuestionAnswering", tmp_path / "bert")
    assert (
        "is a ['BertForQuestionAnswering']; expected a model that ends in" in run("convert", folder, tmp_path / "m")[2]
    )

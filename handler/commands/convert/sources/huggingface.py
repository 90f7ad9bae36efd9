"""Hugging Face: folders of text classification, token classification and embeddings, by torch.onnx."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from handler.commands.convert.sources import torch as torch_source
from handler.commands.convert.sources.original import (
    Arrays,
    LibraryModel,
    Progress,
    SourceOptions,
    library,
    refusing,
    versioned,
)
from handler.commands.refused import Refused

TITLE: Final = "Hugging Face"
EXTRA: Final = "convert-huggingface"
TASKS: Final = {
    "ForSequenceClassification": ("AutoModelForSequenceClassification", "logits"),
    "ForTokenClassification": ("AutoModelForTokenClassification", "logits"),
    "Model": ("AutoModel", "last_hidden_state"),
}
"""The ending of an architecture's name -> the class that loads it, and its output."""
TOKENIZER: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.txt",
    "config.json",
    "1_Pooling/config.json",
)
INPUTS: Final = ("input_ids", "attention_mask", "token_type_ids")
LONGEST: Final = 64
"""The most tokens of a text in the comparison."""
ROWS: Final = 32
WORDS: Final = 24
SPECIAL: Final = ("[", "<", "##")


def convert(folder: Path, options: SourceOptions, progress: Progress) -> LibraryModel:
    """Converts a model of texts. Raises Refused."""
    torch = library("torch", TITLE, EXTRA)
    transformers = library("transformers", TITLE, EXTRA)
    library("onnxscript", TITLE, EXTRA)
    kind, output = _task(folder)
    if not options.allow_pickle and not list(folder.glob("*.safetensors")):
        raise Refused(
            f"{folder} has no *.safetensors: its weights are a pickle, which can run code. "
            "Save it with model.save_pretrained(folder), or pass --allow-pickle for a folder of your own"
        )
    with refusing(f"{folder} cannot be read as a model of {TITLE}"):
        said = {"local_files_only": True, "trust_remote_code": False}
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **said)
        model = getattr(transformers, kind).from_pretrained(folder, attn_implementation="eager", **said).eval()
    if not tokenizer.is_fast:
        raise Refused(f"{folder} has no tokenizer.json; save it with a fast tokenizer")
    names = [name for name in INPUTS if name in tokenizer.model_input_names]
    encoder = _Encoder(tokenizer, names, min(LONGEST, _longest(model)))
    progress(f"exporting {type(model).__name__} with {versioned('torch')}")
    found = _exported(torch, model, names, output, encoder.samples(2, 0))
    classifies = kind == TASKS["ForSequenceClassification"][0]
    return found._replace(
        library=versioned("transformers"),
        kind="classifier" if classifies else "transformer",
        scores=output if classifies else "",
        class_labels=_labels(model) if classifies else (),
        samples=encoder.samples,
        encode=encoder,
        files={name: folder / name for name in TOKENIZER if (folder / name).is_file()},
        notes=_notes(model, kind),
    )


def _task(folder: Path) -> tuple[str, str]:
    with refusing(f"{folder}/config.json cannot be read"):
        said: Mapping[str, Any] = json.loads((folder / "config.json").read_bytes())
    for name in map(str, said.get("architectures") or ()):
        for ending, row in TASKS.items():
            if name.endswith(ending):
                return row
    raise Refused(
        f"{folder} is a {said.get('architectures')}; expected a model that ends in {', '.join(TASKS)}: text "
        "classification, token classification or embeddings"
    )


def _labels(model: Any) -> list[str]:
    return [str(model.config.id2label[index]) for index in sorted(model.config.id2label)]


def _notes(model: Any, kind: str) -> list[str]:
    if kind != TASKS["ForTokenClassification"][0]:
        return []
    return [f"the classes of each token: {', '.join(_labels(model))}"]


def _exported(torch: Any, model: Any, names: Sequence[str], output: str, sample: Arrays) -> LibraryModel:
    """Exports the model with any number of rows and tokens. Raises Refused."""

    class Answering(torch.nn.Module):  # type: ignore[misc] # its base is known when torch is imported
        """Takes the inputs by place, and returns the one output."""

        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *inputs: Any) -> Any:
            return self.model(**dict(zip(names, inputs, strict=True)))[output]

    answering = Answering().eval()
    dims = {0: torch.export.Dim("rows"), 1: torch.export.Dim("tokens", max=_longest(model))}
    arguments = tuple(torch.from_numpy(sample[name]) for name in names)
    options = {
        "dynamic_shapes": {"inputs": tuple(dims for _ in names)},
        "input_names": list(names),
        "output_names": [output],
    }
    return torch_source.exported(torch, answering, arguments, answering, options)


def _longest(model: Any) -> int:
    """Returns the most tokens of a text. RoBERTa and its relatives reserve the first positions."""
    tables = (getattr(each, "position_embeddings", None) for each in model.modules())
    paddings = (getattr(each, "padding_idx", None) for each in tables)
    first = max((padding + 1 for padding in paddings if padding is not None), default=0)
    return int(getattr(model.config, "max_position_embeddings", 0) or 512) - first


class _Encoder:
    """Turns texts into tokens, and makes texts of the vocabulary's words."""

    def __init__(self, tokenizer: Any, names: Sequence[str], longest: int) -> None:
        """`longest`: the most tokens of a text."""
        self._tokenizer = tokenizer
        self._names = names
        self._longest = longest

    def __call__(self, texts: Sequence[str]) -> Arrays:
        found = self._tokenizer(
            list(texts), padding=True, truncation=True, max_length=self._longest, return_tensors="np"
        )
        return {name: found[name].astype(np.int64) for name in self._names}

    def samples(self, rows: int, seed: int) -> Arrays:
        random = np.random.default_rng(seed)
        words = sorted(word for word in self._tokenizer.get_vocab() if not word.startswith(SPECIAL))
        texts = [" ".join(random.choice(words, random.integers(1, WORDS))) for _ in range(min(rows, ROWS))]
        return self(texts)

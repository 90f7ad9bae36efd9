"""Small real tokenizers, an encoder of eight dimensions, and a repository of pipelines that make embeddings of texts.

Run as a program, it writes the repository of docs/text.md into the folder that is its only argument.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, helper
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from tests.support.zoo.models import graph

SENTENCES: Final = (
    "the cat sat on the warm mat", "a cat slept on a mat", "dogs chase the cat", "the old dog slept in the sun",
    "shares fell as the bank raised rates", "the bank cut its rates and shares rose", "rain fell on the old town",
)  # fmt: skip
WORDS: Final = sorted({word for sentence in SENTENCES for word in sentence.split()})
SPECIAL: Final = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789.,!?'"
WORD_PIECES: Final = {
    piece: index
    for index, piece in enumerate(dict.fromkeys([*SPECIAL, *WORDS, *LETTERS, *(f"##{letter}" for letter in LETTERS)]))
}
WIDTH: Final = 8
LONGEST: Final = 16
STEPS: Final[Sequence[Mapping[str, Any]]] = (
    {"name": "tokenize", "tokenizer": {"max_length": LONGEST}},
    {"name": "encode", "model": "encoder", "outputs": {"last_hidden_state": "token_embeddings"}},
    {"name": "pool", "pooling": "mean"},
    {"name": "normalize", "normalize": "l2"},
)
SENTENCE_PIPELINE: Final = {"steps": STEPS, "inputs": ["text"], "outputs": ["embedding", "token_count"], "rows": 32}


def word_pieces() -> Tokenizer:
    """BERT's kind, with a vocabulary of whole words, letters and pieces of one letter."""
    made = Tokenizer(models.WordPiece(WORD_PIECES, unk_token="[UNK]"))  # noqa: S106
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.decoder = decoders.WordPiece()
    return made


def byte_pairs() -> Tokenizer:
    """GPT's kind, trained here: no special tokens, every byte is a token at least."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=alphabet, special_tokens=["<pad>"], show_progress=False
    )
    made.train_from_iterator(SENTENCES, trainer)
    return made


def encoder(vocabulary: int) -> ModelProto:
    """input_ids, attention_mask, token_type_ids INT64 [n, seq] -> last_hidden_state FP32 [n, seq, 8].

    Each token is mixed with the mean of its text, so that a wrong mask changes every vector.
    """
    random = np.random.RandomState(5)
    table = random.standard_normal((vocabulary, WIDTH)).astype(np.float32)
    table[: len(SPECIAL)] *= 0.05
    kinds = np.linspace(-0.01, 0.01, 2 * WIDTH, dtype=np.float32).reshape(2, WIDTH)
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "input_ids"], ["word"]),
        node("Gather", ["kinds", "token_type_ids"], ["kind"]),
        node("Add", ["word", "kind"], ["token"]),
        node("Cast", ["attention_mask"], ["weights"], to=1),
        node("Unsqueeze", ["weights", "last"], ["column"]),
        node("Mul", ["token", "column"], ["counted"]),
        node("ReduceSum", ["counted", "middle"], ["sum"]),
        node("ReduceSum", ["column", "middle"], ["count"]),
        node("Div", ["sum", "count"], ["mean"]),
        node("Add", ["token", "mean"], ["mixed"]),
        node("Tanh", ["mixed"], ["last_hidden_state"]),
    ]
    constants = {"table": table, "kinds": kinds, "last": np.array([2]), "middle": np.array([1])}
    inputs = [(name, "INT64", ["n", "seq"]) for name in ("input_ids", "attention_mask", "token_type_ids")]
    return graph("encoder", nodes, inputs, [("last_hidden_state", "FP32", ["n", "seq", WIDTH])], constants)


def put(folder: Path, pipeline: Mapping[str, Any], tokenizer: Tokenizer, **settings: Any) -> None:
    """Writes version 1 of a pipeline with its tokenizer.json, and its settings if it has any."""
    version = folder / "1"
    version.mkdir(parents=True)
    (version / "tokenizer.json").write_text(tokenizer.to_str(), encoding="utf-8")
    (version / "pipeline.json").write_text(json.dumps(pipeline, indent=2))
    if settings:
        (folder / "model-settings.json").write_text(json.dumps(settings))


def build(root: Path) -> Path:
    """Writes the repository: `encoder`, `sentences` (embeddings), `tokens` (input_ids), `pairs`, and `matryoshka`.

    The last one has shorter embeddings, a warm-up, and batches.
    """
    words = word_pieces()
    (root / "encoder" / "1").mkdir(parents=True)
    (root / "encoder" / "1" / "model.onnx").write_bytes(encoder(words.get_vocab_size()).SerializeToString())
    put(root / "sentences", SENTENCE_PIPELINE, words)
    put(root / "tokens", {"steps": [{"tokenizer": {"max_length": LONGEST}}]}, words)
    texts = {"text": "question", "text_pair": "answer"}
    pair = {"steps": [STEPS[0] | {"inputs": texts}, *STEPS[1:3]], "outputs": ["pooled"]}
    put(root / "pairs", pair, words)
    warmup = [{"random": True, "shapes": {"text": [3]}}]
    more = {"warmup": warmup, "batching": {"max_batch_size": 8}}
    put(root / "matryoshka", SENTENCE_PIPELINE, words, embeddings={"dimensions": True}, **more)
    return root


class Reference:
    """The answers that `sentences` should have: Hugging Face's tokenizers, ONNX Runtime and numpy, called directly."""

    def __init__(self, root: Path) -> None:
        self.tokenizer = Tokenizer.from_file(str(root / "sentences" / "1" / "tokenizer.json"))
        self.tokenizer.enable_truncation(LONGEST)
        self.tokenizer.enable_padding()
        self.session = onnxruntime.InferenceSession(root / "encoder" / "1" / "model.onnx")

    def feed(self, texts: Sequence[Any]) -> dict[str, NDArray[Any]]:
        found = self.tokenizer.encode_batch(list(texts))
        return {
            "input_ids": np.array([each.ids for each in found], np.int64),
            "attention_mask": np.array([each.attention_mask for each in found], np.int64),
            "token_type_ids": np.array([each.type_ids for each in found], np.int64),
        }

    def pooled(self, texts: Sequence[Any]) -> NDArray[Any]:
        feed = self.feed(texts)
        (hidden,) = self.session.run(None, feed)
        rows = [row[mask == 1].mean(0) for row, mask in zip(hidden, feed["attention_mask"], strict=True)]
        return np.array(rows, np.float32)

    def embeddings(self, texts: Sequence[str]) -> NDArray[Any]:
        pooled = self.pooled(texts)
        made: NDArray[Any] = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return made

    def tokens(self, texts: Sequence[str]) -> int:
        """Returns the tokens of all texts, without padding."""
        return int(self.feed(texts)["attention_mask"].sum())


if __name__ == "__main__":
    build(Path(sys.argv[1]))

"""The steps of a pipeline that make vectors of texts, against Hugging Face's tokenizers and plain numpy."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer, models, pre_tokenizers

from core.dtype import DATATYPES
from core.errors import InvalidInput, ModelFailed, ModelNotLoadable, TimedOut, TooMany
from core.tensor import Tensor
from handler.backends import Source
from handler.backends.pipeline import functions, tokenizer, vectors
from handler.backends.pipeline.model import PipelineModel, load
from handler.backends.runs import CURRENT, Run
from handler.settings import Settings
from handler.settings.model import ModelSettings
from handler.settings.pipeline import parse
from tests.support import texts
from tests.support.pipelines import Fake, FakeParts, asked, parts, tensor

WORDS, BYTES = texts.word_pieces(), texts.byte_pairs()
NAMES = ("input_ids", "attention_mask", "token_type_ids")
NO_MODELS = FakeParts({})


def pipeline(folder: Path, steps: Any, held: FakeParts = NO_MODELS, **more: Any) -> PipelineModel:
    """Loads a pipeline whose folder this is."""
    settings = ModelSettings()._replace(pipeline=parse({"steps": steps} | more, ""))
    source = Source("p", "1", folder, settings, held)
    return load(source, Settings.from_env({"DRAGOMAN_REPOSITORY": "/nowhere"}))


def tokens(folder: Path, made: Tokenizer = WORDS, held: FakeParts = NO_MODELS, **said: Any) -> PipelineModel:
    """Loads a pipeline of a tokenizer alone; a pair is taken as `pair`."""
    (folder / "tokenizer.json").write_text(made.to_str(), encoding="utf-8")
    inputs = {"text": "text"} | ({"text_pair": "pair"} if said.pop("pairs", False) else {})
    return pipeline(folder, [{"name": "t", "tokenizer": said, "inputs": inputs}], held)


def given_texts(name: str, values: list[str] | list[bytes]) -> Tensor:
    """A vector of texts."""
    array = np.empty(len(values), object)
    array[:] = [value.encode() if isinstance(value, str) else value for value in values]
    return Tensor(name, DATATYPES["BYTES"], array)


def split(model: PipelineModel, values: list[str], pairs: list[str] | None = None) -> dict[str, Any]:
    """Asks for the tokens of texts."""
    return asked(model, given_texts("text", values), *([] if pairs is None else [given_texts("pair", pairs)]))


def directly(made: Tokenizer, values: list[Any]) -> dict[str, Any]:
    """Returns what the library itself gives, with its own padding."""
    found = made.encode_batch(values)
    lists = ([each.ids for each in found], [each.attention_mask for each in found], [each.type_ids for each in found])
    return dict(zip(NAMES, lists, strict=True))


LONG = "the cat sat on the warm mat and " * 9
SAMPLES = ["", "the cat", "Zebras? 'quoted' — größe 猫", LONG, "\0\n\t", "x" * 300]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("padding", ["longest", "max_length"])
@pytest.mark.parametrize("made", [WORDS, BYTES], ids=["words", "bytes"])
@pytest.mark.parametrize("pairs", [None, ["a mat", "", LONG, LONG, "dog", "1"]], ids=["single", "pairs"])
def test_tokens_are_those_of_the_library(
    tmp_path: Path, made: Tokenizer, padding: str, side: str, pairs: list[str] | None
) -> None:
    """Ids, mask and types, of a text alone and in a batch, cut and filled up."""
    pad = "[PAD]" if made is WORDS else "<pad>"
    model = tokens(tmp_path, made, max_length=12, padding=padding, padding_side=side, pairs=pairs is not None)
    oracle = Tokenizer.from_str(made.to_str())
    oracle.enable_truncation(12)
    length = 12 if padding == "max_length" else None
    oracle.enable_padding(direction=side, pad_id=oracle.token_to_id(pad), pad_token=pad, length=length)
    for part in slice(None), slice(1, 2), slice(3, 5):
        values, others = SAMPLES[part], None if pairs is None else pairs[part]
        found = split(model, values, others)
        expected = directly(oracle, values if others is None else [*zip(values, others, strict=True)])
        assert found.pop("token_count") == [sum(row) for row in expected["attention_mask"]]
        assert found == expected


@settings(max_examples=60)
@given(st.lists(st.text(max_size=40), min_size=1, max_size=5), st.sampled_from([WORDS, BYTES]))
def test_any_texts_are_split_as_the_library_splits_them(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], made: Tokenizer
) -> None:
    """Whatever characters they have."""
    model = tokens(tmp_path_factory.mktemp("t"), made, max_length=30)
    oracle = Tokenizer.from_str(made.to_str())
    oracle.enable_truncation(30)
    oracle.enable_padding(pad_id=0)
    if max(len(each.ids) for each in oracle.encode_batch(values)):
        assert split(model, values)["input_ids"] == directly(oracle, values)["input_ids"]


@pytest.mark.parametrize("strategy", ["only_first", "only_second"])
def test_a_pair_is_cut_where_the_settings_say(tmp_path: Path, strategy: str) -> None:
    """The other text stays whole; if that cannot be, the request is refused."""
    model = tokens(tmp_path, max_length=12, truncation=strategy, pairs=True)
    oracle = Tokenizer.from_str(WORDS.to_str())
    oracle.enable_truncation(12, strategy=strategy)
    first, second = (LONG, "a mat") if strategy == "only_first" else ("a mat", LONG)
    assert split(model, [first], [second])["input_ids"] == directly(oracle, [(first, second)])["input_ids"]
    with pytest.raises(InvalidInput, match="step 't': the texts cannot be cut as the tokenizer's settings say"):
        split(model, [second], [first])


def test_only_the_beginning_of_a_very_long_text_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its tokens are the same: 64 characters for each that is kept are many more than tokens have."""
    seen: list[int] = []

    class Watched:
        """The library, which notes how much it is given."""

        def __init__(self, own: Any) -> None:
            self._own = own

        def __getattr__(self, name: str) -> Any:
            return getattr(self._own, name)

        def encode_batch(self, values: list[str]) -> Any:
            """Splits."""
            seen.extend(map(len, values))
            return self._own.encode_batch(values)

    opened = tokenizer.opened
    monkeypatch.setattr(tokenizer, "opened", lambda *given: Watched(opened(*given)))
    for direction in "right", "left":
        own = Tokenizer.from_str(WORDS.to_str())
        own.enable_truncation(12, direction=direction)
        huge = LONG * 100 + "dogs chase the cat"
        assert split(tokens(tmp_path, own), [huge])["input_ids"] == directly(own, [huge])["input_ids"]
    assert seen == [12 * 64, 12 * 64]


def test_the_file_s_own_length_and_padding_hold_unless_the_settings_say_more(tmp_path: Path) -> None:
    """As the authors of a model have saved them."""
    own = Tokenizer.from_str(WORDS.to_str())
    own.enable_truncation(5)
    own.enable_padding(direction="left", pad_id=1, pad_type_id=1, pad_token="[UNK]")  # noqa: S106
    assert split(tokens(tmp_path, own), ["a", LONG]) == directly(own, ["a", LONG]) | {"token_count": [3, 5]}
    found = split(tokens(tmp_path, own, max_length=4, pad_token="[PAD]", padding_side="right"), ["a", LONG])  # noqa: S106
    assert [len(row) for row in found["input_ids"]] == [4, 4]
    assert (found["input_ids"][0][3], found["attention_mask"][0]) == (0, [1, 1, 1, 0])


def test_no_texts_have_no_tokens(tmp_path: Path) -> None:
    """The shape says so, in both paddings."""
    assert split(tokens(tmp_path, max_length=4), []) == {"input_ids": [], "attention_mask": [], "token_type_ids": [],
                                                         "token_count": []}  # fmt: skip
    assert split(tokens(tmp_path, BYTES, max_length=4), [""])["attention_mask"] == [[0]]


ODD = Tokenizer(models.WordLevel({"a": 0}, unk_token="nowhere"))  # noqa: S106
ODD.pre_tokenizer = pre_tokenizers.Whitespace()


@pytest.mark.parametrize(
    ("said", "values", "kind", "message"),
    [
        ({"truncation": "none"}, ["the", LONG], InvalidInput, "text 1 has 74 tokens; at most 9 tokens are taken"),
        ({"truncation": "none"}, ["x" * 577], InvalidInput, "text 0 has 577 characters; at most 9 tokens are taken"),
        ({}, [b"a", b"\xff\xfe"], InvalidInput, r"text has the bytes '\\xff\\xfe', which are not UTF-8"),
        ({"max_tokens": 30}, ["a", "a", "a", LONG], TooMany,
         "4 texts of up to 9 tokens are 36 tokens with padding; at most 30 are taken at once: send at most 3 such"),
        ({"max_tokens": 30, "padding": "max_length"}, ["a"] * 4, TooMany, "4 texts of up to 9 tokens are 36 tokens"),
        ({"max_tokens": 30}, [b"\xff"] * 31, TooMany, "31 texts of up to 1 tokens are 31 tokens"),
        ({"truncation": "only_second"}, ["a"], InvalidInput, "text has no text_pair, which alone is cut"),
        ({"pad_token": "a"}, ["b"], ModelFailed, "the tokenizer failed: WordLevel error: Missing"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_split_is_refused(
    tmp_path: Path, said: dict[str, Any], values: list[Any], kind: type[Exception], message: str
) -> None:
    """The step is named, and what was expected; tokens are counted before arrays are made."""
    model = tokens(tmp_path, ODD if kind is ModelFailed else WORDS, max_length=9, **said)
    with pytest.raises(kind, match=f"^step 't': {message}"):
        split(model, values)


def test_pairs_of_another_number_are_refused(tmp_path: Path) -> None:
    """Each text needs one, and a pipeline that names an input cannot do without it."""
    model = tokens(tmp_path, max_length=9, pairs=True)
    assert [(spec.name, spec.optional) for spec in model.spec.inputs or ()] == [("text", False), ("pair", False)]
    with pytest.raises(InvalidInput, match="text_pair has 1 texts, and text has 2: expected as many"):
        split(model, ["a", "b"], ["c"])


def test_a_request_can_be_ended_between_two_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit, or a client that leaves, ends the work on many texts."""
    monkeypatch.setattr(tokenizer, "TOGETHER", 4)
    model = tokens(tmp_path, max_length=9)
    assert len(split(model, ["the", "cat", "sat", "", ""])["input_ids"]) == 5
    CURRENT.run = run = Run()
    try:
        run.end(lambda: TimedOut("too late"))
        with pytest.raises(TimedOut):
            split(model, ["the", "cat"])
    finally:
        CURRENT.run = None


TWO = Fake("two", [tensor("x", "INT64", -1, 2)], [tensor("y", "INT64", -1, 2)], lambda x: [x])
FLOATS = Fake("floats", [tensor("x", "FP32", -1, -1)], [tensor("y", "FP32", -1, -1)], lambda x: [x])
SPLIT: dict[str, Any] = {"name": "t", "tokenizer": {"max_length": 8}}
BAD: list[tuple[Any, str]] = [
    ([{"tokenizer": {"file": "../x"}}], "steps[0].tokenizer.file is '../x'; expected a path in the version's folder"),
    ([{"tokenizer": {"file": "/etc/passwd"}}], "expected a path in the version's folder"),
    ([{"tokenizer": {"file": "a\\..\\b"}}], "expected a path in the version's folder"),
    ([{"tokenizer": {"file": 5}}], "expected a path in the version's folder"),
    ([{"tokenizer": {"file": "none.json"}}], "is 'none.json'; expected a file in the version's folder (No such file"),
    ([{"tokenizer": {"file": "bad.json"}}], "is 'bad.json'; expected a tokenizer.json of Hugging Face's tokenizers ("),
    ([{"tokenizer": {"file": "huge.json"}}], "is 'huge.json, 268435457 bytes'; expected at most 268435456 bytes"),
    ([{"tokenizer": []}], "steps[0].tokenizer is []; expected an object"),
    ([{"tokenizer": {"lenght": 1}}], "steps[0].tokenizer.lenght is 1; expected no such key; the keys are file, max_le"),
    ([{"tokenizer": {}}], "tokenizer.max_length is null; expected the most tokens that the model takes: tokenizer.jso"),
    ([{"tokenizer": {"max_length": 3}}], "max_length is 3; expected more than the 3 special tokens of tokenizer.json"),
    ([{"tokenizer": {"max_length": 2000000}}], "tokenizer.max_length is 2000000; expected at most 1000000"),
    ([{"tokenizer": {"max_length": "8"}}], "tokenizer.max_length is '8'; expected a whole number from 1 up"),
    ([{"tokenizer": {"padding": True}}], "tokenizer.padding is true; expected one of longest, max_length"),
    ([{"tokenizer": {"truncation": True}}], "truncation is true; expected one of longest_first, only_first, only_seco"),
    ([{"tokenizer": {"padding_side": "top"}}], "tokenizer.padding_side is 'top'; expected one of right, left"),
    ([{"tokenizer": {"pad_token": 1}}], "tokenizer.pad_token is 1; expected the text of a token"),
    ([{"tokenizer": {"max_length": 8, "pad_token": "no"}}], "pad_token is 'no'; expected a token of tokenizer.json"),
    ([{"tokenizer": {"max_length": 8, "file": "odd.json"}}], "pad_token is null; expected a token of odd.json; it nam"),
    ([{"tokenizer": {"max_tokens": 0}}], "tokenizer.max_tokens is 0; expected a whole number from 1 up"),
    ([SPLIT | {"version": 1}], "steps[0].version is 1; expected no such key: a tokenizer has no versions"),
    ([SPLIT | {"model": "m"}], "is ['model', 'name', 'tokenizer']; expected one of model, switch, split, token"),
    ([SPLIT | {"inputs": {"texts": "x"}}], "inputs.texts is 'x'; expected no such key; the tokenizer step has text"),
    ([SPLIT | {"outputs": {"ids": "x"}}], "outputs.ids is 'x'; expected no such key; the tokenizer step has input_ids"),
    ([SPLIT, {"rows": 1}], "steps[1].rows is 1; expected no such key"),
    ([{"pooling": "median"}], "steps[0].pooling is 'median'; expected one of mean, cls, max, last"),
    ([{"normalize": True}], "steps[0].normalize is true; expected one of l2"),
    ([{"pooling": "mean", "inputs": {"token_embeddings": "h"}}], "expected a tensor for 'attention_mask' of the pooli"),
    ([SPLIT, {"model": "floats", "inputs": {"x": "input_ids"}}], "is 'input_ids: INT64 [-1, -1]'; expected what fits"),
    ([{"tokenizer": {"max_length": 8, "padding": "max_length"}}, {"model": "two", "inputs": {"x": "input_ids"}}],
     "steps[1].inputs.x is 'input_ids: INT64 [-1, 8]'; expected what fits the model there: INT64 [-1, 2]"),
    ([{"pooling": "cls", "inputs": {"token_embeddings": "text"}}, SPLIT], "what fits the model there"),
]  # fmt: skip


@pytest.mark.parametrize(("steps", "message"), BAD, ids=[message[:60] for _, message in BAD])
def test_steps_that_cannot_work_are_refused_when_they_are_loaded(tmp_path: Path, steps: Any, message: str) -> None:
    """The message names the step and the field."""
    (tmp_path / "tokenizer.json").write_text(WORDS.to_str(), encoding="utf-8")
    (tmp_path / "odd.json").write_text(ODD.to_str(), encoding="utf-8")
    (tmp_path / "bad.json").write_text("{}")
    with (tmp_path / "huge.json").open("wb") as huge:
        huge.truncate(256 * 1024 * 1024 + 1)
    (tmp_path / "pipeline.json").write_text(json.dumps({"steps": steps}))
    source = Source("p", "1", tmp_path, ModelSettings(), parts(TWO, FLOATS))
    with pytest.raises(ModelNotLoadable) as refused:
        load(source, Settings.from_env({"DRAGOMAN_REPOSITORY": "/nowhere"}))
    assert message in refused.value.message
    assert str(tmp_path) not in refused.value.message


def test_a_missing_package_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the step that needs it."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        ModelNotLoadable, match=r"step 't' of model 'p' needs the package tokenizers: pip install 'drag"
    ):
        tokens(tmp_path, max_length=8)


def test_pipelines_without_a_tokenizer_do_not_import_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors need numpy alone. With one, its file is what counts for its memory."""
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    source = Source("p", "1", tmp_path, ModelSettings())
    assert functions.prepare(parse({"steps": [{"pooling": "cls"}]}, ""), source) == 0
    monkeypatch.undo()
    assert functions.prepare(parse({"steps": [SPLIT]}, ""), source) == 0
    (tmp_path / "tokenizer.json").write_text("{}")
    assert functions.prepare(parse({"steps": [SPLIT]}, ""), source) == 2


def test_shapes_follow_from_the_models(tmp_path: Path) -> None:
    """Metadata have the number of dimensions that the encoder declares, and a fixed length."""
    (tmp_path / "tokenizer.json").write_text(WORDS.to_str(), encoding="utf-8")
    encoder = Fake("e", [tensor("ids", "INT64", -1, -1)], [tensor("h", "FP32", -1, -1, 6)],
                   lambda ids: [np.zeros((*ids.shape, 6), np.float32)])  # fmt: skip
    steps = [
        {"name": "t", "tokenizer": {"max_length": 8, "padding": "max_length"}},
        {"model": "e", "inputs": {"ids": "input_ids"}, "outputs": {"h": "token_embeddings"}},
        {"pooling": "max"},
        {"normalize": "l2"},
    ]
    model = pipeline(tmp_path, steps, parts(encoder), outputs=["embedding", "input_ids", "token_count"])
    assert [(each.name, each.shape) for each in model.spec.outputs or ()] == [
        ("embedding", (-1, 6)), ("input_ids", (-1, 8)), ("token_count", (-1,)),
    ]  # fmt: skip
    assert (model.spec.platform, model.spec.steps, model.steady) == ("pipeline", (), False)
    assert split(model, ["a"])["embedding"] == [[0] * 6]


# -- some rows at a time ------------------------------------------------------------------------------------------


def test_a_long_request_is_run_in_parts_and_answered_as_a_whole(tmp_path: Path) -> None:
    """Each step has as many rows as the pipeline permits; the time of each is that of all parts."""
    (tmp_path / "tokenizer.json").write_text(WORDS.to_str(), encoding="utf-8")
    seen: list[int] = []

    def summed(ids: NDArray[Any], mask: NDArray[Any]) -> list[Any]:
        seen.append(len(mask))
        return [(ids * mask).sum(1)]

    both = [tensor("i", "INT64", -1, -1), tensor("m", "INT64", -1, -1)]
    takes = {"i": "input_ids", "m": "attention_mask"}
    steps = [SPLIT | {"tokenizer": {"max_length": 8, "max_tokens": 16}}, {"model": "sum", "inputs": takes}]
    held = parts(Fake("sum", both, [tensor("s")], summed))
    model = pipeline(tmp_path, steps, held, outputs=["s", "token_count"], rows=2)
    values = ["the cat", "", LONG, "dogs chase", "1"]
    directly = [sum(WORDS.encode(value).ids[:7]) + 3 * (value == LONG) for value in values]
    assert split(model, values) == {"s": directly, "token_count": [4, 2, 8, 4, 3]}
    assert seen == [2, 2, 1]
    assert [label for label, _ in model.steps()] == [b"step-t", b"step-sum"]
    assert split(model, values[:1]) == {"s": directly[:1], "token_count": [4]}
    with pytest.raises(TooMany, match="step 't': 5 texts"):
        split(pipeline(tmp_path, steps, held, outputs=["s", "token_count"], rows=5), [LONG] * 5)


@pytest.mark.parametrize(
    ("function", "values", "kind", "message"),
    [
        (
            lambda x: [x[: len(x) - 1]],
            (5, 6, 7),
            ModelFailed,
            r"output 'y' has the shapes \[1\], \[0\] in parts of the req",
        ),
        (
            lambda x: [np.array(1)],
            (5, 6, 7),
            ModelFailed,
            r"output 'y' has the shapes \[\], \[\] in parts of the request",
        ),
        (lambda x: [np.zeros((len(x), x[0]))], (5, 6, 7), ModelFailed, r"has the shapes \[2, 5\], \[1, 7\] in parts"),
        (lambda x: [x.no], (5, 6, 7), InvalidInput, "rows 0 to 1: step 'one': no"),
    ],
)
def test_parts_that_do_not_make_a_whole_are_failures(
    tmp_path: Path, function: Any, values: tuple[int, ...], kind: type[Exception], message: str
) -> None:
    """The rows are named where a part of them is refused."""

    def run(x: NDArray[Any]) -> list[Any]:
        try:
            return function(x)  # type: ignore[no-any-return] # of the table
        except AttributeError:
            raise InvalidInput("no") from None

    held = parts(Fake("one", [tensor("x", "INT64", None)], [tensor("y", "INT64", None)], run))
    with pytest.raises(kind, match=message):
        asked(pipeline(tmp_path, [{"model": "one"}], held, rows=2), numbers("x", values))


@pytest.mark.parametrize(("left", "right"), [((1, 2, 3), (1, 2)), ((), ())])
def test_inputs_of_a_pipeline_in_parts_have_as_many_rows(tmp_path: Path, left: Any, right: Any) -> None:
    """Scalars have none."""
    add = Fake("add", [tensor("a", "INT64", None), tensor("b", "INT64", None)], [tensor("y", "INT64", None)],
               lambda a, b: [a])  # fmt: skip
    a, b = (numbers(name, each or 5) for name, each in (("a", left), ("b", right)))
    with pytest.raises(InvalidInput, match="the inputs have the shapes 'a' .*; expected as many rows in each"):
        asked(pipeline(tmp_path, [{"model": "add"}], parts(add), rows=2), a, b)


def test_rows_without_elements_are_run_together(tmp_path: Path) -> None:
    """They take no memory, and a few bytes claim many of them."""
    seen: list[int] = []

    def run(x: NDArray[Any]) -> list[Any]:
        seen.append(len(x))
        return [x]

    held = parts(Fake("one", [tensor("x", "INT64", None)], [tensor("y", "INT64", None)], run))
    asked(pipeline(tmp_path, [{"model": "one"}], held, rows=2), numbers("x", np.empty((1000, 0))))
    assert seen == [1000]


def numbers(name: str, values: Any) -> Tensor:
    """Whole numbers."""
    return Tensor(name, DATATYPES["INT64"], np.array(values, np.int64))


# -- vectors ------------------------------------------------------------------------------------------------------


def pooled(how: str, hidden: NDArray[Any], mask: NDArray[Any] | None) -> NDArray[Any]:
    """Runs a pooling step."""
    inputs = {"token_embeddings": Tensor("token_embeddings", DATATYPES["FP32"], hidden)}
    if mask is not None:
        inputs["attention_mask"] = Tensor("attention_mask", DATATYPES["INT64"], mask)
    made = vectors.Pooled(how).run(inputs)["pooled"].array
    assert made.dtype == np.float32
    return made


PLAIN = {
    "mean": lambda rows: rows.astype(np.float64).mean(0),
    "max": lambda rows: rows.max(0),
    "last": lambda rows: rows[-1],
}


@pytest.mark.parametrize("how", ["mean", "max", "last", "cls"])
def test_pooling_takes_the_tokens_that_count(how: str) -> None:
    """Against one text after another, filled up on either side; a text without tokens has zeros."""
    random = np.random.default_rng(5)
    hidden = random.standard_normal((5, 7, 3)).astype(np.float32)
    mask = np.array([[1] * 7, [1, 1, 0, 0, 0, 0, 0], [0, 0, 0, 1, 1, 1, 1], [0] * 7, [0, 1, 0, 1, 0, 0, 0]])
    found = pooled(how, hidden, mask)
    if how == "cls":
        assert np.array_equal(found, hidden[:, 0])
        assert np.array_equal(pooled(how, hidden, None), hidden[:, 0])
        return
    expected = [
        PLAIN[how](rows[own == 1]) if own.any() else np.zeros(3) for rows, own in zip(hidden, mask, strict=True)
    ]
    assert np.allclose(found, expected, rtol=1e-6, atol=1e-7)
    assert pooled(how, hidden[:, :0], mask[:, :0]).tolist() == [[0, 0, 0]] * 5
    with pytest.raises(InvalidInput, match=r"attention_mask has shape \[5, 6\], and token_embeddings \[5, 7, 3\]"):
        pooled(how, hidden, mask[:, :6])


@pytest.mark.parametrize("how", ["mean", "max", "last"])
@pytest.mark.parametrize("odd", [np.nan, np.inf, -np.inf])
def test_tokens_that_do_not_count_are_not_seen(how: str, odd: float) -> None:
    """Encoders that mask with infinities leave NaN in the padding; a token that counts keeps its own."""
    hidden, mask = np.ones((2, 3, 2), np.float32), np.array([[1, 1, 0], [1, 1, 1]])
    hidden[:, 2] = odd
    made = pooled(how, hidden, mask)
    assert made[0].tolist() == [1.0, 1.0]
    np.testing.assert_array_equal(made[1], PLAIN[how](hidden[1]).astype(np.float32))


def test_vectors_get_the_length_one() -> None:
    """Whatever their length was; zeros stay zeros."""
    rows = np.array([[3, 4], [1e-8, 0], [0, 0]], np.float32)
    made = vectors.Normalized().run({"pooled": Tensor("pooled", DATATYPES["FP32"], rows)})["embedding"].array
    assert np.allclose(made, [[0.6, 0.8], [1, 0], [0, 0]])
    assert made.dtype == np.float32

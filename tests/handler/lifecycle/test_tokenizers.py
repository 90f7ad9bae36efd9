"""handler.lifecycle.loading: a pipeline's own tokenizer counts towards DRAGOMAN_MEMORY_LIMIT."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models

from core.errors import ModelNotLoadable
from core.operations import ModelRef
from handler.lifecycle.room import memory
from handler.lifecycle.single_flight import Background
from tests.handler.lifecycle.samples import registry

MB = 1_000_000
WORDS = 60_000


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of one pipeline, whose tokenizer has many words: 1 MB, and 15 MB in memory."""
    folder = tmp_path_factory.mktemp("words") / "split" / "1"
    folder.mkdir(parents=True)
    words = {"[UNK]": 0, "[PAD]": 1} | {f"word{number}": number + 2 for number in range(WORDS)}
    Tokenizer(models.WordLevel(words, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))  # noqa: S106
    (folder / "pipeline.json").write_text(json.dumps({"steps": [{"tokenizer": {"max_length": 8}}]}))
    return folder.parents[1]


def test_a_tokenizer_is_measured_and_leaves_with_its_pipeline(root: Path) -> None:
    """At least four times its file, as long as it is in memory."""
    served = registry(root, None, MEMORY_LIMIT="100GB")
    with served.use(ModelRef("split"), Background()) as model:
        assert model.spec.platform == "pipeline"
    size = (root / "split" / "1" / "tokenizer.json").stat().st_size
    assert served.in_memory()[1] >= 4 * size
    served.unload("split", Background())
    assert served.in_memory() == (0, 0)
    served.close()


def test_a_tokenizer_that_cannot_fit_is_refused_before_it_is_read(root: Path) -> None:
    """With the names of the model and of the limit."""
    served = registry(root, None, MEMORY_LIMIT=str((memory.resident() or 0) // 2))
    with pytest.raises(
        ModelNotLoadable, match=r"model 'split' has no room: the server itself uses \d+ MB, and .*MEMORY_LIMIT"
    ):
        served.use(ModelRef("split"), Background())
    served.close()

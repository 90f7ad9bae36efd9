"""The pages of PyTorch and Hugging Face are walked: models are trained, converted, served and asked."""

from pathlib import Path

from tests.convert.torch.test_torch import TEXTS, texts
from tests.support.walks import walk

BY = "tests/convert/torch/test_walks.py"


def test_the_page_of_a_library_does_what_it_says(tmp_path: Path) -> None:
    """Its programs and commands run one after another, and print what stands there."""
    assert walk("docs/libraries/pytorch.md", BY, tmp_path) >= 4


def test_the_page_of_networks_does_what_it_says(tmp_path: Path) -> None:
    """The texts' model is the reader's, and here a small one."""
    texts("BertForSequenceClassification", tmp_path / "reviews")
    (tmp_path / "texts.csv").write_text("\n".join(["text", *TEXTS]), encoding="utf-8")
    assert walk("docs/convert/networks.md", BY, tmp_path) == 2

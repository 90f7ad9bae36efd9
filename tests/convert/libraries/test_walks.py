"""The pages of docs/libraries are walked: each library trains a model, which is converted, served and asked."""

from pathlib import Path

import pytest

from tests.support.walks import walk


@pytest.mark.parametrize("library", ["scikit-learn", "xgboost", "lightgbm"])
def test_the_page_of_a_library_does_what_it_says(library: str, tmp_path: Path) -> None:
    """Its programs and commands run one after another, and print what stands there."""
    assert walk(f"docs/libraries/{library}.md", "tests/convert/libraries/test_walks.py", tmp_path) >= 4

"""The page of Keras is walked: a model is trained, converted, served and asked."""

from pathlib import Path

from tests.support.walks import walk


def test_the_page_of_a_library_does_what_it_says(tmp_path: Path) -> None:
    """Its programs and commands run one after another, and print what stands there."""
    assert walk("docs/libraries/keras.md", "tests/convert/test_walks.py", tmp_path) >= 4

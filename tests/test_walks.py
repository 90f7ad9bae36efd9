"""Pages of docs/ are walked from their first command to the last, in one folder."""

from pathlib import Path

import pytest

from tests.support.walks import near, walk


def test_the_page_of_python_models_does_what_it_says(tmp_path: Path) -> None:
    """Its model is written, served, and asked."""
    assert walk("docs/python-models.md", "tests/test_walks.py", tmp_path) == 3


@pytest.mark.parametrize("found", ['{"a":[0.9]}', '{"b":[1.0]}', '{"a":[1.0,2.0]}', "a"])
def test_a_walk_notices_another_answer(found: str) -> None:
    """A number may differ by a twentieth, a name may not."""
    near('{"a":[1.01]}', '{"a":[1.0]}')
    with pytest.raises(AssertionError):
        near(found, '{"a":[1.0]}')

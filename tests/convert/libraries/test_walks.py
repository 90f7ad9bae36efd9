"""The pages of docs/libraries and docs/convert are walked: models are trained, converted, served and asked."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.convert.libraries import zoo
from tests.support.walks import walk

BY = "tests/convert/libraries/test_walks.py"


@pytest.mark.parametrize("library", ["scikit-learn", "xgboost", "lightgbm"])
def test_the_page_of_a_library_does_what_it_says(library: str, tmp_path: Path) -> None:
    """Its programs and commands run one after another, and print what stands there."""
    assert walk(f"docs/libraries/{library}.md", BY, tmp_path) >= 4


def test_the_pages_of_scikit_learn_convert_what_they_train(tmp_path: Path) -> None:
    """The model of one page is that of the other."""
    assert walk("docs/convert/scikit-learn.md", BY, tmp_path) == 1
    shutil.rmtree(tmp_path / "models")
    assert walk("docs/convert.md", BY, tmp_path) == 2


def test_the_page_of_trees_converts_a_model_of_each_library(tmp_path: Path) -> None:
    """The files are the reader's, and here those of small models."""
    for name, case, data in (
        ("fraud.ubj", zoo.XGBOOST["xgb-classes"], "fraud.csv"),
        ("prices.txt", zoo.LIGHTGBM["lgbm-regression"], "prices.npy"),
        ("churn.cbm", zoo.CATBOOST["cat-classes"], "churn.csv"),
    ):
        trained = case.make(tmp_path)
        trained.path.rename(tmp_path / name)
        rows = np.asarray(trained.data)
        if data.endswith(".npy"):
            np.save(tmp_path / data, rows)
        else:
            np.savetxt(tmp_path / data, rows, delimiter=",")
    assert walk("docs/convert/trees.md", BY, tmp_path) == 3

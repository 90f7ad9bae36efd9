"""The pages of Keras and SavedModels are walked: models are trained, converted, served and asked."""

from pathlib import Path

import numpy as np
import pytest

from tests.convert import saved_models
from tests.support.walks import walk

BY = "tests/convert/test_walks.py"


def test_the_page_of_a_library_does_what_it_says(tmp_path: Path) -> None:
    """Its programs and commands run one after another, and print what stands there."""
    assert walk("docs/libraries/keras.md", BY, tmp_path) >= 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Keras, which numpy 2.1 surprises
def test_the_page_of_networks_converts_pictures(tmp_path: Path) -> None:
    """The file is the reader's, and here that of a small model."""
    import keras  # noqa: PLC0415 - TensorFlow has set it up by now

    layers = keras.layers
    model = keras.Sequential([keras.Input((4, 4, 1), name="pictures"), layers.Flatten(), layers.Dense(2)])
    model.save(tmp_path / "pictures.keras")
    np.save(tmp_path / "pictures.npy", np.random.default_rng(1).random((20, 4, 4, 1), np.float32))
    assert walk("docs/convert/networks.md", BY, tmp_path) == 1


def test_the_page_of_saved_models_does_what_it_says(tmp_path: Path) -> None:
    """The classifier's words become its labels, and clients of TensorFlow Serving get the answer of the page."""
    (tmp_path / "words.txt").write_text("ant\nbee\ncat\n", encoding="utf-8")
    saved_models.build(tmp_path / "exported" / "insects", saved_models.vocabulary(tmp_path / "words.txt"))
    assert walk("docs/convert/saved-models.md", BY, tmp_path) == 3

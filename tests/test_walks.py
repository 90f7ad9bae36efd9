"""Pages of docs/ are walked from their first command to the last, in one folder."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from tests.support.walks import ROOT, near, walk
from tests.support.web import serving
from tests.support.zoo.models import graph

PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
TRITON = {
    "iris": "max_batch_size: 0",
    "species": 'input { name: "label" data_type: TYPE_INT64 dims: [ -1 ] }',
    "flowers": """
        platform: "ensemble"
        input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }
        output { name: "species" data_type: TYPE_STRING dims: [ -1 ] }
        ensemble_scheduling {
          step { model_name: "iris" model_version: -1 input_map { key: "x" value: "x" }
                 output_map { key: "label" value: "label" } }
          step { model_name: "species" model_version: -1 input_map { key: "label" value: "label" }
                 output_map { key: "name" value: "species" } }
        }
    """,
}


def wine(folder: Path) -> None:
    """Adds a model with the tensors that scikit-learn's export of the wines has."""
    nodes = [
        helper.make_node("MatMul", ["X", "weights"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["probabilities"]),
        helper.make_node("ArgMax", ["probabilities"], ["label"], axis=1, keepdims=0),
    ]
    outputs = [("label", "INT64", [None]), ("probabilities", "FP32", [None, 3])]
    made = graph("wine", nodes, [("X", "FP32", [None, 13])], outputs, {"weights": np.ones((13, 3), np.float32)})
    (folder / "wine" / "1").mkdir(parents=True)
    (folder / "wine" / "1" / "model.onnx").write_bytes(made.SerializeToString())


def copied(source: str, target: Path) -> None:
    """Copies a version of a sample model, without its settings."""
    target.mkdir(parents=True)
    shutil.copy(ROOT / "models" / source / "model.onnx", target)


def own_model(folder: Path) -> None:
    wine(folder / "my-models")


def own_and_triton(folder: Path) -> None:
    """Adds the reader's model, and a repository of Triton's."""
    own_model(folder)
    for name, config in TRITON.items():
        (folder / "triton-models" / name / "1").mkdir(parents=True)
        (folder / "triton-models" / name / "config.pbtxt").write_text(config, "utf-8")
    for name in ("iris", "species"):
        shutil.copy(ROOT / "models" / name / "1" / "model.onnx", folder / "triton-models" / name / "1")


def canary(folder: Path) -> None:
    """Adds two versions, of which the second gets a tenth."""
    for version in ("1", "2"):
        copied("half_plus_three/123", folder / "models" / "wine" / version)
    (folder / "models" / "wine" / "model-settings.json").write_text(json.dumps({"canary": {"2": 0.1}}), "utf-8")


def faulty(folder: Path) -> None:
    """Adds a model without a version, and a key that nobody knows."""
    own_model(folder)
    (folder / "my-models" / "wine" / "model-settings.json").write_text('{"canry": {}}', "utf-8")
    copied("iris/1", folder / "my-models" / "iris")


def two(folder: Path) -> None:
    """Adds two models, the first with settings."""
    copied("iris/1", folder / "my-models" / "iris" / "1")
    shutil.copy(ROOT / "models" / "iris" / "model-settings.json", folder / "my-models" / "iris")
    copied("strings/1", folder / "my-models" / "strings" / "1")


def samples(folder: Path) -> None:
    (folder / "models").symlink_to(ROOT / "models")


def nothing(_: Path) -> None:
    """Adds nothing: the page makes its own model."""


PREPARED: dict[str, Callable[[Path], None]] = {
    "README.md": own_model,
    "docs/canaries.md": canary,
    "docs/doctor.md": faulty,
    "docs/init.md": nothing,
    "docs/initialisation.md": samples,
    "docs/models.md": own_and_triton,
    "docs/operations.md": samples,
    "docs/platforms.md": samples,
    "docs/protocols/grps.md": nothing,
    "docs/python-models.md": nothing,
    "docs/security.md": nothing,
    "docs/signing.md": two,
    "docs/workers.md": samples,
}


@pytest.mark.parametrize("page", PREPARED)
def test_a_page_does_what_it_says(page: str, tmp_path: Path) -> None:
    """Its files are written, its commands run in their order, and print what stands there."""
    PREPARED[page](tmp_path)
    assert walk(page, "tests/test_walks.py", tmp_path)


@contextmanager
def web(folder: Path) -> Iterator[str]:
    """Serves a folder's files; yields the server's URL."""
    files = partial(SimpleHTTPRequestHandler, directory=str(folder))
    with serving(files) as server:
        yield f"http://localhost:{server.server_port}"


def test_the_page_of_stores_does_what_it_says(tmp_path: Path) -> None:
    """A folder with an index is served by a web server."""
    for name in ("half_plus_three", "iris", "strings"):
        shutil.copytree(ROOT / "models" / name, tmp_path / "models" / name)
    with web(tmp_path) as url:
        assert walk("docs/stores.md", "tests/test_walks.py", tmp_path, {"https://www.example.com": url})


def test_the_page_of_texts_fetches_the_files_of_a_hub(tmp_path: Path) -> None:
    """They are small ones, and this machine's."""
    files = {"models/minilm/1/model.onnx": "onnx/model.onnx", "models/sentences/1/tokenizer.json": "tokenizer.json"}
    (tmp_path / "hub" / "onnx").mkdir(parents=True)
    for name in files.values():
        (tmp_path / "hub" / name).write_text(name)
    with web(tmp_path / "hub") as url:
        hub = "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2/resolve/main"
        assert walk("docs/text.md", "tests/test_walks.py", tmp_path, {hub: url})
    assert {name: (tmp_path / name).read_text() for name in files} == files


def test_every_page_is_walked() -> None:
    """A mark without its walk would promise too much."""
    marked = {str(path.relative_to(ROOT)) for path in PAGES if "tests/test_walks.py" in path.read_text("utf-8")}
    assert marked == {*PREPARED, "docs/stores.md", "docs/text.md"}


@pytest.mark.parametrize("found", ['{"a":[0.9]}', '{"b":[1.0]}', '{"a":[1.0,2.0]}', "a"])
def test_a_walk_notices_another_answer(found: str) -> None:
    """A number may differ by a twentieth, a name may not."""
    near('{"a":[1.01]}', '{"a":[1.0]}')
    with pytest.raises(AssertionError):
        near(found, '{"a":[1.0]}')

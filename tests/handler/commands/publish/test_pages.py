"""docs/publishing.md and docs/s3.md are walked with a real bucket in the place of the reader's."""

from pathlib import Path

import pytest

from tests.handler.commands.publish.conftest import Bucket, adds, large
from tests.support.walks import ROOT, walk

NAMED = "s3://example-models/models"
BY = "tests/handler/commands/publish/test_pages.py"


@pytest.fixture
def filled(bucket: Bucket, tmp_path: Path) -> Bucket:
    """A bucket with three sample models."""
    (tmp_path / "cache").mkdir()
    for model in ("half_plus_three/123", "iris/1", "strings/1"):
        bucket.put(f"{model}/model.onnx", (ROOT / "models" / model / "model.onnx").read_bytes())
    return bucket


def test_the_page_of_publishing_does_what_it_says(filled: Bucket, tmp_path: Path) -> None:
    """A version is pushed beside another, listed while a third one is on its way, and pulled."""
    filled.put("wine/1/model.onnx", adds(1, tmp_path / "one").read_bytes())
    large(2, tmp_path / "exported" / "wine", 1)

    def third() -> None:
        filled.put("wine/3/weights.bin", bytes(1000))

    walked = walk("docs/publishing.md", BY, tmp_path, {NAMED: filled.uri}, {"dragoman list": third})
    assert walked == 3


def test_the_page_of_s3_does_what_it_says(filled: Bucket, tmp_path: Path) -> None:
    """The variables of the page are set, and the models of the bucket are served."""
    given = {NAMED: filled.uri, "http://127.0.0.1:9000": filled.variables["AWS_ENDPOINT_URL_S3"]}
    given |= {
        f"{name}=...": f"{name}={filled.variables[name]}" for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    }
    assert walk("docs/s3.md", BY, tmp_path, given) == 6

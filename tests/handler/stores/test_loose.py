"""handler.stores.loose: folders of models without names or versions, as platforms mount them."""

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from core.deadline import NEVER
from core.errors import ModelNotFound, ServingError
from core.operations import ModelRef
from handler.lifecycle.registry import Registry
from handler.lifecycle.repository import MARKERS, Repository
from handler.settings import InvalidSettings, Settings
from handler.settings.model import FILE
from handler.stores import Forbidden, Gone, open_store
from handler.stores.directory import DirectoryStore
from handler.stores.loose import OWN, LooseStore
from handler.stores.progress import Progress
from handler.stores.s3.store import S3Store
from tests.handler.lifecycle.samples import PATIENT
from tests.support import s3_stand_in

ROOT = Path(__file__).parents[3]


def tree(root: Path, *paths: str) -> Path:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text('{"name": "said"}' if path.endswith("said/" + FILE) else "{}")
    return root


def store(root: Path, **environ: str) -> LooseStore:
    base = {"DRAGOMAN_REPOSITORY": str(root), "DRAGOMAN_PLATFORM": "sagemaker"}
    opened = open_store(Settings.from_env(base | environ))
    assert isinstance(opened, LooseStore)
    return opened


def test_its_marks_are_the_runtimes() -> None:
    """A runtime's marker file is a file of a version, and so are the settings of one that has none."""
    assert all(OWN.fullmatch(marker) for marker in (*MARKERS, FILE, "config.pbtxt"))


LAYOUTS = pytest.mark.parametrize(("paths", "models"), [
    (["model.onnx", "model.onnx.data", "code/x.py"], {"top": ["1/code/x.py", "1/model.onnx", "1/model.onnx.data"]}),
    (["model.py", FILE, "config.pbtxt", ".hidden"], {"top": ["config.pbtxt", FILE, "1/model.py"]}),
    ([FILE, "weights.bin"], {"top": [FILE, "1/weights.bin"]}),
    (["1/model.onnx", "2/model.onnx", "notes.txt"], {"top": ["1/model.onnx", "2/model.onnx", "notes.txt"]}),
    ([FILE, "1/model.onnx"], {"top": ["1/model.onnx", FILE]}),
    (["export/model.onnx"], {"export": ["1/model.onnx"]}),
    (["export/saved/model.onnx"], {"saved": ["1/model.onnx"]}),
    (["iris/1/model.onnx", f"iris/{FILE}"], {"iris": ["1/model.onnx", FILE]}),
    (["a/1/model.onnx", "b/1/model.onnx"], {"a": ["1/model.onnx"], "b": ["1/model.onnx"]}),
    (["a/b/c/d/model.onnx"], {"a": ["b/c/d/model.onnx"]}),
    (["notes.txt"], {}),
])  # fmt: skip


@LAYOUTS
def test_a_folder_is_one_model_or_a_repository(tmp_path: Path, paths: Sequence[str], models: Any) -> None:
    """Archives are often unpacked below one more folder. Names come from the folder, unless one is given."""
    root = tree(tmp_path / "top", *paths)
    opened = store(root)
    assert {name: [file.path for file in opened.files(name)] for name in opened.models()} == models
    named = store(root, DRAGOMAN_MODEL_NAME="mine")
    assert list(named.models()) == (["mine"] if len(models) == 1 and "a" not in models else list(models))


def test_the_models_settings_may_name_it(tmp_path: Path) -> None:
    """A name that was given comes first; settings that nobody can read name nothing."""
    root = tree(tmp_path / "said", "model.onnx", f"../said/{FILE}")
    (root / FILE).write_text('{"name": "said"}')
    assert list(store(root).models()) == ["said"]
    assert list(store(root, DRAGOMAN_MODEL_NAME="given").models()) == ["given"]
    for text in ("[1]", "{", '{"name": 5}'):
        (root / FILE).write_text(text)
        assert list(store(root.parent).models()) == ["said"]


@pytest.mark.parametrize("name", ["a/b", "..", "a\\b", "a\nb", "x" * 256])
@pytest.mark.parametrize("repository", ["", "s3://bucket/m"])
def test_a_given_name_that_no_model_has_is_refused(tmp_path: Path, repository: str, name: str) -> None:
    """The server started without the model, and advised to give it a name."""
    root = tree(tmp_path / "m", "model.onnx")
    environ = {"DRAGOMAN_REPOSITORY": repository or str(root), "DRAGOMAN_MODEL_NAME": name}
    with pytest.raises(InvalidSettings, match=r"DRAGOMAN_MODEL_NAME is '.*'; expected a model's name"):
        open_store(Settings.from_env(environ))


def test_it_reads_and_fetches_in_place(tmp_path: Path) -> None:
    """A version's folder is the one that is there. What belongs to no model is not found."""
    flat = store(tree(tmp_path / "flat", "model.onnx", FILE))
    assert flat.read("flat", FILE) == flat.read("flat", f"1/{FILE}") == b"{}"
    assert flat.fetch("flat", "1", (), Progress()).path == tmp_path / "flat"
    assert (flat.has("flat"), flat.has("other"), flat.files("other")) == (True, False, ())
    numbered = store(tree(tmp_path / "numbered", "7/model.onnx"))
    assert numbered.read("numbered", "7/model.onnx") == b"{}"
    assert numbered.fetch("numbered", "7", (), Progress()).path == tmp_path / "numbered" / "7"
    with pytest.raises(Gone):
        numbered.fetch("numbered", "8", (), Progress())
    several = store(tree(tmp_path / "several", "a/1/model.onnx", "b/1/model.onnx"))
    assert (several.has("a"), several.read("a", "1/model.onnx")) == (True, b"{}")
    assert several.fetch("b", "1", (), Progress()).path == tmp_path / "several" / "b" / "1"
    several.check()


def test_each_folder_may_hold_a_model_without_versions(tmp_path: Path) -> None:
    """SageMaker unpacks each model of an endpoint of several below its name."""
    root = tree(tmp_path / "models", "abc/model/model.onnx", "def/model/export/model.py", "ghi/1/model.onnx")
    opened = store(root, SAGEMAKER_MULTI_MODEL="true")
    assert {name: [file.path for file in opened.files(name)] for name in opened.models()} == {
        "abc": ["1/model.onnx"], "def": ["1/model.py"], "ghi": ["1/model.onnx"]
    }  # fmt: skip
    assert opened.fetch("abc", "1", (), Progress()).path == root / "abc" / "model"
    assert not opened.has("jkl")


def test_a_repository_finds_the_model_with_its_settings(tmp_path: Path) -> None:
    """The layout is the store's business: the repository sees version 1."""
    root = tree(tmp_path / "top", "model.py")
    (root / FILE).write_text(json.dumps({"max_batch_size": 4}))
    listing = Repository(store(root)).look("top", None, NEVER)
    assert [version.number for version in listing.versions] == [1]
    assert listing.said.max_batch_size == 4
    with pytest.raises(ModelNotFound):
        Repository(store(root)).look("other", None, NEVER)


@pytest.mark.parametrize("environ", [{"DRAGOMAN_MODEL_NAME": "given"}, {"SAGEMAKER_MULTI_MODEL": "true"}])
def test_a_given_name_replaces_that_of_the_settings(tmp_path: Path, environ: dict[str, str]) -> None:
    """The operator's, or a platform's: KServe and SageMaker name models, whose settings have a name of their own."""
    shutil.copy(ROOT / "models/half_plus_three/123/model.onnx", tree(tmp_path / "given", FILE))
    (tmp_path / "given" / FILE).write_text('{"name": "other"}')
    root = tmp_path if "SAGEMAKER_MULTI_MODEL" in environ else tmp_path / "given"
    base = {"DRAGOMAN_REPOSITORY": str(root), "DRAGOMAN_PLATFORM": "sagemaker"}
    registry = Registry(Settings.from_env(base | environ))
    with registry.use(ModelRef("given"), PATIENT) as model:
        assert model.spec.name == "given"


def test_without_a_platform_or_a_name_a_folder_is_a_repository(tmp_path: Path) -> None:
    """Nothing changes for those who ask for nothing."""
    opened = open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": str(tree(tmp_path, "model.onnx"))}))
    assert isinstance(opened, DirectoryStore)
    assert list(opened.models()) == []
    assert isinstance(store(tmp_path / "nothing", DRAGOMAN_PLATFORM="none", DRAGOMAN_MODEL_NAME="m"), LooseStore)
    with pytest.raises(ServingError, match="not a directory"):
        store(tmp_path / "nothing").models()


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[s3_stand_in.StandIn]:
    """A bucket of S3, which Google's client reads, too: their listings and objects are the same."""
    with s3_stand_in.running() as running:
        running.settings(monkeypatch)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
            monkeypatch.setenv(name, "x")
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", running.url)
        monkeypatch.setenv("DRAGOMAN_CACHE", str(tmp_path / "cache"))
        yield running


def remote(uri: str, **environ: str) -> Any:
    base = {"DRAGOMAN_REPOSITORY": uri, "DRAGOMAN_PLATFORM": "vertex", "AIP_HTTP_PORT": "1", "AIP_PREDICT_ROUTE": "/p"}
    return open_store(Settings.from_env({**os.environ, **base, **environ}))


@LAYOUTS
@pytest.mark.parametrize("place", ["s3://bucket/data/top", "gs://bucket/data/top", "s3://bucket", "gs://bucket"])
def test_a_bucket_or_a_place_in_it_is_one_model_or_a_repository(
    bucket: s3_stand_in.StandIn, place: str, paths: Sequence[str], models: Any
) -> None:
    """What a folder on a disk would be, with and without a slash at its end; files are fetched from where they are."""
    top = place.partition("bucket")[2].removeprefix("/")
    models = {name if top or name != "top" else "bucket": files for name, files in models.items()}
    for path in (*(f"{top}/{each}".lstrip("/") for each in paths), *([f"{top}-2/model.onnx"] if top else [])):
        bucket.put(path, path.removeprefix(f"{top}/").encode())
        bucket.things[path].meta["Last-Modified"] = "Sun, 22 Nov 2026 15:00:00 GMT"  # Google's client wants it
    for opened in (remote(place), remote(f"{place}/")):
        opened.check()
        shown = {name: sorted(each.path for each in opened.files(name)) for name in opened.models()}
        assert {name: [each for each in files if ".hidden" not in each] for name, files in shown.items()} == {
            name: sorted(files) for name, files in models.items()
        }
        assert set(opened.everything()) == set(opened.glance()) == set(models)
        for name in models:
            files = [each for each in opened.files(name) if each.path.startswith("1/")]
            if not files:
                continue
            folder = opened.fetch(name, "1", files, Progress()).path
            for each in files:
                content = (folder / each.path.removeprefix("1/")).read_bytes()
                assert content == opened.read(name, each.path)
                assert content.decode() in paths
        assert not opened.files("other")
        opened.disconnect()


def test_a_place_in_a_bucket_takes_names_and_the_permission_to_list(
    bucket: s3_stand_in.StandIn,
) -> None:
    """Without the permission it is a repository as ever."""
    bucket.put(f"data/m/{FILE}", b'{"name": "said"}')
    bucket.put("data/m/model.onnx", b"model")
    opened = remote("s3://bucket/data/m")
    assert (opened.models(), opened.read("said", FILE)) == (["said"], b'{"name": "said"}')
    assert list(remote("s3://bucket/data/m", DRAGOMAN_MODEL_NAME="given").models()) == ["given"]
    bucket.put("data/m/model.onnx", b"newer")
    (file,) = (each for each in opened.files("said") if each.path == "1/model.onnx")
    assert (opened.fetch("said", "1", [file], Progress()).path / "model.onnx").read_bytes() == b"newer"
    assert isinstance(open_store(Settings.from_env({"DRAGOMAN_REPOSITORY": "s3://bucket/data/m"})), S3Store)
    bucket.listable = False
    blind = remote("s3://bucket/data")
    with pytest.raises(Forbidden):
        blind.files("m")
    assert blind.read("m", "model.onnx") == b"newer"
    assert blind.fetch("m", "1", (), Progress()).path.is_dir()
    blind.confirm()
    assert blind.accepts


@pytest.mark.parametrize(("key", "name"), [("data/m/model.onnx", "m"), ("data/m/n/1/model.onnx", "n")])
def test_a_file_that_rots_on_the_disk_is_fetched_again(bucket: s3_stand_in.StandIn, key: str, name: str) -> None:
    """Its size has stayed. A version that does not load is compared with the store's digests."""
    bucket.put(key, b"model")
    opened = remote("s3://bucket/data/m")
    files = [each for each in opened.files(name) if each.path == "1/model.onnx"]
    folder = opened.fetch(name, "1", files, Progress())
    (folder.path / "model.onnx").write_bytes(b"rotte")
    assert (opened.fetch(name, "1", files, Progress()).path / "model.onnx").read_bytes() == b"rotte"
    opened.doubt(folder)
    del folder
    assert (opened.fetch(name, "1", files, Progress()).path / "model.onnx").read_bytes() == b"model"

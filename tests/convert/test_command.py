"""The tests call `dragoman convert` as a user types it."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import onnxruntime
import pytest

from handler.settings import model as model_settings
from tests.convert import saved_models
from tests.convert.saved_models import FLOAT, signature, v1
from tests.e2e import s3 as servers

FILES = ["model-settings.json", "model.onnx", "parity.json"]
pytestmark = pytest.mark.usefixtures("here")
Run = "Callable[..., tuple[int, str, str]]"


def adds(number: float) -> Callable[[], dict[str, Any]]:
    """Writes a SavedModel with one signature: y = x + number."""

    def make() -> dict[str, Any]:
        x = v1.placeholder(FLOAT, [None], name="x")
        return {"serving_default": signature({"x": x}, {"y": x + number})}

    return make


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base path with other files beside the versions."""
    base = tmp_path_factory.mktemp("adds")
    for folder, number in (("1", 1.0), ("00000002", 2.0), ("10", 10.0)):
        saved_models.build(base / folder, adds(number))
    (base / "11").mkdir()
    (base / "notes").mkdir()
    return base


@pytest.fixture
def run(run: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    """`dragoman convert`."""
    return partial(run, "convert")


def answer(model: Path, version: int) -> float:
    session = onnxruntime.InferenceSession((model / str(version) / "model.onnx").read_bytes())
    return float(session.run(["y"], {"x": np.zeros(1, np.float32)})[0][0])


def test_one_saved_model_becomes_one_version(run: Any, versions: Path, tmp_path: Path) -> None:
    """Its number is the folder's. Nothing else is left in the repository."""
    code, out, err = run(versions / "00000002", tmp_path / "new" / "adds")
    assert (code, [line.split()[0] for line in err.splitlines()]) == (0, ["loading", "converting", "comparing"])
    converted, published = out.splitlines()
    assert converted.startswith(f"{versions / '00000002'}: serving_default (predict); ")
    assert converted.endswith(" B of ONNX")
    assert published.startswith(f"{tmp_path / 'new' / 'adds' / '2'}: 3 files, ")
    assert published.endswith("; served")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["adds"]
    assert sorted(path.name for path in (tmp_path / "new/adds/2").iterdir()) == FILES
    assert answer(tmp_path / "new" / "adds", 2) == 2


@pytest.mark.parametrize(("options", "number"), [((), 1), (("--version", "7"), 7), (("--version", "007"), 7)])
def test_a_folder_of_another_name_is_version_1_or_the_one_asked_for(
    run: Any, tmp_path: Path, options: tuple[str, ...], number: int
) -> None:
    """`--version` sets the number."""
    saved_models.build(tmp_path / "exported", adds(3))
    assert run(tmp_path / "exported", tmp_path / "models/adds", *options)[0] == 0
    assert answer(tmp_path / "models/adds", number) == 3


def test_what_is_converted_is_optimised_as_a_push_does_it(run: Any, tmp_path: Path) -> None:
    """Its weights come to stand beside it, and it answers as before."""

    def make() -> dict[str, Any]:
        x = v1.placeholder(FLOAT, [None], name="x")
        y = v1.reshape(x, [-1, 1]) + np.full((1, 300_000), 3, np.float32)
        return {"serving_default": signature({"x": x}, {"y": y})}

    saved_models.build(tmp_path / "1", make)
    code, out, err = run(tmp_path / "1", tmp_path / "models" / "large", "--optimize", "--quiet")
    assert (code, err, out.endswith("; served; optimised\n")) == (0, "", True), out
    made = tmp_path / "models" / "large" / "1"
    assert {each.name for each in made.iterdir()} == {*FILES, "model.onnx.data"}
    session = onnxruntime.InferenceSession(made / "model.onnx")
    assert (session.run(["y"], {"x": np.ones(1, np.float32)})[0] == 4).all()


def test_a_base_path_becomes_every_version_in_it(run: Any, versions: Path, tmp_path: Path) -> None:
    """Folders with other names, or without a SavedModel, do not count, as in TensorFlow Serving."""
    assert run(versions, tmp_path / "adds")[0] == 0
    assert {int(path.name): answer(tmp_path / "adds", int(path.name)) for path in (tmp_path / "adds").iterdir()} == {
        1: 1.0,
        2: 2.0,
        10: 10.0,
    }


def test_what_is_there_stays_unless_forced(run: Any, versions: Path, tmp_path: Path) -> None:
    """The rule holds where the existing number is written differently, too."""
    model = tmp_path / "adds"
    run(versions / "1", model, "--version", "2")
    (model / "2").rename(model / "002")
    code, _, err = run(versions, model, "--quiet")
    assert (code, err) == (1, f"dragoman: {model}/2 exists already: --force replaces it\n")
    assert [path.name for path in model.iterdir()] == ["002"]
    assert run(versions / "00000002", model, "--force")[0] == 0
    assert [path.name for path in model.iterdir()] == ["2"]
    assert answer(model, 2) == 2


def test_a_conversion_in_place_leaves_its_source(run: Any, versions: Path, tmp_path: Path) -> None:
    """TensorFlow Serving's folder is a repository's, too. Another number is free."""
    place = tmp_path / "half"
    shutil.copytree(versions / "1", place / "1")
    before = sorted(path for path in place.rglob("*"))
    code, _, err = run(place / "1", place)
    assert (code, "which no push has put there: --version 2 leaves it" in err) == (1, True)
    assert sorted(path for path in place.rglob("*")) == before
    assert run(place / "1", place, "--version", "0")[0] == 0
    assert (place / "0" / "model.onnx").is_file()
    assert {*before} < {*place.rglob("*")}


def test_the_settings_are_read_by_the_server(run: Any, versions: Path, tmp_path: Path) -> None:
    """They lie beside the model that they describe."""
    run(versions / "1", tmp_path / "adds")
    text = (tmp_path / "adds/1/model-settings.json").read_bytes()
    settings = model_settings.parse("adds", text)
    assert settings.signatures is not None
    assert list(settings.signatures) == ["serving_default"]


def test_a_models_config_becomes_models_with_their_policies(run: Any, versions: Path, tmp_path: Path) -> None:
    """Versions that the policy serves are converted; other settings of the model stay."""
    config = tmp_path / "models.config"
    config.write_text(
        f"""model_config_list {{
          config {{ name: "newest" base_path: "{versions}" }}
          config {{
            name: "chosen" base_path: "file://{versions}"
            model_version_policy {{ specific {{ versions: [1, 10] }} }}
            version_labels {{ key: "stable" value: 1 }}
          }}
        }}""",
        encoding="utf-8",
    )
    repository = tmp_path / "models"
    (repository / "chosen").mkdir(parents=True)
    (repository / "chosen/model-settings.json").write_text('{"platform": "mine"}', encoding="utf-8")
    assert run("--models-config", config, repository)[0] == 0
    assert sorted(path.name for path in repository.iterdir()) == ["chosen", "newest"]
    assert [path.name for path in (repository / "newest").iterdir()] == ["10"]
    assert sorted(path.name for path in (repository / "chosen").iterdir()) == ["1", "10", "model-settings.json"]
    assert json.loads((repository / "chosen/model-settings.json").read_text(encoding="utf-8")) == {
        "platform": "mine",
        "version_policy": {"specific": {"versions": [1, 10]}},
        "version_labels": {"stable": 1},
    }


def unfed() -> dict[str, Any]:
    """Returns a signature that does not feed one of its placeholders."""
    x = v1.placeholder(FLOAT, [None], name="x")
    return {"serving_default": signature({"x": x}, {"y": v1.placeholder(FLOAT, [None], name="y") + x})}


def test_a_refused_conversion_leaves_nothing(run: Any, tmp_path: Path) -> None:
    """The refusal has one line and no traceback, and leaves no folder."""
    saved_models.build(tmp_path / "1", unfed)
    code, out, err = run(tmp_path / "1", tmp_path / "models/m", "--quiet")
    assert (code, out) == (1, "")
    assert err == "dragoman: signature 'serving_default' needs the placeholder 'y', which it does not feed\n"
    assert not (tmp_path / "models").exists()


def test_nothing_is_published_before_everything_is_converted(run: Any, versions: Path, tmp_path: Path) -> None:
    """If the second version of a base path cannot be converted, the first stays unpublished, too."""
    shutil.copytree(versions / "1", tmp_path / "base/1")
    saved_models.build(tmp_path / "base/2", unfed)
    code, out, err = run(tmp_path / "base", tmp_path / "models/m", "--quiet")
    assert (code, err.count("\n")) == (1, 1)
    assert out.startswith(f"{tmp_path / 'base/1'}: serving_default (predict); ")
    assert not (tmp_path / "models").exists()


def test_what_cannot_be_written_is_refused(run: Any, versions: Path, tmp_path: Path) -> None:
    """A file stands where a folder should be."""
    (tmp_path / "file").write_text("")
    assert "directory: check its name" in run(versions / "1", tmp_path / "file/m")[2]
    (tmp_path / "models").mkdir()
    (tmp_path / "models/m").write_text("")
    assert f"{tmp_path / 'models/m'} is not a folder" in run(versions / "1", tmp_path / "models/m")[2]
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["m"]


def test_a_temporary_folder_that_is_full_is_refused(
    run: Any, versions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model is written to a temporary folder before it is published."""
    write = type(tmp_path).write_bytes

    def fails(self: Path, content: bytes) -> int:
        if self.name == "model.onnx":
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(self, content)

    monkeypatch.setattr(type(tmp_path), "write_bytes", fails)
    code, _, err = run(versions / "1", tmp_path / "models/m")
    assert code == 1
    assert err.endswith("m/1/model.onnx cannot be written: No space left on device; TMPDIR names another place\n")
    assert not (tmp_path / "models").exists()


@pytest.mark.parametrize(("text", "reason"), [("{", "the file is not JSON: line 1"), ("[]", "the file is []; expect")])
def test_a_model_whose_settings_are_none_is_refused_before_the_conversion(
    run: Any, versions: Path, tmp_path: Path, text: str, reason: str
) -> None:
    """A server would refuse every version of it."""
    config = tmp_path / "models.config"
    policy = "model_version_policy { all {} }"
    config.write_text(f"model_config_list {{ config {{ name: 'n' base_path: '{versions}' {policy} }} }}")
    (tmp_path / "models/n").mkdir(parents=True)
    (tmp_path / "models/n/model-settings.json").write_text(text)
    for arguments in (("--models-config", config, tmp_path / "models"), (versions, tmp_path / "models/n")):
        code, out, err = run(*arguments, "--force")
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert reason in err


@pytest.mark.parametrize(("arguments", "reason"), [
    (["{tmp}"], "two arguments are needed: SOURCE REPOSITORY/NAME"),
    (["{tmp}/none", "{tmp}/m"], "there is no file or folder {tmp}/none"),
    (["{tmp}", "{tmp}/m"], "{tmp} is not a SavedModel: it has neither saved_model.pb nor numbered versions with one"),
    (["{tmp}", "ftp://bucket/m"], "'ftp://bucket/m' is neither a folder nor the address"),
    (["{tmp}", "s3://bucket"], "'s3://bucket' names a bucket and no model; expected s3://bucket/prefix/NAME"),
    (["{tmp}", "{tmp}/.m"], "does not end in a model's name; expected s3://bucket/prefix/NAME or REPOSITORY/NAME"),
    (["{versions}", "{tmp}/m", "--version", "1"], "--version is for one SavedModel, and {versions} has 3 numbered"),
    (["{versions}/1", "{tmp}/m", "--version", "-1"], "--version is '-1'; expected a whole number"),
    (["--models-config", "x", "{tmp}", "{tmp}/m"], "--models-config names the models to convert: give only"),
    (["--models-config", "x", "{tmp}", "--data", "x.csv"], "--data has the rows of one model, and --models-config"),
    (["--models-config", "{tmp}/x", "{tmp}"], "{tmp}/x cannot be read: No such file or directory"),
])  # fmt: skip
def test_mistakes_on_the_command_line_cost_no_import(
    run: Any, versions: Path, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    """A mistake costs one line. Flags that are wrong whatever the files are have exit code 2, other mistakes 1."""
    code, out, err = run(*[each.format(tmp=tmp_path, versions=versions) for each in arguments])
    wrong = reason.startswith(("two arguments", "--version is '", "--models-config", "--data"))
    assert (code, out, err.count("\n")) == (2 if wrong else 1, "", 1)
    assert reason.format(tmp=tmp_path, versions=versions) in err


def test_a_version_that_the_policy_names_must_be_there(run: Any, versions: Path, tmp_path: Path) -> None:
    """The refusal lists the versions that are there."""
    config = tmp_path / "models.config"
    policy = "model_version_policy { specific { versions: 3 } }"
    config.write_text(f"model_config_list {{ config {{ name: 'm' base_path: '{versions}' {policy} }} }}")
    _, _, err = run("--models-config", config, tmp_path / "models")
    assert err == "dragoman: model 'm' has no version 3; base_path has [1, 2, 10]\n"


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Store]:
    """A real S3 server that is empty."""
    with servers.running() as running:
        yield running


@pytest.fixture
def repository(server: servers.Store, monkeypatch: pytest.MonkeyPatch) -> str:
    """A repository in a new bucket for each test, with the environment that reaches it."""
    name = f"b-{uuid4()}"
    server.client.create_bucket(Bucket=name)
    for variable, value in server.variables(name).items():
        monkeypatch.setenv(variable, value)
    return f"s3://{name}/models"


def objects(server: servers.Store, repository: str) -> dict[str, bytes]:
    """Returns the repository's content by path."""
    bucket, prefix = repository.removeprefix("s3://").split("/")
    found = server.client.list_objects_v2(Bucket=bucket, Prefix=f"{prefix}/").get("Contents", ())
    return {
        each["Key"].removeprefix(f"{prefix}/"): server.client.get_object(Bucket=bucket, Key=each["Key"])["Body"].read()
        for each in found
    }


def test_a_saved_model_is_published_into_a_bucket(
    run: Any, versions: Path, server: servers.Store, repository: str
) -> None:
    """An existing version stays unless it is forced."""
    code, out, err = run(versions / "1", f"{repository}/adds", "--quiet")
    assert (code, err) == (0, "")
    assert out.splitlines()[1].startswith(f"{repository}/adds/1: 3 files, ")
    first = objects(server, repository)
    assert sorted(first) == [f"adds/1/{name}" for name in FILES]
    other = (versions / "10", f"{repository}/adds", "--version", "1", "--quiet")
    assert run(*other) == (1, "", f"dragoman: {repository}/adds/1 exists already: --force replaces it\n")
    assert objects(server, repository) == first
    assert run(*other, "--force")[0] == 0
    second = objects(server, repository)
    assert sorted(second) == sorted(first)
    session = onnxruntime.InferenceSession(second["adds/1/model.onnx"])
    assert session.run(["y"], {"x": np.zeros(1, np.float32)})[0] == [10]


def test_a_models_config_is_published_into_a_bucket(
    run: Any, versions: Path, server: servers.Store, repository: str, tmp_path: Path
) -> None:
    """Each model has its versions, and its settings keep their other keys."""
    config = tmp_path / "models.config"
    policy = "model_version_policy { specific { versions: [1, 2] } } version_labels { key: 'stable' value: 1 }"
    config.write_text(f"model_config_list {{ config {{ name: 'm' base_path: '{versions}' {policy} }} }}")
    bucket = repository.removeprefix("s3://").partition("/")[0]
    server.client.put_object(Bucket=bucket, Key="models/m/model-settings.json", Body=b'{"platform": "mine"}')
    assert run("--models-config", config, repository)[0] == 0
    found = objects(server, repository)
    assert sorted(path for path in found if path.endswith(".onnx")) == ["m/1/model.onnx", "m/2/model.onnx"]
    assert json.loads(found["m/model-settings.json"]) == {
        "platform": "mine",
        "version_policy": {"specific": {"versions": [1, 2]}},
        "version_labels": {"stable": 1},
    }


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_the_command_line_imports_nothing_of_it() -> None:
    """The edges do not import it either."""
    done = python(
        "import sys, handler.cli, handler.asgi, handler.aws\n"
        "print([m for m in sys.modules if m.startswith(('handler.commands.convert', 'tensorflow', 'tf2onnx'))])"
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_missing_extra_names_its_cure(versions: Path, tmp_path: Path) -> None:
    """Machines where only servers run do not have the extra."""
    (tmp_path / "tensorflow.py").write_text("raise ImportError('No module named tensorflow')", encoding="utf-8")
    command = [sys.executable, "-m", "dragoman", "convert", str(versions / "1"), str(tmp_path / "m"), "--quiet"]
    paths = {"PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | paths)
    assert done.returncode == 1
    assert done.stderr.startswith("dragoman: `dragoman convert` needs TensorFlow, tf2onnx and ONNX Runtime")
    assert done.stderr.endswith("pip install 'dragoman[convert]'\n")


def test_one_child_converts_all_versions(versions: Path, tmp_path: Path) -> None:
    """It prints a line for each conversion and each version, steps on stderr, and no lines of TensorFlow's."""
    done = python(
        "import sys; from handler.cli import main; "
        f"sys.exit(main(['convert', {str(versions)!r}, {str(tmp_path / 'm')!r}]))"
    )
    assert done.returncode == 0
    assert done.stdout.count("\n") == 6
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["loading", "converting", "comparing"] * 3

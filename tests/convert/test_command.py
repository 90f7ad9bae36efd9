"""`dragoman convert`, as it is typed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest

from handler.cli import main
from handler.settings import model as model_settings
from tests.convert import saved_models
from tests.convert.saved_models import FLOAT, signature, v1

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

Run = "Callable[..., tuple[int, str, str]]"


def adds(number: float) -> Callable[[], dict[str, Any]]:
    """One signature: y = x + number."""

    def make() -> dict[str, Any]:
        x = v1.placeholder(FLOAT, [None], name="x")
        return {"serving_default": signature({"x": x}, {"y": x + number})}

    return make


@pytest.fixture(scope="module")
def versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A base path, with what else may lie in one."""
    base = tmp_path_factory.mktemp("adds")
    for folder, number in (("1", 1.0), ("00000002", 2.0), ("10", 10.0)):
        saved_models.build(base / folder, adds(number))
    (base / "11").mkdir()
    (base / "notes").mkdir()
    return base


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Exit code, output, errors."""

    def command(*arguments: object) -> tuple[int, str, str]:
        code = main(["convert", *map(str, arguments)])
        return (code, *capsys.readouterr())

    return command


def answer(model: Path, version: int) -> float:
    session = onnxruntime.InferenceSession((model / str(version) / "model.onnx").read_bytes())
    return float(session.run(["y"], {"x": np.zeros(1, np.float32)})[0][0])


def test_one_saved_model_becomes_one_version(run: Any, versions: Path, tmp_path: Path) -> None:
    """Its number is the folder's; nothing else is left in the repository."""
    code, out, err = run(versions / "00000002", tmp_path / "new" / "adds")
    assert (code, err) == (0, "")
    assert out.startswith(f"{tmp_path / 'new' / 'adds' / '2'}: serving_default (predict); ")
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["adds"]
    assert sorted(path.name for path in (tmp_path / "new/adds/2").iterdir()) == ["model-settings.json", "model.onnx"]
    assert answer(tmp_path / "new" / "adds", 2) == 2


@pytest.mark.parametrize(("options", "number"), [((), 1), (("--version", "7"), 7), (("--version", "007"), 7)])
def test_a_folder_of_another_name_is_version_1_or_the_one_asked_for(
    run: Any, tmp_path: Path, options: tuple[str, ...], number: int
) -> None:
    """--version."""
    saved_models.build(tmp_path / "exported", adds(3))
    assert run(tmp_path / "exported", tmp_path / "models/adds", *options)[0] == 0
    assert answer(tmp_path / "models/adds", number) == 3


def test_a_base_path_becomes_every_version_in_it(run: Any, versions: Path, tmp_path: Path) -> None:
    """As TensorFlow Serving reads one: folders of other names, or without a SavedModel, are none."""
    assert run(versions, tmp_path / "adds")[0] == 0
    assert {int(path.name): answer(tmp_path / "adds", int(path.name)) for path in (tmp_path / "adds").iterdir()} == {
        1: 1.0,
        2: 2.0,
        10: 10.0,
    }


def test_what_is_there_stays_unless_forced(run: Any, versions: Path, tmp_path: Path) -> None:
    """Also where its number is written otherwise."""
    model = tmp_path / "adds"
    run(versions / "1", model, "--version", "2")
    (model / "2").rename(model / "002")
    code, _, err = run(versions, model)
    assert (code, err) == (1, "dragoman: adds/002 is there already; --force replaces it\n")
    assert [path.name for path in model.iterdir()] == ["002"]
    assert run(versions / "00000002", model, "--force")[0] == 0
    assert [path.name for path in model.iterdir()] == ["2"]
    assert answer(model, 2) == 2


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


def test_a_refused_conversion_leaves_nothing(run: Any, tmp_path: Path) -> None:
    """One line, no traceback, no folder."""

    def make() -> dict[str, Any]:
        x = v1.placeholder(FLOAT, [None], name="x")
        return {"serving_default": signature({"x": x}, {"y": v1.placeholder(FLOAT, [None], name="y") + x})}

    saved_models.build(tmp_path / "1", make)
    code, out, err = run(tmp_path / "1", tmp_path / "models/m")
    assert (code, out) == (1, "")
    assert err == "dragoman: signature 'serving_default' needs the placeholder 'y', which it does not feed\n"
    assert not (tmp_path / "models").exists()


def test_what_cannot_be_written_is_refused(run: Any, versions: Path, tmp_path: Path) -> None:
    """A file where a folder should be, and settings that are none."""
    (tmp_path / "file").write_text("")
    assert "file cannot be written" in run(versions / "1", tmp_path / "file/m")[2]
    (tmp_path / "models").mkdir()
    (tmp_path / "models/m").write_text("")
    assert "models cannot be written: File exists" in run(versions / "1", tmp_path / "models/m")[2]
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["m"]
    config = tmp_path / "models.config"
    policy = "model_version_policy { all {} }"
    config.write_text(f"model_config_list {{ config {{ name: 'n' base_path: '{versions}' {policy} }} }}")
    (tmp_path / "models/n").mkdir()
    for text, reason in (("{", "is no JSON"), ("[]", "is no JSON object")):
        (tmp_path / "models/n/model-settings.json").write_text(text)
        code, _, err = run("--models-config", config, tmp_path / "models", "--force")
        assert (code, err) == (1, f"dragoman: n/model-settings.json {reason}\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["{tmp}"], "two folders are needed: SAVED_MODEL_DIR REPOSITORY/NAME"),
        (["{tmp}/none", "{tmp}/m"], "there is no folder {tmp}/none"),
        (["{tmp}", "{tmp}/m"], "{tmp} is no SavedModel: it has neither saved_model.pb nor numbered versions with one"),
        (["{tmp}", "s3://bucket/m"], "'s3://bucket/m' is no folder of this machine; convert into one and copy it"),
        (["{tmp}", "{tmp}/.m"], "does not end in a model's name; expected REPOSITORY/NAME"),
        (["{versions}", "{tmp}/m", "--version", "1"], "--version is for one SavedModel, and {versions} has 3 numbered"),
        (["{versions}/1", "{tmp}/m", "--version", "-1"], "--version is '-1'; expected a whole number"),
        (["--models-config", "x", "{tmp}", "{tmp}/m"], "--models-config says itself what to convert: give it"),
        (["--models-config", "{tmp}/x", "{tmp}"], "{tmp}/x cannot be read: No such file or directory"),
    ],
)
def test_mistakes_on_the_command_line_cost_no_import(
    run: Any, versions: Path, tmp_path: Path, arguments: list[str], reason: str
) -> None:
    """One line, exit code 1."""
    code, out, err = run(*[each.format(tmp=tmp_path, versions=versions) for each in arguments])
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert reason.format(tmp=tmp_path, versions=versions) in err


def test_a_version_that_the_policy_names_must_be_there(run: Any, versions: Path, tmp_path: Path) -> None:
    """With those that are."""
    config = tmp_path / "models.config"
    policy = "model_version_policy { specific { versions: 3 } }"
    config.write_text(f"model_config_list {{ config {{ name: 'm' base_path: '{versions}' {policy} }} }}")
    _, _, err = run("--models-config", config, tmp_path / "models")
    assert err == "dragoman: model 'm' has no version 3; base_path has [1, 2, 10]\n"


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_the_command_line_imports_nothing_of_it() -> None:
    """Nor do the edges."""
    done = python(
        "import sys, handler.cli, handler.asgi, handler.aws\n"
        "print([m for m in sys.modules if m.startswith(('handler.commands.convert', 'tensorflow', 'tf2onnx'))])"
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_missing_extra_names_its_cure(versions: Path, tmp_path: Path) -> None:
    """As it is where only servers run."""
    done = python(
        "import sys; sys.modules['tensorflow'] = None\n"
        f"from handler.cli import main; sys.exit(main(['convert', {str(versions / '1')!r}, {str(tmp_path / 'm')!r}]))"
    )
    assert done.returncode == 1
    assert done.stderr.startswith("dragoman: `dragoman convert` needs TensorFlow, tf2onnx and ONNX Runtime")
    assert done.stderr.endswith("pip install 'dragoman[convert]'\n")


def test_the_command_prints_its_result_and_nothing_else(versions: Path, tmp_path: Path) -> None:
    """No log lines of TensorFlow's."""
    done = python(
        "import sys; from handler.cli import main; "
        f"sys.exit(main(['convert', {str(versions)!r}, {str(tmp_path / 'm')!r}]))"
    )
    assert done.returncode == 0
    assert done.stdout.count("\n") == 3
    assert done.stderr == ""

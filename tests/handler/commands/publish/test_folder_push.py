"""`dragoman push` into a folder, and what is refused before anything is sent."""

import errno
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import onnx
import pytest

from core.schema import fields
from handler.commands.publish import folder as folder_module
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from tests.handler.commands.publish import conftest
from tests.handler.commands.publish.conftest import adds, answer, large
from tests.support import texts


def served(repository: Path) -> Registry:
    return Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(repository)}))


def below(folder: Path) -> list[str]:
    """Returns every file below, hidden ones too."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_versions_are_numbered_on_and_served(run: Any, tmp_path: Path) -> None:
    """The first push makes the repository; hidden and compiled files are not pushed."""
    source = adds(1, tmp_path / "m").parent
    for name in (".git/x", ".hidden", "__pycache__/x.pyc", "sub/words.txt"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_bytes(b"x")
    target = tmp_path / "repository" / "m"
    assert run("push", source, target) == (0, f"{target}/1: 2 files, 97 B; served\n", "")
    assert below(target.parent) == ["m/1/model.onnx", "m/1/sub/words.txt"]
    adds(2, source)
    assert run("push", source, target)[1] == f"{target}/2: 2 files, 97 B; served\n"
    assert answer(served(target.parent), "m") == 2
    assert run("push", source, target, "--version", "007")[1] == f"{target}/7: 2 files, 97 B; served\n"
    assert run("push", source, f"file://{target}")[1] == f"{target}/8: 2 files, 97 B; served\n"


def test_a_models_folder_brings_all_its_versions_and_settings(run: Any, tmp_path: Path) -> None:
    """They keep their own numbers; of 1 and 001, the plain one is pushed."""
    for name, number in (("1", 1), ("001", 9), ("0012", 12)):
        adds(number, tmp_path / "m" / name)
    (tmp_path / "m" / "model-settings.json").write_text('{"version_policy": {"all": {}}}')
    target = tmp_path / "r" / "m"
    assert run("push", tmp_path / "m", target)[:2] == (
        0,
        f"{target}/1: 1 file, 96 B; served\n{target}/12: 1 file, 96 B; served\n",
    )
    models = served(target.parent)
    assert [answer(models, "m", version) for version in (1, 12)] == [1, 12]
    assert "has no version 5" in run("push", tmp_path / "m", target, "--version", "5")[2]


def test_a_number_that_no_server_serves_is_not_pushed(run: Any, tmp_path: Path) -> None:
    """After the highest number a push needs one that is free. A folder of numbered versions needs none."""
    source, target, highest = adds(1, tmp_path / "m").parent, tmp_path / "repository" / "m", 9 * 10**18 - 1
    assert run("push", source, target, "--version", str(highest))[0] == 0
    code, out, err = run("push", source, target)
    assert (code, out) == (1, "")
    assert f"m/{highest} has the highest number of a version; expected one below 9 * 10**18" in err
    assert f"--version {highest - 1} is free" in err
    adds(4, tmp_path / "n" / "4")
    assert run("push", tmp_path / "n", target)[0] == 0
    assert run("push", source, target, "--version", str(highest - 1))[0] == 0
    assert sorted(each.name for each in target.iterdir()) == ["4", str(highest - 1), str(highest)]


def test_a_replaced_version_is_all_new_however_its_folder_was_written(run: Any, tmp_path: Path) -> None:
    """A push replaces only with --force."""
    target = tmp_path / "r" / "m"
    adds(1, target / "003")
    (target / "003" / "old.txt").touch()
    source = adds(2, tmp_path / "m")
    told = run("push", source, target, "--version", "3")
    assert told == (1, "", f"dragoman: {target}/3 exists already: --force replaces it\n")
    assert run("push", source, target, "--version", "3", "--force")[0] == 0
    assert below(target) == ["3/model.onnx"]


def test_another_servers_model_is_left_alone_without_force(run: Any, tmp_path: Path) -> None:
    """A push takes the next number beside a SavedModel's version, or one of MLflow's. It uses an empty folder."""
    target, source = tmp_path / "r" / "m", adds(1, tmp_path / "m")
    (target / "1" / "variables").mkdir(parents=True)
    (target / "1" / "saved_model.pb").touch()
    (target / "2").mkdir()
    code, _, err = run("push", source, target, "--version", "1")
    told = "saved_model.pb, which no push has put there: --version 2 leaves it, and --force removes everything"
    assert (code, f"{target}/1 has {told} in that folder" in err) == (1, True)
    assert run("push", source, target)[0] == 0
    assert below(target) == ["1/saved_model.pb", "2/model.onnx"]
    assert run("push", source, target, "--version", "1", "--force")[0] == 0
    assert below(target) == ["1/model.onnx", "2/model.onnx"]


def test_settings_that_a_push_replaces_are_named(run: Any, tmp_path: Path) -> None:
    """Labels and policies of the served model go with them."""
    target, source = tmp_path / "r" / "m", tmp_path / "m"
    adds(1, source / "1")
    for timeout, said in ((5, ""), (5, ""), (6, "; replaced model-settings.json of m")):
        (source / "model-settings.json").write_text(json.dumps({"timeout": timeout}))
        code, out, _ = run("push", source, target, "--force")
        assert (code, out) == (0, f"{target}/1: 1 file, 96 B; served{said}\n")


def test_of_two_at_the_same_time_the_second_is_refused(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule holds whether it looks before or after the first one's rename."""
    target = tmp_path / "r" / "m"
    copy, of_number = folder_module._copy, folder_module.of_number

    def before(*arguments: Any) -> None:
        adds(9, target / "1")
        copy(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(folder_module, "_copy", before)
        code, _, err = run("push", adds(1, tmp_path / "m"), target)
    assert (code, err.partition(" is being")[0]) == (1, "dragoman: version 1 of 'm'")
    shutil.rmtree(target)

    def after(*arguments: Any) -> Any:
        found = of_number(*arguments)
        adds(9, target / "1")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(folder_module, "of_number", after)
        code, _, err = run("push", tmp_path / "m", target)
    assert (code, err) == (1, f"dragoman: {target}/1 has been written by somebody else meanwhile\n")
    assert answer(served(target.parent), "m") == 9
    assert list(target.parent.glob(".*")) == []


@pytest.mark.parametrize(
    ("moment", "change"),
    [("before", "grows"), ("before", "goes"), ("during", "shrinks"), ("during", "goes"), ("during", "is another")],
)
def test_a_file_that_changes_while_it_is_copied_is_refused(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, change: str
) -> None:
    """A training script may still write it, and the version would be torn."""
    source, target = adds(1, tmp_path / "m"), tmp_path / "r" / "m"
    copy, sync = folder_module._copy, folder_module.os.fsync

    def changed() -> None:
        if change == "goes":
            source.unlink()
        elif change == "is another":
            source.write_bytes(b"x" * source.stat().st_size)
            os.utime(source, (0, 0))
        else:
            os.truncate(source, source.stat().st_size + (1 if change == "grows" else -1))

    def before(*arguments: Any) -> None:
        changed()
        copy(*arguments)

    def during(file: int) -> None:
        changed()
        sync(file)

    patched, call = (folder_module, before) if moment == "before" else (folder_module.os, during)
    monkeypatch.setattr(patched, "_copy" if moment == "before" else "fsync", call)
    code, _, err = run("push", source, target)
    monkeypatch.undo()
    said = "cannot be read: No such file" if change == "goes" else "has changed while it was copied: push it again"
    assert (code, err.startswith(f"dragoman: {source} {said}")) == (1, True), err
    assert below(target.parent) == []


def test_a_models_settings_come_after_the_last_version_that_they_may_name(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that looks between any two steps serves a version."""
    target, seen = tmp_path / "r" / "m", []
    adds(1, target / "1")
    for number in (2, 3):
        adds(number, tmp_path / "m" / str(number))
    (tmp_path / "m" / "model-settings.json").write_text('{"version_policy": {"specific": {"versions": [2]}}}')
    settings = Settings.from_env({"DRAGOMAN_REPOSITORY": str(target.parent)})
    appear = folder_module.appear

    def look() -> None:
        seen.append([version.number for version in conftest.served(settings, "m")])

    def watched(*arguments: Any) -> None:
        look()
        appear(*arguments)
        look()

    monkeypatch.setattr(folder_module, "appear", watched)
    assert run("push", tmp_path / "m", target)[0] == 0
    look()
    assert seen == [[1], [2], [2], [3], [2]]


def test_a_push_that_is_refused_leaves_the_models_settings(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other push came first only after this one had looked."""
    target, appear = tmp_path / "r" / "m", folder_module.appear
    target.mkdir(parents=True)
    (target / "model-settings.json").write_text("{}")
    adds(1, tmp_path / "m" / "1")
    (tmp_path / "m" / "model-settings.json").write_text('{"version_policy": {"all": {}}}')

    def overtaken(*arguments: Any) -> None:
        adds(9, target / "1")
        appear(*arguments)

    monkeypatch.setattr(folder_module, "appear", overtaken)
    code, _, err = run("push", tmp_path / "m", target)
    assert (code, err) == (1, f"dragoman: {target}/1 has been written by somebody else meanwhile\n")
    assert (target / "model-settings.json").read_text() == "{}"
    assert below(target.parent) == ["m/1/model.onnx", "m/model-settings.json"]


@pytest.mark.parametrize(("failure", "code"), [(OSError(errno.ENOSPC, "No space left"), 1), (KeyboardInterrupt(), 130)])
def test_a_push_that_fails_leaves_what_was_there(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException, code: int
) -> None:
    """The rule holds even if the old version was already out of its place."""
    target = tmp_path / "r" / "m"
    adds(1, target / "1")
    rename = type(tmp_path).rename

    def fails(self: Path, to: Path) -> Any:
        if to == target / "1" and self.name == "new":
            raise failure
        return rename(self, to)

    monkeypatch.setattr(type(tmp_path), "rename", fails)
    told = run("push", adds(2, tmp_path / "m"), target, "--version", "1", "--force")
    assert told[0] == code
    assert told[2] in (f"dragoman: {target.parent} cannot be written: No space left\n", "\n")
    assert below(target.parent) == ["m/1/model.onnx"]
    assert answer(served(target.parent), "m") == 1


def test_a_repository_that_cannot_be_written_is_refused(run: Any, tmp_path: Path) -> None:
    """The refusal has its name."""
    (tmp_path / "file").touch()
    code, _, err = run("push", adds(1, tmp_path / "m"), tmp_path / "file" / "r" / "m")
    assert (code, err) == (1, f"dragoman: {tmp_path}/file/r cannot be written: Not a directory\n")


def nested(depth: int) -> bytes:
    """Returns a model whose graph has a node, whose attribute has a graph, which has a node, and so on."""
    keys = (
        onnx.AttributeProto.G_FIELD_NUMBER,
        onnx.NodeProto.ATTRIBUTE_FIELD_NUMBER,
        onnx.GraphProto.NODE_FIELD_NUMBER,
    )
    graph = b""
    for key in keys * depth:
        graph = fields.head(key, len(graph)) + graph
    return fields.head(onnx.ModelProto.GRAPH_FIELD_NUMBER, len(graph)) + graph


@pytest.mark.parametrize(("files", "message"), [
    ({}, "m is empty"),
    ({"words.txt": b""}, "model 'm' has no model.onnx, model.py or pipeline.json; its files: words.txt"),
    ({"model.onnx": b""}, "model.onnx: the file is empty"),
    ({"model.onnx": b"\x08\x08 cut"}, "model.onnx: the file is cut short"),
    ({"model.onnx": b"\x0a"}, "model.onnx: the file is not an ONNX model, or it is cut short"),
    ({"model.onnx": b"\x08\x08"}, "cannot be loaded: model.onnx: the file holds no graph"),
    ({"model.onnx": nested(1000)}, "cannot be loaded: model.onnx: the graph has no outputs"),
    ({"model.onnx": b"", "model-settings.json": b"{"}, "model-settings.json of model 'm': the file is not JSON: "),
    ({"model.onnx": b"", "model-settings.json": b'{"name": "n"}'}, "name is 'n'; expected the folder's name 'm'"),
    ({"model.py": b"def predict(:\n"}, "model.py, line 1: invalid syntax"),
    ({"model.py": b"\0"}, "cannot contain null bytes"),
    ({"pipeline.json": b"{"}, "m/pipeline.json: the file is not JSON: "),
    ({"pipeline.json": b'{"steps": [{"model": 1}]}'}, "m/pipeline.json: steps[0].model is 1; expected the name"),
    ({"pipeline.json": b'{"steps": [{"tokenizer": {}}]}', "words.json": b"{}"},
     "m/pipeline.json: steps[0].tokenizer.file is 'tokenizer.json', which is not beside it: push its folder"),
    ({"model.onnx": b"", "a\\b": b""}, "has a backslash or a control character in its name"),
])  # fmt: skip
def test_what_no_server_could_load_is_refused(run: Any, tmp_path: Path, files: Any, message: str) -> None:
    """The refusal has one line, and nothing is written."""
    (tmp_path / "m").mkdir()
    for name, content in files.items():
        (tmp_path / "m" / name).write_bytes(content)
    code, out, err = run("push", tmp_path / "m", tmp_path / "r" / "m")
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert message in err
    assert not (tmp_path / "r").exists()


def test_a_pipeline_is_one_file(run: Any, tmp_path: Path) -> None:
    """It is pushed by itself or in its folder, and served with the models of its repository."""
    repository = tmp_path / "r"
    run("push", adds(1, tmp_path / "m"), repository / "m")
    file = tmp_path / "pipeline.json"
    file.write_text(
        '{"steps": [{"model": "m", "outputs": {"y": "h"}}, {"name": "n", "model": "m", "inputs": {"x": "h"}}]}'
    )
    target = repository / "p"
    assert run("push", file, target) == (0, f"{target}/1: 1 file, {file.stat().st_size} B; served\n", "")
    assert answer(served(repository), "p") == 2
    file.write_text('{"steps": [{"model": "m"}]}')
    (tmp_path / "q" / "4").mkdir(parents=True)
    file.rename(tmp_path / "q" / "4" / "pipeline.json")
    assert run("push", tmp_path / "q", target)[0] == 0
    assert answer(served(repository), "p") == 1


def test_a_pipeline_brings_its_tokenizer(run: Any, tmp_path: Path) -> None:
    """Both files of its folder are pushed."""
    source, target = texts.build(tmp_path / "t") / "tokens", tmp_path / "r" / "tokens"
    assert run("push", source, target)[0] == 0
    assert (target / "1" / "tokenizer.json").read_bytes() == (source / "1" / "tokenizer.json").read_bytes()


def test_settings_that_do_not_fit_the_model_are_refused(run: Any, tmp_path: Path) -> None:
    """Brought settings take precedence over the target's. `--no-check` skips the check."""
    target = tmp_path / "r" / "m"
    target.mkdir(parents=True)
    (target / "model-settings.json").write_text('{"inputs": [{"name": "q", "datatype": "FP32", "shape": [1]}]}')
    source = adds(1, tmp_path / "m" / "1")
    code, _, err = run("push", source, target)
    told = " describe input 'q', which is not in model.onnx: it has ['x']\n"
    assert (code, err.partition(": the settings")[2]) == (1, told)
    assert run("push", source, target, "--no-check")[0] == 0
    (tmp_path / "m" / "model-settings.json").write_text("{}")
    assert run("push", tmp_path / "m", target, "--force")[0] == 0
    assert (target / "model-settings.json").read_text() == "{}"


def test_without_onnx_runtime_a_model_is_not_tried(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output says so, unless checks are switched off."""
    monkeypatch.setattr("handler.commands.publish.checks.find_spec", lambda _: None)
    source = adds(1, tmp_path / "m")
    assert "ONNX Runtime is not installed" in run("push", source, tmp_path / "r" / "m")[2]
    assert run("push", source, tmp_path / "r" / "m", "--no-check")[2] == ""


def test_a_file_of_another_name_brings_its_weights(run: Any, tmp_path: Path) -> None:
    """Exporters write them beside it."""
    large(3, tmp_path / "m", 1)
    (tmp_path / "m" / "model.onnx").rename(tmp_path / "m" / "wine.onnx")
    (tmp_path / "m" / "other.txt").touch()
    target = tmp_path / "r" / "m"
    assert run("push", tmp_path / "m" / "wine.onnx", target)[0] == 0
    assert below(target) == ["1/model.onnx", "1/weights.bin"]
    assert answer(served(target.parent), "m") == 3
    (tmp_path / "double.py").write_text("def predict(inputs, parameters): return inputs\n")
    assert run("push", tmp_path / "double.py", tmp_path / "r" / "double")[0] == 0
    assert below(tmp_path / "r" / "double") == ["1/model.py"]
    told = run("push", tmp_path / "m" / "other.txt", target)[2]
    assert "expected *.onnx, *.py or pipeline.json. `dragoman convert` makes" in told


def test_a_folders_name_can_have_bytes_that_are_not_utf_8(run: Any, tmp_path: Path) -> None:
    """The model is loaded before it is pushed, and ONNX Runtime takes paths in UTF-8 alone."""
    source = adds(1, tmp_path / "m").parent.rename(tmp_path / "m\udcff")
    assert run("push", source, tmp_path / "r" / "m") == (0, f"{tmp_path}/r/m/1: 1 file, 96 B; served\n", "")


@pytest.mark.parametrize("command", [("push", "nothing"), ("push", "nothing.onnx")])
def test_what_does_not_exist_is_refused(run: Any, tmp_path: Path, command: tuple[str, str]) -> None:
    """The refusal has its name."""
    told = run(command[0], tmp_path / command[1], tmp_path / "r" / "m")
    assert told == (1, "", f"dragoman: there is no file or folder {tmp_path / command[1]}\n")


def external(location: str, *, inside: str) -> bytes:
    """Writes a model with weights in another file, at a place in its graph that permits that."""
    tensor = onnx.TensorProto(name="w", data_type=1, dims=[1], data_location=onnx.TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    tensor.external_data.add(key="offset", value="0")
    model = onnx.ModelProto()
    if inside == "initializer":
        model.graph.initializer.append(tensor)
    elif inside == "sparse":
        model.graph.sparse_initializer.add().values.CopyFrom(tensor)
    elif inside == "constant":
        model.graph.node.add(op_type="Constant").attribute.add(name="value").t.CopyFrom(tensor)
    elif inside == "branch":
        model.graph.node.add(op_type="If").attribute.add(name="then").g.initializer.append(tensor)
    else:
        model.functions.add().node.add(op_type="Constant").attribute.add(name="value").t.CopyFrom(tensor)
    return model.SerializeToString()


@pytest.mark.parametrize("inside", ["initializer", "sparse", "constant", "branch", "function"])
def test_weights_that_are_missing_beside_the_model_are_named(run: Any, tmp_path: Path, inside: str) -> None:
    """They may belong anywhere in the graph."""
    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "model.onnx"
    path.write_bytes(external("weights.bin", inside=inside))
    code, _, err = run("push", tmp_path / "m", tmp_path / "r" / "m")
    assert (code, err) == (1, f"dragoman: {path} keeps weights in weights.bin, which is missing beside it\n")
    assert "weights.bin cannot be read: No such file" in run("push", path, tmp_path / "r" / "m")[2]


def test_a_file_in_the_models_place_is_named(run: Any, tmp_path: Path) -> None:
    """It was the repository that could not be written, because the file exists."""
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "m").touch()
    code, _, err = run("push", adds(1, tmp_path / "m"), tmp_path / "r" / "m")
    assert (code, err) == (1, f"dragoman: {tmp_path}/r/m is not a folder\n")


@pytest.mark.parametrize("location", ["../w", "/etc/passwd", "a/../../w"])
def test_weights_outside_the_models_folder_are_refused(run: Any, tmp_path: Path, location: str) -> None:
    """A server would not have them."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "model.onnx").write_bytes(external(location, inside="initializer"))
    told = run("push", tmp_path / "m", tmp_path / "r" / "m")[2]
    assert told.endswith(f"model.onnx keeps weights in {location!r}, outside its folder\n")


@pytest.mark.parametrize(("target", "message"), [
    ("s3://bucket", "'s3://bucket' names a bucket and no model; expected s3://bucket/prefix/NAME"),
    ("s3://h:9000/bucket", "names a bucket and no model"),
    ("s3://", "'s3://' names no bucket"),
    ("s3://user:hidden@h:9000/b/m", "dragoman: the repository holds credentials; they belong in AWS_ACCESS_KEY_ID"),
    ("s3://b/.m", "does not end in a model's name"),
    ("/", "does not end in a model's name"),
    ("gs://b", "'gs://b' names a bucket and no model; expected gs://bucket/prefix/NAME"),
    ("https://h", "names a host and no model"),
    ("file://models/m", "the repository is 'file://models/m'; expected a path, or file:// and a path from the root"),
    ("ftp://b/m", "'ftp://b/m' is neither a folder nor the address"),
])  # fmt: skip
def test_a_target_that_names_no_model_is_refused(run: Any, tmp_path: Path, target: str, message: str) -> None:
    """Nothing is read before that."""
    code, _, err = run("push", tmp_path, target)
    assert code == 1
    assert message in err
    assert "hidden" not in err


@pytest.mark.parametrize(("endpoint", "message"), [
    ("http://h:99999", "AWS_ENDPOINT_URL_S3 is 'http://h:99999'; expected a URL such as http://host:9000"),
    ("http://user:hidden@h", "AWS_ENDPOINT_URL_S3 holds credentials; they belong in AWS_ACCESS_KEY_ID"),
])  # fmt: skip
def test_a_wrong_endpoint_is_not_a_wrong_target(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, endpoint: str, message: str
) -> None:
    """The variable is named; the target was said to name no bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    code, _, err = run("push", adds(1, tmp_path / "m").parent, "s3://bucket/models/m")
    assert (code, err.startswith(f"dragoman: {message}"), "hidden" in err) == (2, True, False)


def test_a_name_alone_is_in_the_repository(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the settings, as for `serve`; its own name without a model's is refused, even while it is empty."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(tmp_path / "r"))
    model = adds(1, tmp_path / "m").parent
    for typed in ("r", "./r/", f"{tmp_path}/r"):
        code, _, err = run("push", model, tmp_path / "r" if typed == "r" else typed)
        assert (code, "is the repository: add the model's name, " in err) == (1, True)
    assert run("push", model, "one")[:2] == (0, f"{tmp_path}/r/one/1: 1 file, 96 B; served\n")
    assert run("push", model, "./two")[1] == "./two/1: 1 file, 96 B; served\n"
    assert run("push", model, "r/three")[0] == 0
    assert run("list", "one")[1].splitlines()[1].split()[:2] == ["one", "1"]
    assert (
        run("pull", "one")[2]
        == f"dragoman: '{tmp_path}/r/one' is on this machine already; expected s3://bucket/prefix/NAME\n"
    )
    adds(2, tmp_path / "r" / "1")  # a version that somebody has put beside the models does not hide them
    assert [line.split()[0] for line in run("list")[1].splitlines()] == ["MODEL", "1", "one", "three"]


def test_the_repositorys_name_alone_is_not_a_model_in_it(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever names the default repository has forgotten the model: it became models/models."""
    monkeypatch.chdir(tmp_path)
    model = adds(1, tmp_path / "m").parent
    told = "dragoman: models is the repository: add the model's name, models/NAME\n"
    assert run("push", model, "models") == (1, "", told)
    assert run("push", model, "models/models")[1] == "models/models/1: 1 file, 96 B; served\n"


@pytest.mark.parametrize(("said", "told"), [
    ({"version_labels": {"stable": 1}}, "version_labels.stable names version 1, which the version policy"),
    ({"version_labels": {"stable": 7}}, ""),  # not pushed yet
    ({"version_labels": {"stable": 2}}, ""),
    ({"version_labels": {"stable": 1}, "version_policy": {"all": {}}}, ""),
    ({"version_labels": {"next": 1}, "canary": {"1": 0.1}}, ""),
])  # fmt: skip
def test_a_push_names_the_labels_whose_version_it_retires(run: Any, tmp_path: Path, said: Any, told: str) -> None:
    """The newest version alone is served by default, and requests for the label would be 404."""
    model = adds(1, tmp_path / "m")
    target = tmp_path / "r" / "m"
    assert run("push", model, target)[0] == 0
    (target / "model-settings.json").write_text(json.dumps(said))
    code, out, err = run("push", model, target)
    assert (code, out.split(":")[0], told in err) == (0, f"{target}/2", True)
    assert ("version_labels" in err) == bool(told)


def test_a_repository_is_not_taken_for_a_model(run: Any, tmp_path: Path) -> None:
    """Whoever forgets the model's name would hide the repository's models behind a version."""
    model = adds(1, tmp_path / "m").parent
    repository = tmp_path / "r"
    assert run("push", model, repository / "old")[0] == 0
    told = run("push", model, repository)
    assert told == (
        1,
        "",
        f"dragoman: {repository} is a repository, with model old: add the model's name, {repository}/NAME\n",
    )
    assert run("push", model, repository / "old", "--quiet")[1] == f"{repository}/old/2: 1 file, 96 B; served\n"


@pytest.mark.parametrize(("arguments", "told"), [
    (("push",), "Missing argument 'MODEL_DIR'."),
    (("push", "m"), "Missing argument '[REPOSITORY/]NAME'."),
    (("push", "m", "n", "o"), "Got unexpected extra argument (o)"),
    (("push", "m", "n", "--quie"), "No such option '--quie'. Did you mean '--quiet'?"),
    (("pull",), "Missing argument '[REPOSITORY/]NAME'."),
    (("pull", "s3://b/m", "--all", "--version", "1"), "--version and --all exclude each other"),
    (("sign", "m"), "give either --key or --unsigned"),
    (("sign", "m", "--key", "k", "--unsigned"), "give either --key or --unsigned"),
    (("convert",), "Missing argument 'REPOSITORY/NAME'."),
    (("keys", "new"), "Missing option '--name'."),
])  # fmt: skip
def test_a_wrong_use_ends_with_2(run: Any, arguments: tuple[str, ...], told: str) -> None:
    """The command's usage comes before the reason."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"Usage: dragoman {arguments[0]} ")
    assert err.endswith(f"\n\nError: {told}\n")


def test_a_wrong_version_is_refused(run: Any) -> None:
    """Its code is that of a wrong flag, although the command itself reads the value."""
    assert run("push", "m", "r/m", "--version", "x")[0] == 2


def test_a_file_that_cannot_be_read_is_refused(run: Any, tmp_path: Path) -> None:
    """The refusal has its name."""
    adds(1, tmp_path / "m")
    (tmp_path / "m" / "words.txt").symlink_to("nowhere")
    told = f"dragoman: {tmp_path}/m/words.txt cannot be read: No such file or directory\n"
    assert run("push", tmp_path / "m", tmp_path / "r" / "m") == (1, "", told)


def test_no_server_imports_what_publishes() -> None:
    """The function's artifact does not have it."""
    code = "import sys, handler.aws, handler.asgi, handler.cli; print([m for m in sys.modules if 'publish' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_servers_execution_providers_need_not_be_here(run: Any, tmp_path: Path) -> None:
    """A version for a GPU can be pushed from a machine without one."""
    adds(1, tmp_path / "m" / "1")
    (tmp_path / "m" / "model-settings.json").write_text('{"providers": ["CUDAExecutionProvider"]}')
    assert run("push", tmp_path / "m", tmp_path / "served" / "m")[0] == 0


@pytest.mark.parametrize(
    "words", [("push", "m", "r/m"), ("push", "m", "r/m", "--no-check"), ("sign", "m", "--unsigned")]
)
def test_a_pipe_among_the_files_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Any, words: tuple[str, ...]
) -> None:
    """A pipe without a writer is read without end. Servers skip it."""
    monkeypatch.chdir(tmp_path)
    adds(1, tmp_path / "m" / "1")
    os.mkfifo("m/1/pipe")
    assert run(*words) == (1, "", "dragoman: m/1/pipe is neither a file nor a folder: remove it\n")


@pytest.mark.parametrize("number", ["1", "02"])
def test_a_place_in_a_model_is_no_place_for_another_model(run: Any, tmp_path: Path, number: str) -> None:
    """The version was sent into the model's version 1, and a model of the number 2 could never be served."""
    source = adds(1, tmp_path / "m").parent
    target = tmp_path / "r" / "m"
    assert run("push", source, target)[0] == 0
    code, _, err = run("push", source, target / number)
    told = f"{target}/{number} is the place of a version of {target}: push to {target} with --version {number}"
    assert (code, err) == (1, f"dragoman: {told}\n")
    assert below(target) == ["1/model.onnx"]


def test_models_can_have_numbers_for_names(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside other models, and in the repository of the settings. Elsewhere a number is a version of a new model."""
    source = adds(1, tmp_path / "m").parent
    repository = tmp_path / "r"
    code, _, err = run("push", source, repository / "1")
    assert (code, f"push to {repository} with --version 1" in err) == (1, True)
    assert not repository.exists()
    for name in ("m", "2"):
        assert run("push", source, repository / name)[0] == 0
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(tmp_path / "own"))
    assert run("push", source, "3")[0] == 0
    assert [*below(repository), *below(tmp_path / "own")] == ["2/1/model.onnx", "m/1/model.onnx", "3/1/model.onnx"]


def left(repository: Path, name: str, age: float, *inside: str) -> None:
    """Makes the hidden folder of a killed push."""
    stage = repository / name
    for each in inside:
        (stage / each).mkdir(parents=True)
    for path in (stage, *stage.iterdir()):
        os.utime(path, (time.time() - age,) * 2)


def test_what_a_killed_push_left_is_removed_after_a_day(run: Any, tmp_path: Path) -> None:
    """A younger folder can be a push in progress, as one in which a file is still written. Other names are not ours."""
    repository = tmp_path / "r"
    day = 24 * 60 * 60
    for name, age in ((".push-abcd_012", day + 60), (".push-abcd_013", day - 3600), (".push-1", 2 * day)):
        left(repository, name, age, "new")
    left(repository, ".push-abcd_014", 2 * day, "new")
    os.utime(repository / ".push-abcd_014" / "new")
    assert run("push", adds(1, tmp_path / "m").parent, repository / "m")[0] == 0
    assert sorted(path.name for path in repository.iterdir()) == [".push-1", ".push-abcd_013", ".push-abcd_014", "m"]


def test_the_only_copy_of_a_version_that_was_being_replaced_stays(run: Any, tmp_path: Path) -> None:
    """A push that is killed between its two renames has the old version and the new one in its hidden folder."""
    repository = tmp_path / "r"
    left(repository, ".push-abcd_012", 2 * 24 * 60 * 60, "new", "old-0")
    left(repository, ".push-abcd_013", 2 * 24 * 60 * 60, "old-0")
    assert run("push", adds(1, tmp_path / "m").parent, repository / "m")[0] == 0
    assert sorted(path.name for path in repository.iterdir()) == [".push-abcd_012", "m"]


@pytest.mark.parametrize("words", [("push", "{}", "{}/../r/m"), ("sign", "{}", "--unsigned")])
def test_a_linked_folder_in_a_version_is_not_left_out(run: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    """Its files were not sent, and no message said so; servers of the folder itself see them."""
    source = adds(1, tmp_path / "m").parent
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "a.txt").touch()
    (source / "words").symlink_to(tmp_path / "words")
    code, _, err = run(*(word.replace("{}", str(source)) for word in words))
    told = f"dragoman: {source}/words is a symbolic link to a folder: put the folder itself there\n"
    assert (code, err) == (1, told)


def test_a_model_that_fails_its_warm_up_is_refused(run: Any, tmp_path: Path) -> None:
    """Servers would refuse each load of it."""
    source = adds(1, tmp_path / "m").parent
    (source / "model-settings.json").write_text('{"warmup": [{"file": "none.json"}]}')
    told = "dragoman: model 'm' version 1 failed its warm-up: 'none.json' cannot be read: No such file or directory\n"
    assert run("push", source, tmp_path / "r" / "m") == (1, "", told)
    (source / "model-settings.json").write_text('{"warmup": [{"random": true}]}')
    assert run("push", source, tmp_path / "r" / "m")[0] == 0


def test_what_a_push_leaves_out_is_named(run: Any, tmp_path: Path) -> None:
    """Triton's configuration, and keys that no server reads."""
    adds(1, tmp_path / "m" / "1")
    (tmp_path / "m" / "config.pbtxt").write_text("max_batch_size: 8")
    (tmp_path / "m" / "model-settings.json").write_text('{"canry": {}}')
    code, _, err = run("push", tmp_path / "m", tmp_path / "r" / "m")
    assert (code, err.splitlines()) == (0, [
        "model-settings.json has the unknown key 'canry' (did you mean 'canary'?)",
        "config.pbtxt is not pushed: put what it says into model-settings.json (docs/triton.md)",
    ])  # fmt: skip


@pytest.mark.parametrize("target", ["s3:/b/m", "s3//b/m", "gs:b/m", "https:/h/m"])
def test_an_address_with_a_letter_too_few_is_no_folder(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Unless there is a folder of that name."""
    monkeypatch.chdir(tmp_path)
    source = adds(1, tmp_path / "m")
    assert "nor the address of a known store" in run("push", source, target)[2]
    Path(target).parent.mkdir(parents=True)
    Path(target).mkdir()
    assert run("push", source, target)[0] == 0

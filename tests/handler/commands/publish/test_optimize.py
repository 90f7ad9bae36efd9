"""`dragoman push --optimize`: what it pushes, when it pushes the files as they were, and how servers load them."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from core.dtype import BF16, DATATYPES
from core.operations import ModelRef, ModelSpec
from core.tensor import Tensor, TensorSpec
from handler.backends.onnx_file import signature
from handler.commands.publish.optimize import answers, rewriting, step
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from handler.stores.signing.envelope import FILE as SIGNATURE
from tests.handler.commands.publish.conftest import Bucket, large
from tests.protocols.test_waiting import until
from tests.support import needs
from tests.support.registries import get
from tests.support.signing import key, private, public
from tests.support.zoo import models as zoo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ROOT = Path(__file__).parents[4]
PAGE = ROOT / "docs" / "publishing.md"
FILES = ["model-settings.json", "model.onnx", "model.onnx.data"]
INNER = 521
"""Columns of weights whose bytes end on no page."""


def weights(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype(np.float32) / 20


def net(*more: Any, outputs: Sequence[Any] = (), domains: Sequence[str] = (), ir_version: int = 8) -> onnx.ModelProto:
    """Returns y = relu((x w + b) v), with weights of 2 MB, which a batch normalization follows.

    The constants that shift w are for ONNX Runtime to fold. `more`: nodes after it.
    """
    nodes = [
        helper.make_node("Add", ["w", "shift"], ["shifted"]),
        helper.make_node("MatMul", ["x", "shifted"], ["inner"]),
        helper.make_node("MatMul", ["inner", "v"], ["image"]),
        helper.make_node("Relu", ["image"], ["y"]),
        *more,
    ]
    constants = {"w": weights(1024, INNER), "shift": weights(1), "v": weights(INNER, 1000)}
    ports: Any = [("x", "FP32", ["n", 1024])], [("y", "FP32", [None, None]), *outputs]
    model = zoo.graph("net", nodes, *ports, constants)
    model.opset_import.extend(helper.make_opsetid(each, 1) for each in domains)
    model.ir_version = ir_version
    model.metadata_props.add(key="author", value="somebody")
    return model


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    return folder


def registry(repository: object, **variables: str) -> Registry:
    named = {"DRAGOMAN_REPOSITORY": str(repository), "DRAGOMAN_CACHE": f"{repository}-cache", **variables}
    return Registry(Settings.from_env(named))


def ask(model: Any, rows: Any) -> Any:
    return model.predict({"x": Tensor("x", DATATYPES["FP32"], rows)}, ["y"], {})[0].array


def mapped(name: str) -> bool:
    return name in Path("/proc/self/maps").read_text()


def test_an_optimised_version_has_its_weights_beside_it_and_says_what_it_was(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands print what the page shows. Other files, settings and what its publisher wrote stay."""
    source = saved(net(), tmp_path / "exported" / "wine")
    (source / "labels.txt").write_text("a")
    (source / "model-settings.json").write_text('{"timeout": 5}')
    shutil.copy(ROOT / "models" / "iris" / "1" / "model.onnx", tmp_path / "iris.onnx")
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"test_optimize.py -->\n```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    for command, shown in re.findall(r"^\$ dragoman (.*)\n(.*\n)", block, re.MULTILINE):
        assert run(*command.split())[:2] == (0, shown)
    new = tmp_path / "models" / "wine" / "1"
    assert sorted(each.name for each in new.iterdir()) == sorted([*FILES, "labels.txt"])
    said = json.loads((new / "model-settings.json").read_text())
    digest = f"sha256:{hashlib.sha256((source / 'model.onnx').read_bytes()).hexdigest()}"
    assert said["timeout"] == 5
    assert said["optimized"] == {
        "from": {"model.onnx": digest}, "by": f"onnxruntime {onnxruntime.__version__}", "tolerance": answers.TOLERANCE,
    }  # fmt: skip
    old, made = (onnx.load(each / "model.onnx", load_external_data=False) for each in (source, new))
    for part in ("opset_import", "metadata_props", "ir_version", "producer_name"):
        assert getattr(old, part) == getattr(made, part), part
    assert signature(new / "model.onnx") == signature(source / "model.onnx")
    assert [(node.domain, node.op_type) for node in made.graph.node] == [("", "MatMul"), ("", "MatMul"), ("", "Relu")]
    entries = [{each.key: each.value for each in tensor.external_data} for tensor in made.graph.initializer]
    assert [each["location"] for each in entries] == ["model.onnx.data"] * 2
    assert all(int(each.get("offset", 0)) % 4096 == 0 for each in entries)


def test_servers_map_the_weights_and_change_to_the_packed_session(run: Any, tmp_path: Path) -> None:
    """The first answer and those after the exchange are those of the source."""
    source, target = saved(net(), tmp_path / "m"), tmp_path / "r" / "m"
    assert run("push", source / "model.onnx", target, "--optimize")[0] == 0
    model: Any = get(registry(target.parent), ModelRef("m"))
    first = model._session
    assert mapped(str(target / "1" / "model.onnx.data"))
    assert not mapped(str(target / "1" / "model.onnx\n"))
    x = weights(3, 1024)
    expected = onnxruntime.InferenceSession(source / "model.onnx").run(None, {"x": x})[0]
    np.testing.assert_allclose(ask(model, x), expected, rtol=1e-3, atol=1e-4)
    until(lambda: model._session is not first)
    assert model.after_first == []
    np.testing.assert_allclose(ask(model, x), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("problem", ["no room", "no file", "workers"])
def test_the_first_session_stays_where_there_cannot_be_another(
    run: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory for it is not taken from other models, workers share the first one's, and its files may have gone."""
    target = tmp_path / "r" / "m"
    assert run("push", saved(net(), tmp_path / "m"), target, "--optimize")[0] == 0
    caplog.set_level("INFO", "handler")
    workers = "2" if problem == "workers" else "1"
    limits = {"DRAGOMAN_MEMORY_LIMIT": "100GB", "DRAGOMAN_WORKERS": workers}
    model: Any = get(registry(target.parent, **limits), ModelRef("m"))
    first = model._session
    if problem == "no room":
        monkeypatch.setattr("handler.lifecycle.room.memory.resident", lambda: 100 * 10**9)
    elif problem == "no file":
        (target / "1" / "model.onnx").unlink()
    ask(model, weights(1, 1024))
    until(lambda: "keeps its first session" in caplog.text)
    assert model._session is first
    assert ask(model, weights(1, 1024)).shape == (1, 1000)


def sequences() -> onnx.ModelProto:
    """Returns a net that answers a sequence of maps, too."""
    model = net(helper.make_node("ZipMap", ["y"], ["maps"], domain="ai.onnx.ml", classlabels_int64s=range(1000)))
    model.opset_import.extend([helper.make_opsetid("ai.onnx.ml", 1)])
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    model.graph.output.add(name="maps", type=helper.make_sequence_type_proto(kind))
    return model


def test_maps_stay_maps(run: Any, tmp_path: Path) -> None:
    """A classifier that answers a map for each row is optimised as any other."""
    target = tmp_path / "r" / "m"
    assert run("push", saved(sequences(), tmp_path / "m"), target, "--optimize")[1].endswith("; optimised\n")
    model: Any = get(registry(target.parent), ModelRef("m"))
    x = Tensor("x", DATATYPES["FP32"], weights(2, 1024))
    y, maps = model.predict({"x": x}, ["y", "maps"], {})
    np.testing.assert_array_equal(y.array, maps.array)


def unlike() -> onnx.ModelProto:
    """Returns a net that never answers twice alike."""
    drawn = [helper.make_node("RandomNormalLike", ["y"], ["drawn"]), helper.make_node("Add", ["y", "drawn"], ["z"])]
    return net(*drawn, outputs=[("z", "FP32", [None, None])])


def picky() -> onnx.ModelProto:
    """Returns a net whose rows have to be 7, which no file can declare."""
    cut = [helper.make_node("Reshape", ["y", "seven"], ["z"])]
    model = net(*cut, outputs=[("z", "FP32", [None, None])])
    model.graph.initializer.append(numpy_helper.from_array(np.array([7, 1000]), "seven"))
    return model


def listed() -> onnx.ModelProto:
    """Returns a net of ONNX's first files, whose inputs list the weights."""
    model = net(ir_version=3)
    named = [(each.name, each.dims) for each in model.graph.initializer]
    model.graph.input.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name, dims in named)
    return model


def halved() -> onnx.ModelProto:
    """Returns a product of floats of 16 bits, for which ONNX Runtime has no kernel on most processors."""
    ports: Any = [("x", "FP16", ["n", 1024])], [("y", "FP16", ["n", 1024])]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    return zoo.graph("halved", [node], *ports, {"w": weights(1024, 1024).astype(np.float16)})


REASONS: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "small": (lambda: zoo.adds(1), "it has no weights of more than 1 MB"),
    "unlike": (unlike, "output 'z' would have "),
    "picky": (picky, "it answers no inputs that can be made from its description: "),
    "listed": (listed, "its file has the ONNX IR version 3, and 4 is the least"),
    "halved": (
        halved,
        "ONNX Runtime computes some of it in another type here, because it lacks a kernel for this processor",
    ),
    "named": (net, "it has a file model.onnx.data, which is not its weights"),
    "signed": (net, "model.sig signs its files as they are, and there is no --sign-key"),
    "dead": (net, "the process that does it died (SIGSEGV)"),
    "mute": (net, "the process that does it died (no answer)"),
}


@pytest.mark.parametrize("kind", REASONS)
def test_a_version_that_would_not_be_the_same_is_pushed_as_it_was(
    run: Any, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says why, and the files are the publisher's."""
    model, reason = REASONS[kind]
    source, target = saved(model(), tmp_path / "m"), tmp_path / "r" / "m"
    if kind == "named":
        (source / "model.onnx.data").write_bytes(b"x")
    if kind == "signed":
        assert run("sign", source, "--unsigned")[0] == 0
    if child := CHILDREN.get(kind):
        (tmp_path / "own_child.py").write_text(child)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        monkeypatch.setattr(step, "CHILD", "own_child")
    code, out, _ = run("push", source, target, "--optimize")
    assert (code, out.partition("; not optimised: ")[2][: len(reason)]) == (0, reason)
    assert {each.name: each.read_bytes() for each in source.iterdir()} == {
        each.name: each.read_bytes() for each in (target / "1").iterdir()
    }


def extended() -> onnx.ModelProto:
    """Returns a net with an operator of onnxruntime-extensions."""
    upper = helper.make_node("StringUpper", ["text"], ["loud"], domain="ai.onnx.contrib")
    model = net(upper, outputs=[("loud", "BYTES", ["m"])], domains=["ai.onnx.contrib"])
    model.graph.input.append(helper.make_tensor_value_info("text", TensorProto.STRING, ["m"]))
    return model


@needs.EXTENSIONS
def test_a_version_with_operators_of_the_extensions_is_pushed_as_it_was(tmp_path: Path) -> None:
    """In a process of its own: native libraries with threads are loaded and unloaded there."""
    source, target = saved(extended(), tmp_path / "m"), tmp_path / "r" / "m"
    command = [sys.executable, "-m", "dragoman", "push", source, target, "--optimize"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100)
    assert "; not optimised: ONNX Runtime cannot write it: " in done.stdout
    assert (target / "1" / "model.onnx").read_bytes() == (source / "model.onnx").read_bytes()


def test_settings_are_utf_8_in_any_locale(tmp_path: Path) -> None:
    """The encoding of the locale, ASCII here, does not have all letters."""
    source, target = saved(net(), tmp_path / "m"), tmp_path / "r" / "m"
    (source / "model-settings.json").write_bytes('{"platform": "modèle"}'.encode())
    command = [sys.executable, "-m", "dragoman", "push", source, target, "--optimize"]
    locale = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    done = subprocess.run(command, capture_output=True, env={**os.environ, **locale}, check=False, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads((target / "1" / "model-settings.json").read_bytes())["platform"] == "modèle"


CHILDREN = {
    "dead": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "mute": "import sys; sys.exit('no answer')",
}


@pytest.mark.parametrize("is_nested", [False, True])
def test_operations_of_one_runtime_alone_are_not_pushed(*, is_nested: bool) -> None:
    """Their operator set is not one of the source, be it in the graph or in a branch of it."""
    source, made = net(), net()
    node = helper.make_node("FusedGemm", ["x", "w"], ["z"], domain="com.microsoft")
    if is_nested:
        branch = helper.make_graph([node], "branch", [], [])
        node = helper.make_node("If", ["x"], ["z"], then_branch=branch, else_branch=branch)
    made.graph.node.append(node)
    with pytest.raises(rewriting.Unjoinable, match="of its own into it: those of com.microsoft"):
        rewriting.joined(*(memoryview(each.SerializeToString()) for each in (source, made)))
    allowed = net(domains=["com.microsoft"])
    joined = onnx.load_from_string(
        rewriting.joined(*(memoryview(each.SerializeToString()) for each in (allowed, made)))
    )
    assert joined.graph == made.graph


def test_what_is_no_onnx_model_is_pushed_as_it_was(run: Any, tmp_path: Path) -> None:
    """So a folder of all kinds of versions can be pushed with one command; without the runtime none can."""
    (tmp_path / "model.py").write_text("")
    out = run("push", tmp_path / "model.py", tmp_path / "r" / "m", "--optimize")[1]
    assert out.endswith("; not optimised: it is not an ONNX model, but model.py\n")
    refused = run("push", tmp_path / "model.py", tmp_path / "r" / "m", "--optimize", "--no-check")
    assert refused[0] == 2
    assert "--optimize compares answers of the loaded model: it cannot be combined with --no-check" in refused[2]


def test_without_the_runtime_nothing_is_pushed(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its publisher asked for something that this machine cannot do."""
    monkeypatch.setattr("handler.commands.publish.checks.find_spec", lambda _: None)
    refused = run("push", saved(net(), tmp_path / "m"), tmp_path / "r" / "m", "--optimize")
    assert (refused[0], refused[2]) == (1, "dragoman: --optimize needs ONNX Runtime: pip install 'dragoman[onnx]'\n")


def test_an_optimised_version_goes_through_a_bucket_with_its_signature(
    run: Any, bucket: Bucket, tmp_path: Path
) -> None:
    """Its weights were in a file of another name, which is not pushed; the digest of that one is kept, too."""
    source = large(5, tmp_path / "m", megabytes=3)
    (tmp_path / "key").write_bytes(private(key()))
    (tmp_path / "pub").write_text(public(key()))
    target = f"{bucket.uri}/m"
    done = run("push", source, target, "--optimize", "--sign-key", tmp_path / "key")
    assert done[1].endswith("; optimised\n"), done
    assert sorted(bucket.keys()) == [f"m/1/{each}" for each in sorted([*FILES, SIGNATURE])]
    assert run("verify", target, "--key", tmp_path / "pub")[0] == 0
    assert run("pull", target, tmp_path / "back")[0] == 0
    said = json.loads((tmp_path / "back" / "1" / "model-settings.json").read_text())
    assert sorted(said["optimized"]["from"]) == ["model.onnx", "weights.bin"]
    named = {"DRAGOMAN_REPOSITORY": bucket.uri, "DRAGOMAN_VERIFY": "signature"}
    own = {name: value for name, value in bucket.variables.items() if name.startswith("DRAGOMAN_")}
    models = Registry(Settings.from_env({**own, **named, "DRAGOMAN_VERIFY_KEY": str(tmp_path / "pub")}))
    x = Tensor("x", DATATYPES["INT64"], np.arange(3))
    assert get(models, ModelRef("m")).predict({"x": x}, ["y"], {})[0].array.tolist() == [5, 5, 5]


def tensor(datatype: str, *values: Any) -> Tensor:
    return Tensor("y", DATATYPES[datatype], np.array(values, DATATYPES[datatype].numpy))


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (tensor("FP32", 1.0, np.nan, np.inf), tensor("FP32", 1.0005, np.nan, np.inf), ""),
        (tensor("FP32", 1.0, 2.0), tensor("FP32", 1.0, 2.01), "output 'y' would have 2.01 and not 2"),
        (tensor("FP32", 1e-6, 2e-6), tensor("FP32", 1e-6, 2.1e-6), "output 'y' would have 2.1e-06 and not 2e-06"),
        (tensor("FP32", 1000.0, 0.0), tensor("FP32", 1000.0, 0.01), "output 'y' would have 0.01 and not 0"),
        (tensor("FP32", 1.0), tensor("FP32", np.nan), "output 'y' would have nan and not 1"),
        (tensor("FP16", 1.0), tensor("FP16", 1.005), ""),
        (Tensor("y", BF16, np.array([0x3F80], np.uint16)), Tensor("y", BF16, np.array([0x3F81], np.uint16)), ""),
        (tensor("INT64", 1, 2), tensor("INT64", 1, 3), "output 'y' would have other values"),
        (tensor("BYTES", b"a"), tensor("BYTES", b"a"), ""),
        (tensor("BYTES", b"a"), tensor("BYTES", b"b"), "output 'y' would have other values"),
        (tensor("FP32", 1.0), tensor("FP32", 1.0, 1.0), "output 'y' would have the shape [2] and not [1]"),
    ],
)
def test_answers_may_differ_by_the_tolerance_only(one: Tensor, other: Tensor, told: str) -> None:
    """Rounding does not count as a difference; anything else does."""
    assert answers.difference(one, other) == told


class Recorder:
    """A model that keeps what it was asked."""

    def __init__(self, **inputs: tuple[str, tuple[int, ...] | None]) -> None:
        specs = tuple(TensorSpec(name, DATATYPES[kind], shape) for name, (kind, shape) in inputs.items())
        self.spec = ModelSpec("m", "1", "p", specs, ())

    def predict(self, inputs: Any, *_: Any) -> list[Tensor]:
        return []


def test_inputs_are_random_and_of_the_declared_kind() -> None:
    """They are the same each time, and an input that is too large is not made."""
    model: Any = Recorder(i=("INT8", (-1, 3)), t=("BYTES", (2,)), f=("FP16", None), b=("BOOL", ()), h=("BF16", (1,)))
    one, other = answers.asked(model), answers.asked(model)
    assert len(one) == answers.CASES
    for asked, again in zip(one, other, strict=True):
        assert {name: tensor.shape for name, tensor in asked.inputs.items()} == {
            "i": (2, 3), "t": (2,), "f": (2,), "b": (), "h": (1,),
        }  # fmt: skip
        for name, made in asked.inputs.items():
            assert made.array.dtype == made.datatype.numpy
            np.testing.assert_array_equal(made.array, again.inputs[name].array)
    assert any((one[0].inputs[name].array != one[1].inputs[name].array).any() for name in ("i", "f"))
    model = Recorder(x=("FP32", (10**8, 10**8)))
    with pytest.raises(answers.Unanswered, match="input 'x' would have 10000000000000000 elements"):
        answers.asked(model)

"""handler.settings.model: a model's own settings, and the versions that its policy serves."""

import json
import subprocess
import sys
from importlib import metadata as metadata_of_packages
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.errors import ModelNotLoadable
from handler.settings import keys
from handler.settings import model as model_settings

TENSOR = {"name": "x", "datatype": "FP32", "shape": [-1, 4]}


def parse(*texts: Any) -> model_settings.ModelSettings:
    """Returns the settings of model `m`."""
    return model_settings.parse("m", *[None if text is None else json.dumps(text).encode() for text in texts])


def test_without_a_file_the_newest_version_is_served_and_the_model_speaks_for_itself() -> None:
    """The default policy is the latest version."""
    settings = parse(None)
    assert settings.version_policy.choose([1, 2, 10]) == [10]
    assert settings.inputs is settings.outputs is None


@pytest.mark.parametrize(("policy", "served"), [
    ({"latest": {}}, [10]),
    ({"latest": {"num_versions": 2}}, [2, 10]),
    ({"all": {}}, [1, 2, 10]),
    ({"specific": {"versions": [1, 10, 11]}}, [1, 10]),
])  # fmt: skip
def test_a_policy_chooses_versions(policy: dict[str, Any], served: list[int]) -> None:
    """TensorFlow Serving's and Triton's policies mean the same."""
    assert parse({"version_policy": policy}).version_policy.choose([1, 2, 10]) == served


def test_mlservers_files_stay_readable() -> None:
    """Unknown members are ignored; an empty list of tensors declares nothing."""
    text = {
        "name": "m", "implementation": "mlserver_sklearn.SKLearnModel", "platform": "sklearn",
        "versions": ["scikit-learn/1.5"], "inputs": [],
        "outputs": [TENSOR | {"parameters": {"content_type": "np"}, "tags": ["x"]}], "max_batch_size": 8,
        "parallel_workers": 2, "parameters": {"uri": "./model.joblib", "version": "v0.1.0"},
    }  # fmt: skip
    settings = parse(text)
    assert settings.inputs is None
    assert settings.outputs is not None
    assert (settings.outputs[0].name, settings.outputs[0].shape) == ("x", (-1, 4))
    assert (settings.platform, settings.max_batch_size) == ("sklearn", 8)


@pytest.mark.parametrize(("text", "told"), [
    ({"canry": {"2": 0.1}}, "the unknown key 'canry' (did you mean 'canary'?)"),
    ({"versionPolicy": {}}, "the unknown key 'versionPolicy' (did you mean 'version_policy'?)"),
    ({"zzz": 1, "signature": {}}, "the unknown keys 'signature' (did you mean 'signatures'?), 'zzz'"),
    ({"version_policy": {"latest": {"num_version": 2}}},
     "the unknown key 'version_policy.latest.num_version' (did you mean 'num_versions'?)"),
    ({"version_policy": {"all": {"x": 1}}}, "the unknown key 'version_policy.all.x'"),
    ({"outputs": [TENSOR | {"dataype": "FP32"}]}, "the unknown key 'outputs[0].dataype' (did you mean 'datatype'?)"),
    ({str(number): 1 for number in range(10, 20)}, "'10', '11', '12', '13', '14', '15', '16', '17' and 2 more"),
])  # fmt: skip
def test_unknown_keys_are_noted_with_the_nearest_known_one(text: Any, told: str) -> None:
    """The settings are read as if they were not there."""
    found = parse(text)
    assert found.note.removeprefix("model-settings.json has ") == told or found.note.endswith(f"keys {told}")
    assert found.canary == {}


def test_only_the_keys_that_are_named_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking for the nearest known key is slow, and a file can have any number of unknown ones."""
    compared: list[str] = []
    monkeypatch.setattr(keys, "nearest", lambda key, _: compared.append(key))
    assert parse({f"x{number}": 1 for number in range(1000)}).note.endswith("and 992 more")
    assert len(compared) == keys.MOST_NAMED


def test_the_note_of_a_long_key_is_short() -> None:
    """It is shown, and not compared."""
    assert len(parse({"canary" * 100_000: 1}).note) < 200


def test_the_keys_of_other_servers_are_not_noted() -> None:
    """Triton's are those of its own client's messages, but for the ones that have a meaning here."""
    assert parse(dict.fromkeys(keys.MLSERVER | keys.TRITON, 1)).note == ""
    assert parse(None).note == parse({"version_policy": {"all": {}}, "inputs": [TENSOR | {"tags": []}]}).note == ""
    told = "from tritonclient.grpc.model_config_pb2 import ModelConfig; print(*ModelConfig.DESCRIPTOR.fields_by_name)"
    fields = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True, text=True).stdout.split()
    assert set(fields) <= keys.TRITON | keys.MLSERVER | model_settings.KEYS


def test_a_versions_own_keys_go_over_the_models() -> None:
    """They are merged key by key."""
    settings = parse({"platform": "a", "max_batch_size": 1}, {"platform": "b"})
    assert (settings.platform, settings.max_batch_size) == ("b", 1)


def test_labels_belong_to_the_tensor_of_the_scores() -> None:
    """A name or a binding decides; a signature without labels has none."""
    signatures = {
        "a": {"outputs": {"scores": "y"}, "class_labels": ["no", "yes"]},
        "b": {"outputs": {"scores": {"tensor": "z"}}, "class_labels": ["x"]},
        "c": {"outputs": {"scores": "w"}},
    }
    assert parse({"signatures": signatures}).labels == {"y": ("no", "yes"), "z": ("x",)}


def test_labels_of_versions_are_numbers_by_name() -> None:
    """A missing version shows when the label is used; a version's own file replaces all labels."""
    assert parse({}).version_labels == parse({"version_labels": None}).version_labels == {}
    assert parse({"version_labels": {"stable": 1, "0": 0}}).version_labels == {"stable": 1, "0": 0}
    assert parse({"version_labels": {"a": 1}}, {"version_labels": {"b": 2}}).version_labels == {"b": 2}


@pytest.mark.parametrize("pin", [None, "auto", "tfs", "kserve"])
def test_a_model_may_pin_whose_answers_it_gives(pin: str | None) -> None:
    """Without a pin, the server decides."""
    assert parse({"v1_dialect": pin}).v1_dialect == pin


def test_signatures_are_read_with_the_file() -> None:
    """An absent member differs from an empty one."""
    assert parse({}).signatures is parse({"signatures": None}).signatures is None
    assert parse({"signatures": {}}).signatures == {}
    found = parse({"signatures": {"s": {"outputs": {"y": "z"}}}}).signatures
    assert found is not None
    assert found["s"].outputs["y"].tensor == "z"


def test_canaries_are_shares_by_version() -> None:
    """Tenths add up to one, whatever binary floating point computes."""
    assert parse({}).canary == parse({"canary": None}).canary == {}
    assert parse({"canary": {"2": 0, "03": 1}}).canary == {2: 0.0, 3: 1.0}
    assert len(parse({"canary": {str(version): 0.1 for version in range(10)}}).canary) == 10


def test_warm_up_requests_are_read_with_the_file() -> None:
    """The default is none."""
    assert parse({}).warmup == parse({"warmup": None}).warmup == ()
    (warmup,) = parse({"warmup": [{"file": "w.json"}]}).warmup
    assert warmup.file == "w.json"


def test_settings_that_say_who_answers_say_nothing_of_how_a_version_is_loaded() -> None:
    """All other settings do, including unreadable ones."""
    plain, routed, other = b'{"platform": "a"}', b'{"canary": {"2": 1}, "platform": "a"}', b'{"platform": "b"}'
    assert model_settings.loads_alike(plain, routed)
    assert model_settings.loads_alike(None, b'{"version_labels": {}, "version_policy": {}}')
    assert not model_settings.loads_alike(plain, other)
    assert not model_settings.loads_alike(plain, None)
    assert not model_settings.loads_alike(plain, b"{")
    assert model_settings.loads_alike(b"{", b"{")


def test_an_explainer_is_read_with_the_file() -> None:
    """It is checked against the model when that is loaded."""
    assert parse({}).explainer is parse({"explainer": None}).explainer is None
    said = parse({"explainer": {"background": [[0.0]], "seed": 7}}).explainer
    assert said is not None
    assert said.seed == 7


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ([], r"the file is \[\]; expected an object"),
        ([1], "the file is an array; expected an object"),
        ({"name": "other"}, "name is 'other'; expected the folder's name 'm'"),
        ({"name": 1}, "name is 1; expected text"),
        ({"max_batch_size": -1}, "max_batch_size is -1"),
        ({"max_batch_size": True}, "max_batch_size is true"),
        ({"inputs": {}}, "inputs is {}; expected an array of tensors"),
        ({"inputs": [1]}, r"inputs\[0\] is 1; expected an object"),
        ({"inputs": [{}]}, r"inputs\[0\].name is null"),
        (
            {"inputs": [TENSOR, TENSOR | {"datatype": "FLOAT"}]},
            r"inputs\[1\].datatype is 'FLOAT'; expected one of BOOL",
        ),
        ({"inputs": [TENSOR | {"datatype": 1}]}, r"inputs\[0\].datatype is 1"),
        ({"inputs": [TENSOR | {"format": "NHWC"}]}, r"inputs\[0\].format is 'NHWC'; expected one of FORMAT_NONE"),
        ({"inputs": [TENSOR, TENSOR]}, r"inputs\[1\].name is 'x'; expected each name once"),
        ({"outputs": [TENSOR | {"shape": [-2]}]}, r"outputs\[0\].shape is \[-2\]"),
        ({"outputs": [TENSOR | {"shape": [True]}]}, r"outputs\[0\].shape is \[true\]"),
        (
            {"inputs": [TENSOR | {"shape": None, "reshape": [4]}]},
            r"inputs\[0\].reshape is \[4\]; expected none without",
        ),
        ({"inputs": [TENSOR | {"reshape": [2]}]}, r"inputs\[0\].reshape is \[2\]; expected as many elements and"),
        ({"version_policy": []}, r"version_policy is \[\]"),
        ({"version_policy": {}}, "version_policy is {}; expected exactly one of latest, all, specific"),
        ({"version_policy": {"newest": {}}}, "version_policy is .*; expected exactly one of latest, all, specific"),
        ({"version_policy": {"latest": {"num_versions": 0}}}, "version_policy.latest.num_versions is 0"),
        ({"version_policy": {"specific": {}}}, "version_policy.specific.versions is null"),
        ({"version_policy": {"specific": {"versions": [1, "2"]}}}, r"version_policy.specific.versions\[1\] is '2'"),
        ({"version_labels": []}, r"version_labels is \[\]; expected an object"),
        ({"version_labels": {"a": "1"}}, "version_labels.a is '1'; expected a whole number from 0 up"),
        ({"version_labels": {"a": -1}}, "version_labels.a is -1; expected a whole number from 0 up"),
        ({"version_labels": {"a": True}}, "version_labels.a is true"),
        ({"canary": 0.1}, "canary is 0.1; expected an object"),
        ({"timeout": 0}, "timeout is 0; expected seconds above 0"),
        ({"timeout": True}, "timeout is true; expected seconds above 0"),
        ({"timeout": float("inf")}, "timeout is Infinity; expected seconds above 0"),
        ({"max_concurrency": 0}, "max_concurrency is 0; expected a whole number from 1 up"),
        ({"canary": {"new": 0.1}}, "canary is 'new'; expected a version's number as key"),
        ({"canary": {"9" * 5000: 0.1}}, "canary is .* expected a version's number as key, below 9"),
        ({"canary": {"2": 1.1}}, "canary.2 is 1.1; expected a share from 0 to 1"),
        ({"canary": {"2": True}}, "canary.2 is true; expected a share"),
        ({"canary": {"2": 0.6, "3": 0.5}}, "canary is .*; expected shares that add up to 1 at most"),
        ({"optimized": True}, "optimized is true; expected an object"),
        ({"optimized": {"from": "x"}}, "optimized.from is 'x'; expected an object"),
        ({"optimized": {"of": {}}}, "optimized.of is {}; expected no such key; the keys are from, by, tolerance"),
        ({"warmup": {}}, "warmup is {}; expected an array of requests"),
        ({"v1_dialect": "TFS"}, "v1_dialect is 'TFS'; expected one of auto, tfs, kserve"),
        ({"grpc_outputs": "Raw"}, "grpc_outputs is 'Raw'; expected one of mirror, raw"),
        ({"v1_dialect": []}, r"v1_dialect is \[\]; expected one of auto, tfs, kserve"),
        ({"explainer": []}, r"explainer is \[\]; expected an object"),
        ({"explainer": {"budget": 1}}, "explainer.background is null"),
        ({"signatures": []}, r"signatures is \[\]"),
        ({"signatures": {"s": 1}}, "signatures.s is 1"),
        ({"signatures": {"s": {"class_labels": "ab"}}}, "signatures.s.class_labels is 'ab'"),
        ({"signatures": {"s": {"class_labels": []}}}, "signatures.s.outputs is null"),
        ({"signatures": {"s": {"class_labels": [], "outputs": {}}}}, "signatures.s.outputs is {}"),
        ({"signatures": {"s": {"class_labels": [], "outputs": {"y": "y"}}}}, "signatures.s.outputs.scores is null"),
    ],
)
def test_a_wrong_key_is_named_by_its_path(text: Any, message: str) -> None:
    """The message has its value and what was expected."""
    with pytest.raises(ModelNotLoadable, match=f"model-settings.json of model 'm': {message}"):
        parse(text)


@pytest.mark.parametrize(("text", "own", "file"), [
    (b"{}", b'{"timeout": "x"}', "7/model-settings.json"),
    (b'{"timeout": "x"}', b'{"canary": {}}', "model-settings.json"),
    (b'{"timeout": "x"}', None, "model-settings.json"),
    (b'{"timeout": 1}', b"{", "7/model-settings.json"), (b"[1]", b'{"timeout": 1}', "model-settings.json"),
    (None, b'{"signatures": {"a.b": 1}}', "7/model-settings.json"),
])  # fmt: skip
def test_the_file_with_the_wrong_key_is_named(text: bytes | None, own: bytes | None, file: str) -> None:
    """A version's own file has the number of its folder."""
    with pytest.raises(ModelNotLoadable, match=f"^{file} of model 'm': "):
        model_settings.parse("m", text, own, folder="7")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_file_that_is_no_json_is_named(text: bytes) -> None:
    """The file's content does not matter."""
    with pytest.raises(ModelNotLoadable, match="the file is not JSON: "):
        model_settings.parse("m", text)


def test_a_python_models_metadata_is_checked_alike() -> None:
    """The message has the model's own name for it."""
    inputs, outputs = model_settings.described("m", {"inputs": [TENSOR | {"shape": None}]})
    assert inputs is not None
    assert inputs[0].shape is None
    assert outputs is None
    with pytest.raises(ModelNotLoadable, match=r"metadata of model 'm': inputs is 1"):
        model_settings.described("m", {"inputs": 1})


class Hostile:
    """An object whose text and truth are the model's own code."""

    def __repr__(self) -> str:
        raise ValueError("no words")

    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


@pytest.mark.parametrize(("metadata", "words"), [
    (metadata_of_packages, "metadata is a Python module; expected an object"),
    (Hostile(), "metadata is a Python Hostile; expected an object"),
    ({"inputs": Hostile()}, "inputs is a Python Hostile; expected an array of tensors"),
    ({"inputs": [TENSOR | {"datatype": np.float32}]}, "inputs[0].datatype is a Python type; expected one of BOOL, "),
    ({"inputs": [TENSOR | {"name": Path(__file__)}]}, "inputs[0].name is a Python PosixPath; expected text"),
    ({"inputs": ({Path(__file__): Path(__file__)},)}, "inputs is ({a Python PosixPath: a Python PosixPath},); "),
    ({"inputs": [TENSOR | {"shape": (-1,)}]}, "inputs[0].shape is (-1,); expected an array"),
])  # fmt: skip
def test_an_object_in_a_python_models_metadata_is_named_by_its_type(metadata: Any, words: str) -> None:
    """Its text may have a path of this machine: `from importlib import metadata` makes a module of the variable."""
    with pytest.raises(ModelNotLoadable) as caught:
        model_settings.described("m", metadata)
    assert caught.value.message.startswith(f"metadata of model 'm': {words}")

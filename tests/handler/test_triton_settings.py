"""handler.settings.triton: Triton's config.pbtxt, against the messages of Triton's own client where they can say."""

import json
import logging
import shutil
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from core.errors import ModelNotLoadable
from core.operations import ModelRef
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from handler.settings.triton import config as triton
from handler.settings.triton import triton_model_config as ours
from tests.handler.lifecycle.samples import PATIENT
from tests.handler.lifecycle.test_pipelines import ask

ROOT = Path(__file__).parents[2]
FULL = """
# A comment, and fields in any order.
name: "m"
platform: "onnxruntime_onnx"
max_batch_size: 8
input [
  { name: "x" data_type: TYPE_FP32 dims: [ 3, -1 ] format: FORMAT_NCHW },
  { name: 'ids'; data_type: TYPE_INT64; dims: 1 dims: 2 is_shape_tensor: false }
]
output { name: "y" data_type: TYPE_STRING dims: [ 2 ] label_filename: "labels.txt" }
version_policy: { specific { versions: [ 1, 3 ] } }
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 1500
                   default_queue_policy { max_queue_size: 4 } }
instance_group [ { count: 2 kind: KIND_CPU } ]
optimization { execution_accelerators { gpu_execution_accelerator [ { name : "tensorrt"
  parameters { key: "precision_mode" value: "FP16" } }] }}
parameters: { key: "intra_op_thread_count" value: { string_value: "} input { #" } } # { "
response_cache < enable: true >
"""
SAID = {
    "max_batch_size": 8,
    "platform": "onnxruntime_onnx",
    "inputs": [
        {"name": "x", "datatype": "FP32", "shape": [-1, 3, -1], "format": "FORMAT_NCHW"},
        {"name": "ids", "datatype": "INT64", "shape": [-1, 1, 2], "format": "FORMAT_NONE"},
    ],
    "outputs": [{"name": "y", "datatype": "BYTES", "shape": [-1, 2], "labels": "labels.txt"}],
    "version_policy": {"specific": {"versions": [1, 3]}},
    "batching": {"max_batch_size": 8, "max_delay_ms": 1.5, "preferred": [4, 8]},
}
ENSEMBLE = """
name: "e" platform: "ensemble" max_batch_size: 0
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling {
  step [
    { model_name: "m" model_version: -1 input_map { key: "x" value: "x" } output_map { key: "y" value: "h" } },
    { model_name: "m" model_version: 2 input_map { key: "x" value: "h" } output_map { key: "y" value: "y" } }
  ]
}
"""
STEP = 'step { model_name: "m" input_map { key: "x" value: "x" } output_map { key: "y" value: "y" } }'


@pytest.fixture(scope="module")
def theirs() -> FileDescriptor:
    """Returns the file of tritonclient's messages. Where they are imported, kserve's cannot be."""
    told = (
        "import sys; from tritonclient.grpc import model_config_pb2 as m; "
        "sys.stdout.buffer.write(m.DESCRIPTOR.serialized_pb)"
    )
    done = subprocess.run([sys.executable, "-c", told], check=True, capture_output=True)
    return DescriptorPool().AddSerializedFile(done.stdout)


def read(theirs: FileDescriptor, text: str) -> None:
    """Reads a file as Triton does."""
    text_format.Parse(text, GetMessageClass(theirs.message_types_by_name["ModelConfig"])())


def test_the_fields_are_those_of_triton(theirs: FileDescriptor) -> None:
    """Each of the names that are read has the number, type and label that Triton gives it."""
    pairs = {
        "TritonConfig": "ModelConfig", "ModelInput": "ModelInput", "ModelOutput": "ModelOutput",
        "VersionPolicy": "ModelVersionPolicy", "DynamicBatching": "ModelDynamicBatching",
        "EnsembleScheduling": "ModelEnsembling", "Reshape": "ModelTensorReshape",
    }  # fmt: skip
    for mine, name in pairs.items():
        fields = theirs.message_types_by_name[name].fields_by_name
        for field in getattr(ours, mine).DESCRIPTOR.fields:
            other = fields[field.name]
            assert (field.number, field.type, field.is_repeated) == (other.number, other.type, other.is_repeated)
    assert {kind.name: number for number, kind in triton.TYPES.items()} == {
        value.name: value.number for value in theirs.enum_types_by_name["DataType"].values
    }


def test_a_file_becomes_settings(caplog: pytest.LogCaptureFixture, theirs: FileDescriptor) -> None:
    """What has no effect is logged with its names, once however often it is read."""
    read(theirs, FULL)  # it is a file of Triton's
    triton.members.cache_clear()
    for _ in range(2):
        assert triton.members("m", FULL.encode()) == SAID
    assert [record.getMessage() for record in caplog.records] == [
        "config.pbtxt of model m: 'instance_group, optimization, parameters, response_cache' has no effect here"
    ]


@pytest.mark.parametrize(("text", "said"), [
    ("", {}),
    ('input { name: "x" data_type: TYPE_BOOL dims: [] }',
     {"inputs": [{"name": "x", "datatype": "BOOL", "shape": [], "format": "FORMAT_NONE"}]}),
    ('output { name: "y" data_type: TYPE_BF16 dims: 2 reshape { shape: 2 } }',
     {"outputs": [{"name": "y", "datatype": "BF16", "shape": [2], "reshape": [2]}]}),
    ('max_batch_size: 2 output { name: "y" data_type: TYPE_BOOL dims: 1 reshape { } }',
     {"max_batch_size": 2, "outputs": [{"name": "y", "datatype": "BOOL", "shape": [-1, 1], "reshape": [-1]}]}),
    ("version_policy { latest { num_versions: 2 } }", {"version_policy": {"latest": {"num_versions": 2}}}),
    ("version_policy { latest { } }", {"version_policy": {"latest": {"num_versions": 1}}}),
    ("version_policy { all { } }", {"version_policy": {"all": {}}}),
    ("dynamic_batching { }", {}),  # nothing to batch
    ("max_batch_size: 4 dynamic_batching { }",
     {"max_batch_size": 4, "batching": {"max_batch_size": 4, "max_delay_ms": 0.0}}),
    ("max_batch_size: 2 dynamic_batching { max_queue_delay_microseconds: 5000000 }",
     {"max_batch_size": 2, "batching": {"max_batch_size": 2, "max_delay_ms": 1000.0}}),
    ("max_batch_size: 65536 dynamic_batching { preferred_batch_size: [8, 8192, 8193] }",
     {"max_batch_size": 65536, "batching": {"max_batch_size": 8192, "max_delay_ms": 0.0, "preferred": [8, 8192]}}),
    ("max_batch_size: 65536 dynamic_batching { preferred_batch_size: 65536 }",
     {"max_batch_size": 65536, "batching": {"max_batch_size": 8192, "max_delay_ms": 0.0}}),
    ('backend: "python" default_model_filename: "model.py"', {}),
])  # fmt: skip
def test_each_field_has_its_meaning(theirs: FileDescriptor, text: str, said: dict[str, Any]) -> None:
    """With a batch, every shape has one more axis."""
    read(theirs, text)
    assert triton.members("m", text.encode()) == {"max_batch_size": 0, "inputs": [], "outputs": []} | said


BAD = [
    ('name: "n"', "name is 'n'; expected the folder's name 'm', or no name"),
    ('platform: "tensorrt_plan"', "platform is 'tensorrt_plan'; expected one of onnxruntime_onnx, onnxruntime, python"),
    ('backend: "vllm"', "backend is 'vllm'; expected one of"),
    ('default_model_filename: "net.onnx"', "default_model_filename is 'net.onnx'; expected model.onnx or model.py"),
    ("max_batch_size: -1", "max_batch_size is -1; expected 0 or more"),
    ("sequence_batching { }", "sequence_batching is not offered: no model keeps a state"),
    ("input { data_type: TYPE_FP32 }", "input[0].name is ''; expected the name of a tensor"),
    ('input { name: "x" }', "input[0].data_type is 0; expected one of TYPE_BOOL"),
    ('input { name: "x" data_type: 99 }', "input[0].data_type is 99; expected one of TYPE_BOOL"),
    ('output { name: "y" data_type: TYPE_FP32 dims: -2 }', "output[0].dims is [-2]; expected whole numbers from -1 up"),
    ('input { name: "x" data_type: TYPE_FP32 dims: 2 reshape { } }', "input[0].reshape is []; expected as many"),
    ('input { name: "x" data_type: TYPE_FP32 dims: [2, -1] reshape { shape: [-1, 3] } }', "input[0].reshape is [-1,"),
    ('input { name: "x" data_type: TYPE_FP32 dims: [1, -1] reshape { shape: 1 } }', "input[0].reshape is [1];"),
    ('output { name: "x" data_type: TYPE_FP32 dims: -1 reshape { shape: -2 } }', "output[0].reshape is [-2];"),
    ("version_policy { specific { } }", "version_policy.specific.versions is []; expected at least one version"),
    ("version_policy { specific { versions: -1 } }", "versions is [-1]; expected at least one version, and none below"),
    ('input { name: "x" data_type: TYPE_FP32 dims: 1 }' * 2, "input[1].name is 'x'; expected each name once"),
    ('output { name: "x" data_type: TYPE_FP32 dims: 1 label_filename: "a" }' * 2, "output[1].name is 'x'; expected"),
    ('input { name: "x" data_type: TYPE_FP32 dims: 300000000000000 }', "input[0].shape is [300000000000000]; expected"),
    ("max_batch_size: 4 dynamic_batching { preferred_batch_size: 8 }",
     "dynamic_batching.preferred_batch_size is [8]; expected sizes from 1 to max_batch_size, 4"),
    ('platform: "ensemble"', "ensemble_scheduling.steps is []; expected an array of at least one step"),
    (f"ensemble_scheduling {{ {STEP * 65} }}", "ensemble_scheduling.steps is '65 steps'; expected at most 64"),
    (f'ensemble_scheduling {{ {STEP.replace("input_map", "model_version: -2 input_map")} }}',
     "ensemble_scheduling.step[0].model_version is -2; expected -1 for the latest"),
    ("max_batch_size: many", "not protobuf's text format: 1:17 : 'max_batch_size: many': Couldn't parse integer"),
    ("input { data_type: 99999999999999999999 }", "not protobuf's text format: Value out of range: 9999999999"),
    ("input { name: }", "the file is not protobuf's text format: 1:15 : "),
    ("input {", "the file does not have as many closing brackets as opening ones"),
    (r"""name: "#\\" platform: 'C:\models' # \q""",
     r"not protobuf's text format: invalid escape sequence '\m'"),
    (r'name: "\477"', r"not protobuf's text format: invalid escape sequence '\477'"),
    ("} input { ", "the file does not have as many closing brackets as opening ones"),
    ("\xff", "the file is not protobuf's text format"),
    ("x { " * 3000, "as many closing brackets"),
    ("input {" + "x { " * 3000 + "}" * 3001, "not protobuf's text format: maximum recursion depth"),
    ("#" * 2_000_000, "the file is '2000000 bytes'; expected at most 1048576"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BAD, ids=[message[:60] for _, message in BAD])
def test_what_cannot_be_done_is_refused_with_its_field(text: str, message: str) -> None:
    """In one line that names the file."""
    with pytest.raises(ModelNotLoadable) as refused:
        triton.members("m", text.encode("latin-1"))
    assert refused.value.message.startswith("config.pbtxt of model 'm': ")
    assert message in refused.value.message
    assert "\n" not in refused.value.message


def test_reading_leaves_pythons_warnings_alone() -> None:
    """Filters belong to the process. A reader's own one made errors of the warnings in the code of other threads."""
    before = [*warnings.filters]
    text = b"".join(b'input { name: "x%d" data_type: TYPE_FP32 dims: [ 1 ] }' % number for number in range(2000))
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(triton.members, "m", text)
        while not reading.done():
            assert [*warnings.filters] == before
    assert len(reading.result()["inputs"]) == 2000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository of Triton's: versions 1 and 2 of m, which halves and adds three."""
    for version in ("1", "2"):
        (tmp_path / "m" / version).mkdir(parents=True)
        shutil.copy(ROOT / "models/half_plus_three/123/model.onnx", tmp_path / "m" / version)
    (tmp_path / "m" / "config.pbtxt").write_text('name: "m" version_policy { all {} }')
    return tmp_path


def registry(root: Path) -> Registry:
    return Registry(Settings.from_env({"DRAGOMAN_REPOSITORY": str(root)}))


@pytest.mark.parametrize("folder", [True, False], ids=["with an empty folder", "without"])
def test_an_ensemble_is_served_as_it_is(root: Path, theirs: FileDescriptor, *, folder: bool) -> None:
    """Its version is a folder without files, which stores do not list."""
    read(theirs, ENSEMBLE)
    (root / "e" / "1" if folder else root / "e").mkdir(parents=True)
    (root / "e" / "config.pbtxt").write_text(ENSEMBLE)
    models = registry(root)
    assert ask(models, 2.0, ref=ModelRef("e")) == [5.0]
    with models.use(ModelRef("e"), PATIENT) as model:
        assert [spec.name for spec in (*model.spec.inputs, *model.spec.outputs)] == ["x", "y"]  # type: ignore[misc]
    assert {each.version: each.inference_count for each in models.statistics(ModelRef("m"), PATIENT)} == {
        "1": 0,
        "2": 2,
    }


@pytest.mark.parametrize(("text", "message"), [
    ('input { name: "z" data_type: TYPE_FP32 dims: [ -1 ] }', "describe input 'z', which is not in model.onnx"),
    ('input { name: "x" data_type: TYPE_FP64 dims: [ -1 ] }', "input 'x' is FP32 in model.onnx, FP64 in its settings"),
])  # fmt: skip
def test_what_contradicts_the_model_is_refused(root: Path, text: str, message: str) -> None:
    """When it is loaded."""
    (root / "m" / "config.pbtxt").write_text(text)
    with pytest.raises(ModelNotLoadable, match=message):
        ask(registry(root), 2.0, ref=ModelRef("m"))


@pytest.mark.parametrize(
    ("dims", "fits"), [("[ -1, 4 ]", True), ("[ 5, 4 ]", True), ("[ -1, 5 ]", False), ("[ 4 ]", False)]
)
def test_a_shape_that_is_not_the_models_is_refused(tmp_path: Path, dims: str, fits: bool) -> None:  # noqa: FBT001 - a case
    """It may say more of a size that the file leaves open."""
    shutil.copytree(ROOT / "models" / "iris", tmp_path / "iris")
    (tmp_path / "iris" / "config.pbtxt").write_text(f'input {{ name: "x" data_type: TYPE_FP32 dims: {dims} }}')
    if fits:
        with registry(tmp_path).use(ModelRef("iris"), PATIENT) as model:
            assert model.spec.inputs is not None
            assert np.prod(model.spec.inputs[0].shape or ()) in (-4, 20)
    else:
        with (
            pytest.raises(ModelNotLoadable, match=r"input 'x' has the shape \[-1, 4\] in model.onnx, \[.*\] in"),
            registry(tmp_path).use(ModelRef("iris"), PATIENT),
        ):
            pass


LABELLED = 'output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] label_filename: "labels.txt" }'


def labels_of(models: Registry) -> tuple[str, ...]:
    """Returns the class labels of the output of m."""
    with models.use(ModelRef("m"), PATIENT) as model:
        assert model.spec.outputs is not None
        return model.spec.outputs[0].labels


def test_an_output_has_the_labels_of_its_file(root: Path) -> None:
    """The file has a label a line. A changed one is loaded; labels in model-settings.json come first."""
    (root / "m" / "config.pbtxt").write_text(LABELLED, "utf-8-sig")  # as PowerShell and Notepad begin a file
    (root / "m" / "labels.txt").write_bytes("cat\r\nd\u00f6g\n\nfox, red\n".encode("utf-8-sig"))
    models = registry(root)
    assert labels_of(models) == ("cat", "d\u00f6g", "", "fox, red")
    (root / "m" / "labels.txt").write_text("cat")
    models.load("m", PATIENT)
    assert labels_of(models) == ("cat",)
    output = {"name": "y", "datatype": "FP32", "shape": [-1], "labels": ["hen"]}
    (root / "m" / "model-settings.json").write_text(json.dumps({"outputs": [output]}))
    models.load("m", PATIENT)
    assert labels_of(models) == ("hen",)


@pytest.mark.parametrize("key", ["batching", "dynamic_batching"])
def test_batching_in_model_settings_comes_first_under_both_its_names(root: Path, key: str) -> None:
    """config.pbtxt has Triton's name for it."""
    (root / "m" / "config.pbtxt").write_text("max_batch_size: 4 dynamic_batching { max_queue_delay_microseconds: 100 }")
    (root / "m" / "model-settings.json").write_text(json.dumps({key: {"max_queue_delay_microseconds": 300}}))
    with registry(root).use(ModelRef("m"), PATIENT) as model:
        assert model.spec.batching is not None
        assert model.spec.batching.seconds == pytest.approx(300e-6)


@pytest.mark.parametrize(("content", "message"), [
    (None, "output[0].label_filename is 'labels.txt'; expected a file in the model's folder"),
    (b"\xff", "output[0].label_filename is 'labels.txt'; expected a file in UTF-8"),
    (bytes(2_000_000), "output[0].label_filename is 'a file of 2000000 bytes'; expected at most 1048576"),
], ids=["missing", "not text", "too long"])  # fmt: skip
def test_labels_that_cannot_be_read_are_refused(root: Path, content: bytes | None, message: str) -> None:
    """When the model is listed. A file outside of the model's folder is none of its files."""
    (root / "labels.txt").write_text("cat")
    (root / "m" / "config.pbtxt").write_text(LABELLED)
    if content is not None:
        (root / "m" / "labels.txt").write_bytes(content)
    with pytest.raises(ModelNotLoadable) as refused:
        labels_of(registry(root))
    assert message in refused.value.message
    (root / "m" / "config.pbtxt").write_text(LABELLED.replace("labels.txt", "../labels.txt"))
    with pytest.raises(ModelNotLoadable, match="expected a file in the model's folder"):
        labels_of(registry(root))


def test_model_settings_come_first(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Where both files say something; a change of either is seen; what is wrong in either is said."""
    (root / "m" / "config.pbtxt").write_text("version_policy { specific { versions: 1 } } max_batch_size: 0")
    models = registry(root)
    with models.use(ModelRef("m"), PATIENT) as model:
        assert model.spec.version == "1"
    (root / "m" / "config.pbtxt").write_text("version_policy { specific { versions: 2 } } max_batch_size: 0 ")
    models.load("m", PATIENT)
    with models.use(ModelRef("m"), PATIENT) as model:
        assert model.spec.version == "2"
    settings = root / "m" / "model-settings.json"
    settings.write_text(json.dumps({"version_policy": {"specific": {"versions": [1]}}}))
    models.load("m", PATIENT)
    with models.use(ModelRef("m"), PATIENT) as model:
        assert model.spec.version == "1"
    settings.write_text("{")
    with caplog.at_level(logging.CRITICAL), pytest.raises(ModelNotLoadable, match="model-settings.json of model 'm'"):
        models.load("m", PATIENT)

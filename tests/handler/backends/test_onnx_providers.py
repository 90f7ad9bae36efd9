"""handler.backends.onnx: execution providers, those of the build that the tests run with."""

import json
import sys
from pathlib import Path

import onnxruntime
import pytest

from core.errors import ModelNotLoadable
from core.operations import ModelRef
from handler.lifecycle.registry import Registry
from handler.settings import InvalidSettings, Settings
from tests.handler.lifecycle.samples import PATIENT, M, add, get, registry, say

AZURE, CPU = "AzureExecutionProvider", "CPUExecutionProvider"
HAS = f"this build of ONNX Runtime has {AZURE}, {CPU}"
ABSENT = [
    ("CUDAExecutionProvider", f"'CUDAExecutionProvider' is not available; {HAS}"),
    ("cuda", f"'cuda' is unknown; did you mean 'CUDAExecutionProvider'? {HAS}"),
    ("x" * 1000, f" is unknown; {HAS}"),
]


def told(models: Registry, ref: ModelRef = M) -> dict[str, str]:
    """The parameters of the model's metadata."""
    return dict(models.describe(ref, PATIENT).parameters)


@pytest.mark.parametrize(("server", "model", "used"), [
    ("", None, {}),
    (AZURE, None, {"providers": f"{AZURE},{CPU}"}),
    (f"{CPU}, {CPU}", None, {"providers": CPU}),
    (AZURE, [CPU], {"providers": CPU}),
    ("", [AZURE, CPU], {"providers": f"{AZURE},{CPU}"}),
    (AZURE, [], {"providers": f"{AZURE},{CPU}"}),
])  # fmt: skip
def test_metadata_has_the_providers_in_use(
    tmp_path: Path, server: str, model: list[str] | None, used: dict[str, str]
) -> None:
    """The model's come before the server's, and the CPU's takes what no other one does."""
    add(tmp_path, "m", "1")
    say(tmp_path, **({} if model is None else {"providers": model}))
    assert told(registry(tmp_path, PROVIDERS=server)) == used


@pytest.mark.parametrize(("name", "message"), ABSENT)
def test_a_model_with_a_provider_that_is_not_there_is_refused(tmp_path: Path, name: str, message: str) -> None:
    """Another model is loaded all the same."""
    add(tmp_path, "m", "1")
    say(tmp_path, providers=[CPU, name])
    add(tmp_path, "other", "1")
    models = registry(tmp_path)
    with pytest.raises(ModelNotLoadable) as refused:
        get(models)
    assert refused.value.message.startswith("providers of model 'm': ")
    assert refused.value.message.endswith(message)
    assert len(refused.value.message) < 500
    get(models, ModelRef("other"))


@pytest.mark.parametrize(("name", "message"), ABSENT)
def test_a_server_with_a_provider_that_is_not_there_does_not_start(name: str, message: str) -> None:
    """The setting is named with what was expected."""
    with pytest.raises(InvalidSettings) as refused:
        Settings.from_env({"DRAGOMAN_PROVIDERS": f"{CPU},{name}"})
    assert "expected execution providers: " in str(refused.value)
    assert str(refused.value).endswith(message)


def test_a_provider_without_onnx_runtime_names_its_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra."""
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(InvalidSettings, match=r"ONNX Runtime is not installed: pip install 'dragoman\[onnx\]'"):
        Settings.from_env({"DRAGOMAN_PROVIDERS": CPU})


def test_a_provider_of_an_onnx_runtime_that_cannot_be_imported_has_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package manager would say that it is installed."""
    (tmp_path / "onnxruntime.py").write_text("raise ImportError('libx.so.1: cannot open shared object file')")
    monkeypatch.delitem(sys.modules, "onnxruntime")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidSettings, match=r"ONNX Runtime cannot be imported: libx\.so\.1: cannot open shared"):
        Settings.from_env({"DRAGOMAN_PROVIDERS": CPU})


def test_a_provider_that_does_not_start_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ONNX Runtime goes on with the others where a driver is missing, which would be slow without a word."""
    add(tmp_path, "m", "1")
    monkeypatch.setattr(onnxruntime.InferenceSession, "get_providers", lambda _: [CPU])
    message = f"providers of model 'm': '{AZURE}' does not start on this machine: are its driver and libraries"
    with pytest.raises(ModelNotLoadable, match=message):
        get(registry(tmp_path, PROVIDERS=AZURE))


def test_the_key_is_an_array_of_text(tmp_path: Path) -> None:
    """As every key, it is checked when it is read."""
    add(tmp_path, "m", "1")
    (tmp_path / "m" / "model-settings.json").write_text(json.dumps({"providers": CPU}))
    with pytest.raises(ModelNotLoadable, match="providers is 'CPUExecutionProvider'; expected an array of text"):
        get(registry(tmp_path))

"""The tests inspect what `sam build` makes of template.yaml and the Makefile."""

import json
import marshal
import os
import sys
from pathlib import Path

import pytest

from tests.e2e import sam, tools

LARGEST = 250 * 1024 * 1024  # bytes that Lambda unpacks
AARCH64 = 183  # e_machine in the ELF header


@pytest.mark.parametrize("template", [sam.TEMPLATE, sam.STREAMING], ids=lambda path: path.stem)
def test_a_template_is_valid(template: Path) -> None:
    """`sam validate --lint` does not report anything."""
    assert "is a valid SAM Template" in sam.validate(template)


def test_the_artifact_holds_the_function_and_nothing_of_its_surroundings(artifact: Path) -> None:
    """It has core, handler and their requirements, but no boto3, which the runtime has, and no server, tests, tools."""
    names = {entry.name for entry in artifact.iterdir()}
    assert {"core", "handler", "numpy", "onnxruntime", "mangum"} <= names
    assert "commands" not in {entry.name for entry in (artifact / "handler").iterdir()}
    assert not names & {"boto3", "botocore", "uvicorn", "pytest", "models", "tests", "bin", "wheel", "requirements.txt"}
    assert not names & {"click", "rich", "pygments"}


def test_the_artifact_fits_into_lambda(artifact: Path) -> None:
    """All files together stay below Lambda's limit for unpacked code."""
    assert sum(file.stat().st_size for file in artifact.rglob("*")) < LARGEST


def test_doctor_finds_nothing_wrong_with_it(artifact: Path) -> None:
    """Neither with the artifact nor with the template that deploys it, for the sample models."""
    arguments = ("doctor", "models", "--json", "--artifact", artifact, "--template", sam.TEMPLATE)
    report = json.loads(tools.run(sys.executable, "-m", "dragoman", *arguments))
    assert report["findings"] == []
    assert str(sam.TEMPLATE) in report["examined"]
    assert any(part.startswith(f"artifact {artifact}") for part in report["examined"])


def test_every_module_is_compiled_and_never_checked_against_its_source(artifact: Path) -> None:
    """The flags in a .pyc's header say so: hash-based, unchecked."""
    sources = [source for source in artifact.rglob("*.py") if source.stat().st_size]
    compiled = [source.parent / "__pycache__" / f"{source.stem}.cpython-313.pyc" for source in sources]
    assert len(sources) > 100
    assert {file.read_bytes()[4:8] for file in compiled} == {(1).to_bytes(4, "little")}


def test_graviton_gets_libraries_of_its_own(tmp_path: Path) -> None:
    """ARCHITECTURE=arm64 selects arm64's wheels, whatever this machine is."""
    environment = {**os.environ, "ARCHITECTURE": "arm64"}
    tools.run("make", "build-InferenceFunction", f"ARTIFACTS_DIR={tmp_path}", env=environment)
    machines = {int.from_bytes(library.read_bytes()[18:20], "little") for library in tmp_path.rglob("*.so")}
    assert machines == {AARCH64}
    assert not (tmp_path / "init.bundle").exists()  # this machine cannot import it


def test_the_init_phase_has_one_file(artifact: Path) -> None:
    """It has the modules of the init phase, packages of others too, and none of the runtime's own."""
    python, codes = marshal.loads((artifact / "init.bundle").read_bytes())  # noqa: S302 - just built
    assert python == "cpython-313"
    assert {"core.wire", "handler.edge.app", "numpy", "mangum", "handler.stores.s3.store"} <= codes.keys()
    assert not {"asyncio", "json", "onnxruntime", "core.dialects.v1.http"} & codes.keys()


SERVERS = "server,onnx,grpc,text,jwt,signing,gcs,azure,parquet,otel,doctor"
PUBLISHERS = (
    "convert,convert-sklearn,convert-xgboost,convert-lightgbm,convert-catboost,convert-torch,convert-huggingface"
)


@pytest.mark.parametrize(("extras", "python"), [(SERVERS, "3.11"), (SERVERS, "3.14"), (PUBLISHERS, "3.13")])
def test_every_extra_has_wheels_for_arm64(extras: str, python: str, tmp_path: Path) -> None:
    """Nothing has to be compiled on a machine with Graviton; a package without such wheels would be refused."""
    uv = Path(sys.executable).with_name("uv")
    platform = ("--python-platform", "aarch64-manylinux_2_28", "--python-version", python, "--only-binary", ":all:")
    wanted = tmp_path / "wanted.in"
    wanted.write_text(f"dragoman[{extras}] @ {tools.ROOT.as_uri()}\n", encoding="utf-8")
    command = (uv, "pip", "compile", "--quiet", "--no-header", *platform, "--no-binary", "dragoman")
    found = tools.run(*command, wanted)
    assert "onnxruntime==" in found
    wanted.write_text("tensorflow-cpu\n", encoding="utf-8")  # which has none
    with pytest.raises(RuntimeError, match="no wheels with a matching"):
        tools.run(*command, wanted)

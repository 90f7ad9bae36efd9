"""The function's built artifact, a folder or a zip, against Lambda's limits and the template that deploys it."""

import re
import shlex
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from core.records import NamedTuple
from handler.commands.doctor.findings import Finding, error, warning

LIMIT: Final = 262_144_000
"""Bytes of a function with its layers, unzipped (AWS, "Lambda quotas": 250 MB)."""
NEAR: Final = 0.9
MB: Final = 2**20
ENTRY: Final = "handler/aws.py"
NEEDED: Final = ("numpy", "mangum", "fastapi", "orjson", "google/protobuf")
RUNTIME: Final = "onnxruntime"
GIVEN: Final = ("boto3", "botocore", "s3transfer")
"""Packages that Lambda's runtime has."""
BUILD: Final = "build it with `sam build`, or `make build-InferenceFunction ARTIFACTS_DIR=...`"
MACHINES: Final = {62: "x86_64", 183: "arm64"}
"""The machines of ELF headers (e_machine)."""
RELEASE: Final = re.compile(r"onnxruntime-(\d+)\.(\d+)[^/]*\.dist-info/")
ON_ARM: Final = (1, 26)
"""The first version of ONNX Runtime that can be imported on arm64 without /sys/devices/system/cpu. Older ones end the
process. Lambda was reported not to have that folder there (microsoft/onnxruntime#10038)."""
ABI: Final = re.compile(r"\.cpython-3(\d+)-")
READABLE: Final = 0o004
UNREADABLE: Final = (OSError, EOFError, RuntimeError, ValueError, zlib.error, zipfile.BadZipFile)
"""What a zip raises that is damaged, encrypted, or not a zip."""


class PackedFile(NamedTuple):
    """A file of an artifact. `size`: bytes, unzipped. `mode`: its permissions; 0 where a zip has none."""

    path: str
    size: int
    mode: int


class Artifact:
    """A built function. Making it and reading it raises one of UNREADABLE."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._zip = None if path.is_dir() else zipfile.ZipFile(path)
        self.files = list(self._of_folder() if self._zip is None else self._of_zip(self._zip))
        self.size = sum(file.size for file in self.files)

    def _of_folder(self) -> Iterator[PackedFile]:
        for each in sorted(self._path.rglob("*")):
            if each.is_file():
                found = each.stat()
                yield PackedFile(each.relative_to(self._path).as_posix(), found.st_size, found.st_mode & 0o777)

    @staticmethod
    def _of_zip(packed: zipfile.ZipFile) -> Iterator[PackedFile]:
        for each in packed.infolist():
            if not each.is_dir():
                yield PackedFile(each.filename, each.file_size, each.external_attr >> 16 & 0o777)

    def head(self, path: str) -> bytes:
        """Returns the first bytes of a file: of a binary, its ELF header."""
        if self._zip is None:
            with (self._path / path).open("rb") as file:
                return file.read(20)
        with self._zip.open(path) as packed:
            return packed.read(20)

    def has(self, name: str) -> bool:
        return any(file.path == name or file.path.startswith(f"{name}/") for file in self.files)


def examine(artifact: Artifact, where: str, properties: Mapping[str, Any], *, onnx: bool) -> Iterator[Finding]:
    """Yields what keeps the artifact from being deployed or from starting. `onnx`: the repository has ONNX models."""
    yield from _size(artifact, where)
    if not artifact.has(ENTRY):
        yield error("artifact-entry", where, f"it has no {ENTRY}: the function's handler is missing", BUILD)
        return
    for name in (*NEEDED, *((RUNTIME,) if onnx else ())):
        if not artifact.has(name):
            why = "the models are ONNX" if name == RUNTIME else "the function imports it"
            cure = "make ... EXTRAS=onnx" if name == RUNTIME else BUILD
            yield error("artifact-package", where, f"it has no {name}, and {why}", cure)
    unreadable = next((file.path for file in artifact.files if file.mode and not file.mode & READABLE), None)
    if unreadable is not None:
        what = f"{unreadable} cannot be read by other users, and Lambda's is another one"
        yield error("artifact-mode", where, what, f"chmod -R o+rX {shlex.quote(where)}")
    yield from _binaries(artifact, where, properties)


def _size(artifact: Artifact, where: str) -> Iterator[Finding]:
    if artifact.size <= NEAR * LIMIT:
        return
    sizes: Counter[str] = Counter()
    for file in artifact.files:
        sizes[file.path.partition("/")[0]] += file.size
    largest = ", ".join(f"{name} {size // MB} MB" for name, size in sizes.most_common(4))
    given = [name for name in GIVEN if sizes[name]]
    cure = (
        f"leave out {', '.join(given)}, which Lambda's runtime has"
        if given
        else "leave out what the function does not import"
    )
    cure += "; keep models in S3; or deploy a container image (10 GB)"
    what = f"it has {artifact.size / MB:.0f} MB unzipped, of 250 that Lambda takes: {largest}"
    yield (error if artifact.size > LIMIT else warning)("artifact-size", where, what, cure)


def _binaries(artifact: Artifact, where: str, properties: Mapping[str, Any]) -> Iterator[Finding]:
    """Compares the first extension module with the template's architecture and version of Python."""
    module = next((file.path for file in artifact.files if ABI.search(file.path) and file.path.endswith(".so")), None)
    if module is None:
        return
    machine = MACHINES.get(int.from_bytes(artifact.head(module)[18:20], "little"))
    architectures = properties.get("Architectures") or ["x86_64"]
    wanted = architectures[0] if properties and isinstance(architectures, list) else machine
    if machine is not None and wanted in MACHINES.values() and machine != wanted:
        what = f"it was built for {machine}, and the template says {wanted}: {module}"
        yield error(
            "artifact-architecture", where, what, f"ARCHITECTURE={wanted} sam build, or Architectures: [{machine}]"
        )
    version = f"python3.{ABI.search(module)[1]}"  # type: ignore[index] # it was found by this
    runtime = properties.get("Runtime", version)
    if isinstance(runtime, str) and runtime != version:
        what = f"it was built for {version}, and the template says {runtime}: {module}"
        yield error("artifact-python", where, what, f"build it with {runtime}, or set Runtime: {version}")
    if machine == "arm64":
        yield from _runtime(artifact, where)


def _runtime(artifact: Artifact, where: str) -> Iterator[Finding]:
    found = next(filter(None, (RELEASE.match(file.path) for file in artifact.files)), None)
    if found is not None and (int(found[1]), int(found[2])) < ON_ARM:
        least = ".".join(map(str, ON_ARM))
        what = f"it has ONNX Runtime {found[1]}.{found[2]}, whose import can end the process on arm64's Lambda"
        yield warning("artifact-runtime", where, what, f"require onnxruntime>={least}, and build it again")

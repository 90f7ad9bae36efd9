"""A sound set-up to plant faults into, and `dragoman doctor` as a user types it."""

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from handler.cli import main
from tests.e2e import s3 as servers
from tests.support.zoo import models as zoo

ROOT = Path(__file__).parents[4]
PACKAGES = ("numpy", "mangum", "fastapi", "orjson", "google/protobuf", "onnxruntime")
X86_64, ARM64 = 62, 183
RUNTIME = "cpython-313"


class Findings(NamedTuple):
    """What one run printed. `report`: its whole JSON."""

    code: int
    report: dict[str, Any]

    @property
    def all(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.report["findings"]
        return found


class SetUp:
    """A folder, an environment and flags. Everything is sound until a test changes it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, server: Callable[[], servers.Store]) -> None:
        self.folder = folder
        self.models = folder / "models"
        self.repository = "models"
        self.flags: list[str] = ["--no-load"]
        self.server = server
        self._monkeypatch = monkeypatch
        self.add("wine/1/model.onnx", zoo.adds(1).SerializeToString())

    def add(self, path: str, content: bytes | str | dict[str, Any] = "", size: int | None = None) -> Path:
        """Writes a file of the repository. `size`: bytes of a file that takes no room on the disk."""
        file = self.models / path
        file.parent.mkdir(parents=True, exist_ok=True)
        text = json.dumps(content) if isinstance(content, dict) else content
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        if size is not None:
            with file.open("r+b") as opened:
                opened.truncate(size)
        return file

    def move(self, source: str, target: str) -> None:
        (self.models / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.move(self.models / source, self.models / target)

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self._monkeypatch.setenv(name, value)

    def lack(self, package: str) -> None:
        """Lets the import of a package fail."""
        self._monkeypatch.setitem(sys.modules, package, None)

    def loads(self, *flags: str) -> None:
        """Lets doctor load the models; those that are Python code, too."""
        self.flags = [*flags]
        self.set(DRAGOMAN_ALLOW_CODE="true")

    def bucket(self) -> str:
        """Puts the repository into a bucket of a real server; returns its name."""
        store, name = self.server(), f"b-{uuid4()}"
        store.client.create_bucket(Bucket=name)
        for file in self.models.rglob("*"):
            if file.is_file():
                store.client.upload_file(str(file), name, f"models/{file.relative_to(self.models)}")
        self.set(**store.variables(name))
        self.repository = f"s3://{name}/models"
        return name

    def template(self, *changes: tuple[str, str], **parameters: str) -> None:
        """Copies the template here, with changes of its text, and parameters in samconfig.toml."""
        text = (ROOT / "template.yaml").read_text(encoding="utf-8")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (self.folder / "template.yaml").write_text(text, encoding="utf-8")
        pairs = " ".join(f'{name}=\\"{value}\\"' for name, value in parameters.items())
        config = f'[default.deploy.parameters]\nparameter_overrides = "{pairs}"\n'
        (self.folder / "samconfig.toml").write_text(config, encoding="utf-8")

    def artifact(self) -> Path:
        """Makes what looks like a built function beside the template, where `sam build` puts it."""
        self.template()
        built = self.folder / ".aws-sam" / "build" / "InferenceFunction"
        for package in PACKAGES:
            (built / package).mkdir(parents=True)
            (built / package / "__init__.py").touch()
        shutil.copytree(ROOT / "core", built / "core", ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copytree(ROOT / "handler", built / "handler", ignore=shutil.ignore_patterns("__pycache__", "commands"))
        elf(built)
        return built


def elf(built: Path, machine: int = X86_64, version: str = RUNTIME) -> None:
    """Writes the head of an extension module for a machine and a version of Python."""
    head = b"\x7fELF" + bytes(14) + machine.to_bytes(2, "little")
    (built / "numpy" / f"core.{version}-linux-gnu.so").write_bytes(head + bytes(64))


@pytest.fixture(scope="session")
def bucket_server() -> Iterator[Callable[[], servers.Store]]:
    """Starts a real S3 server when the first test needs it."""
    running: list[Any] = []
    started: list[servers.Store] = []

    def start() -> servers.Store:
        if not started:
            running.append(servers.running())
            started.append(running[0].__enter__())
        return started[0]

    yield start
    if running:
        running[0].__exit__(None, None, None)


@pytest.fixture
def setup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_aws: None, bucket_server: Callable[[], servers.Store]
) -> SetUp:
    """A repository with one model, in an empty working folder."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return SetUp(folder, monkeypatch, bucket_server)


@pytest.fixture
def doctor(setup: SetUp, capsys: pytest.CaptureFixture[str]) -> Callable[[], Findings]:
    """Runs `dragoman doctor --json` on the set-up."""

    def run() -> Findings:
        code = main(["doctor", setup.repository, "--json", *setup.flags])
        return Findings(code, json.loads(capsys.readouterr().out))

    return run

"""handler.edge.runtime.bundle and .bundling: the init phase's modules in one file of the artifact."""

import importlib
import json
import marshal
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType

import pytest

from handler.edge.runtime import bundle, bundling

ROOT = Path(__file__).parents[4]
EVENT = {"version": "2.0", "headers": {}, "requestContext": {"http": {"method": "GET", "path": "/v2", "sourceIp": ""}}}
FIRST = f"""
import sys, json, inspect
from handler.aws import lambda_handler
answer = lambda_handler({EVENT!r}, None)
from core import wire
from core.errors import ServingError
found = {{name: type(each.__loader__).__name__ for name, each in sys.modules.items() if name.startswith("core")}}
source = inspect.getsource(sys.modules["core.router"])
print(json.dumps([answer["statusCode"], found, wire.__file__, "class Router" in source]))
"""


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with this project's code, compiled as the build of a function does it."""
    folder = tmp_path_factory.mktemp("a folder") / "artifact"
    folder.mkdir()
    for name in ("core", "handler"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "commands", "site"))
    flags = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    subprocess.run([sys.executable, *flags, folder], check=True)
    return folder


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs Python in the artifact, as a function of the sample models."""
    environ = {"DRAGOMAN_REPOSITORY": str(ROOT / "models"), "AWS_LAMBDA_FUNCTION_NAME": "f", "PYTHONSAFEPATH": ""}
    return subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environ, capture_output=True, text=True, check=False
    )


def write(folder: Path) -> bytes:
    done = run(folder, "-m", "handler.edge.runtime.bundling")
    assert (done.returncode, done.stderr) == (0, "")
    return (folder / "init.bundle").read_bytes()


def first(folder: Path) -> tuple[dict[str, str], str]:
    """Returns the loaders of core's modules after the first request, and the file of one of them."""
    done = run(folder, "-c", FIRST)
    assert not done.returncode, done.stderr
    status, loaders, file, has_source = json.loads(done.stdout)
    assert (status, has_source) == (200, True)
    return loaders, file


def test_the_init_phase_imports_its_modules_from_one_file(artifact: Path) -> None:
    """What a later request imports comes from its own file. Every module knows its source."""
    write(artifact)
    loaders, file = first(artifact)
    assert loaders["core.wire"] == loaders["core.dialects"] == "BundleFinder"
    assert file == str(artifact / "core/wire.py")
    (artifact / "init.bundle").unlink()
    others, _ = first(artifact)
    assert set(others.values()) == {"SourceFileLoader"}
    assert others.keys() == loaders.keys()


def test_the_file_is_the_same_whenever_it_is_written(artifact: Path) -> None:
    """An image is reproducible."""
    assert write(artifact) == write(artifact)


def test_the_file_of_another_python_is_not_read(artifact: Path) -> None:
    """Its code could not run here."""
    _, codes = marshal.loads(write(artifact))  # noqa: S302 - just written
    (artifact / "init.bundle").write_bytes(marshal.dumps(("cpython-27", codes)))
    assert set(first(artifact)[0].values()) == {"SourceFileLoader"}


def test_an_artifact_that_cannot_be_imported_gets_no_file(artifact: Path) -> None:
    """It may be for another processor. The build goes on, and an older file does not stay."""
    write(artifact)
    place = artifact / "core/wire.py"
    compiled = Path(cache_from_source(place))
    kept = compiled.read_bytes()
    compiled.unlink()
    place.write_text("raise ImportError('wrong ELF class')\n" + (ROOT / "core/wire.py").read_text())
    done = run(artifact, "-m", "handler.edge.runtime.bundling")
    place.write_text((ROOT / "core/wire.py").read_text())
    compiled.write_bytes(kept)
    assert done.returncode == 0
    assert done.stderr == "init.bundle is not written: ImportError: wrong ELF class\n"
    assert not (artifact / "init.bundle").exists()


# -- in this process ---------------------------------------------------------------------------------------------------


def code(text: str) -> CodeType:
    return compile(text, "<test>", "exec")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A bundle of a package with one module, whose files do not exist."""
    codes = {"bundled": (code("KIND = __name__"), True), "bundled.inner": (code("from bundled import KIND"), False)}
    (tmp_path / "init.bundle").write_bytes(marshal.dumps((sys.implementation.cache_tag, codes)))
    monkeypatch.setattr(bundle, "FILE", str(tmp_path / "init.bundle"))
    monkeypatch.setattr(bundle, "ROOT", str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    bundle.install()
    yield
    for name in codes:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("installed")
def test_a_module_of_the_file_is_like_any_other(tmp_path: Path) -> None:
    """Its place and its package's path are those of its file."""
    inner = importlib.import_module("bundled.inner")
    package = sys.modules["bundled"]
    assert inner.KIND == "bundled"
    assert inner.__file__ == str(tmp_path / "bundled/inner.py")
    assert package.__file__ == str(tmp_path / "bundled/__init__.py")
    assert package.__path__ == [str(tmp_path / "bundled")]


@pytest.mark.usefixtures("installed")
def test_a_module_is_taken_from_the_file_once() -> None:
    """A second import, after a failed one for instance, looks for the module's own file."""
    importlib.import_module("bundled")
    del sys.modules["bundled"]
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("bundled")


def test_without_a_file_nothing_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkout has none."""
    monkeypatch.setattr(bundle, "FILE", str(tmp_path / "init.bundle"))
    before = [*sys.meta_path]
    bundle.install()
    assert sys.meta_path == before


def test_only_modules_of_the_artifact_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of Python itself are not: the runtime brings its own."""
    file = tmp_path / "one.py"
    file.write_text("ONE = 1")
    subprocess.run([sys.executable, "-m", "compileall", "-q", file], check=True)
    rows = [["one", str(file), False], ["json", json.__file__, True], ["built", None, False]]
    done = subprocess.CompletedProcess([], 0, json.dumps(rows), "")
    monkeypatch.setattr(bundling.subprocess, "run", lambda *_, **__: done)
    for module in (bundle, bundling):
        monkeypatch.setattr(module, "ROOT", str(tmp_path))
    monkeypatch.setattr(bundling, "FILE", str(tmp_path / "init.bundle"))
    bundling.main()
    python, codes = marshal.loads((tmp_path / "init.bundle").read_bytes())  # noqa: S302
    assert (python, list(codes), codes["one"][1]) == (sys.implementation.cache_tag, ["one"], False)

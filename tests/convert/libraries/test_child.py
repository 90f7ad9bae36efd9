"""The process that converts: its steps, its limits, and how it ends."""

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from handler.commands.convert import process, work
from handler.commands.convert.work import LibraryJob
from handler.commands.refused import Refused
from handler.stores import parity
from tests.convert.libraries import zoo


def job(source: Path, folder: Path, **changes: Any) -> LibraryJob:
    folder.mkdir(exist_ok=True)
    said = {"data": None, "tolerance": None, "flips": 0.0, "seed": 0, "allow_pickle": False, "trusted": ()} | changes
    return LibraryJob(str(source), "sklearn", str(folder), **said)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return zoo.SKLEARN["logistic"].make(tmp_path_factory.mktemp("model")).path


def test_the_command_converts_in_a_child(run: Any, model: Path, tmp_path: Path) -> None:
    """Steps go to stderr, and the result to stdout. `dragoman list` shows the model. `--memory 0` means no limit."""
    code, out, err = run("convert", model, tmp_path / "models" / "iris", "--version", "3", "--memory", "0")
    assert code == 0
    converted, published = out.splitlines()
    assert converted.startswith(f"{model}: model.skops (scikit-learn ")
    assert published.startswith(f"{tmp_path / 'models' / 'iris'}/3: 3 files, ")
    assert [line.split(" ")[0] for line in err.splitlines()] == ["loading", "converting", "comparing"]
    code, listed, _ = run("list", tmp_path / "models", "--verbose")
    assert code == 0
    sentence = listed.splitlines()[2].strip()
    assert sentence in converted
    assert "1000 rows made, numbers differ by at most " in sentence
    assert ", no labels differ, loads in " in sentence
    assert "parity" not in run("list", tmp_path / "models")[1]
    assert '"largest_absolute": ' in run("list", tmp_path / "models", "--verbose", "--json")[1]


def test_the_same_seed_makes_the_same_rows(model: Path, tmp_path: Path) -> None:
    """The reports are equal but for the time of a load."""
    found = [work.convert(job(model, tmp_path / name), lambda _: None) for name in ("a", "b")]
    for each in found:
        each.pop("load_seconds")
    assert found[0] == found[1]


def test_a_module_of_the_current_folder_does_not_replace_our_own(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Projects for Lambda have a handler.py. Modules of a model's own types are still found there."""
    (tmp_path / "handler.py").write_text("raise SystemExit('shadowed')")
    monkeypatch.chdir(tmp_path)
    assert process.converted(job(model, tmp_path / "v"), process.ChildLimits(300, None), lambda _: None)


def test_a_conversion_that_takes_too_long_is_ended(model: Path, tmp_path: Path) -> None:
    """The refusal names the step."""
    with pytest.raises(Refused, match=r"took more than 0.01 s \(starting\); --timeout permits more"):
        process.converted(job(model, tmp_path / "v"), process.ChildLimits(0.01, None), lambda _: None)


def test_a_file_that_needs_more_memory_than_there_is_is_refused(tmp_path: Path) -> None:
    """It names no limit that nobody has set."""
    source = tmp_path / "m.pkl"
    source.write_bytes(b"\x80\x04\x8e" + (2**62).to_bytes(8, "little"))
    with pytest.raises(Refused, match="^the conversion needs more memory than this machine gives it$"):
        process.converted(job(source, tmp_path / "v", allow_pickle=True), process.ChildLimits(60, None), lambda _: None)


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA limits all memory of a process on Linux only")
def test_a_conversion_that_takes_too_much_memory_is_refused(model: Path, tmp_path: Path) -> None:
    """Whether Python raises MemoryError or a library ends the process, the limit is named."""
    with pytest.raises(Refused, match=r"--memory|MB of memory permitted|conversion failed|needs sklearn"):
        process.converted(job(model, tmp_path / "v"), process.ChildLimits(100, 60_000_000), lambda _: None)


def test_a_pickle_that_ends_the_process_is_refused(tmp_path: Path) -> None:
    """The signal and the last words are in the message."""
    (tmp_path / "evil.pkl").write_bytes(b"cos\nabort\n(tR.")
    asked = job(tmp_path / "evil.pkl", tmp_path / "v", allow_pickle=True)
    with pytest.raises(Refused, match=r"the conversion ended by SIGABRT \(loading evil.pkl with scikit-learn\)"):
        process.converted(asked, process.ChildLimits(100, None), lambda _: None)


def test_the_child_has_no_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pickle that prints the environment does not find them."""
    secrets = ["AWS_SECRET_ACCESS_KEY", "AZURE_STORAGE_KEY", "IDENTITY_HEADER", "MSI_SECRET", "HF_TOKEN"]
    secrets += ["GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_AUTH_ACCESS_TOKEN", "SERVICE_ACCOUNT", "DRAGOMAN_API_KEYS"]
    for each in secrets:
        monkeypatch.setenv(each, "secret")
    code = f"import os; open({str(tmp_path / 'seen')!r}, 'w').write(' '.join(os.environ))"
    (tmp_path / "curious.pkl").write_bytes(b"cbuiltins\nexec\n(V" + code.encode() + b"\ntR.")
    with pytest.raises(Refused, match="has a NoneType; expected an estimator"):
        process.converted(
            job(tmp_path / "curious.pkl", tmp_path / "v", allow_pickle=True),
            process.ChildLimits(100, None),
            lambda _: None,
        )
    seen = (tmp_path / "seen").read_text(encoding="utf-8").split()
    assert "PATH" in seen or "PATH" not in os.environ
    assert not {*secrets} & {*seen}


@pytest.mark.usefixtures("here")
def test_names_of_files_can_have_bytes_that_are_not_utf_8(run: Any, tmp_path: Path) -> None:
    """The report, which is UTF-8, shows them escaped."""
    trained = zoo.SKLEARN["logistic"].make(tmp_path)
    source, data = trained.path.rename(tmp_path / "m\udcff.skops"), tmp_path / "d\udcff.csv"
    trained.data.to_csv(data, index=False)
    code, _, err = run("convert", source, tmp_path / "m", "--data", data, "--quiet")
    assert (code, err) == (0, "")
    report = parity.from_json((tmp_path / "m" / "1" / parity.FILE).read_bytes())
    assert report is not None
    assert (report["source"]["file"], report["data"]["file"]) == ("m\\udcff.skops", "d\\udcff.csv")


@pytest.mark.usefixtures("here")
def test_npz_has_the_columns_by_name(run: Any, tmp_path: Path) -> None:
    """Arrays may be [rows] or [rows, 1]."""
    trained = zoo.table(tmp_path)
    columns = {name: np.asarray(trained.data[name]) for name in trained.data}
    np.savez(tmp_path / "rows.npz", **{n: c.astype(str) if c.dtype.kind == "O" else c for n, c in columns.items()})
    code, out, _ = run("convert", trained.path, tmp_path / "m", "--data", tmp_path / "rows.npz")
    assert code == 0
    assert "300 rows given" in out

"""`dragoman batch`: every form of records, each failure at its record, and no record lost or twice after any kill."""

from __future__ import annotations

import contextlib
import csv
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pyarrow as pa
import pytest
from pyarrow import parquet

from handler.cli import main
from handler.commands.batch import command as command_module
from handler.commands.batch import journal
from handler.commands.batch.journal import OutputFile, OutputOrigin
from handler.commands.refused import Refused
from handler.edge.batch.runner import Answered
from handler.settings import Settings
from tests.support.server import ROOT

X = np.random.default_rng(1).uniform(0, 7, (1000, 4)).round(1).astype(np.float32)
PASSENGERS = [
    {"age": 22.0, "fare": 7.25, "sex": "m", "port": "S"}, {"age": 38.5, "fare": 71.0, "sex": "f", "port": "C"},
]  # fmt: skip
MANY, KILLS = 100_000, 9
Run = tuple[int, list[dict[str, Any]], dict[str, Any], str]


@pytest.fixture(autouse=True)
def _repository(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", str(ROOT / "models"))
    monkeypatch.chdir(tmp_path)


def batch(capsys: pytest.CaptureFixture[str], model: str, source: Path, *flags: str) -> Run:
    """Returns the exit code, the answers, the summary and the refusal."""
    code = main(["batch", "--json", "--quiet", model, str(source), "out", *flags])
    out, err = capsys.readouterr()
    lines = Path("out").read_bytes().splitlines() if Path("out").exists() else []
    return code, [json.loads(line) for line in lines], json.loads(out or "{}"), err


def oracle(model: str, inputs: dict[str, Any], *outputs: str) -> list[Any]:
    """ONNX Runtime itself."""
    session = onnxruntime.InferenceSession(next((ROOT / "models" / model).glob("*/model.onnx")))
    return list(session.run(list(outputs), inputs))


def write(name: str, rows: Any, header: tuple[str, ...] = ()) -> Path:
    """Writes records in the form of the name's end."""
    path = Path(name)
    if path.suffix == ".npy":
        np.save(path, rows)
    elif path.suffix == ".parquet":
        parquet.write_table(pa.table(rows), path, row_group_size=300)
    elif path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([*([header] if header else []), *rows])
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def requests(rows: list[Any]) -> list[Any]:
    one = {"name": "x", "datatype": "FP32"}
    return [{"inputs": [one | {"shape": [1, 4], "data": row}], "outputs": [{"name": "probabilities"}]} for row in rows]


ROWS = X.tolist()
FORMS: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "rows": ("in.jsonl", ROWS, ()),
    "objects": ("in.ndjson", [{"x": row, "id": f"r{number}"} for number, row in enumerate(ROWS)], ()),
    "requests": ("in.jsonl", requests(ROWS), ()),
    "csv": ("in.csv", ROWS, ()),
    "csv with names": ("in.csv", ROWS, ("sepal length", "sepal width", "petal length", "petal width")),
    "csv with ids": ("in.csv", [[f"r{n}", *row] for n, row in enumerate(ROWS)], ("id", "a", "b", "c", "d")),
    "npy": ("in.npy", X, ()),
    "npy of columns": ("in.npy", np.rec.fromarrays(list(X.T), names="a,b,c,d"), ()),
    "parquet": ("in.parquet", {"x": list(X), "id": [f"r{n}" for n in range(len(X))]}, ()),
    "parquet of columns": ("in.parquet", {name: X[:, n] for n, name in enumerate("abcd")}, ()),
}


@pytest.mark.parametrize("size", ["7", "1000000"[:6]])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_has_the_models_own_answers(form: str, size: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A line for each record, in their order, with its number and its id."""
    source = write(*FORMS[form])
    code, answers, summary, _ = batch(capsys, "iris", source, "--batch-size", size)
    assert (code, summary["records"], summary["errors"]) == (0, 1000, 0)
    assert [answer["index"] for answer in answers] == list(range(1000))
    found = [each.get("prediction") or each["outputs"][0]["data"] for each in answers]
    np.testing.assert_allclose(found, oracle("iris", {"x": X}, "probabilities")[0], rtol=1e-5, atol=1e-7)
    has_ids = "id" in answers[0]
    assert has_ids == (form in ("objects", "csv with ids", "parquet"))
    assert not has_ids or [each["id"] for each in answers] == [f"r{n}" for n in range(1000)]


@pytest.mark.parametrize("form", ["jsonl", "csv", "parquet"])
def test_columns_are_inputs_by_name(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Texts and numbers, each as its input has it; several outputs are an object. The version is in the summary."""
    rows: Any = PASSENGERS
    if form == "csv":
        rows = [[*row.values()] for row in PASSENGERS]
    elif form == "parquet":
        rows = {name: [row[name] for row in PASSENGERS] for name in PASSENGERS[0]}
    code, answers, _, _ = batch(capsys, "passengers", write(f"in.{form}", rows, tuple(PASSENGERS[0])))
    columns = {name: [[row[name]] for row in PASSENGERS] for name in PASSENGERS[0]}
    inputs = {n: np.array(c, object if isinstance(c[0][0], str) else np.float32) for n, c in columns.items()}
    labels, chances = oracle("passengers", inputs, "output_label", "output_probability")
    assert code == 0
    assert [each["prediction"]["output_label"] for each in answers] == labels.tolist()
    shares = [[*chance.values()] if isinstance(chance, dict) else chance for chance in chances]
    np.testing.assert_allclose([each["prediction"]["output_probability"] for each in answers], shares, rtol=1e-5)


GOOD = "[5.1, 3.5, 1.4, 0.2]"
TENSOR = '{"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": [1, 2, 3, 4, 5, 6, 7, 8]}]%s}'
BINARY = ', "parameters": {"binary_data_output": true}'
RECORDS = (
    (GOOD, ""), (f'{{"x": {GOOD}, "id": "a"}}', ""), ("[1, 2]", "input 'x' has shape [1, 2]"),
    ("[1", "the record is not JSON"), ("2]", "the record is not JSON"), ("3,4", "the record is not JSON"),
    ('{"x": [1, 2, 3, "b"], "id": 7}', 'JSON Value: "b" Type: String is not of expected type: float'),
    (TENSOR % ', "id": "q"', ""), (TENSOR % BINARY, "cannot have binary outputs"), (TENSOR % ', "id": 5', "'id' is 5"),
    ('{"y": [1]}', "does not have named input: y"), ("[1, 2, 3, NaN]", ""), ("null", "Null"), (GOOD, ""),
    (f'{{"x": {GOOD}, "x": {GOOD}}}', "twice"), ("[[1, 2, 3, 4], [5, 6, 7, 8]]", "expects [-1, 4]"),
    ("[" + "1.5, " * 999 + "1]", "the record has more than 2000 bytes"), (GOOD, ""),
)  # fmt: skip


@pytest.mark.parametrize("size", ["1", "3", "100"])
def test_a_record_that_fails_is_an_error_at_its_place(
    size: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The others have their answers, however many run together. Blank lines are not records."""
    monkeypatch.setenv("DRAGOMAN_MAX_BODY_BYTES", "2000")
    source = Path("in.jsonl")
    source.write_text("\ufeff" + "\n\n".join(text for text, _ in RECORDS), "utf-8")
    code, answers, summary, _ = batch(capsys, "iris", source, "--batch-size", size)
    assert [each["index"] for each in answers] == list(range(len(RECORDS)))
    for (text, told), answer in zip(RECORDS, answers, strict=True):
        assert ("error" in answer) == bool(told), (text, answer)
        assert told in answer.get("error", ""), answer
    assert (code, summary["errors"]) == (3, sum(bool(told) for _, told in RECORDS))
    assert [answers[index].get("id") for index in (1, 6, 7, 9)] == ["a", 7, "q", 5]
    assert answers[7]["outputs"][0]["shape"] == [2]
    assert batch(capsys, "iris", source)[:3] == (3, answers, summary | {"resumed_at": len(RECORDS), "seconds": ANY})


class _Any:
    __hash__ = None  # type: ignore[assignment] # equal to everything

    def __eq__(self, _: object) -> bool:
        return True


ANY = _Any()


@pytest.mark.parametrize(("content", "told"), [
    ('1,"2\n",3,4\n5,6,7,8\n', {0: "", 1: ""}), ("1,2,3\n5,6,7,8\n", {0: "x", 1: ""}), ("a,b,c,d\n1,2,,4\n", {0: "''"}),
    ("a,b,c,d\n1,2,3\n1,2,3,4\n", {0: "3 cells; expected 4", 1: ""}), ('a,b,c,d\n1,2,3,"4', {0: "not CSV"}),
    ("id,x\n1,2\n", {0: "shape"}), ("x,y\n1,2\n", {0: "column 'y'"}), ("1,2,3,4\n\n5,6,7,8", {0: "", 1: ""}),
    ("a,b,c,d\n1,2,3,\udce9\n1,2,3,4\n", {0: "UTF-8", 1: ""}), ("a,b,c,d\n", {}), ("", {}),
    ("a,b,c,d\n1,2,3," + "4" * 3000 + "\n1,2,3,4\n", {0: "more than 2000 bytes", 1: ""}),
    ('1,2,3,4"\n5,6,7,8\n"1"x,2,3,4\n5,6,7,8\n', {0: "4\"'; expected FP32", 1: "", 2: "not CSV", 3: ""}),
    ('a,b,c,d\n"' + "\n" * 3000 + '",2,3,4\n1,2,3,4\n', {0: "more than 2000 bytes", 1: ""}),
])  # fmt: skip
def test_csv(
    content: str, told: dict[int, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A record may have line ends in quotes. What is wrong with one is its own error."""
    monkeypatch.setenv("DRAGOMAN_MAX_BODY_BYTES", "2000")
    Path("in.csv").write_bytes(content.encode(errors="surrogateescape"))
    _, answers, _, _ = batch(capsys, "iris", Path("in.csv"))
    assert {each["index"]: each.get("error", "") for each in answers}.keys() == told.keys()
    for each in answers:
        assert ("error" in each) == bool(told[each["index"]]), each
        assert told[each["index"]] in each.get("error", ""), each


def test_a_scalar_model_takes_a_column_and_plain_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    """Its input has one axis, so a row is a number."""
    for name, rows in (("in.csv", [[1.0], [2.5]]), ("in.jsonl", [1.0, 2.5]), ("in.npy", np.array([1, 2.5]))):
        answers = batch(capsys, "half_plus_three", write(name, rows), "--force")[1]
        assert [each["prediction"] for each in answers] == [3.5, 4.25]
    texts = batch(capsys, "strings", write("in.jsonl", ["a,b", "é]"]), "--force")[1]
    assert [each["prediction"] for each in texts] == ["a,b", "é]"]


def command(source: Path, output: Path) -> list[str]:
    flags = ["--quiet", "--batch-size", "32", "half_plus_three", str(source), str(output)]
    return [sys.executable, "-m", "dragoman", "batch", *flags]


def size(path: Path) -> int:
    """Returns how long the file is; a process may rename it at any time."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_no_record_is_lost_or_twice_after_kills_at_random_moments(tmp_path: Path) -> None:
    """100,000 records: what many killed processes have written, one after the other, is what one writes alone."""
    source, alone, killed = tmp_path / "in.jsonl", tmp_path / "alone", tmp_path / "killed"
    values = np.random.default_rng(2).uniform(-9, 9, MANY).astype(np.float32)
    bad = set(range(500, MANY, 997))
    source.write_text("\n".join('"x"' if n in bad else repr(float(v)) for n, v in enumerate(values)), "utf-8")
    assert subprocess.run(command(source, alone), check=False, cwd=ROOT).returncode == 3
    whole = alone.read_bytes()
    chance, part, kills = random.Random(3), tmp_path / "killed.part", 0  # noqa: S311 - the same each time
    while kills < KILLS:
        goal = size(part) + chance.uniform(0, 3 / KILLS) * len(whole)
        with subprocess.Popen(command(source, killed), cwd=ROOT) as process:
            while process.poll() is None and size(part) < goal:
                time.sleep(chance.uniform(0, 0.01))
            process.send_signal(signal.SIGKILL)
        if process.returncode == -signal.SIGKILL:
            kills += 1
        else:  # it was quicker than this test
            assert killed.read_bytes() == whole
            killed.unlink()
    assert subprocess.run(command(source, killed), check=False, cwd=ROOT).returncode == 3
    assert killed.read_bytes() == whole
    lines = [json.loads(line) for line in whole.splitlines()]
    assert [line["index"] for line in lines] == list(range(MANY))
    assert {line["index"] for line in lines if "error" in line} == bad
    found = [line["prediction"] for line in lines if "prediction" in line]
    np.testing.assert_allclose(found, np.delete(values, sorted(bad)) / 2 + 3, rtol=1e-6)


class Killed(BaseException):
    """Stands for the end of the process."""


class Fuse:
    """Lets so many calls of the system happen, and ends the next one: a write after half of its bytes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 0
        self._write, self._rename = os.write, Path.rename
        for name in ("ftruncate", "fsync", "open", "write"):
            call = getattr(os, name)
            monkeypatch.setattr(journal.os, name, lambda *arguments, call=call: self._burnt(call, *arguments))
        monkeypatch.setattr(Path, "rename", lambda *paths: self._burnt(self._rename, *paths))

    def _burnt(self, call: Any, *arguments: Any) -> Any:
        self.left -= 1
        if self.left:
            return call(*arguments)
        if call is self._write:
            call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
        raise Killed


def attempt(path: Path, answers: list[bytes], of: str = "digest", *, force: bool = False) -> None:
    """Writes what is missing of the answers, three at a time."""
    with OutputFile(path) as output:
        output.open(lambda: OutputOrigin(of, "jsonl", "m", "1", ""), force=force)
        while not output.standing.is_whole and output.standing.records < len(answers):
            output.append(Answered(answers[output.standing.records :][:3]))
        if not output.standing.is_whole:
            output.finish()


def test_an_output_survives_an_end_within_each_of_its_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call of the system is the last one of an attempt once, in several orders."""
    answers, fuse = [b'"prediction":%d' % n for n in range(7)], Fuse(monkeypatch)
    for first in range(1, 40):
        path = tmp_path / str(first)
        for last in (first, first // 2 + 1, 3, 2):
            fuse.left = last
            with contextlib.suppress(Killed):
                attempt(path, answers)
        fuse.left = -1
        attempt(path, answers)
        assert path.read_bytes() == b"".join(b'{"index":%d,%b}\n' % each for each in enumerate(answers))
        assert not path.with_name(f"{first}.part").exists()


def test_an_output_stays_until_the_one_that_replaces_it_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step is the last one, there is the old output or the new one, and the journal does not confuse them."""
    old, new = ([b'"prediction":%d' % (n + first) for n in range(7)] for first in (0, 100))
    wholes = [b"".join(b'{"index":%d,%b}\n' % each for each in enumerate(answers)) for answers in (old, new)]
    fuse = Fuse(monkeypatch)
    for last in range(1, 20):
        path = tmp_path / str(last)
        attempt(path, old, "old")
        fuse.left = last
        with contextlib.suppress(Killed):
            attempt(path, new, "new", force=True)
        fuse.left = -1
        assert path.read_bytes() in wholes
        with contextlib.suppress(Refused):  # what is begun is not always known
            attempt(path, new, "new")
            assert path.read_bytes() == wholes[1]
        attempt(path, new, "new", force=True)
        assert path.read_bytes() == wholes[1]


def test_one_process_at_a_time_has_an_output(tmp_path: Path) -> None:
    """The second one is refused; a part that is not of a batch, too."""
    path, made = tmp_path / "out", OutputOrigin("d", "jsonl", "m", "1", "")
    with OutputFile(path) as output:
        with pytest.raises(Refused, match="another process is writing"):
            OutputFile(path)
        output.open(lambda: made, force=False)
        output.append(Answered([b'"prediction":1']))
    (tmp_path / "out.part").write_bytes(b'{"index":5,"prediction":1}\n')
    with OutputFile(path) as output, pytest.raises(Refused, match="line 1 is of another record"):
        output.open(lambda: made, force=False)


@pytest.mark.parametrize(("arguments", "told"), [
    (("iris", "none.jsonl"), "none.jsonl: No such file"), (("iris", "in.txt"), "in.txt ends in none of .jsonl"),
    (("nobody", "in.jsonl"), "model 'nobody' is not in"), (("iris", "out.jsonl"), "out.jsonl is the input"),
    (("iris", "in.jsonl", "--version", "7"), "version 7"), (("iris", "in.npy"), "not an array that numpy reads"),
    (("iris", "in.parquet"), "not Parquet"), (("iris", "twice.csv"), "expected a name once"),
    (("iris", "in.jsonl", "--signature", "odd"), "odd"), (("iris", "pickled.npy"), "not an array that numpy reads"),
    (("nowhere/iris", "in.jsonl"), "the folder nowhere does not exist: "),
    (("iris", "scalar.npy"), "not an array with rows"), (("iris", "odd.csv"), "the first line is not CSV"),
])  # fmt: skip
def test_what_cannot_be_run_is_one_line(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output does not appear, and neither do its companions."""
    for name in ("in.jsonl", "in.txt", "in.npy", "in.parquet", "out.jsonl"):
        Path(name).write_text("[1, 2, 3, 4]\n", "utf-8")
    Path("twice.csv").write_text("a,a\n1,2\n", "utf-8")
    Path("odd.csv").write_bytes(b"\xff,1\n")
    np.save("pickled.npy", np.array([{}], object))
    np.save("scalar.npy", np.float32(1))
    before = {path.name for path in Path().iterdir()}
    output = "out.jsonl" if arguments[1] == "out.jsonl" else "new.jsonl"
    code = main(["batch", "--quiet", *arguments[:2], output, *arguments[2:]])
    err = capsys.readouterr().err
    assert (code, err.count("\n")) == (1, 1), err
    assert told in err
    assert {path.name for path in Path().iterdir()} == before


def test_what_is_not_a_file_is_neither_read_nor_replaced(capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe, which is read twice, was waited for without end; --force deleted a device."""
    source = write("rows.jsonl", X[:2].tolist())
    os.mkfifo("pipe.jsonl")
    Path("folder").mkdir()
    for arguments in (
        ["pipe.jsonl", "out"],
        [str(source), "pipe.jsonl", "--force"],
        [str(source), "folder", "--force"],
    ):
        assert main(["batch", "iris", *arguments]) == 1
        assert capsys.readouterr().err.endswith(" is not a regular file\n")
    assert Path("pipe.jsonl").is_fifo()


@pytest.mark.parametrize("text", ["s3://bucket/rows.jsonl", "https://host/rows.jsonl", "-", ""])
def test_what_is_not_on_this_machine_is_refused_as_it_was_typed(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """An address was looked for as a folder called `s3:`, and answers for stdout went into a file called `-`."""
    source = str(write("rows.jsonl", X[:2].tolist()))
    for arguments in ([text, "out"], [source, text]):
        before = sorted(Path().iterdir())
        assert main(["batch", "iris", *arguments, "--format", "jsonl"]) == 1
        told = f"dragoman: {text!r} is not a file on this machine, which input and output have to be\n"
        assert (capsys.readouterr().err, sorted(Path().iterdir())) == (told, before)


def test_a_repository_in_the_home_folder_is_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No shell replaces the ~ of a variable in dragoman.toml or a container's environment; `serve` does."""
    monkeypatch.setenv("HOME", str(ROOT))
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", "~/models")
    code, answers, *_ = batch(capsys, "iris", write("rows.jsonl", X[:2].tolist()))
    assert (code, len(answers)) == (0, 2)


def test_an_output_that_cannot_grow_is_named_and_continued(tmp_path: Path) -> None:
    """The system's calls on it know no name: the refusal named the input."""
    source = write("rows.jsonl", X[:, 0].tolist())
    limited = ["sh", "-c", 'ulimit -f 8; exec "$@"', "sh", *command(source, tmp_path / "out")]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(limited, env=env, capture_output=True, check=False)
    told = f"dragoman: {tmp_path}/out cannot be written: File too large\n"
    assert (done.returncode, done.stderr.decode()) == (1, told)
    assert main(["batch", "--quiet", "half_plus_three", str(source), "out"]) == 0
    assert [json.loads(line)["index"] for line in Path("out").read_bytes().splitlines()] == list(range(len(X)))


def test_a_summary_that_cannot_be_written_does_not_blame_the_input(tmp_path: Path) -> None:
    """Also if Python writes it at once, as in images: the refusal named the input."""
    source = write("rows.jsonl", X[:2, 0].tolist())
    full = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *command(source, tmp_path / "out")]
    full[full.index("--quiet")] = "--json"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(full, env=env, capture_output=True, check=False)
    assert (done.returncode, done.stderr.decode()) == (1, f"dragoman: {os.strerror(errno.ENOSPC)}\n")
    assert (tmp_path / "out").exists()


def test_another_input_or_model_does_not_go_on_with_an_output(capsys: pytest.CaptureFixture[str]) -> None:
    """It is refused, and so is a file that is not a batch's; --force begins again."""
    source = write("in.jsonl", [[1.0, 2, 3, 4]])
    Path("out").write_text("mine", "utf-8")
    assert main(["batch", "iris", str(source), "out"]) == 1
    assert "out exists, and is not the output of a batch" in capsys.readouterr().err
    assert batch(capsys, "iris", source, "--force")[0] == 0
    write("in.jsonl", [[1.0, 2, 3, 5]])
    assert main(["batch", "iris", str(source), "out"]) == 1
    assert "out was begun with another input" in capsys.readouterr().err
    assert main(["batch", "half_plus_three", str(source), "out", "--version", "123"]) == 1
    assert batch(capsys, "iris", source, "--force")[2]["resumed_at"] == 0
    before = Path("out").read_bytes()
    source.write_text("[[", "utf-8")
    assert main(["batch", "iris", "none.jsonl", "out", "--force"]) == 1
    assert main(["batch", "none", str(source), "out", "--force"]) == 1
    assert Path("out").read_bytes() == before


def test_a_canary_answers_no_batch(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A file has one model, which no chance chooses."""
    shutil.copytree(ROOT / "models" / "half_plus_three" / "123", "own/m/1")
    shutil.copytree("own/m/1", "own/m/2")
    Path("own/m/model-settings.json").write_text('{"canary": {"2": 0.99}}', "utf-8")
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", "own")
    source = write("in.jsonl", [[1.0]])
    for _ in range(4):
        assert batch(capsys, "m", source, "--force")[0] == 0
        assert json.loads(Path("out.batch").read_text("utf-8"))["version"] == "1"


def test_an_input_that_changes_meanwhile_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers would be those of two inputs."""
    source = write("in.jsonl", [[1.0, 2, 3, 4]])
    append = OutputFile.append

    def changed(output: OutputFile, answers: Answered) -> None:
        append(output, answers)
        write("in.jsonl", [[1.0, 2, 3, 4], [5.0, 6, 7, 8]])

    monkeypatch.setattr(OutputFile, "append", changed)
    assert "has changed while it was read" in batch(capsys, "iris", source)[3]
    assert not Path("out").exists()


def test_an_input_that_changes_while_its_model_loads_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its digest may be that of the old content."""
    source = write("in.jsonl", [[1.0, 2, 3, 4]])
    rows = command_module.batch_rows

    def changed(spec: Any) -> int:
        write("in.jsonl", [[1.0, 2, 3, 4], [5.0, 6, 7, 8]])
        return rows(spec)

    monkeypatch.setattr(command_module, "batch_rows", changed)
    assert "has changed while it was read" in batch(capsys, "iris", source)[3]


COUNTING = """
import time

calls = 0
metadata = {
    "inputs": [{"name": "x", "datatype": "FP64", "shape": [-1]}],
    "outputs": [{"name": "y", "datatype": "FP64", "shape": [-1]}],
}

def predict(inputs, parameters):
    global calls
    before = calls
    time.sleep(0.01)
    calls = before + 1
    return {"y": inputs["x"] * 0 + calls}
"""


def test_a_model_with_its_own_code_runs_once_at_a_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It may keep state from one inference to the next."""
    folder = tmp_path / "counting" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(COUNTING)
    monkeypatch.setenv("DRAGOMAN_ALLOW_CODE", "true")
    monkeypatch.setenv("DRAGOMAN_THREADS", "4")
    found = batch(capsys, str(tmp_path / "counting"), write("in.jsonl", [1.0] * 12), "--batch-size", "2")
    assert (found[0], found[3]) == (0, "")
    assert [each["prediction"] for each in found[1]] == [number // 2 + 1 for number in range(12)]


def test_what_a_model_prints_is_not_the_result(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its text goes to stderr, so that stdout is JSON alone."""
    folder = tmp_path / "talker" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(
        "print('loaded')\n" + COUNTING.replace("    global", "    print('asked')\n    global")
    )
    monkeypatch.setenv("DRAGOMAN_ALLOW_CODE", "true")
    code, answers, summary, err = batch(capsys, str(tmp_path / "talker"), write("in.jsonl", [1.0]))
    assert (code, len(answers), summary["records"], err) == (0, 1, 1, "loaded\nasked\n")


@pytest.mark.parametrize(("threads", "cpus", "expected"), [("1", 4, (1, 4)), ("2", 4, (2, 2)), ("4", 4, (2, 2))])
def test_two_inferences_share_the_processors(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, threads: str, cpus: int, expected: Any
) -> None:
    """Unless the operator wants one thread."""
    seen: list[float] = []

    class Watched(command_module.BatchRunner):
        def __init__(self, *asked: Any) -> None:
            super().__init__(*asked)
            seen.append(asked[-1])

    class Shared(command_module.Registry):
        def __init__(self, settings: Settings) -> None:
            super().__init__(settings)
            seen.append(settings.cpus)

    monkeypatch.setattr(command_module, "BatchRunner", Watched)
    monkeypatch.setattr(command_module, "Registry", Shared)
    monkeypatch.setattr("handler.settings.platform.cpus", lambda _: float(cpus))
    monkeypatch.setenv("DRAGOMAN_THREADS", threads)
    assert batch(capsys, "iris", write("in.jsonl", X[:2].tolist()))[0] == 0
    assert (seen[1], seen[0]) == expected


def test_a_summary_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    """It has the numbers of records and errors."""
    assert main(["batch", "iris", str(write("in.jsonl", [[1, 2, 3, 4], 5])), "out"]) == 3
    assert capsys.readouterr().out.startswith("out: 2 records, 1 of them errors; ")


def test_the_example_of_the_documentation(capsys: pytest.CaptureFixture[str]) -> None:
    """It prints what stands there."""
    page = (ROOT / "docs" / "batch.md").read_text("utf-8")
    records = page.partition("```jsonl\n")[2].partition("```")[0]
    run, _, shown = page.partition("```console\n$ ")[2].partition("```")[0].partition("$ cat answers.jsonl\n")
    Path("records.jsonl").write_text(records, "utf-8")
    assert main(run.split()[1:]) == 3
    assert capsys.readouterr().out == ""
    found, expected = (
        [json.loads(line) for line in text.splitlines()] for text in (Path("answers.jsonl").read_text(), shown)
    )
    for each, wanted in zip(found, expected, strict=True):
        assert each.pop("prediction", []) == pytest.approx(wanted.pop("prediction", []), rel=1e-4)
        assert each == wanted

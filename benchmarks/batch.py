"""`dragoman batch` against calling the model in process with batches of the same size.

The control has its arrays in memory, calls ONNX Runtime with the same options, and keeps nothing. Ours reads a file of
lines of JSON, of an array or of CSV, checks it, and writes a file of answers; it locks, journals and computes the
digest of its input. Both load the model. The second control is the loop that one would write: orjson for each line,
numpy, the model, orjson. The fastest rounds are compared: the model takes all processors, and so does whatever else
runs. A linear model has no bar against itself alone: it takes less than any reader of text.
"""

import tempfile
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from io import StringIO
from os import environ
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
import orjson

from benchmarks import batching_models as models
from benchmarks.measure import Row, fastest, interleaved, table
from handler.cli import main as command
from handler.settings import Settings

BAR: Final = 1 / 0.9
SIZE: Final = 256
RECORDS: Final = {"trees": 100_000, "encoder": 512, "linear": 100_000}
TOKENS: Final = 4
PAIRS: Final = (("jsonl", "alone"), ("npy", "alone"), ("csv", "alone"), ("jsonl", "plain"))
NAMES: Final = {"alone": "model alone", "plain": "plain loop"}


def make(folder: Path) -> dict[str, Any]:
    """Writes the models. Returns the records of each, as an array."""
    random = np.random.default_rng(1)
    models.trees(folder / "trees" / "1" / "model.onnx")
    models.encoder(folder / "encoder" / "1" / "model.onnx", TOKENS)
    models.linear(folder / "linear" / "1" / "model.onnx")
    return {
        "trees": random.standard_normal((RECORDS["trees"], models.FEATURES)).round(4),
        "encoder": random.integers(0, models.WORDS, (RECORDS["encoder"], TOKENS)),
        "linear": random.standard_normal((RECORDS["linear"], models.FEATURES)).round(4),
    }


def session_of(folder: Path, name: str) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = max(1, round(Settings.from_env({}).cpus))
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    path = str(folder / name / "1" / "model.onnx")
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def timed(work: Callable[[], object], spent: list[float]) -> float:
    """Returns the seconds of the work. `spent`: gets those of all processors."""
    begun, cpu = time.perf_counter(), time.process_time()
    work()
    spent.append(time.process_time() - cpu)
    return time.perf_counter() - begun


def ours(folder: Path, name: str, form: str) -> None:
    flags = ["--quiet", "--force", "--batch-size", str(SIZE)]
    with redirect_stdout(StringIO()):
        code = command(["batch", *flags, f"{folder}/{name}", f"{folder}/{name}.{form}", f"{folder}/{name}.out"])
    if code:
        raise AssertionError(f"{name}: exit code {code}")


def bare(folder: Path, name: str, records: Any) -> None:
    session = session_of(folder, name)
    given = session.get_inputs()[0].name
    for start in range(0, len(records), SIZE):
        session.run(None, {given: records[start : start + SIZE]})


def plain(folder: Path, name: str, records: Any) -> None:
    session = session_of(folder, name)
    given = session.get_inputs()[0].name
    with Path(f"{folder}/{name}.jsonl").open("rb") as file, Path(f"{folder}/{name}.plain").open("wb") as output:
        while lines := [line for _, line in zip(range(SIZE), file, strict=False)]:
            (answers,) = session.run(None, {given: np.array([*map(orjson.loads, lines)], records.dtype)})
            output.write(b"".join(orjson.dumps({"prediction": each}) + b"\n" for each in answers.tolist()))


def main(*, quick: bool = False) -> list[Row]:
    rows = []
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        environ.setdefault("DRAGOMAN_REPOSITORY", text)
        for name, records in make(folder).items():
            lines = (orjson.dumps(record) for record in records.tolist())
            (folder / f"{name}.jsonl").write_bytes(b"\n".join(lines))
            np.savetxt(folder / f"{name}.csv", records, "%g", ",")
            records = records if name == "encoder" else records.astype(np.float32)  # noqa: PLW2901 - as the model takes them
            np.save(folder / f"{name}.npy", records)
            works: dict[str, Callable[[], object]] = {
                "jsonl": partial(ours, folder, name, "jsonl"),
                "npy": partial(ours, folder, name, "npy"),
                "csv": partial(ours, folder, name, "csv"),
                "alone": partial(bare, folder, name, records),
                "plain": partial(plain, folder, name, records),
            }
            for work in works.values():
                work()  # imports
            cpu: dict[str, list[float]] = {side: [] for side in works}
            subjects = {side: partial(timed, work, cpu[side]) for side, work in works.items()}
            wall = interleaved(subjects, 3 if quick else 9)
            for what, times in (("time", wall), ("CPU", cpu)):
                taken = {side: [value / len(records) * 1e6 for value in values] for side, values in times.items()}
                for side, control in PAIRS:
                    bar = BAR if name != "linear" or control == "plain" else None
                    title = f"{name}: {what} of a record, .{side} / {NAMES[control]}"
                    rows.append(fastest(title, taken[side], taken[control], "us", bar))
    print(table(f"dragoman batch, {SIZE} records at a time", rows))
    return rows


if __name__ == "__main__":
    main(quick=True)

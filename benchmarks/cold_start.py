"""The cost of a cold start: Lambda's init phase, and the time to the first answer of an ONNX model.

It runs the deployed artifact (.pyc, without boto3) under Lambda's Runtime Interface Emulator on one CPU, against a
control of raw ASGI, Mangum and numpy in an artifact of its own. `--imports` shows the import time of the handler's
modules.
"""

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks import repository
from benchmarks.measure import Row, fastest, interleaved, row, table
from tests.e2e import rie, s3, tools

BAR_INIT = 1.2
BAR_S3 = 1.3
INIT = re.compile(r"INIT REPORT\(durationMs: ([\d.]+)\)")
IMPORT = re.compile(r"import time:\s+(\d+) \|\s+(\d+) \| +(\S+)")
CONTROL = Path(__file__).with_name("control_lambda.py")
REQUEST = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]})
STEPS = ("interpreter", "import", "fetch", "import onnxruntime", "load", "infer", "second request")
OBJECT = f"/{s3.BUCKET}/{s3.PREFIX}/tiny/1/model.onnx"


def build(folder: Path) -> Path:
    """Builds the artifact with the Makefile's target for `sam build`."""
    tools.run("make", "build-InferenceFunction", f"ARTIFACTS_DIR={folder}", f"RUNTIME_PYTHON={tools.runtime_python()}")
    return folder


def build_control(folder: Path, artifact: Path) -> Path:
    """Builds the control's artifact: the same packages with another handler, without ours."""
    folder.mkdir()
    for path in artifact.iterdir():
        if path.name not in ("core", "handler", "__pycache__"):
            (folder / path.name).symlink_to(path)
    (folder / "handler").mkdir()
    shutil.copy(CONTROL, folder / "handler" / "aws.py")
    flags = ("-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash")
    tools.run(tools.runtime_python(), *flags, folder / "handler")
    return folder


@contextmanager
def instance(artifact: Path, variables: Mapping[str, str]) -> Iterator[rie.Rie]:
    """Yields a new instance with one CPU, as a function of 1769 MB has; the store and the client may use the others."""
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})  # what is started inherits it
    with rie.running(artifact, variables) as running:
        os.sched_setaffinity(0, every)
        yield running


def initialised(artifact: Path, variables: Mapping[str, str]) -> float:
    """Returns the milliseconds of the init phase of a new instance that answers a health check."""
    with instance(artifact, variables) as new:
        status, _ = new.http("GET", "/v2/health/live")
        found = INIT.findall(new.log.read_text(errors="replace"))
    if status != 200 or len(found) != 1:
        raise RuntimeError(f"status {status}, initialised {len(found)} times")
    return float(found[0])


def answered(artifact: Path, variables: Mapping[str, str], method: str = "POST") -> float:
    """Returns the milliseconds from the first event to its answer: init phase, fetch, load and inference."""
    with instance(artifact, variables) as new:
        start = time.perf_counter()
        status, body = new.http(method, "/v2/models/tiny/infer", REQUEST)
        taken = (time.perf_counter() - start) * 1e3
    if status != 200:
        raise RuntimeError(f"status {status}: {body}")
    return taken


def steps(artifact: Path, variables: Mapping[str, str]) -> dict[str, float]:
    """Returns the milliseconds by step, in the runtime's interpreter without the emulator."""
    event = {
        "resource": "/{proxy+}",
        "httpMethod": "POST",
        "path": "/v2/models/tiny/infer",
        "headers": {},
        "requestContext": {},
        "body": REQUEST,
        "isBase64Encoded": False,
    }
    with tempfile.TemporaryDirectory() as temporary:
        environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(artifact), "TMPDIR": temporary, **variables}
        environ["AWS_LAMBDA_FUNCTION_NAME"] = "dragoman"
        environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"] = "1769"
        python = tools.environment("runtime") / "python"
        script = str(Path(__file__).with_name("phases.py"))
        printed = tools.run(python, script, str(time.time()), json.dumps(event), env=environ, cwd=artifact)
    measured: dict[str, float] = json.loads(printed)
    return measured


def show_steps(artifact: Path, places: Mapping[str, Mapping[str, str]], rounds: int) -> None:
    print("\nFrom cold to the first V2 answer of an ONNX model: median milliseconds by step, without the emulator")
    print(f"{'':12}" + "".join(f"{step:>21}" for step in STEPS))
    for place, variables in places.items():
        runs = [steps(artifact, variables) for _ in range(rounds)]
        medians = (statistics.median(run.get(step, 0) for run in runs) for step in STEPS)
        print(f"{place:12}" + "".join(f"{value:21.1f}" for value in medians))


def show_imports(artifact: Path, lines: int) -> None:
    """Prints the packages and the modules with the longest import times of their own."""
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(artifact)}
    command = (
        tools.environment("runtime") / "python",
        "-X",
        "importtime",
        "-c",
        "from handler.aws import lambda_handler",
    )
    done = subprocess.run(command, env=environ, cwd=artifact, capture_output=True, text=True, check=True)
    modules = sorted(((int(own), int(whole), name) for own, whole, name in IMPORT.findall(done.stderr)), reverse=True)
    packages: dict[str, int] = {}
    for own, _, name in modules:
        top = name.partition(".")[0]
        packages[top] = packages.get(top, 0) + own
    whole_ms = sum(packages.values()) / 1e3
    print(f"\nimport handler.aws: {whole_ms:.1f} ms in {len(modules)} modules (some of it is the tracing)")
    print(f"\n{'package':44} {'own ms':>8}")
    for name, own in sorted(packages.items(), key=lambda item: -item[1])[:lines]:
        print(f"{name:44} {own / 1e3:8.1f}")
    print(f"\n{'module':44} {'own ms':>8} {'with its imports':>17}")
    for own, whole, name in modules[:lines]:
        print(f"{name:44} {own / 1e3:8.1f} {whole / 1e3:17.1f}")


def main(*, quick: bool = False, imports: bool = False) -> list[Row]:
    rounds = 3 if quick else 11
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        artifact = build(folder / "artifact")
        if imports:
            show_imports(artifact, 25)
            return []
        control = build_control(folder / "control", artifact)
        repository.make(folder / "models")
        local = {"DRAGOMAN_REPOSITORY": str(folder / "models")}
        store = stack.enter_context(s3.running())
        upload(store, folder / "models")
        places = {"folder": local, "S3": store.variables()}
        show_steps(artifact, places, rounds)
        subjects: dict[str, Callable[[], float]] = {
            "ours": lambda: initialised(artifact, local),
            "control": lambda: initialised(control, local),
            "folder": lambda: answered(artifact, local),
            "S3": lambda: answered(artifact, store.variables()),
            "control, S3": lambda: answered(control, {**store.variables(), "CONTROL_OBJECT": OBJECT}),
            "control, health": lambda: answered(control, local, "GET"),
        }
        interleaved(subjects, 1)  # the files are in the page cache from here on
        taken = interleaved(subjects, rounds)
    rows = [
        row("INIT", taken["ours"], taken["control"], "ms", BAR_INIT),
        fastest(f"INIT, fastest of {rounds}", taken["ours"], taken["control"], "ms", BAR_INIT),
    ]
    rows += [
        row("first answer, model in S3 / one GET of it", taken["S3"], taken["control, S3"], "ms", BAR_S3),
        fastest(f"the same, fastest of {rounds}", taken["S3"], taken["control, S3"], "ms", BAR_S3),
        row("first answer, model in a folder / a health check", taken["folder"], taken["control, health"], "ms"),
    ]
    print(table("Cold start under Lambda's emulator on one CPU: ours against raw ASGI + Mangum + numpy", rows))
    return rows


def upload(store: s3.Store, models: Path) -> None:
    store.client.create_bucket(Bucket=s3.BUCKET)
    for file in models.glob("*/*/model.onnx"):
        store.client.upload_file(str(file), s3.BUCKET, f"{s3.PREFIX}/{file.relative_to(models)}")


if __name__ == "__main__":
    main(quick="--quick" in sys.argv, imports="--imports" in sys.argv)

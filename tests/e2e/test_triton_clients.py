"""Triton's own programs, and clients made as its examples are, run against a server: JavaScript, Java, perf_analyzer.

perf_analyzer is in tritonclient's wheels up to 2.48. It compares answers with what its input file expects. The others
send typed `contents` and read raw bytes alone, which DRAGOMAN_GRPC_OUTPUTS=raw is for.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.tools import HOME, JAVA, ROOT, environment, npm_install, require, run, site_packages
from tests.support.server import Server, serve_rpc
from tests.support.zoo.models import add_sub, identity

HERE = Path(__file__).with_name("triton")
CLIENTS = HOME / "triton-clients"
NUMBERS = list(range(16))
SUM_AND_DIFFERENCE = [[2 * number for number in NUMBERS], [0] * len(NUMBERS)]
EXPLICIT = {
    "BOOL": ("bool_contents", [True, False]), "INT8": ("int_contents", [-128, 127]),
    "INT16": ("int_contents", [-32768, 1]), "INT32": ("int_contents", [-(2**31), 7]),
    "INT64": ("int64_contents", [-(2**63), 7]), "UINT8": ("uint_contents", [0, 255]),
    "UINT16": ("uint_contents", [0, 65535]), "UINT32": ("uint_contents", [0, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 2**64 - 1]), "FP32": ("fp32_contents", [0.5, -2.0]),
    "FP64": ("fp64_contents", [0.1, 1e300]), "BYTES": ("bytes_contents", ["", "Drache", "龍"]),
}  # fmt: skip
DECOUPLED = """
metadata = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [4]}],
            "outputs": [{"name": "x", "datatype": "FP32", "shape": [4]}]}

def predict(inputs, parameters):
    for _ in range(3):
        yield inputs
"""
STEPS = {"steps": [{"model": "simple", "inputs": {"INPUT0": "INPUT0", "INPUT1": "INPUT1"}}]}
SENT = {"INPUT0": NUMBERS, "INPUT1": NUMBERS}
EXPECTED = dict(zip(("OUTPUT0", "OUTPUT1"), SUM_AND_DIFFERENCE, strict=True))
MODES = {
    "http": "-i http -m simple",
    "http, 4 rows, 4 clients, not in turn": "-i http -m simple -b 4 -a --concurrency-range 4",
    "http, JSON": "-i http -m simple --input-tensor-format json --output-tensor-format json",
    "http, JSON in alone": "-i http -m simple --input-tensor-format json",
    "http, texts": "-i http -m texts --string-length 8",
    "http, a version, one row at a time": "-i http -m batching -x 1 --concurrency-range 4",
    "http, a pipeline": "-i http -m chained",
    "grpc": "-i grpc -m simple",
    "grpc, 8 rows, 4 clients, not in turn": "-i grpc -m simple -b 8 -a --concurrency-range 4",
    "grpc, at a rate": "-i grpc -m simple --request-rate-range 20",
    "grpc, compressed": "-i grpc -m simple --grpc-compression-algorithm gzip",
    "grpc, texts": "-i grpc -m texts --string-data dragoman",
    "grpc, a stream": "-i grpc -m simple --streaming -a --concurrency-range 4",
    "grpc, several answers": "-i grpc -m decoupled --streaming -a",
}
REQUESTS = 20
RUNS = 3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Offer models that add and subtract, return texts, and answer several times, to clients that read raw answers."""
    models = tmp_path_factory.mktemp("models")

    def put(name: str, file: str, content: bytes, **settings: object) -> None:
        path = models / name / "1" / file
        path.parent.mkdir(parents=True)
        path.write_bytes(content)
        path.parents[1].joinpath("model-settings.json").write_text(json.dumps(settings), "utf-8")

    rows, texts = add_sub([None, 16]).SerializeToString(), identity("BYTES", [None, 1]).SerializeToString()
    put("simple", "model.onnx", rows, max_batch_size=8)
    put("batching", "model.onnx", rows, max_batch_size=8, batching={"max_batch_size": 8})
    put("texts", "model.onnx", texts, max_batch_size=8)
    put("chained", "pipeline.json", json.dumps(STEPS).encode(), max_batch_size=8)
    put("decoupled", "model.py", DECOUPLED.encode())
    for datatype in EXPLICIT:
        put(f"explicit_{datatype}", "model.onnx", identity(datatype, [None]).SerializeToString())
    log = models.with_name("log")
    with serve_rpc(log, REPOSITORY=str(models), ALLOW_CODE="true", GRPC_OUTPUTS="raw") as running:
        yield running


@pytest.fixture(scope="module")
def analyzer() -> tuple[Path, dict[str, str]]:
    """Return the program, and the environment in which it finds CUDA's library; it never calls it."""
    require(f"/usr/lib/{platform.machine()}-linux-gnu/libb64.so.0d")
    libraries = site_packages("perf-analyzer") / "nvidia" / "cuda_runtime" / "lib"
    return environment("perf-analyzer") / "perf_analyzer", {**os.environ, "LD_LIBRARY_PATH": str(libraries)}


def analyzed(
    analyzer: tuple[Path, dict[str, str]], server: Server, mode: str, *more: str | Path
) -> subprocess.CompletedProcess[str]:
    """Run one measurement of some requests; again if it hangs.

    One of a hundred runs on a busy machine waits for ever, when all of its requests are answered and its threads are
    gone: the program misses the end of a thread.
    """
    program, variables = analyzer
    address = server.rpc_netloc if "-i grpc" in mode else server.netloc
    command = (program, *mode.split(), "-u", address, "--request-count", str(REQUESTS), "-r", "1", *more)

    def once() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=variables, cwd=CLIENTS, capture_output=True, text=True, check=False, timeout=60
        )

    for _ in range(RUNS - 1):
        with suppress(subprocess.TimeoutExpired):
            return once()
    return once()


@pytest.mark.parametrize("mode", MODES)
def test_perf_analyzer_measures_a_model(
    analyzer: tuple[Path, dict[str, str]], server: Server, tmp_path: Path, mode: str
) -> None:
    """It reads metadata, configuration and statistics. Every answer is there, and right if it knows the right one."""
    CLIENTS.mkdir(parents=True, exist_ok=True)
    calculates = re.search("simple|batching|chained", MODES[mode])
    file = tmp_path / "data.json"
    file.write_text(json.dumps({"data": [SENT], "validation_data": [EXPECTED]}), "utf-8")
    validated = ("--input-data", file) if calculates and "-b " not in MODES[mode] else ()
    done = analyzed(analyzer, server, MODES[mode], *validated)
    assert done.returncode == 0, done.stdout + done.stderr
    # The client's own count, then that of the statistics, which it reads while its first requests are under way.
    sent, counted = (int(count) for count in re.findall("equest count: ([0-9]+)", done.stdout)[:2])
    assert sent == REQUESTS
    assert 0 < counted <= REQUESTS


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_perf_analyzer_notices(
    analyzer: tuple[Path, dict[str, str]], server: Server, tmp_path: Path, protocol: str
) -> None:
    """A wrong answer fails a run, so the others have seen right ones. Of an unknown model it prints Triton's words."""
    CLIENTS.mkdir(parents=True, exist_ok=True)
    file = tmp_path / "data.json"
    wrong = EXPECTED | {"OUTPUT1": [1] * len(NUMBERS)}
    file.write_text(json.dumps({"data": [SENT], "validation_data": [wrong]}), "utf-8")
    assert analyzed(analyzer, server, f"-i {protocol} -m simple", "--input-data", file).returncode
    done = analyzed(analyzer, server, f"-i {protocol} -m nobody")
    assert done.returncode
    assert "Request for unknown model: 'nobody' is not found" in done.stdout + done.stderr


def lines(text: str) -> list[list[int]]:
    """Return the numbers of each line."""
    return [[int(number) for number in line.split()] for line in text.splitlines()]


def test_a_javascript_client_reads_raw_answers(server: Server) -> None:
    """It is grpc-js with a .proto file that it reads at run time, as Triton's example is."""
    CLIENTS.mkdir(parents=True, exist_ok=True)
    for file in ("client.js", "package.json"):
        shutil.copy(HERE / file, CLIENTS)
    npm_install(CLIENTS)
    told = run("node", CLIENTS / "client.js", server.rpc_netloc, ROOT / "proto", "simple")
    assert lines(told) == SUM_AND_DIFFERENCE


def test_a_java_client_reads_raw_answers(server: Server) -> None:
    """It is grpc-java, of Debian, over netty, as Triton's example is."""
    packages = ("guava", "grpc-core", "netty-codec-http2", "perfmark-api", "protobuf", "opencensus-api")
    require("javac", *(f"{JAVA / package}.jar" for package in packages))
    # Debian's names: with a version, and without. Every name of netty and gRPC, or classes of theirs are missing.
    names = ("grpc-*", "netty-*", "perfmark-*", *packages)
    jars = {jar.resolve() for name in names for jar in JAVA.glob(f"{name}.jar")}
    told = run(
        *("java", "-cp", ":".join(map(str, sorted(jars))), HERE / "Explicit.java"),
        *(*server.rpc_netloc.split(":"), ROOT / "core" / "schema" / "open_inference.binpb", "simple"),
    )
    assert lines(told) == SUM_AND_DIFFERENCE


def test_triton_s_stubs_read_raw_answers(server: Server) -> None:
    """Typed contents of every datatype that has a field for them come back as raw bytes, as its examples expect."""
    told = run(sys.executable, HERE / "explicit.py", server.rpc_netloc, json.dumps(EXPLICIT))
    assert json.loads(told) == {datatype: values for datatype, (_, values) in EXPLICIT.items()}

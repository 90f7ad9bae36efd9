"""ModelInfer with raw tensors over gRPC, against a bare grpc.aio server that answers as many bytes to the same message.

If the model returns its tensor, that server returns the message, or runs the model in between without checks: the least
that any server of the model can do, because grpc.aio accepts and returns whole `bytes` only.

The client is grpc's own, with bytes for messages; it sleeps while it waits, on both sides alike.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import numpy as np

from benchmarks import per_request, repository
from benchmarks.measure import Row, interleaved, row, seconds, table
from benchmarks.per_request import IMAGE, STEADY
from benchmarks.server import ROOT, free_port, wait
from core.schema.open_inference import ModelInferRequest, ModelInferResponse

METHOD = "/inference.GRPCInferenceService/ModelInfer"
LIMITS = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
CONNECTIONS = 8
WARM = 100


class Case(NamedTuple):
    model: str
    shape: tuple[int, ...]
    times: int
    bar: float | None = None
    control: str = ""
    """The control's answer. "": as many bytes; "same": the message; "model": the model's output."""

    @property
    def name(self) -> str:
        return f"{self.model} raw {list(self.shape)}" + (", model in both" if self.control == "model" else "")

    @property
    def message(self) -> bytes:
        if self.model == "strings":
            return of_texts()
        data = np.random.default_rng(1).standard_normal(self.shape).astype(np.float32).tobytes()
        tensor = ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=self.shape)
        return ModelInferRequest(model_name=self.model, inputs=[tensor], raw_input_contents=[data]).SerializeToString()


def of_texts() -> bytes:
    """Returns the request for 1000 texts of about 18 bytes, which a model returns."""
    texts = repository.texts()
    tensor = ModelInferRequest.InferInputTensor(name="x", datatype="BYTES", shape=[len(texts)])
    raw = per_request.with_lengths(texts)
    return ModelInferRequest(model_name="strings", inputs=[tensor], raw_input_contents=[raw]).SerializeToString()


CASES = (
    Case("tiny", (1, 4), 1000, 1.5),
    Case("strings", (repository.STRINGS,), 300, 1.6),
    Case("echo", IMAGE, 200, 1.2, "same"),
    Case("echo", IMAGE, 200, 1.2, "model"),
    Case("image", IMAGE, 200),
    Case("large", (1, 16), 200),
)

ONE_PORT = (CASES[0], CASES[4])


@contextmanager
def process(port: int, *command: str, **environ: str) -> Iterator[None]:
    running = subprocess.Popen([sys.executable, *command], cwd=ROOT, env={**os.environ, **environ})
    try:
        wait(running, port)
        yield
    finally:
        running.terminate()
        running.wait(30)


@contextmanager
def servers() -> Iterator[tuple[int, int, int]]:
    """Yields the gRPC ports of ours, with the models of `repository`, of ours with --http2, and of the control."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        repository.make(Path(folder))
        http, ours, http2, bare = free_port(), free_port(), free_port(), free_port()
        settings = {"DRAGOMAN_REPOSITORY": folder, "DRAGOMAN_PRELOAD": "*", "DRAGOMAN_LOG_LEVEL": "WARNING"}
        serve = ("-m", "dragoman", "serve", "--port")
        stack.enter_context(process(ours, *serve, str(http), "--grpc-port", str(ours), **settings))
        stack.enter_context(process(http2, *serve, str(http2), "--http2", **settings))
        stack.enter_context(
            process(bare, "-m", "benchmarks.control_rpc", str(bare), f"{folder}/echo/1/model.onnx", **STEADY)
        )
        yield ours, http2, bare


def opened(port: int) -> grpc.Channel:
    return grpc.insecure_channel(f"127.0.0.1:{port}", options=[*LIMITS, ("grpc.use_local_subchannel_pool", 1)])


def calls(case: Case, ours: grpc.Channel, bare: grpc.Channel) -> tuple[Any, Any]:
    """Returns the calls that send the same message to both servers, which answer as many bytes."""
    asked: Any = ours.unary_unary(METHOD)
    answer = asked(case.message)
    if not ModelInferResponse.FromString(answer).raw_output_contents:
        raise RuntimeError(case.model)
    for _ in range(WARM):  # until ours has measured the model's speed
        asked(case.message)
    return asked, bare.unary_unary(f"/control.Echo/{case.control or len(answer)}")


def latency(case: Case, ours: int, bare: int, rounds: int) -> Row:
    with opened(ours) as one, opened(bare) as other:
        message = case.message
        asked, echoed = calls(case, one, other)
        taken = interleaved(
            {
                "ours": lambda: seconds(lambda: asked(message), case.times) * 1e3,
                "control": lambda: seconds(lambda: echoed(message), case.times) * 1e3,
            },
            rounds,
        )
    return row(f"{case.name}, p50", taken["ours"], taken["control"], "ms", case.bar)


def one_port(case: Case, http2: int, ours: int, rounds: int) -> Row:
    """Compares the same message over `--http2` with the same server's grpc.aio."""
    with opened(http2) as one, opened(ours) as other:
        message, (asked, known) = case.message, (each.unary_unary(METHOD) for each in (one, other))
        for _ in range(WARM):
            asked(message)
            known(message)
        taken = interleaved(
            {
                "ours": lambda: seconds(lambda: asked(message), case.times) * 1e3,
                "control": lambda: seconds(lambda: known(message), case.times) * 1e3,
            },
            rounds,
        )
    return row(f"{case.name}, --http2 against --grpc-port", taken["ours"], taken["control"], "ms", 0.6)


def at_eight(case: Case, ours: int, bare: int, rounds: int) -> Row:
    """Compares the wall time per answer with eight connections at once."""
    with ExitStack() as stack:
        message = case.message
        pairs = [
            calls(case, stack.enter_context(opened(ours)), stack.enter_context(opened(bare)))
            for _ in range(CONNECTIONS)
        ]
        pool = stack.enter_context(ThreadPoolExecutor(CONNECTIONS))

        def per_answer(side: int) -> float:
            def some(pair: tuple[Any, Any]) -> None:
                for _ in range(case.times // CONNECTIONS):
                    pair[side](message)

            start = time.perf_counter()
            list(pool.map(some, pairs))
            return (time.perf_counter() - start) * 1e3 / (case.times // CONNECTIONS * CONNECTIONS)

        taken = interleaved({"ours": lambda: per_answer(0), "control": lambda: per_answer(1)}, rounds)
    return row(f"{case.name}, {CONNECTIONS} connections", taken["ours"], taken["control"], "ms/answer")


def main(*, quick: bool = False) -> list[Row]:
    rounds = 5 if quick else 15
    with servers() as (ours, http2, bare):
        rows = [latency(case, ours, bare, rounds) for case in CASES]
        rows += [one_port(case, http2, ours, rounds) for case in ONE_PORT]
        rows += [at_eight(case, ours, bare, 3 if quick else 7) for case in CASES]
    print(table("ModelInfer over gRPC: ours against a bare grpc.aio echo of the same bytes", rows))
    return rows


if __name__ == "__main__":
    main()

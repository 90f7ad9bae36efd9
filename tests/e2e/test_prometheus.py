"""A real Prometheus scrapes the server, of one process and of two, at both of its paths."""

import json
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e import tools
from tests.handler.edge.client import BODY, INFER
from tests.protocols.test_waiting import until
from tests.support.ports import free_port
from tests.support.server import HOST, ROOT, running

PATHS = {"own": "/metrics", "tensorflow": "/monitoring/prometheus/metrics"}
REQUESTS = 20
CONFIG = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}}


@contextmanager
def prometheus(target: int, folder: Path) -> Iterator[str]:
    """Runs Prometheus, which scrapes a port of this machine. Yields its address."""
    tools.require("prometheus")
    jobs = [
        {"job_name": job, "metrics_path": path, "static_configs": [{"targets": [f"{HOST}:{target}"]}]}
        for job, path in PATHS.items()
    ]
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(json.dumps(CONFIG | {"scrape_configs": jobs}), "utf-8")  # JSON is YAML
    command = ("prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}")
    address = f"{HOST}:{port}"
    arguments = (*command, f"--web.listen-address={address}")
    with tools.daemon(*arguments, ready=lambda: tools.listens(port), log=folder / "prometheus.log", cwd=folder):
        yield address


def found(address: str, query: str) -> dict[tuple[tuple[str, str], ...], float]:
    """Returns what a query finds now, by labels."""
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}") as answer:
        rows: list[Any] = json.load(answer)["data"]["result"]
    return {
        tuple(sorted((key, text) for key, text in row["metric"].items() if key not in ("instance", "__name__"))): float(
            row["value"][1]
        )
        for row in rows
    }


@pytest.mark.parametrize(
    ("workers", "command"), [(1, "uvicorn handler.asgi:app"), (2, "uvicorn handler.asgi:app"), (2, "dragoman serve")]
)
def test_prometheus_reads_the_counts_of_all_processes(workers: int, command: str, tmp_path: Path) -> None:
    """Under Triton's names, our own and TensorFlow Serving's; no sample is refused, and the targets are up."""

    def arguments(port: int) -> list[str]:
        return ["-m", *command.split(), "--host", HOST, "--port", str(port), "--workers", str(workers)]

    settings = {"REPOSITORY": str(ROOT / "models"), "CACHE": str(tmp_path / "cache"), "METRICS": "triton,tfserving"}
    with running(arguments, 1, tmp_path / "log", settings) as (_, (port,)), prometheus(port, tmp_path) as address:
        for _ in range(REQUESTS):  # each over a connection of its own, which either process may take
            asked = urllib.request.Request(f"http://{HOST}:{port}{INFER}", BODY, {"content-type": "application/json"})
            with urllib.request.urlopen(asked, timeout=60) as answer:  # noqa: S310 - loopback
                assert answer.status == 200
        model = (("model", "half_plus_three"), ("version", "123"))
        own, theirs = ("job", "own"), ("job", "tensorflow")
        until(lambda: found(address, "nv_inference_request_success").get((own, *model)) == REQUESTS)

        def all_have_counted() -> bool:
            """Looks after another scrape: a process that began late has perhaps had no connection yet."""
            with urllib.request.urlopen(f"http://{HOST}:{port}{PATHS['own']}", timeout=60) as scrape:
                assert scrape.status == 200
            return found(address, "dragoman_processes") == {(own,): workers}

        until(all_have_counted)
        assert found(address, 'dragoman_requests_total{protocol="v2",status="200"}') == {
            (own, ("protocol", "v2"), ("status", "200")): REQUESTS
        }
        until(
            lambda: (
                found(address, '{__name__=":tensorflow:serving:request_count",status="OK"}')
                == {(theirs, ("model_name", "half_plus_three"), ("status", "OK")): REQUESTS}
            )
        )
        quantile = "histogram_quantile(0.99, dragoman_request_duration_seconds_bucket{protocol='v2'})"
        assert 0 < found(address, quantile)[own, ("protocol", "v2")] < 60
        assert found(address, "up") == {(own,): 1, (theirs,): 1}
    assert "Error on ingesting" not in (tmp_path / "prometheus.log").read_text("utf-8")

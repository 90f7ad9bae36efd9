"""The console: what the page of a busy model takes, and what open pages cost the requests beside them.

The page is asked for in process, after a million inferences of four protocols, spread over all the spans that it shows.
Ten pages are open as ten browsers have them: each asks again two seconds after its answer.
"""

import asyncio
import contextlib
import http.client
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks import client
from benchmarks.measure import Row, row, table
from benchmarks.server import ROOT, uvicorn
from handler.edge.app import App
from handler.lifecycle.traffic.recent import SPAN, SPANS
from handler.settings import Settings

MODELS: Final = Path(__file__).parents[1] / "models"
MODEL: Final = "half_plus_three"
BODY: Final = b'{"inputs":[{"name":"x","shape":[3],"datatype":"FP32","data":[1,2,5]}]}'
INFER, PAGE = f"/v2/models/{MODEL}/infer", f"/models/{MODEL}"
PROTOCOLS: Final = ("v1", "v2", "grpc", "connect")
MILLION: Final = 1_000_000
PAGE_MS: Final = 50.0
BAR: Final = 1.05
PAGES: Final = 10
SECONDS: Final = float(2)
"""Between two looks of an open page: `pages.MODEL_SECONDS`."""


def main(*, quick: bool) -> list[Row]:
    found = [busy_page(MILLION // 20 if quick else MILLION), beside_pages(2 if quick else 12, 1000 if quick else 4000)]
    print(table("The console", found))
    return found


def busy_page(inferences: int) -> Row:
    """Returns the milliseconds of a model's page."""
    app = App(Settings.from_env({"DRAGOMAN_REPOSITORY": str(MODELS)}), inline=True)
    asked = partial(_asked, app)
    asyncio.run(asked("POST", INFER, BODY))
    count(app, inferences)
    asyncio.run(asked("GET", PAGE))  # the first one imports FastAPI, and calculates what is over
    taken = []
    for _ in range(50):
        begun = time.perf_counter()
        asyncio.run(asked("GET", PAGE))
        taken.append((time.perf_counter() - begun) * 1e3)
    app.close()
    return row(f"a model's page after {inferences:,} inferences", taken, [PAGE_MS] * len(taken), "ms", 1)


def count(app: App, inferences: int) -> None:
    """Counts inferences as requests do, over the last ten minutes."""
    (version,) = (each for each in app.registry.known() if each.name == MODEL)
    numbers, recent = random.Random(1), version.traffic._recent  # noqa: S311, SLF001 - the clock is moved
    clock = [time.monotonic() - SPAN * SPANS]
    recent._clock = lambda: clock[0]  # noqa: SLF001 - as above
    for _ in range(SPANS):
        clock[0] += SPAN
        for number in range(inferences // SPANS):
            ns = int(numbers.lognormvariate(13, 1))
            version.traffic.record((0, 0, ns, 0), PROTOCOLS[number % 4], success=number % 97 > 0)


async def _asked(app: App, method: str, path: str, body: bytes = b"") -> None:
    headers = [(b"host", b"localhost"), (b"accept", b"text/html"), (b"content-length", b"%d" % len(body))]
    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "root_path": "", "headers": headers}
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        statuses.append(message.get("status", 200))

    await app(scope | {"client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80)}, receive, send)
    if set(statuses) != {200}:
        raise RuntimeError(f"{path} answered {statuses}")


def beside_pages(rounds: int, times: int) -> Row:
    """Returns the p50 of a tiny request while ten pages are open, beside that without, on one server in turns."""
    wire = client.request(INFER, BODY, {})
    ours, control = [], []
    with uvicorn("handler.asgi:app", {"DRAGOMAN_REPOSITORY": str(MODELS)}, quiet=True) as port:
        client.latency(port, wire, times)
        for _ in range(rounds):
            control.append(client.latency(port, wire, times))
            with open_pages(port):
                ours.append(client.latency(port, wire, times))
    return row("tiny V2 JSON while ten pages are open, p50", ours, control, "ms", BAR)


@contextlib.contextmanager
def open_pages(port: int) -> Iterator[None]:
    """Keeps pages open in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.console", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            if process.stdout is None or not process.stdout.readline():
                raise RuntimeError("the pages do not open")
            yield
        finally:
            process.terminate()


def look(port: int) -> None:
    """Opens the pages, says so, and looks at each again and again."""
    browsers = [http.client.HTTPConnection("127.0.0.1", port) for _ in range(PAGES)]
    for number in range(sys.maxsize):
        browser = browsers[number % PAGES]
        browser.request("GET", PAGE, headers={"accept": "text/html"})
        browser.getresponse().read()
        if number == PAGES:
            print("open", flush=True)
        if number > PAGES:
            time.sleep(SECONDS / PAGES)


if __name__ == "__main__":
    look(int(sys.argv[1]))

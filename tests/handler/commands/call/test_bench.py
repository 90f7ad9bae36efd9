"""`dragoman bench`: figures of a server that runs, of one that fails, and of one that is gone."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handler import cli
from handler.commands.call import bench, chart
from handler.commands.call.levels import MOST_REASONS, OTHER, Level, TimeTally
from tests.handler.edge.client import ROOT
from tests.support import web
from tests.support.server import Server

METADATA = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1]}]}
SHORT = ("--seconds", "0.2")


@contextmanager
def stub(good: int, then: int | None = 500) -> Iterator[str]:
    """A server that answers so many inferences, and refuses others; with None it closes their connections."""
    left = [good]

    class Handler(web.Handler):
        def do_GET(self) -> None:
            self._send(200 if "health" not in self.path else 404, METADATA)

        def do_POST(self) -> None:
            self.body()
            left[0] -= 1
            if left[0] >= 0:
                self._send(200, {"model_version": "1", "outputs": []})
            elif then is None:
                self.close_connection = True
            else:
                self._send(then, {"error": f"\x1b[2Jfailed {left[0] % 20}"})

        def _send(self, status: int, document: Any) -> None:
            self.answer(status, json.dumps(document).encode())

    with web.serving(Handler) as server:
        yield server.url


def test_a_server_is_measured(
    launch: Callable[..., Server], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for each concurrency, the client's own time, JSON and a picture."""
    server, picture = launch(rpc=True, REPOSITORY=str(ROOT / "models")), tmp_path / "b.svg"
    url = f"http://{server.netloc}"
    words = ["bench", "iris", "--sample", "--rows", "3", *SHORT, "--concurrency", "1,3"]
    assert cli.main([*words, "--url", url, "--svg", str(picture)]) == 0
    captured = capsys.readouterr()
    head, one, three, last = captured.out.splitlines()
    assert (head.split()[:2], one.split()[0], three.split()[0]) == (["AT", "A"], "1", "3")
    assert one.split()[-1] == three.split()[-1] == "0"
    assert last.startswith("iris, v2, ")
    assert "GET /v2/health/live takes this client" in last
    assert captured.err == ""
    texts = [each.text for each in ET.parse(picture).getroot().iter() if (each.text or "").strip()]  # noqa: S314 - our own file
    assert texts[0].startswith("iris, v2, ")
    assert cli.main([*words, "--url", server.rpc_netloc, "--protocol", "grpc", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["concurrency"] for each in found["levels"]] == [1, 3]
    assert all(each["requests"] > 0 and each["errors"] == 0 for each in found["levels"])
    assert all(each["p50"] <= each["p90"] <= each["p99"] <= each["most"] for each in found["levels"])
    page = (ROOT / "docs" / "command-line.md").read_text().partition("With `--json`, all times are in seconds")[2]
    assert [key for key in (*found, *found["levels"][0]) if f"`{key}`" not in page] == []


def test_failures_are_counted_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    """By their reason, of which few are kept; the exit code says that there were some."""
    with stub(1) as url:
        assert cli.main(["bench", "m", "--sample", *SHORT, "--concurrency", "2,1", "--url", url]) == 1
    captured = capsys.readouterr()
    assert "requests failed: 500 \\x1b[2Jfailed " in captured.err
    assert captured.err.count("\n") <= MOST_REASONS
    tally = TimeTally()
    for number in range(100):
        tally.fail(f"{number} " + "x" * 10_000)
    assert len(tally.failures) == MOST_REASONS + 1
    assert tally.failures[OTHER] == 100 - MOST_REASONS
    assert max(map(len, tally.failures)) < 300


def test_a_server_that_goes_away_ends_the_measurement(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What was measured is printed; nothing waits for the rest of the time."""
    with stub(5, None) as url:
        words = ["bench", "m", "--sample", "--seconds", "600", "--concurrency", "2,1,1", "--url", url, "--json"]
        assert cli.main([*words, "--svg", "/dev/full"]) == 1
    captured = capsys.readouterr()
    first, second = json.loads(captured.out)["levels"]
    assert (first["requests"], second["requests"], second["p50"]) == (4, 0, None)
    assert "does not answer" in captured.err
    assert "/dev/full cannot be written: No space left on device" in captured.err
    for place, told in ((tmp_path, "it is a folder"), (tmp_path / "none" / "b.svg", "its folder does not exist")):
        assert cli.main([*words, "--svg", str(place)]) == 1
        assert capsys.readouterr().err == f"dragoman: {place} cannot be written: {told}\n"


@pytest.mark.parametrize(("words", "told"), [
    (("--concurrency", "0"), "--concurrency is '0'; expected numbers from 1 to 1024 with commas between"),
    (("--concurrency", "1,x"), "--concurrency is '1,x'"), (("--concurrency", "9" * 5000), "--concurrency is '999"),
    ((), "500 \\x1b[2Jfailed"),
])  # fmt: skip
def test_a_first_request_that_fails_measures_nothing(
    words: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its reason is the only line."""
    with stub(0) as url:
        assert cli.main(["bench", "m", "--sample", "--url", url, *words]) == (2 if words else 1)
    captured = capsys.readouterr()
    assert (captured.out, told in captured.err) == ("", True)


def test_ctrl_c_prints_what_was_measured(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """And the shell gets its usual code."""
    watch, calls = bench._watch, []

    def interrupted(*arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        watch(*arguments)

    monkeypatch.setattr(bench, "_watch", interrupted)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with stub(10**9) as url:
        assert cli.main(["bench", "m", "--sample", *SHORT, "--concurrency", "1,2", "--url", url]) == 130
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 3
    assert " 1 at a time: 0 of " in captured.err
    assert captured.err.endswith("\x1b[1A\x1b[2K")


@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantiles_are_right_to_a_percent(times: list[float], part: float) -> None:
    """Against numpy, whichever way times are spread over threads."""
    halves = TimeTally(), TimeTally()
    for index, each in enumerate(times):
        halves[index % 2].add(each)
    total = TimeTally()
    for half in halves:
        total.join(half)
    expected = float(np.quantile(times, part, method="inverted_cdf"))
    assert total.quantile(part) == pytest.approx(expected, rel=0.01)
    assert (total.count, total.most) == (len(times), max(times))


def test_a_level_without_an_answer_has_no_times() -> None:
    """JSON has null, and a picture leaves them out."""
    tally = TimeTally()
    tally.fail("x")
    level = Level.of(3, 1.0, tally)
    assert math.isnan(level.p50)
    assert level.members()["p99"] is None
    for levels in ([], [level], [level, level]):
        assert ET.fromstring(chart.draw("<t>", levels)).tag.endswith("svg")  # noqa: S314 - our own text

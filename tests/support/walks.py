"""Walks through a page of docs/: writes its files, runs its programs and commands, and compares what they print.

A block with `<!-- tested by FILE -->` belongs to the walk of that file, one with `<!-- tested by FILE as PATH -->` is
written to the path. Commands run in a shell, one after another. `dragoman serve` and `uvicorn` start a server for the
commands behind them. Answers may differ from the page by a twentieth, because training differs between processors; of
other commands the words are compared, and no number. `...` on a page is any text, keys and digests are any others.
"""

import math
import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.server import HOST, running

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(r"<!-- tested by (\S+)(?: as (\S+))? -->\n```(\w+)\n(.*?)```", re.DOTALL)
COMMAND: Final = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
SECRET: Final = re.compile(r"dgm_[\w-]{43}|\b[0-9a-f]{64}\b")
NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
SIZE: Final = re.compile("# +[kM]?B")
ASSIGNED: Final = re.compile(r"[A-Z_0-9]+=")
URL: Final = "http://127.0.0.1:8080"
LOCAL: Final = re.compile(r"http://127\.0\.0\.1:\d+")
PATH: Final = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
FUNCTION: Final = f'dragoman() {{ {shlex.quote(sys.executable)} -m dragoman "$@"; }}\n'
NEAR: Final = 0.05
SECONDS: Final = 300


class Walk:
    """A shell in a folder. `given`: texts of commands, such as the name of a bucket, and what stands for them here."""

    def __init__(self, folder: Path, stack: ExitStack, given: Mapping[str, str]) -> None:
        self.folder = folder
        self.given = given
        self._stack = stack
        self._variables = {
            "PYTHONPATH": str(ROOT),
            "TF_CPP_MIN_LOG_LEVEL": "3",
            "PYTHONDONTWRITEBYTECODE": "",
            "PATH": PATH,
        }
        self._base = URL

    def run(self, command: str, shown: str) -> None:
        """Runs a command, and compares what it prints."""
        for text, here in self.given.items():
            command = command.replace(text, here)
        words = shlex.split(command.replace(".venv/bin/", ""), comments=True)
        first = next(index for index, word in enumerate(words) if not ASSIGNED.match(word))
        set_up = dict(word.split("=", 1) for word in words[:first])
        if words[0] == "export":
            self._variables |= dict(word.split("=", 1) for word in words[1:])
        elif words[first] == "uvicorn" or words[first : first + 2] == ["dragoman", "serve"]:
            self._serve(words[first:], set_up, shown)
        else:
            done = self.done("bash", "-c", FUNCTION + LOCAL.sub(self._base, command))
            shows_progress = shown.startswith(done.stderr[:10]) and not shown.startswith(done.stdout[:10])
            printed = self.back((done.stderr if shows_progress else "") + done.stdout)
            (near if words[first] == "curl" else alike)(printed, shown)

    def done(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end. It may find faults, and end with 1."""
        done = subprocess.run(
            command, cwd=self.folder, env=os.environ | self._variables, capture_output=True, text=True, check=False,
            timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode in {0, 1}, done.stderr[-4000:]
        return done

    def back(self, printed: str) -> str:
        """Returns a text with the page's names."""
        for text, here in self.given.items():
            printed = printed.replace(here, text)
        return printed.replace(self._base, URL)

    def _serve(self, words: list[str], set_up: Mapping[str, str], shown: str) -> None:
        """Starts a server, which runs until the walk ends."""
        variables = self._variables | set_up
        log = self.folder / f"{len(list(self.folder.glob('*.log')))}.log"
        _, (port,) = self._stack.enter_context(
            running(lambda port: ["-m", *words, "--port", str(port)], 1, log, {}, lambda *_: variables, self.folder)
        )
        self._base = f"http://{HOST}:{port}"
        missing = lines = [line for line in shown.splitlines() if line != "..."]
        deadline = time.monotonic() + SECONDS
        while missing and time.monotonic() < deadline:
            missing = [line for line in lines if line not in self.back(log.read_text("utf-8"))]
            time.sleep(0.02)
        assert not missing, log.read_text("utf-8")


def walk(
    page: str,
    by: str,
    folder: Path,
    given: Mapping[str, str] | None = None,
    before: Mapping[str, Callable[[], object]] | None = None,
) -> int:
    """Runs the blocks of a page that name a test's file. Returns how many commands there were.

    `before`: what happens before a command that begins so.
    """
    done = 0
    with ExitStack() as stack:
        shell = Walk(folder, stack, given or {})
        for named, path, kind, content in BLOCK.findall((ROOT / page).read_text("utf-8")):
            if named != by:
                continue
            if path:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(content, "utf-8")
            elif kind == "python":
                assert shell.done(sys.executable, "-c", content).returncode == 0
            for command, shown in COMMAND.findall(content) if kind == "console" else ():
                for text, happens in (before or {}).items():
                    if command.startswith(text):
                        happens()
                shell.run(command, shown)
                done += 1
    return done


def masked(text: str) -> list[str]:
    """Returns the lines of a text without its numbers, keys and digests."""
    hidden = (NUMBER.sub("#", SECRET.sub("~", line)).strip() for line in text.splitlines())
    return [SIZE.sub("# B", re.sub(" {2,}", "  ", line)) for line in hidden if line]


def alike(found: str, shown: str) -> None:
    """Asserts that texts have the same words."""
    expected = re.escape("\n".join(masked(shown))).replace(re.escape("..."), ".*")
    assert re.fullmatch(expected, "\n".join(masked(found)), re.DOTALL), found


def near(found: str, shown: str) -> None:
    """Asserts that texts are equal but for a twentieth of their numbers."""
    alike(found, shown)
    if "..." not in shown:
        numbers = ([float(each) for each in NUMBER.findall(SECRET.sub("", text))] for text in (found, shown))
        assert all(math.isclose(*pair, rel_tol=NEAR, abs_tol=NEAR) for pair in zip(*numbers, strict=True)), found

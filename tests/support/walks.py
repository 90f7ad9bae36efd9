"""Walks through a page of docs/: writes its files, runs its programs and commands, and compares what they print.

A block with `<!-- tested by FILE -->` belongs to the walk of that file, one with `<!-- tested by FILE as PATH -->` is
written to the path. `dragoman serve` starts a server for the commands behind it. Answers may differ from the page by a
twentieth, because training differs between processors; of other commands the words are compared, and no number.
"""

import math
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from tests.support.server import HOST, running

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(r"<!-- tested by (\S+)(?: as (\S+))? -->\n```(\w+)\n(.*?)```", re.DOTALL)
COMMAND: Final = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
SIZE: Final = re.compile("# [kM]?B")
NEAR: Final = 0.05
SECONDS: Final = 300


def walk(page: str, by: str, folder: Path) -> int:
    """Runs the blocks of a page that name a test's file. Returns how many commands there were."""
    environ = os.environ | {"PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONDONTWRITEBYTECODE": ""}
    done = 0
    with ExitStack() as stack:
        base = ""
        for named, path, kind, content in BLOCK.findall((ROOT / page).read_text("utf-8")):
            if named != by:
                continue
            if path:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(content, "utf-8")
            elif kind == "python":
                printed(("-c", content), folder, environ)
            for command, shown in COMMAND.findall(content) if kind == "console" else ():
                words = shlex.split(command)
                done += 1
                if words[:2] == ["dragoman", "serve"]:
                    base = f"http://{HOST}:{served(stack, words[1:], folder, environ)}"
                elif words[0] == "dragoman":
                    assert masked(printed(("-m", *words), folder, environ)) == masked(shown), command
                else:
                    near(answer(words, base), shown.strip())
    return done


def printed(arguments: tuple[str, ...], folder: Path, environ: dict[str, str]) -> str:
    """Returns what a program prints."""
    done = subprocess.run(
        (sys.executable, *arguments), cwd=folder, env=environ, capture_output=True, text=True, check=False,
        timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def served(stack: ExitStack, words: list[str], folder: Path, environ: dict[str, str]) -> int:
    """Starts `dragoman serve` in the folder until the stack ends. Returns its port."""
    repository = words.index("--repository") + 1
    words = [*words[:repository], str(folder / words[repository]), *words[repository + 1 :]]
    _, (port,) = stack.enter_context(
        running(lambda port: ["-m", "dragoman", *words, "--port", str(port)], 1, folder / "log", {})
    )
    return int(port)


def answer(words: list[str], base: str) -> str:
    """Returns what curl would print."""
    assert words[:3:2] == ["curl", "-d"], words
    url = base + words[4].partition(":8080")[2]
    with urllib.request.urlopen(url, words[3].encode(), timeout=SECONDS) as found:  # noqa: S310 - a page's, on loopback
        return str(found.read().decode())


def masked(text: str) -> list[str]:
    return [SIZE.sub("# B", NUMBER.sub("#", line.strip())) for line in text.splitlines() if line.strip()]


def near(found: str, shown: str) -> None:
    """Asserts that texts are equal but for a twentieth of their numbers."""
    assert masked(found) == masked(shown), found
    numbers = ([float(each) for each in NUMBER.findall(text)] for text in (found, shown))
    assert all(math.isclose(*pair, rel_tol=NEAR, abs_tol=NEAR) for pair in zip(*numbers, strict=True)), found

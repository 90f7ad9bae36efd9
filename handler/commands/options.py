"""What commands have in common: how a function becomes one of click's, and the options that several of them have."""

import functools
import re
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import click

T = TypeVar("T")
FILE: Final = click.Path(readable=False)
"""The type of a file's or folder's path: shells complete it. The command itself says what is wrong with it."""

PLAIN_HOST: Final = re.compile(r"(?:\[[^][]*\]|[^][:]*)(?::[0-9]*)?")
"""Matches a host with or without its port."""


class CommandOptions(SimpleNamespace):
    """The arguments and options of one command, by name."""


class DescribedArgument(click.Argument):
    """An argument with a line of help. Those of click have one since 8.5, and SAM's command line needs 8.1."""

    def __init__(self, *names: Any, **more: Any) -> None:
        about = more.pop("help")
        super().__init__(*names, **more)
        self.help = about

    def get_help_record(self, _: click.Context) -> tuple[str, str]:
        return self.human_readable_name, self.help or ""


argument: Final = functools.partial(click.argument, cls=DescribedArgument)
quiet: Final = click.option("--quiet", is_flag=True, help="do not report progress")
as_json: Final = click.option("--json", is_flag=True, help="print JSON")
json_lines: Final = click.option("--json", is_flag=True, help="print JSON, a line for each result")


def command(
    name: str,
    about: str,
    more: str | None = None,
    *,
    cls: type[click.Command] = click.Command,
    own_signals: bool = False,
    **how: Any,
) -> Callable[[Callable[[CommandOptions], int | None]], click.Command]:
    """Makes a command of a function, which returns an exit code or None.

    `about`: its line in the list of commands. `more`: what its own help says in the place of that.
    `own_signals`: it handles SIGTERM itself.
    """

    def made(work: Callable[[CommandOptions], int | None]) -> click.Command:
        @functools.wraps(work)
        def run(**given: Any) -> int:
            from handler.commands import entry  # noqa: PLC0415 - not for --help and mistakes

            with nullcontext() if own_signals else entry.ends_by_signal():
                return entry.run(lambda: work(CommandOptions(**given)))

        return click.command(name, cls, short_help=about, help=more or f"{about[0].upper()}{about[1:]}.", **how)(run)

    return made


def checked(read: Callable[[str], T], expected: str = "") -> Callable[[str], T]:
    """Returns a type of values. `read`: reads one, or raises ValueError, by default with what was expected."""

    def value(text: str) -> T:
        try:
            return read(text)
        except ValueError as error:
            raise click.BadParameter(f"it is {text[:64]!r}; expected {expected or error}") from None

    return value


def address(place: str) -> Callable[[str], str]:
    """Returns the type of a server's URL without what would not be sent, which is not shown. `place`: of a key."""

    def url(text: str) -> str:
        host, path = re.fullmatch(r"(?:.*?://)?([^/?#]*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr] # any
        if "@" in host or ("@" in path and not PLAIN_HOST.fullmatch(host)):  # a password can have a slash
            raise click.BadParameter(f"it holds credentials; they belong in {place}")
        if "?" in path or "#" in path:
            raise click.BadParameter("it has a query or a fragment; expected http://HOST:PORT, or a path after that")
        return text

    return url


def seconds(text: str) -> float:
    """Reads the time for an answer. Raises ValueError."""
    if not re.fullmatch(r"[0-9]{1,5}(\.[0-9]{1,6})?", text) or not float(text):
        raise ValueError("seconds above 0, below 100000")
    return float(text)


def tolerance(text: str) -> float:
    """Reads how far two numbers may differ. Raises ValueError."""
    found = float(text)
    if not 0 <= found < float("inf"):
        raise ValueError
    return found

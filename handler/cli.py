"""The command line: finds a command's module, which has its flags (`add`) and its work (`run`)."""

import argparse
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Final, NoReturn

COMMANDS: Final = {
    "serve": "handler.commands.serve.flags",
    "infer": "handler.commands.call.flags",
    "bench": "handler.commands.call.flags",
    "push": "handler.commands.models",
    "pull": "handler.commands.models",
    "list": "handler.commands.models",
    "index": "handler.commands.models",
    "convert": "handler.commands.convert.flags",
    "sign": "handler.commands.models",
    "verify": "handler.commands.models",
    "keys": "handler.commands.keys",
    "doctor": "handler.commands.doctor.flags",
    "init": "handler.commands.init.flags",
    "replay": "handler.commands.replay.flags",
    "batch": "handler.commands.batch.flags",
    "build-image": "handler.commands.image.flags",
    "completion": "handler.commands.completion",
}
"""Each command's module: `add(commands)` adds its parsers, by add_parser; `run(options)` returns an exit code or None.

Only the module of the command that is called is imported, so what it imports at once must be light.
"""
WORDS: Final = re.compile(r"(?<![\w-])--?[a-z][\w-]*|(?<=choice: ')[^']+")
"""Matches the flags in argparse's messages, and the command that it does not know."""


def main(arguments: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    first = next((word for word in words if not word.startswith("-")), "")
    alone = first in COMMANDS and first != "completion"  # which is about all of them
    made = parser([first] if alone else COMMANDS)
    if not words:
        made.print_help(sys.stderr)
        return 2
    options, unknown = made.parse_known_args(words)
    if unknown:  # the command's own usage and flags help more than those of all commands
        made.commands[options.command].error(f"unrecognized arguments: {' '.join(unknown)}")
    from handler.commands import entry  # noqa: PLC0415 - not for --help, --version and mistakes

    return entry.run(import_module(COMMANDS[options.command]).run, options)


def parser(names: Iterable[str]) -> "_Parser":
    """Makes the parser of some commands, and of those in the same modules."""
    made = _Parser(
        prog="dragoman",
        description="Serve models over every standard inference protocol",
        epilog="`dragoman COMMAND --help` has the flags of a command. `dragoman init` makes an example to begin with.",
    )
    made.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = made.add_subparsers(dest="command", required=True, metavar="COMMAND", title="commands")
    for module in dict.fromkeys(COMMANDS[name] for name in names):
        import_module(module).add(commands)
    made.commands = commands.choices
    return made


class _Parser(argparse.ArgumentParser):
    """Names the flag or command that was probably meant. Takes no flag in part: a new one could make it mean two."""

    commands: Mapping[str, argparse.ArgumentParser]
    """The parsers of the commands, by name; the parser of a command has none."""

    def __init__(self, *args: object, **options: object) -> None:
        super().__init__(*args, **{"allow_abbrev": False} | options)  # type: ignore[arg-type] # as argparse's own

    def error(self, message: str) -> NoReturn:
        near = (_nearest(word, self.words()) for word in WORDS.findall(message.partition("(choose")[0]))
        hint = next((f"; did you mean {each}?" for each in near if each), "")
        super().error(message + hint)

    def words(self) -> list[str]:
        """Returns the flags and commands, those of the commands, too."""
        words = [*self._option_string_actions]
        for action in self._actions:
            words += action.choices or ()
            parsers = action.choices.values() if isinstance(action.choices, dict) else ()
            words += [word for each in parsers for word in each.words()]
        return words


def _nearest(word: str, known: Sequence[str]) -> str:
    """Returns the known word that is most like another one, "" if none is, or if it is known itself."""
    from core.errors import nearest  # noqa: PLC0415 - only mistakes need it

    return "" if word in known else nearest(word, known)


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version  # noqa: PLC0415 - 10 ms that `serve` does not need

        print(f"dragoman {version('dragoman')}")  # noqa: T201 - the result
        parser.exit()

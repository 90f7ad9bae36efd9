"""The command line: finds the module of a command, which has its options and its work."""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

from handler.commands import output

COMMANDS: Final = {
    "serve": "handler.commands.serve.flags:serve",
    "infer": "handler.commands.call.flags:infer",
    "bench": "handler.commands.call.flags:bench",
    "push": "handler.commands.models:push",
    "pull": "handler.commands.models:pull",
    "list": "handler.commands.models:listing",
    "index": "handler.commands.models:index",
    "convert": "handler.commands.convert.flags:convert",
    "sign": "handler.commands.models:sign",
    "verify": "handler.commands.models:verify",
    "keys": "handler.commands.keys:keys",
    "doctor": "handler.commands.doctor.flags:doctor",
    "init": "handler.commands.init.flags:init",
    "replay": "handler.commands.replay.flags:replay",
    "batch": "handler.commands.batch.flags:batch",
    "build-image": "handler.commands.image.flags:build_image",
    "completion": "handler.commands.completion:completion",
}
"""Each command's module, and its name there.

Only the module of the command that is called is imported, so what it imports at once must be light.
"""
INTERRUPTED: Final = 130
"""The exit code that shells report after Ctrl-C."""


class LazyCommands(click.Group):
    """The commands of the table, in its order. Names the one that was probably meant."""

    def list_commands(self, _: click.Context) -> list[str]:
        return [*COMMANDS]

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, member = COMMANDS[name].split(":")
        found: click.Command = getattr(import_module(module), member)
        return found

    def resolve_command(
        self, context: click.Context, words: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if words[0] not in COMMANDS and not context.resilient_parsing:
            from core.errors import nearest  # noqa: PLC0415 - only mistakes need it

            if near := nearest(words[0], COMMANDS):
                context.fail(f"No such command {words[0]!r}. Did you mean {near!r}?")
        return super().resolve_command(context, words)


@click.group(
    cls=LazyCommands,
    epilog="`dragoman COMMAND --help` has the options of a command. `dragoman init` makes an example to begin with.",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(package_name="dragoman", message="%(prog)s %(version)s", help="print the version")
def dragoman() -> None:
    """Serve models over every standard inference protocol."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns the exit code. Also answers a shell that asks for completions."""
    words = sys.argv[1:] if arguments is None else [*arguments]
    output.prepare()
    try:
        return dragoman.main(words, "dragoman", standalone_mode=False) or 0
    except click.ClickException as mistake:
        mistake.show()
        return mistake.exit_code
    except click.Abort:
        return INTERRUPTED
    except OSError as error:
        from handler.commands import entry  # noqa: PLC0415 - not for --help and mistakes

        return entry.fail(error)


if __name__ == "__main__":
    sys.exit(main())

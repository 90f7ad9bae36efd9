"""`dragoman completion`: the script by which a shell asks this program for completions."""

import click
from click.shell_completion import get_completion_class

from handler.commands.options import CommandOptions, argument, command

INSTALL = {
    "bash": "~/.local/share/bash-completion/completions/dragoman",
    "zsh": "a folder of your fpath, as _dragoman",
    "fish": "~/.config/fish/completions/dragoman.fish",
}
"""Where each shell looks for such a script."""
PLACES = "\n".join(f"{shell}: {place}" for shell, place in INSTALL.items())


@command(
    "completion",
    "print a script that completes commands and flags in a shell",
    f"Print a script that completes commands and flags. Write it where the shell looks:\n\n\b\n{PLACES}",
)
@argument("shell", type=click.Choice([*INSTALL]), metavar="|".join(INSTALL), help="the shell")
def completion(options: CommandOptions) -> None:
    """Prints click's script."""
    shell = get_completion_class(options.shell)
    assert shell is not None  # noqa: S101 - click has all of these
    program = click.get_current_context().find_root()
    click.echo(shell(program.command, {}, "dragoman", "_DRAGOMAN_COMPLETE").source())

"""The options of `dragoman init`. What it does is imported when it runs."""

import click

from handler.commands.options import FILE, CommandOptions, argument, command


@command("init", "make a repository to start from, or the files that deploy one on AWS")
@argument("folder", default=".", type=FILE, help="folder to write; default: this one")
@click.option("--aws", is_flag=True, help="write a SAM template and its function's files instead")
def init(options: CommandOptions) -> None:
    """Writes the folder. Raises Refused."""
    from handler.commands.init import command  # noqa: PLC0415 - no other command needs it

    command.run(options.folder, is_aws=options.aws)

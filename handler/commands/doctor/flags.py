"""The options of `dragoman doctor`."""

import click

from handler.commands.options import FILE, CommandOptions, argument, as_json, command


@command("doctor", "check models, settings, store and function, and name a cure for each fault")
@argument("repository", required=False, type=FILE, help="default: DRAGOMAN_REPOSITORY")
@as_json
@click.option("--host", help="the address that serve will listen on; default: as for serve")
@click.option("--no-load", is_flag=True, help="do not load the models")
@click.option("--load-timeout", default="60", metavar="SECONDS", help="the most for one load; default: 60")
@click.option("--load-memory", metavar="SIZE", help="the most for a load's process: 2GB; default: any")
@click.option("--template", type=FILE, metavar="FILE", help="default: template.yaml in this folder, if it exists")
@click.option("--artifact", type=FILE, metavar="PATH", help="a built function: folder or zip; default: sam build's")
def doctor(options: CommandOptions) -> int:
    from handler.commands.doctor import command  # noqa: PLC0415 - every model's reader, which no other command needs

    return command.run(options)

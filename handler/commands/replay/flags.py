"""The options of `dragoman replay`."""

import click

from handler.commands.options import (
    FILE,
    CommandOptions,
    address,
    argument,
    as_json,
    checked,
    command,
    seconds,
    tolerance,
)

NUMBER = checked(tolerance, "a number from 0 on")
PROTOCOLS = ("same", "v2", "v2-binary", "v1", "grpc", "connect", "grpc-web")
URL = "http://127.0.0.1:8080"


@command("replay", "send the requests of a payload log again, and compare the answers")
@argument(
    "files", nargs=-1, required=True, type=FILE, metavar="FILE...", help="files of the log, or folders with *.jsonl"
)
@click.option("--url", type=address("--header"), metavar="URL", default=URL, help=f"default: {URL}")
@click.option("--protocol", type=click.Choice(PROTOCOLS), default="same", help="default: that of each request")
@click.option(
    "--rtol", type=NUMBER, metavar="NUMBER", default="1e-5", help="relative tolerance of numbers; default: 1e-5"
)
@click.option(
    "--atol", type=NUMBER, metavar="NUMBER", default="1e-8", help="absolute tolerance of numbers; default: 1e-8"
)
@click.option(
    "--limit", type=click.IntRange(1, 999_999_999), metavar="N", help="the most requests to send; default: all"
)
@click.option("--timeout", type=checked(seconds), metavar="SECONDS", default="60", help="for an answer; default: 60")
@click.option("--header", multiple=True, help="'name: value' to send; may be repeated")
@as_json
def replay(options: CommandOptions) -> None:
    """Sends the requests. Raises Refused."""
    from handler.commands.replay import command  # noqa: PLC0415 - 0.4 s, which only the command needs

    command.run(options)

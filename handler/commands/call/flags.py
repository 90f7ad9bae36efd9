"""The options of `dragoman infer` and `dragoman bench`."""

from collections.abc import Callable
from typing import Any

import click

from handler.commands.call.defaults import GRPC, LEVELS, NAMES, URL
from handler.commands.options import FILE, CommandOptions, address, argument, as_json, checked, command, seconds
from handler.commands.refused import WrongOption


def request(work: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options that describe a request."""
    added = (
        argument("model", help="name of the model"),
        click.option("--version", default="", help="version of the model; default: the server's choice"),
        click.option("--input", multiple=True, metavar="NAME=VALUE", help="an input, such as age=22 or 'x=[[1, 2]]'"),
        click.option(
            "--file",
            multiple=True,
            type=FILE,
            metavar="[NAME=]PATH",
            help="an input from a .npy, .json, .csv or other file (its bytes); "
            "without NAME: the columns of a .csv file",
        ),
        click.option("--sample", is_flag=True, help="make inputs from the model's metadata"),
        click.option(
            "--rows", type=click.IntRange(1, 9_999_999), metavar="N", default=1, help="rows of --sample; default: 1"
        ),
        click.option("--protocol", type=click.Choice(NAMES), default="v2", help="default: v2"),
        click.option(
            "--url",
            type=address("--key"),
            metavar="URL",
            help=f"the server; default: {URL}, with --protocol grpc: {GRPC}",
        ),
        click.option("--key", metavar="KEY|@FILE", help="key or token (JWT), or the file that has it"),
        click.option(
            "--timeout", type=checked(seconds), metavar="SECONDS", default="300", help="for an answer; default: 300"
        ),
    )
    for each in reversed(added):
        work = each(work)
    return work


@command(
    "infer",
    "send a model one request, and print its answer",
    "Send a model one request, and print its answer. The server describes the model's inputs.",
)
@request
@as_json
def infer(options: CommandOptions) -> int:
    """Asks a server. Raises Refused."""
    _check(options)
    from handler.commands.call import infer  # noqa: PLC0415 - 0.4 s, which only the command needs

    return infer.run(options)


@command(
    "bench",
    "measure a model's latency and throughput",
    "Send a model the same request again and again, at several concurrencies, and print a table.",
)
@request
@click.option(
    "--concurrency", default=LEVELS, metavar="N,...", help=f"numbers of concurrent requests; default: {LEVELS}"
)
@click.option(
    "--seconds", type=checked(seconds), metavar="SECONDS", default="5", help="for each concurrency; default: 5"
)
@as_json
@click.option("--svg", type=FILE, metavar="FILE", help="draw throughput and latency into this file")
def bench(options: CommandOptions) -> int:
    """Asks a server again and again. Raises Refused."""
    _check(options)
    from handler.commands.call import bench  # noqa: PLC0415 - as above

    return bench.run(options)


def _check(options: CommandOptions) -> None:
    for name, text in (("MODEL", options.model), ("--version", options.version)):
        if (name == "MODEL" and not text) or not text.isprintable():
            raise WrongOption(f"{name} is {text[:256]!r}; expected a name")
    if options.sample and (options.input or options.file):
        raise WrongOption("--sample makes all inputs: leave out --input and --file")

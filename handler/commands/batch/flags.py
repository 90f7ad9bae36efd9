"""The options of `dragoman batch`."""

import click

from handler.commands.models import NAME, WHERE
from handler.commands.options import FILE, CommandOptions, argument, command, quiet

FORMATS = ("jsonl", "csv", "npy", "parquet")
"""The names of `edge.batch.files.FORMATS`, which takes 0.2 s to import."""


@command(
    "batch",
    "run a file of records through a model, without a server",
    "Run a file of records through a model, without a server. A line of JSON for each record goes into "
    "OUTPUT, in their order. If it is interrupted, the same command continues where it was.",
)
@argument("model", metavar=NAME, type=FILE, help=WHERE)
@argument("input", type=FILE, help="records: .jsonl, .csv, .npy or .parquet")
@argument("output", type=FILE, help="answers, as lines of JSON; it appears when it is complete")
@click.option("--version", help="version of the model; default: the newest that its settings serve, and no canary")
@click.option("--signature", default="", help="signature of the records' names; default: serving_default")
@click.option("--format", type=click.Choice(FORMATS), help="form of INPUT; default: by the suffix of its name")
@click.option(
    "--batch-size",
    type=click.IntRange(1, 999_999),
    metavar="N",
    help="records of one inference; default: the model's own, else 256",
)
@click.option("--force", is_flag=True, help="begin again, and replace OUTPUT")
@click.option("--json", is_flag=True, help="print a summary as JSON")
@quiet
def batch(options: CommandOptions) -> int:
    """Runs the records. Raises Refused, ServingError, InvalidSettings."""
    from handler.commands.batch import command  # noqa: PLC0415 - 0.3 s, which only the command needs

    return command.run(options)

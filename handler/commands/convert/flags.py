"""The options of `dragoman convert`."""

import click

from handler.commands.convert.sources import FORMATS
from handler.commands.models import optimize, with_settings
from handler.commands.options import FILE, CommandOptions, argument, checked, command, json_lines, quiet
from handler.settings.parsers import seconds, share, size


@command("convert", "convert a model of another library to ONNX and publish it")
@argument(
    "source",
    required=False,
    metavar="[SOURCE]",
    type=FILE,
    help="a model's file, a folder of Hugging Face, a SavedModel, or a folder of numbered ones",
)
@argument(
    "target",
    required=False,
    metavar="REPOSITORY/NAME",
    type=FILE,
    help="s3://bucket/prefix/NAME (or gs://, az://), or a model's folder; with --models-config: REPOSITORY",
)
@click.option("--version", help="number to publish; default: the folder's name if it is a number, else 1")
@click.option("--signature", multiple=True, help="signature to publish; may be repeated; default: all")
@click.option(
    "--models-config",
    type=FILE,
    metavar="FILE",
    help="convert every model that TensorFlow Serving's models.config names",
)
@click.option("--format", type=click.Choice([*FORMATS]), help="default: by the file's name and first bytes")
@click.option("--allow-pickle", is_flag=True, help="load a pickle, which can run any code of its author")
@click.option("--trust", multiple=True, metavar="TYPE", help="a type to permit in a skops file; can be repeated")
@click.option(
    "--data", type=FILE, metavar="FILE", help="rows (.csv, .npy, .npz) for comparing both models; default: generated"
)
@click.option(
    "--tolerance",
    type=checked(seconds, "a number above 0"),
    metavar="NUMBER",
    help="permitted difference of numbers; default: by datatype, 1e-4 for FP32",
)
@click.option(
    "--flips",
    type=checked(share),
    default="0",
    metavar="SHARE",
    help="of the labels may differ, from 0 to 1; default: 0",
)
@click.option("--seed", type=click.IntRange(1), metavar="N", default=1, help="of the rows that are made; default: 1")
@click.option("--timeout", type=checked(seconds), default="600", metavar="SECONDS", help="default: 600")
@click.option(
    "--memory",
    type=checked(size, "a size such as 4GiB"),
    metavar="SIZE",
    help="the most memory to use, such as 4GiB; default, and 0: no limit",
)
@click.option("--force", is_flag=True, help="replace existing versions")
@optimize
@quiet
@json_lines
def convert(options: CommandOptions) -> None:
    """Converts and publishes. Raises Refused, InvalidSettings."""
    if options.target is None:  # click fills arguments from the left, and the first of these is the optional one
        options.source, options.target = None, options.source
    if options.target is None:
        raise click.UsageError("Missing argument 'REPOSITORY/NAME'.", click.get_current_context())
    options.memory = options.memory or None  # 0 means no limit, as in the settings
    from handler.commands.convert import command  # noqa: PLC0415 - 0.5 s, which only the command needs

    with_settings(command.run, options)

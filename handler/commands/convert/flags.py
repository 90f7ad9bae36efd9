"""The flags of `dragoman convert`."""

from argparse import Namespace
from typing import Any

from handler.commands.models import add_quiet, reported
from handler.settings.sources import Layered


def add(commands: Any) -> None:
    convert = commands.add_parser("convert", help="convert a TensorFlow SavedModel to ONNX and publish it")
    convert.add_argument(
        "saved_model", nargs="?", metavar="SAVED_MODEL_DIR", help="a SavedModel, or a folder of numbered ones"
    )
    convert.add_argument(
        "target",
        metavar="REPOSITORY/NAME",
        help="s3://bucket/prefix/NAME, gs:// or az:// alike, or a model's folder; with --models-config: REPOSITORY",
    )
    convert.add_argument("--version", help="number to publish; default: the folder's name if it is a number, else 1")
    convert.add_argument(
        "--signature", action="append", default=[], help="signature to publish; may be repeated; default: all"
    )
    convert.add_argument(
        "--models-config", metavar="FILE", help="convert every model that TensorFlow Serving's models.config names"
    )
    convert.add_argument("--force", action="store_true", help="replace versions that are there")
    add_quiet(convert)


def run(options: Namespace) -> None:
    """Converts and publishes. Raises Refused, InvalidSettings."""
    settings = Layered({}).settings()
    with reported():
        from handler.commands.convert import command  # noqa: PLC0415 - 0.5 s, which only the command needs

        command.run(options, settings)

"""The flags of `dragoman convert`."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable
from typing import Any, TypeVar

from handler.commands.convert.sources import FORMATS
from handler.commands.models import add_optimize, add_quiet, reported
from handler.commands.results import add_json
from handler.settings.parsers import positive, seconds, share, size
from handler.settings.sources import Layered


def add(commands: Any) -> None:
    convert = commands.add_parser("convert", help="convert a model of another library to ONNX and publish it")
    convert.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="a model's file, a folder of Hugging Face, a SavedModel, or a folder of numbered ones",
    )
    convert.add_argument(
        "target",
        metavar="REPOSITORY/NAME",
        help="s3://bucket/prefix/NAME (or gs://, az://), or a model's folder; with --models-config: REPOSITORY",
    )
    convert.add_argument("--version", help="number to publish; default: the folder's name if it is a number, else 1")
    convert.add_argument(
        "--signature", action="append", default=[], help="signature to publish; may be repeated; default: all"
    )
    convert.add_argument(
        "--models-config", metavar="FILE", help="convert every model that TensorFlow Serving's models.config names"
    )
    _add_library(convert)
    convert.add_argument("--force", action="store_true", help="replace existing versions")
    add_optimize(convert)
    add_quiet(convert)
    add_json(convert)


def _add_library(convert: ArgumentParser) -> None:
    """Adds the flags for models that are not SavedModels."""
    convert.add_argument("--format", choices=tuple(FORMATS), help="default: by the file's name and first bytes")
    convert.add_argument(
        "--allow-pickle", action="store_true", help="load a pickle, which can run any code of its author"
    )
    convert.add_argument(
        "--trust", action="append", default=[], metavar="TYPE", help="a type to permit in a skops file; can be repeated"
    )
    convert.add_argument(
        "--data", metavar="FILE", help="rows (.csv, .npy, .npz) for comparing both models; default: generated"
    )
    above = _typed(seconds, "a number above 0")
    part = _typed(share, "a number from 0 to 1")
    whole = _typed(positive, "a whole number above 0")
    memory = _typed(size, "a size such as 4GiB")
    convert.add_argument(
        "--tolerance", type=above, help="permitted difference of numbers; default: by datatype, 1e-4 for FP32"
    )
    convert.add_argument(
        "--flips", type=part, default=0.0, metavar="SHARE", help="of the labels may differ, from 0 to 1; default: 0"
    )
    convert.add_argument("--seed", type=whole, default=1, help="of the rows that are made; default: 1")
    convert.add_argument("--timeout", type=above, default=600.0, metavar="SECONDS", help="default: 600")
    convert.add_argument("--memory", type=memory, metavar="SIZE", help="the most memory to use, such as 4GiB")


T = TypeVar("T")


def _typed(parser: Callable[[str], T], expected: str) -> Callable[[str], T]:
    """Returns a parser whose refusal says what was expected."""

    def parsed(text: str) -> T:
        try:
            return parser(text)
        except ValueError:
            raise ArgumentTypeError(f"is {text!r}; expected {expected}") from None

    return parsed


def run(options: Namespace) -> None:
    """Converts and publishes. Raises Refused, InvalidSettings."""
    settings = Layered({}).settings()
    with reported():
        from handler.commands.convert import command  # noqa: PLC0415 - 0.5 s, which only the command needs

        command.run(options, settings)

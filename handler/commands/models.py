"""`dragoman push`, `pull`, `list`, `index`, `sign`, `verify`: the options of the commands on models in repositories."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from core.errors import ServingError, escaped
from handler.commands.options import FILE, CommandOptions, argument, as_json, command, json_lines, quiet
from handler.commands.refused import Refused
from handler.settings import Settings
from handler.settings.sources import Layered, ignored

NAME = "[REPOSITORY/]NAME"
BUCKETS = "s3://bucket/prefix/NAME, gs://bucket/prefix/NAME, az://container/prefix/NAME"
WHERE = f"{BUCKETS} or FOLDER/NAME; a NAME alone is a model of DRAGOMAN_REPOSITORY"
CURVES = "ECDSA on P-256, P-384 or P-521"

optimize = click.option(
    "--optimize", is_flag=True, help="push ONNX models in the form that loads fastest, if answers stay equal"
)


def _cert(flag: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    about = "the key's certificate, then those above it; may be repeated"
    return click.option(flag, type=FILE, metavar="PEM", multiple=True, help=about)


@command("push", "publish a model into a repository, as its next version")
@argument(
    "model",
    metavar="MODEL_DIR",
    type=FILE,
    help="a folder with a version's files or with numbered versions, or one file",
)
@argument("target", metavar=NAME, type=FILE, help=WHERE)
@click.option(
    "--version", help="number to publish; default: one above the highest; of numbered versions: push only this one"
)
@click.option("--force", is_flag=True, help="replace an existing version")
@click.option("--no-check", is_flag=True, help="do not load ONNX models first")
@optimize
@click.option("--sign-key", type=FILE, metavar="PEM", help=f"add a signature by this private key: {CURVES}")
@_cert("--sign-cert")
@quiet
@json_lines
def push(options: CommandOptions) -> None:
    from handler.commands.publish import push  # noqa: PLC0415 - 0.4 s, which only the command needs

    with_settings(push.run, options)


@command("pull", "fetch a model's versions from a bucket")
@argument("source", metavar=NAME, help=f"{BUCKETS}, https://host/path/NAME, or a NAME in DRAGOMAN_REPOSITORY")
@argument("folder", required=False, type=FILE, help="folder for the numbered versions; default: NAME")
@click.option("--version", help="version to fetch; default: the newest")
@click.option("--all", is_flag=True, help="fetch every version, in the place of --version")
@click.option("--force", is_flag=True, help="replace the folder of an existing version, with all that is in it")
@quiet
@json_lines
def pull(options: CommandOptions) -> None:
    if options.all and options.version is not None:
        raise click.UsageError("--version and --all exclude each other", click.get_current_context())
    from handler.commands.publish import pull  # noqa: PLC0415 - as above

    with_settings(pull.run, options)


@command("list", "list a repository's models, versions, sizes and states")
@argument("target", required=False, metavar="[REPOSITORY[/NAME]]", type=FILE, help="default: DRAGOMAN_REPOSITORY")
@click.option("--verbose", is_flag=True, help="show what convert measured of each version")
@as_json
def listing(options: CommandOptions) -> None:
    from handler.commands.publish import listing  # noqa: PLC0415 - as above

    with_settings(listing.run, options)


@command("index", "write index.json into a folder of models, for a web server")
@argument("folder", type=FILE, help="a repository; the index is written into it, last")
@json_lines
def index(options: CommandOptions) -> None:
    from handler.commands import web_index  # noqa: PLC0415 - as above

    with_settings(web_index.run, options)


@command("sign", "sign a model's versions: writes model.sig into the folder of each")
@argument("model", metavar="MODEL_DIR", type=FILE, help="a folder with a version's files or with numbered versions")
@click.option("--unsigned", is_flag=True, help="write the files' digests without a signature, and without --key")
@click.option("--key", type=FILE, metavar="PEM", help=f"the private key: {CURVES}")
@_cert("--cert")
@click.option("--version", help="the only version to take; default: all")
@json_lines
def sign(options: CommandOptions) -> None:
    if options.unsigned is (options.key is not None):
        raise click.UsageError("give either --key or --unsigned", click.get_current_context())
    from handler.commands.publish import signing  # noqa: PLC0415 - as above

    with_settings(signing.sign, options)


@command("verify", "verify the signatures of a model's versions")
@argument("model", metavar="MODEL_DIR|REPOSITORY/NAME", type=FILE, help="a folder as for sign, or a model")
@click.option("--key", type=FILE, metavar="PEM", help="trusted public keys; default: DRAGOMAN_VERIFY_KEY")
@click.option("--roots", type=FILE, metavar="PEM", help="trusted certificates; default: DRAGOMAN_VERIFY_ROOTS")
@click.option("--identity", multiple=True, help="a name of the signer's certificate; default: DRAGOMAN_VERIFY_IDENTITY")
@click.option("--digest", is_flag=True, help="compare only the files' digests")
@click.option("--version", help="the only version to take; default: all")
@json_lines
def verify(options: CommandOptions) -> None:
    from handler.commands.publish import signing  # noqa: PLC0415 - as above

    with_settings(signing.verify, options)


def with_settings(work: Callable[[CommandOptions, Settings], None], options: CommandOptions) -> None:
    """Runs a command on models. Raises Refused, InvalidSettings."""
    settings = settings_here()
    with reported():
        work(options, settings)


def settings_here() -> Settings:
    """Returns the settings of this process. Names ignored variables on stderr. Raises InvalidSettings."""
    settings = Layered({}).settings()
    for line in ignored():
        print(f"dragoman: {escaped(line)}", file=sys.stderr)  # noqa: T201 - a command has no log
    return settings


@contextmanager
def reported() -> Iterator[None]:
    """Makes refusals of errors. Hides the log lines of the stores: servers need them, here the error is printed.

    A server's message names its setting; here the command names the place.
    """
    logger, nowhere = logging.getLogger("handler"), logging.NullHandler()
    logger.addHandler(nowhere)
    try:
        yield
    except ServingError as error:
        raise Refused(error.message.replace("DRAGOMAN_REPOSITORY", "its name")) from None
    finally:
        logger.removeHandler(nowhere)

"""`dragoman push`, `pull`, `list`, `index`, `sign`, `verify`: the flags of the commands on models in repositories."""

import logging
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from core.errors import ServingError
from handler.commands.refused import Refused
from handler.commands.results import add_json
from handler.settings import Settings
from handler.settings.sources import Layered

NAME = "[REPOSITORY/]NAME"
BUCKETS = "s3://bucket/prefix/NAME, gs://bucket/prefix/NAME, az://container/prefix/NAME"
WHERE = f"{BUCKETS} or FOLDER/NAME; a NAME alone is a model of DRAGOMAN_REPOSITORY"


def add(commands: Any) -> None:
    push = commands.add_parser("push", help="publish a model into a repository, as its next version")
    push.add_argument(
        "model", metavar="MODEL_DIR", help="a folder with a version's files or with numbered versions, or one file"
    )
    push.add_argument("target", metavar=NAME, help=WHERE)
    push.add_argument(
        "--version", help="number to publish; default: one above the highest; of numbered versions: push only this one"
    )
    push.add_argument("--force", action="store_true", help="replace an existing version")
    push.add_argument("--no-check", dest="check", action="store_false", help="do not load ONNX models first")
    add_optimize(push)
    _add_key(push, "--sign-key", "--sign-cert", "add a signature by this private key")
    pull = commands.add_parser("pull", help="fetch a model's versions from a bucket")
    pull.add_argument(
        "source", metavar=NAME, help=f"{BUCKETS}, https://host/path/NAME, or a NAME in DRAGOMAN_REPOSITORY"
    )
    pull.add_argument("folder", nargs="?", metavar="FOLDER", help="folder for the numbered versions; default: NAME")
    chosen = pull.add_mutually_exclusive_group()
    chosen.add_argument("--version", help="version to fetch; default: the newest")
    chosen.add_argument("--all", action="store_true", help="fetch every version")
    pull.add_argument("--force", action="store_true", help="replace existing files")
    listing = commands.add_parser("list", help="list a repository's models, versions, sizes and states")
    listing.add_argument("target", nargs="?", metavar="REPOSITORY[/NAME]", help="default: DRAGOMAN_REPOSITORY")
    listing.add_argument("--verbose", action="store_true", help="show what convert measured of each version")
    listing.add_argument("--json", action="store_true", help="print JSON")
    for each in (push, pull):
        add_quiet(each)
        add_json(each)
    index = commands.add_parser("index", help="write index.json into a folder of models, for a web server")
    index.add_argument("folder", metavar="FOLDER", help="a repository; the index is written into it, last")
    add_json(index)
    _add_signing(commands)


def _add_signing(commands: Any) -> None:
    sign = commands.add_parser("sign", help="sign a model's versions: writes model.sig into the folder of each")
    sign.add_argument("model", metavar="MODEL_DIR", help="a folder with a version's files or with numbered versions")
    how = sign.add_mutually_exclusive_group(required=True)
    how.add_argument("--unsigned", action="store_true", help="write the files' digests without a signature")
    _add_key(how, "--key", "", "the private key")
    _add_cert(sign, "--cert")
    verify = commands.add_parser("verify", help="verify the signatures of a model's versions")
    verify.add_argument("model", metavar="MODEL_DIR|REPOSITORY/NAME", help="a folder as for sign, or a model")
    verify.add_argument("--key", metavar="PEM", help="trusted public keys; default: DRAGOMAN_VERIFY_KEY")
    verify.add_argument("--roots", metavar="PEM", help="trusted certificates; default: DRAGOMAN_VERIFY_ROOTS")
    verify.add_argument(
        "--identity", action="append", help="a name of the signer's certificate; default: DRAGOMAN_VERIFY_IDENTITY"
    )
    verify.add_argument("--digest", action="store_true", help="compare only the files' digests")
    for each in (sign, verify):
        each.add_argument("--version", help="the only version to take; default: all")
        add_json(each)


def _add_key(command: Any, key: str, cert: str, what: str) -> None:
    command.add_argument(key, metavar="PEM", help=f"{what}: ECDSA on P-256, P-384 or P-521")
    if cert:
        _add_cert(command, cert)


def _add_cert(command: Any, flag: str) -> None:
    command.add_argument(
        flag,
        metavar="PEM",
        action="append",
        default=[],
        help="the key's certificate, then those above it; may be repeated",
    )


def add_optimize(command: ArgumentParser) -> None:
    command.add_argument(
        "--optimize", action="store_true", help="push ONNX models in the form that loads fastest, if answers stay equal"
    )


def add_quiet(command: ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="do not report progress")


def run(options: Namespace) -> None:
    """Runs the command. Raises Refused, InvalidSettings."""
    layered = Layered({})
    settings = layered.settings()
    with reported():
        if options.command == "list":
            from handler.commands.publish import listing  # noqa: PLC0415 - 0.4 s, which only the command needs

            listing.run(options, settings)
        elif options.command == "index":
            from handler.commands import web_index  # noqa: PLC0415 - as above

            web_index.run(options, settings)
        elif options.command in ("push", "pull"):
            _move(options, settings)
        else:
            from handler.commands.publish import signing  # noqa: PLC0415 - as above

            (signing.sign if options.command == "sign" else signing.verify)(options, settings)


def _move(options: Namespace, settings: Settings) -> None:
    from handler.commands.publish import pull, push  # noqa: PLC0415 - as above

    (push.run if options.command == "push" else pull.run)(options, settings)


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

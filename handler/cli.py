"""The command line: `dragoman` with its commands, from `serve` to `replay`."""

import argparse
import os
import re
import sys
from collections.abc import Sequence
from typing import Any, Final, NoReturn

from core.errors import escaped
from handler.commands.doctor import flags as doctor
from handler.settings import InvalidSettings, Settings

FLAGS: Final = {
    "repository": "DRAGOMAN_REPOSITORY",
    "preload": "DRAGOMAN_PRELOAD",
    "log_level": "DRAGOMAN_LOG_LEVEL",
    "log_format": "DRAGOMAN_LOG_FORMAT",
}
WORDS: Final = re.compile(r"(?<![\w-])--?[a-z][\w-]*|(?<=choice: ')[^']+")
"""Matches the flags in argparse's messages, and the command that it does not know."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.command == "doctor":  # it examines settings that no other command takes
        return doctor.run(options)
    if options.command != "serve":
        return _run(options)
    for flag, variable in FLAGS.items():
        if getattr(options, flag) is not None:
            os.environ[variable] = getattr(options, flag)
    if options.access_log is not None or not os.environ.get("DRAGOMAN_ACCESS_LOG"):
        os.environ["DRAGOMAN_ACCESS_LOG"] = "false" if options.access_log is False else "true"
    if options.allow_code:
        os.environ["DRAGOMAN_ALLOW_CODE"] = "true"
    try:
        settings = Settings.from_env()
        from handler.commands import serve  # noqa: PLC0415 - an application, which no other command needs

        return serve.serve(settings, options.host, options.port, options.grpc_port)
    except InvalidSettings as error:
        print(f"dragoman: {escaped(str(error))}", file=sys.stderr)  # noqa: T201 - a command's error line
        return 2


class _Parser(argparse.ArgumentParser):
    """Names the flag or command that was probably meant."""

    def error(self, message: str) -> NoReturn:
        near = (_nearest(word, self.words()) for word in WORDS.findall(message.partition("(choose")[0]))
        hint = next((f"; did you mean {each}?" for each in near if each), "")
        super().error(message + hint)

    def words(self) -> list[str]:
        """Returns the flags and commands, those of the commands, too."""
        words = [*self._option_string_actions]
        for action in self._actions:
            words += action.choices or ()
            parsers = action.choices.values() if isinstance(action.choices, dict) else ()
            words += [word for parser in parsers for word in parser.words()]
        return words


def _nearest(word: str, known: Sequence[str]) -> str:
    """Returns the known word that is most like another one, "" if none is, or if it is known itself."""
    from difflib import get_close_matches  # noqa: PLC0415 - only mistakes need it

    return "" if word in known else next(iter(get_close_matches(word, known, 1)), "")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        from importlib.metadata import version  # noqa: PLC0415 - 10 ms that `serve` does not need

        print(f"dragoman {version('dragoman')}")  # noqa: T201 - the result
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="dragoman", description="Serve models over every standard inference protocol")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve a repository with uvicorn")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1")
    serve.add_argument("--port", type=int, default=8080, help="port to listen on; default: 8080")
    serve.add_argument("--grpc-port", type=int, help="serve gRPC on this port, too; default: no gRPC")
    serve.add_argument("--repository", help="a directory, file:// or s3://bucket/prefix (DRAGOMAN_REPOSITORY)")
    serve.add_argument("--preload", help="models to load at start, or * (DRAGOMAN_PRELOAD)")
    serve.add_argument("--allow-code", action="store_true", help="run model.py files (DRAGOMAN_ALLOW_CODE)")
    serve.add_argument("--log-level", help="DEBUG, INFO, WARNING or ERROR (DRAGOMAN_LOG_LEVEL)")
    serve.add_argument("--log-format", help="text or json (DRAGOMAN_LOG_FORMAT)")
    serve.add_argument(
        "--access-log",
        action=argparse.BooleanOptionalAction,
        help="write a line for every request, or for refused ones only (DRAGOMAN_ACCESS_LOG); default: for every one",
    )
    _add_convert(commands)
    _add_publishing(commands)
    _add_keys(commands)
    _add_signing(commands)
    doctor.add(commands)
    _add_replay(commands)
    return parser


def _add_convert(commands: Any) -> None:
    convert = commands.add_parser("convert", help="convert a TensorFlow SavedModel to ONNX and publish it")
    convert.add_argument(
        "saved_model", nargs="?", metavar="SAVED_MODEL_DIR", help="a SavedModel, or a folder of numbered ones"
    )
    convert.add_argument(
        "target",
        metavar="REPOSITORY/NAME",
        help="s3://bucket/prefix/NAME, or a model's folder; with --models-config: REPOSITORY",
    )
    convert.add_argument("--version", help="number to publish; default: the folder's name if it is a number, else 1")
    convert.add_argument(
        "--signature", action="append", default=[], help="signature to publish; may be repeated; default: all"
    )
    convert.add_argument(
        "--models-config", metavar="FILE", help="convert every model that TensorFlow Serving's models.config names"
    )
    convert.add_argument("--force", action="store_true", help="replace versions that are there")
    _add_quiet(convert)


def _add_publishing(commands: Any) -> None:
    push = commands.add_parser("push", help="publish a model into a repository, as its next version")
    push.add_argument(
        "model", metavar="MODEL_DIR", help="a folder with a version's files or with numbered versions, or one file"
    )
    push.add_argument("target", metavar="REPOSITORY/NAME", help="s3://bucket/prefix/NAME, or a model's folder")
    push.add_argument(
        "--version", help="number to publish; default: one above the highest; of numbered versions: push only this one"
    )
    push.add_argument("--force", action="store_true", help="replace a version that is there")
    push.add_argument("--no-check", dest="check", action="store_false", help="do not load ONNX models first")
    _add_key(push, "--sign-key", "--sign-cert", "add a signature by this private key")
    pull = commands.add_parser("pull", help="fetch a model's versions from a bucket")
    pull.add_argument("source", metavar="s3://bucket/prefix/NAME", help="the model to fetch")
    pull.add_argument("folder", nargs="?", metavar="FOLDER", help="folder for the numbered versions; default: NAME")
    chosen = pull.add_mutually_exclusive_group()
    chosen.add_argument("--version", help="version to fetch; default: the newest")
    chosen.add_argument("--all", action="store_true", help="fetch every version")
    pull.add_argument("--force", action="store_true", help="replace what is there")
    listing = commands.add_parser("list", help="list a repository's models, versions, sizes and states")
    listing.add_argument("target", nargs="?", metavar="REPOSITORY[/NAME]", help="default: DRAGOMAN_REPOSITORY")
    listing.add_argument("--json", action="store_true", help="print JSON, for programs")
    for each in (push, pull):
        _add_quiet(each)


def _add_keys(commands: Any) -> None:
    keys = commands.add_parser("keys", help="make keys for clients (DRAGOMAN_AUTH=keys)")
    new = keys.add_subparsers(dest="action", required=True).add_parser("new", help="print a new key and its line")
    new.add_argument("--name", required=True, help="name of the key, for the log")
    new.add_argument(
        "--rights", default="infer", help="some of infer, read, admin, with commas between; default: infer"
    )
    new.add_argument("--models", default="*", help="patterns of models, with commas between; default: *")


def _add_signing(commands: Any) -> None:
    sign = commands.add_parser("sign", help="sign a model's versions: writes model.sig into the folder of each")
    sign.add_argument("model", metavar="MODEL_DIR", help="a folder with a version's files or with numbered versions")
    how = sign.add_mutually_exclusive_group(required=True)
    how.add_argument("--unsigned", action="store_true", help="write the files' digests without a signature")
    _add_key(how, "--key", "", "the private key")
    _add_cert(sign, "--cert")
    verify = commands.add_parser("verify", help="verify the signatures of a model's versions")
    verify.add_argument("model", metavar="MODEL_DIR|s3://bucket/prefix/NAME", help="a folder as for sign, or a model")
    verify.add_argument("--key", metavar="PEM", help="trusted public keys; default: DRAGOMAN_VERIFY_KEY")
    verify.add_argument("--roots", metavar="PEM", help="trusted certificates; default: DRAGOMAN_VERIFY_ROOTS")
    verify.add_argument(
        "--identity", action="append", help="a name of the signer's certificate; default: DRAGOMAN_VERIFY_IDENTITY"
    )
    verify.add_argument("--digest", action="store_true", help="compare the files' digests, whoever has signed them")
    for each in (sign, verify):
        each.add_argument("--version", help="number of the only version to take; default: all")


def _add_replay(commands: Any) -> None:
    replay = commands.add_parser("replay", help="send the requests of a payload log again, and compare the answers")
    replay.add_argument("files", nargs="+", metavar="FILE", help="files of the log, or folders with *.jsonl")
    replay.add_argument("--url", default="http://127.0.0.1:8080", help="default: http://127.0.0.1:8080")
    protocols = ("same", "v2", "v2-binary", "v1", "grpc", "connect", "grpc-web")
    replay.add_argument("--protocol", choices=protocols, default="same", help="default: that of each request")
    replay.add_argument("--rtol", type=float, default=1e-5, help="relative tolerance of numbers; default: 1e-5")
    replay.add_argument("--atol", type=float, default=1e-8, help="absolute tolerance of numbers; default: 1e-8")
    replay.add_argument("--limit", type=int, help="send so many requests at most; default: all")
    replay.add_argument("--timeout", type=float, default=60.0, help="seconds for an answer; default: 60")
    replay.add_argument("--header", action="append", default=[], help="'name: value' to send; may be repeated")
    replay.add_argument("--json", action="store_true", help="print JSON, for programs")


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


def _add_quiet(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="do not report progress")


def _run(options: argparse.Namespace) -> int:
    from handler.commands import entry  # noqa: PLC0415 - a publisher's tools, which no server imports

    try:
        return entry.run(options, Settings.from_env())
    except InvalidSettings as error:
        print(f"dragoman: {escaped(str(error))}", file=sys.stderr)  # noqa: T201 - a command's error line
        return 2

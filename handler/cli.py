"""The command line: `dragoman serve`, `convert`, `push`, `pull`, `list`."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final

from core.errors import ServingError
from handler.settings import InvalidSettings, Settings

FLAGS: Final = {
    "repository": "DRAGOMAN_REPOSITORY",
    "preload": "DRAGOMAN_PRELOAD",
    "log_level": "DRAGOMAN_LOG_LEVEL",
}
PORTS: Final = range(1, 2**16)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.command != "serve":
        return _run(options)
    for flag, variable in FLAGS.items():
        if getattr(options, flag) is not None:
            os.environ[variable] = getattr(options, flag)
    if options.allow_code:
        os.environ["DRAGOMAN_ALLOW_CODE"] = "true"
    try:
        settings = Settings.from_env()
        return _serve(settings, options.host, options.port, options.grpc_port)
    except InvalidSettings as error:
        print(f"dragoman: {error}", file=sys.stderr)  # noqa: T201 - a command's error line
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="dragoman", description="Serve models over every standard inference protocol")
    commands = parser.add_subparsers(dest="command", required=True)
    serve = commands.add_parser("serve", help="serve a repository with uvicorn")
    serve.add_argument("--host", default="127.0.0.1", help="address to listen on; default: 127.0.0.1")
    serve.add_argument("--port", type=int, default=8080, help="port to listen on; default: 8080")
    serve.add_argument("--grpc-port", type=int, help="serve gRPC on this port, too; default: no gRPC")
    serve.add_argument("--repository", help="a directory, file:// or s3://bucket/prefix (DRAGOMAN_REPOSITORY)")
    serve.add_argument("--preload", help="models to load at start, or * (DRAGOMAN_PRELOAD)")
    serve.add_argument("--allow-code", action="store_true", help="run model.py files (DRAGOMAN_ALLOW_CODE)")
    serve.add_argument("--log-level", help="DEBUG, INFO, WARNING or ERROR (DRAGOMAN_LOG_LEVEL)")
    _add_convert(commands)
    _add_publishing(commands)
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


def _add_quiet(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="do not report progress")


def _run(options: argparse.Namespace) -> int:
    from handler.commands import entry  # noqa: PLC0415 - a publisher's tools, which no server imports

    try:
        return entry.run(options, Settings.from_env())
    except InvalidSettings as error:
        print(f"dragoman: {error}", file=sys.stderr)  # noqa: T201 - a command's error line
        return 2


def _serve(settings: Settings, host: str, port: int, grpc_port: int | None) -> int:
    _check_ports(port, grpc_port)
    try:
        import uvicorn  # noqa: PLC0415 - an extra: the function has none
    except ImportError:
        raise InvalidSettings("`dragoman serve` needs uvicorn: pip install 'dragoman[server]'") from None
    from handler import asgi  # noqa: PLC0415 - reads the environment that main has set
    from handler.edge import streams  # noqa: PLC0415 - as the application
    from handler.lifecycle.single_flight import Background  # noqa: PLC0415 - the same

    try:
        models = asgi.app.registry.names(Background())
    except ServingError as error:
        print(f"dragoman: the repository does not answer yet: {error.message}", file=sys.stderr)  # noqa: T201
        models = ()
    served: Any = asgi.app
    if grpc_port is not None:
        address = f"[{host}]:{grpc_port}" if ":" in host else f"{host}:{grpc_port}"
        served = _with_grpc(asgi.app, address)
        print(f"gRPC on {address}")  # noqa: T201 - the address
    print(_welcome(settings, models, f"http://{host}:{port}"), flush=True)  # noqa: T201 - commands to try
    uvicorn.run(
        served,
        host=host,
        port=port,
        log_level=settings.log_level.lower(),
        access_log=False,
        timeout_graceful_shutdown=streams.GRACE_SECONDS,
    )
    return 0


def _check_ports(port: int, grpc_port: int | None) -> None:
    """Raises InvalidSettings for a number that is not a port: gRPC would listen on its last 16 bits."""
    for flag, number in (("--port", port), ("--grpc-port", grpc_port)):
        if number is not None and number not in PORTS:
            raise InvalidSettings(f"{flag} is {number}; expected {PORTS[0]} to {PORTS[-1]}")


def _with_grpc(app: Any, address: str) -> Any:
    """Returns the application beside a gRPC server of the same models. Raises InvalidSettings."""
    if find_spec("grpc") is None:
        raise InvalidSettings("`--grpc-port` needs grpcio: pip install 'dragoman[grpc]'")
    from handler.edge import rpc  # noqa: PLC0415 - an extra, which needs grpcio

    return rpc.Beside(app, address)


def _welcome(settings: Settings, models: Sequence[str], url: str) -> str:
    """Returns the text that names the models, the address, and commands to try."""
    lines = [f"dragoman serves {settings.repository} on {url}: {', '.join(models) or 'no model yet'}", "", "Try:"]
    if "half_plus_three" in models:
        body = '{"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 5]}]}'
        lines.append(f"  curl -d '{body}' {url}/v2/models/half_plus_three/infer")
    example = models[0] if models else "MODEL"
    lines += [f"  curl {url}/v2/models/{example}", f"  curl -X POST {url}/v2/repository/index", ""]
    lines.append(f"Status page: {url}/   API: {url}/docs")
    return "\n".join(lines)

"""The flags of `dragoman build-image`. What it does is imported when it runs."""

import argparse
from typing import Any


def add(commands: Any) -> None:
    image = commands.add_parser("build-image", help="build a container image of a server with the models inside")
    image.add_argument("models", nargs="?", metavar="MODELS", help="folder of the models; default: none inside")
    image.add_argument("--tag", required=True, metavar="NAME[:TAG]", help="name of the image")
    image.add_argument(
        "--target",
        choices=("server", "lambda", "streaming"),
        default="server",
        help="a server, a Lambda function, or one that streams (docs/lambda-runtime.md); default: server",
    )
    image.add_argument("--base", metavar="IMAGE", help="base of a server's image, with Python 3.11 or newer")
    image.add_argument("--platform", metavar="OS/ARCH", help="such as linux/arm64; default: the engine's")
    image.add_argument("--extras", metavar="NAME,...", help="extras to install; default: server,onnx,grpc or onnx")
    image.add_argument("--constraints", metavar="FILE", help="versions to install, as `pip freeze` prints them")
    image.add_argument("--engine", default="docker", metavar="PROGRAM", help="docker, podman, finch; default: docker")
    image.add_argument("--context", metavar="FOLDER", help="write what the engine needs into FOLDER, and do not build")


def run(options: argparse.Namespace) -> int:
    """Returns the engine's exit code. Raises Refused."""
    from handler.commands.image import command  # noqa: PLC0415 - no other command needs it

    return command.run(options)

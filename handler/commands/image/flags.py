"""The options of `dragoman build-image`. What it does is imported when it runs."""

import click

from handler.commands.options import FILE, CommandOptions, argument, command

TARGETS = ("server", "lambda", "streaming")


@command("build-image", "build a container image of a server with the models inside")
@argument("models", required=False, type=FILE, help="folder of the models; default: none inside")
@click.option("--tag", required=True, metavar="NAME[:TAG]", help="name of the image")
@click.option(
    "--target",
    type=click.Choice(TARGETS),
    default="server",
    help="a server, a Lambda function, or one that streams (docs/lambda-runtime.md); default: server",
)
@click.option("--base", metavar="IMAGE", help="base of a server's image, with Python 3.11 or newer")
@click.option("--platform", metavar="OS/ARCH", help="such as linux/arm64; default: the engine's")
@click.option("--extras", metavar="NAME,...", help="extras to install; default: server,onnx,grpc or onnx")
@click.option("--constraints", type=FILE, metavar="FILE", help="versions to install, as `pip freeze` prints them")
@click.option("--engine", default="docker", metavar="PROGRAM", help="docker, podman, finch; default: docker")
@click.option(
    "--context", type=FILE, metavar="FOLDER", help="write what the engine needs into FOLDER, and do not build"
)
def build_image(options: CommandOptions) -> int:
    """Returns the engine's exit code. Raises Refused."""
    from handler.commands.image import command  # noqa: PLC0415 - no other command needs it

    return command.run(options)

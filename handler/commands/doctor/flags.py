"""The flags of `dragoman doctor`."""

from argparse import Namespace
from typing import Any


def add(commands: Any) -> None:
    doctor = commands.add_parser(
        "doctor", help="check models, settings, store and function, and name a cure for each fault"
    )
    doctor.add_argument("repository", nargs="?", metavar="REPOSITORY", help="default: DRAGOMAN_REPOSITORY")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.add_argument("--host", help="the address that serve will listen on; default: as for serve")
    doctor.add_argument("--no-load", dest="load", action="store_false", help="do not load the models")
    doctor.add_argument("--load-timeout", default="60", metavar="SECONDS", help="the most for one load; default: 60")
    doctor.add_argument("--load-memory", metavar="SIZE", help="the most for a load's process: 2GB; default: any")
    doctor.add_argument("--template", metavar="FILE", help="default: template.yaml in this folder, if it exists")
    doctor.add_argument("--artifact", metavar="PATH", help="a built function: folder or zip; default: sam build's")


def run(options: Namespace) -> int:
    from handler.commands.doctor import command  # noqa: PLC0415 - every model's reader, which no other command needs

    return command.run(options)

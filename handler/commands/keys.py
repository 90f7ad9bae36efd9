"""`dragoman keys new`: a key for a client, and the line by which a server knows it."""

import click

from handler.commands import results
from handler.commands.options import CommandOptions, command, json_lines
from handler.commands.refused import WrongOption

PREFIX = "dgm_"
"""Lets scanners for leaked secrets find a key."""
BYTES = 32
ABOUT = "make keys for clients (DRAGOMAN_AUTH=keys)"
SEPARATORS = frozenset(" \t\r\n;#")


@click.group(short_help=ABOUT, help=f"{ABOUT[0].upper()}{ABOUT[1:]}.")
def keys() -> None: ...


@command("new", "print a new key and its line")
@click.option("--name", required=True, help="name of the key, for the log")
@click.option("--rights", default="infer", help="some of infer, read, admin, with commas between; default: infer")
@click.option("--models", default="*", help="patterns of models, with commas between; default: *")
@json_lines
def new(options: CommandOptions) -> None:
    """Prints a new key, which nothing keeps, and its line. Raises WrongOption for a wrong name, right or pattern."""
    import secrets  # noqa: PLC0415 - as the gate
    from hashlib import sha256  # noqa: PLC0415 - as the gate

    from handler.edge.gate import keys as gate  # noqa: PLC0415 - 0.3 s, which only the command needs

    key = PREFIX + secrets.token_urlsafe(BYTES)
    line = f"{options.name} sha256:{sha256(key.encode()).hexdigest()} {options.rights} {options.models}"
    if not options.models:
        raise WrongOption("--models is ''; expected patterns with commas between, such as iris*, or * for all models")
    if set(f"{options.name}{options.rights}{options.models}") & SEPARATORS:
        raise WrongOption("a name, rights and models cannot have blanks, line ends, semicolons or #")
    try:
        gate.parsed(line)
    except gate.InvalidKeys as error:
        raise WrongOption(str(error).partition(": ")[2]) from None
    shown = f"The key, shown this once: {key}\nThe line for DRAGOMAN_KEYS_FILE: {line}"
    results.tell(options, shown, key=key, line=line)


keys.add_command(new)

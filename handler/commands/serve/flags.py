"""The flags of `dragoman serve`: its own words, and one for each setting, made from the table of settings."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

import click

from handler.commands.options import FILE as PATH
from handler.commands.options import CommandOptions, command
from handler.settings import SETTINGS, Given, InvalidSettings, Setting, Settings, parsers, providers
from handler.settings.sources import FILE, SERVES, Layered

RELOADING: Final = {"repository_poll": "1"}
"""The default of a setting under --reload: new versions are found within a second."""
SHORT: Final = frozenset(
    ("repository", "preload", "memory_limit", "allow_code", "threads", "workers", "auth", "keys_file", "log_level")
)
"""The settings that `--help` shows. `--help-all` shows every one."""
EVERY: Final = "handler.commands.serve.flags"
"""A key of click's context: help shows every setting."""
KSERVE: Final = {"model_dir": "repository", "model_name": "model-name", "http_port": "port", "grpc_port": "grpc-port"}
"""Our names of the flags that KServe's ServingRuntimes give to its own servers. No help shows them."""
GROUPS: Final = {
    "repository": "Models",
    "max_body_bytes": "Limits of requests",
    "non_finite": "Protocols",
    "patience": "Inference",
    "cache": "Downloads",
    "auth": "Access",
    "verify": "Signatures",
    "name": "Server",
    "s3_addressing": "S3",
    "log_level": "Log and metrics",
}
"""The first setting of each group in the table of settings, and the group's title."""
METAVARS: Final[Mapping[Any, str]] = {
    parsers.text: "TEXT",
    parsers.names: "NAME,...",
    parsers.identities: "NAME,...",
    parsers.origins: "ORIGIN,...",
    parsers.algorithms: "NAME,...",
    parsers.rights: "RIGHT,...",
    parsers.metrics: "NAME,...",
    providers.parse: "NAME,...",
    parsers.positive: "N",
    parsers.workers: "N",
    parsers.size: "SIZE",
    parsers.port: "PORT",
    parsers.seconds: "SECONDS",
    parsers.seconds_or_never: "SECONDS",
    parsers.leeway: "SECONDS",
    parsers.base_path: "PATH",
    parsers.bucket_prefix: "URI",
    parsers.bucket_or_folder: "PLACE",
}
CHOICES: Final[Mapping[Any, parsers.OneOf]] = {parsers.level: parsers.LEVELS}
"""The words that a parser takes, where it is not one of them itself."""


def _titles() -> Iterator[tuple[str, str]]:
    """Yields each setting, and the title of its group."""
    title = ""
    for setting in SETTINGS:
        title = GROUPS.get(setting.field, title)
        yield setting.field, title


class ServeCommand(click.Command):
    """Shows its options in the groups of the settings. Has no arguments."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Refuses an argument as click does, and names the option that was probably meant."""
        ctx.allow_extra_args = True
        more = super().parse_args(ctx, args)
        if more and not ctx.resilient_parsing:
            plural = "s" if len(more) > 1 else ""
            given, first = " ".join(more), shlex.quote(more[0])
            ctx.fail(f"Got unexpected extra argument{plural} ({given}). Did you mean '--repository {first}'?")
        return more

    def format_options(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        titles, rows = dict(_titles()), dict[str, list[tuple[str, str]]]()
        for option in self.get_params(context):
            name, row = option.name or "", option.get_help_record(context)
            if row is not None and (name not in titles or name in SHORT or EVERY in context.meta):
                rows.setdefault(titles.get(name, "Options"), []).append(row)
        for title, found in rows.items():
            with formatter.section(title):
                formatter.write_dl(found)


def _help_all(context: click.Context, _: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click's form
    if given and not context.resilient_parsing:
        context.meta[EVERY] = True
        click.echo(context.get_help())
        context.exit()


def _help(setting: Setting) -> str:
    """Returns a setting's line of docs/settings.md as a terminal shows it."""
    text = re.sub(r"\[[^\]]*\]\(([^)#]*)[^)]*\)", r"docs/\1", setting.about).replace("`", "")
    default = f"; default: {setting.default}" if setting.default and "default" not in text else ""
    place = f" ({setting.variable})" if setting.variable else ""
    return f"{text}{default}{place}"


def _option(setting: Setting) -> click.Option:
    name, field = setting.field.replace("_", "-"), setting.field
    how: dict[str, Any] = {"help": _help(setting)}
    if setting.parse is parsers.flag:
        return click.Option([f"--{name}/--no-{name}", field], default=None, **how)
    if field == "lambda":
        how |= {"is_flag": False, "flag_value": "rest"}
    words: tuple[str, ...] = getattr(CHOICES.get(setting.parse, setting.parse), "choices", ())
    metavar = "|".join(words) or METAVARS.get(setting.parse, "TEXT")
    if words:
        how["shell_complete"] = lambda _context, _option, begun: [word for word in words if word.startswith(begun)]
    return click.Option([f"--{name}", field], metavar=metavar, type=PATH if metavar == "TEXT" else None, **how)


def flags_of(options: CommandOptions) -> Iterator[tuple[str, Given]]:
    """Yields the settings that flags give, by field."""
    for setting in (*SERVES, *SETTINGS):
        said = getattr(options, setting.field)
        if said is not None:
            text = str(said).lower() if isinstance(said, bool) else said
            yield setting.field, Given(text, f"--{setting.field.replace('_', '-')}")


OPTIONS: Final = (
    click.Option(
        ["--help-all"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_help_all,
        help="show the options of all settings",
    ),
    click.Option(
        ["--config"], type=PATH, metavar="FILE", help=f"TOML file with settings; default: {FILE}, if it exists"
    ),
    *map(_option, (*SERVES, *SETTINGS)),
)


@command(
    "serve",
    "serve a repository with uvicorn",
    f"Serve a repository. A flag overrides its variable, and the variable overrides {FILE} (key: the flag's name with "
    "underscores).",
    cls=ServeCommand,
    own_signals=True,
    params=[*OPTIONS],
    context_settings={"token_normalize_func": lambda word: KSERVE.get(word, word)},
)
def serve(options: CommandOptions) -> int:
    """Serves until a signal, and returns the exit code. Raises InvalidSettings."""
    layered = Layered(dict(flags_of(options)), options.config, SERVES)
    own = layered.own()
    from handler.commands.serve import server  # noqa: PLC0415 - sockets, which --help does not need

    how = server.Serving(
        own["host"],
        own["port"],
        own["grpc_port"] or 0,
        own["on_empty"],
        own["reload"],
        own["lambda"],
        layered.file,
        own["http2"],
    )
    if how.grpc_port == how.port:  # gRPC would share it, and take every connection
        cure = "choose another one, or --http2, which has all on one port"
        raise InvalidSettings(f"--grpc-port is --port, {how.port}: {cure}")
    if how.api != "off":
        environ = layered.environment() | {"AWS_LAMBDA_FUNCTION_NAME": "dragoman"}
        return server.serve_function(Settings.from_env(environ), how, environ)
    settings = layered.settings(access_log="true", **RELOADING if how.reload else {})
    if settings.workers == 1:
        return server.serve(settings, how)
    from handler.commands.serve import supervisor  # noqa: PLC0415 - for servers of several processes

    return supervisor.serve(settings, how, {"DRAGOMAN_ACCESS_LOG": "true"} | layered.environment())

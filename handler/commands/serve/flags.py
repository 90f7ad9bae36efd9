"""The flags of `dragoman serve`: its own words, and one for each setting, made from the table of settings."""

import argparse
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NoReturn

from handler.settings import SETTINGS, Given, Setting, Settings, parsers, providers
from handler.settings.sources import FILE, SERVES, Layered

RELOADING: Final = {"repository_poll": "1"}
"""The default of a setting under --reload: new versions are found within a second."""
SHORT: Final = frozenset(
    ("repository", "preload", "memory_limit", "allow_code", "threads", "workers", "auth", "keys_file", "log_level")
)
"""The settings that `--help` shows. `--help-all` shows every one."""
KSERVE: Final = {
    "repository": "--model_dir",
    "model_name": "--model_name",
    "port": "--http_port",
    "grpc_port": "--grpc_port",
}
"""The flags that KServe's ServingRuntimes give to its own servers, by our field. No help shows them."""
GROUPS: Final = {
    "repository": "models",
    "max_body_bytes": "limits of requests",
    "non_finite": "protocols",
    "patience": "inference",
    "cache": "downloads",
    "auth": "access",
    "verify": "signatures",
    "name": "server",
    "s3_addressing": "S3",
    "log_level": "log and metrics",
}
"""The first setting of each group in the table of settings, and the group's title."""
METAVARS: Final[Mapping[Any, str]] = {
    parsers.text: "TEXT",
    parsers.names: "NAME,...",
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
    parsers.level: "|".join(parsers.LEVELS.choices),
    parsers.base_path: "PATH",
}


def add(commands: Any) -> None:
    serve = commands.add_parser(
        "serve",
        help="serve a repository with uvicorn",
        usage="dragoman serve [FLAG ...]",
        description=f"Serve a repository. A flag overrides its variable, and the variable overrides {FILE} (key: the "
        "flag's name with underscores).",
    )
    serve.add_argument("--help-all", action=_HelpAll, nargs=0, help="show the flags of all settings")
    serve.add_argument("--config", metavar="FILE", help=f"TOML file with settings; default: {FILE}, if it exists")
    for setting in SERVES:
        _add(serve, setting, shown=True)
    group = serve
    for setting in SETTINGS:
        if setting.field in GROUPS:
            group = serve.add_argument_group(GROUPS[setting.field])
        _add(group, setting, shown=setting.field in SHORT)


def _add(group: Any, setting: Setting, *, shown: bool) -> None:
    flag, help_text = f"--{setting.field.replace('_', '-')}", _help(setting)
    if setting.parse is parsers.flag:
        added = group.add_argument(flag, dest=setting.field, action=argparse.BooleanOptionalAction)
    else:
        metavar = "|".join(setting.parse.choices) if isinstance(setting.parse, parsers.OneOf) else None
        more: dict[str, Any] = {"nargs": "?", "const": "rest"} if setting.field == "lambda" else {}
        metavar = metavar or METAVARS.get(setting.parse, "TEXT")
        added = group.add_argument(flag, dest=setting.field, metavar=metavar, **more)
    if setting.field in KSERVE:
        group.add_argument(KSERVE[setting.field], dest=setting.field, help=argparse.SUPPRESS)
    added.full = help_text
    added.help = help_text if shown else argparse.SUPPRESS


def _help(setting: Setting) -> str:
    """Returns a setting's line of docs/settings.md as a terminal shows it."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"docs/\1", setting.about).replace("`", "")
    default = f"; default: {setting.default}" if setting.default and "default" not in text else ""
    place = f" ({setting.variable})" if setting.variable else ""
    return f"{text}{default}{place}".replace("%", "%%")


class _HelpAll(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        for action in parser._actions:  # noqa: SLF001 - argparse lists its flags nowhere else
            action.help = getattr(action, "full", action.help)
        parser.print_help()
        parser.exit()


def flags_of(options: argparse.Namespace) -> Iterator[tuple[str, Given]]:
    """Yields the settings that flags give, by field."""
    for setting in (*SERVES, *SETTINGS):
        said = getattr(options, setting.field)
        if said is not None:
            text = str(said).lower() if isinstance(said, bool) else said
            yield setting.field, Given(text, f"--{setting.field.replace('_', '-')}")


def run(options: argparse.Namespace) -> int:
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
    if how.api != "off":
        environ = layered.environment() | {"AWS_LAMBDA_FUNCTION_NAME": "dragoman"}
        return server.serve_function(Settings.from_env(environ), how, environ)
    settings = layered.settings(access_log="true", **RELOADING if how.reload else {})
    if how.http2:
        from handler.commands.serve import http2  # noqa: PLC0415 - hypercorn, an extra

        return http2.serve(settings, how)
    if settings.workers == 1:
        return server.serve(settings, how)
    from handler.commands.serve import supervisor  # noqa: PLC0415 - for servers of several processes

    return supervisor.serve(settings, how, {"DRAGOMAN_ACCESS_LOG": "true"} | layered.environment())

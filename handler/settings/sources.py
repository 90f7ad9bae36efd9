"""The sources of a command's settings: flags before the environment, and the environment before `dragoman.toml`.

The file's keys are the settings' fields, `threads = 4` for DRAGOMAN_THREADS=4, and the command's own, `port = 80`.
"""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from core.errors import nearest, shown
from handler.settings import (
    PREFIX,
    SETTINGS,
    Given,
    InvalidSettings,
    Setting,
    Settings,
    contract_of,
    defaults_of,
    in_environment,
    is_of_kubernetes,
    parsers,
    value,
)

FILE: Final = "dragoman.toml"
"""The file in the current folder that is read where no flag names another one."""
SERVES: Final = (
    Setting("", "host", parsers.text, "127.0.0.1", "address to listen on"),
    Setting("", "port", parsers.port, "8080", "port to listen on"),
    Setting("", "grpc_port", parsers.port, "", "serve gRPC on this port, too; default: no gRPC"),
    Setting("", "http2", parsers.flag, "false", "experimental: speak HTTP/2, too, so that gRPC is on the same port ([grpc.md](protocols/grpc.md))"),
    Setting("", "on_empty", parsers.one_of("serve", "stop"), "serve", "without a model in the repository: `serve` (models can be added later), or `stop`"),
    Setting("", "reload", parsers.flag, "false", "load models again when their files change; the repository is a folder"),
    Setting("", "lambda", parsers.one_of("off", "rest", "http"), "off", "run the Lambda function in place of the server, behind an imitation of API Gateway: a `rest` API (the default) or an `http` API"),
)  # fmt: skip
"""The words of `dragoman serve` alone. The file may have them, whichever command reads it."""
LARGEST: Final = 2**63 - 1
"""The largest number of TOML. Python reads larger ones, and some of them cannot be written again."""
LONGEST: Final = 64
"""The most characters of a key that are compared, and shown."""


class Layered:
    """The settings of one command, from all sources.

    `flags`: values by field. `path`: the file to read; None for FILE, if it is there. `own`: the command's own words,
    which the environment does not have. `file`: the file that was read, None without one. Raises InvalidSettings.
    """

    def __init__(
        self,
        flags: Mapping[str, Given],
        path: str | None = None,
        own: Iterable[Setting] = (),
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._own = tuple(own)
        self.file = Path(path) if path is not None else (Path(FILE) if Path(FILE).is_file() else None)
        said = {} if self.file is None else in_file(self.file)
        self._given = said | in_environment(self._environ) | dict(flags)

    def settings(self, **defaults: str) -> Settings:
        """Returns the settings. `defaults`: the command's, where it has others. Raises InvalidSettings."""
        others = {field: Given(text, "the default") for field, text in defaults.items()}
        return Settings.of(others | self._given, self._environ)

    def environment(self) -> dict[str, str]:
        """Returns the environment of a process that is to have these settings. Raises InvalidSettings."""
        self.settings()
        variables = {setting.field: setting.variable for setting in SETTINGS}
        given = {variables[field]: said.text for field, said in self._given.items() if field in variables}
        return {**self._environ, **given}

    def own(self) -> dict[str, Any]:
        """Returns the values of the command's own words. Raises InvalidSettings."""
        given = defaults_of(contract_of(self._given, self._environ), self._given) | self._given
        return {setting.field: value(setting, given) for setting in self._own}


def in_file(path: Path) -> dict[str, Given]:
    """Returns the values of a TOML file, by field. Raises InvalidSettings."""
    import tomllib  # noqa: PLC0415 - 5 ms, for those who have the file

    try:
        members = tomllib.loads(path.read_text(encoding="utf-8-sig"))  # PowerShell begins a file with the mark
    except OSError as error:
        raise InvalidSettings(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # tomllib's own, UTF-8's, and that of a number of 5,000 digits
        raise InvalidSettings(f"{path} is not TOML: {str(error)[:256]}") from None
    fields = [setting.field for setting in (*SETTINGS, *SERVES)]
    for key in members:
        if key not in fields:
            raise InvalidSettings(f"{path}: unknown key {shown(key, LONGEST)}{_hint(key, fields)}")
    return {key: Given(_text(member, f"{path}: {key}"), f"{path}: {key}") for key, member in members.items()}


def _hint(key: str, fields: Iterable[str]) -> str:
    near = nearest(key.lower().replace("-", "_").removeprefix("dragoman_"), fields)
    return f"; did you mean {near}?" if near else "; docs/settings.md has the settings, without DRAGOMAN_"


def _text(member: Any, source: str) -> str:
    """Returns a value as a variable would have it. Raises InvalidSettings."""
    if isinstance(member, bool):
        return str(member).lower()
    if isinstance(member, int) and not -LARGEST <= member <= LARGEST:
        raise InvalidSettings(f"{source} is not a number of 64 bits")
    if isinstance(member, str) and "\0" in member:
        raise InvalidSettings(f"{source} has a NUL character, which no text of a setting can have")
    if isinstance(member, str | int | float):
        return str(member)
    if isinstance(member, list) and all(isinstance(each, str) and "," not in each for each in member):
        return ",".join(member)
    raise InvalidSettings(f"{source} is {shown(member)}; expected text, a number, true or false, or a list of names")


def ignored() -> list[str]:
    """Returns a line for each variable with the prefix that is not a setting, with the setting that it may mean.

    Kubernetes sets such variables (DRAGOMAN_SERVICE_HOST) in every container, if a service has the name "dragoman".
    """
    known = {setting.variable for setting in SETTINGS}
    odd = sorted(each for each in os.environ if each.startswith(PREFIX) and each not in known)
    return [f"{variable} is not a setting, and is ignored{_meaning(variable)}" for variable in odd]


def _meaning(variable: str) -> str:
    """Returns what to do: a setting of a longer name counts before one of a similar name."""
    word, names = variable.removeprefix(PREFIX), [setting.variable.removeprefix(PREFIX) for setting in SETTINGS]
    longer = min((name for name in names if word and name.startswith(word)), key=len, default="")
    near = "" if is_of_kubernetes(os.environ.get(variable, "")) else longer or nearest(word, names)
    return f"; did you mean {PREFIX}{near}?" if near else ": docs/settings.md has them all"

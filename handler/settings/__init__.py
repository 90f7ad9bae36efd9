"""THE table of DRAGOMAN_* variables, read once and checked at start; beside it, the settings of each model."""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

MB_PER_VCPU: Final = 1769
"""The MB of memory for which Lambda allots one vCPU (AWS documentation, "Configure Lambda function memory")."""

UNITS: Final = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}
USABLE: Final = 0.9
"""The part of the memory that models may use. The rest is for requests, and for loads that need more than expected."""


class InvalidSettings(Exception):
    """One line that names the variable, its value and what was expected."""


def _text(value: str) -> str:
    return value


def _flag(value: str) -> bool:
    known = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
    if value.lower() not in known:
        raise ValueError("true or false")
    return known[value.lower()]


def _names(value: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for part in value.split(",") if (name := part.strip())))


def _positive(value: str) -> int:
    if not value.isdecimal() or not 0 < int(value) < 2**63:
        raise ValueError("a whole number above 0")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError("seconds above 0")
    return seconds


def _seconds_or_never(value: str) -> float:
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        raise ValueError("a number of seconds, 0 for never")
    return float(value)


def _bytes(value: str) -> int:
    parts = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,3})?) ?([kMG]?i?B)?", value)
    if parts is None or parts[2] not in (None, *UNITS):
        raise ValueError(f"a number of bytes, or of {', '.join(UNITS)}; 0 for no limit")
    return int(float(parts[1]) * UNITS.get(parts[2], 1))


def _one_of(*choices: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return value

    return parse


def _level(value: str) -> str:
    return _one_of("DEBUG", "INFO", "WARNING", "ERROR")(value.upper())


def _base_path(value: str) -> str:
    return "/" + value.strip("/") if value.strip("/") else ""


class Setting(NamedTuple):
    """One row of the table. `default`: as text, like a variable's value."""

    variable: str
    field: str
    parse: Callable[[str], Any]
    default: str
    about: str


SETTINGS: Final = (
    Setting("DRAGOMAN_REPOSITORY", "repository", _text, "models", "where the models are: a directory, `file://`, `s3://bucket/prefix`"),
    Setting("DRAGOMAN_PRELOAD", "preload", _names, "", "models to load at start, by name with commas between, or `*`; the server is ready when they are"),
    Setting("DRAGOMAN_MEMORY_LIMIT", "memory_limit", _bytes, "", "the most memory for this process, such as `900MB` or `2GiB`: the least recently used models are unloaded to make room for others; `0`: no limit; default: 90 % of the function's memory on Lambda, elsewhere 90 % of the container's limit, if it has one"),
    Setting("DRAGOMAN_REPOSITORY_POLL", "repository_poll", _seconds_or_never, "60", "seconds after which a request for a model checks the repository again for new versions; `0`: only load calls and S3 events check it"),
    Setting("DRAGOMAN_DEFAULT_MODEL", "default_model", _text, "", "the model of GRPS requests that name none, as `name` or `name-version`; default: the repository's only one"),
    Setting("DRAGOMAN_ALLOW_CODE", "allow_code", _flag, "false", "`true`: run `model.py` files from the repository"),
    Setting("DRAGOMAN_MAX_BODY_BYTES", "max_body_bytes", _positive, "67108864", "largest request body, after inflating"),
    Setting("DRAGOMAN_NON_FINITE", "non_finite", _one_of("token", "null", "error"), "token", 'how NaN and infinities are written in JSON answers: `token` (as the protocol has them: NaN under `/v1`, "NaN" under `/v2`), `null`, or `error` (400)'),
    Setting("DRAGOMAN_V1_DIALECT", "v1_dialect", _one_of("auto", "tfs", "kserve"), "auto", "the protocol of answers under `/v1` where KServe and TensorFlow Serving differ: `auto` (both), `tfs`, `kserve`; a model's `v1_dialect` comes first"),
    Setting("DRAGOMAN_GRPS_HEALTH_CONTROL", "grps_health_control", _one_of("instance", "off"), "", "`instance`: GRPS clients may set this process online and offline, and readiness follows; `off` (default on Lambda): they get 501"),
    Setting("DRAGOMAN_PATIENCE", "patience", _seconds, "", "seconds that a request waits while its model is loaded; then the answer is 503 with the load's progress, and the load continues; default: the time that the function's timeout and API Gateway's 29 s leave on Lambda, unlimited on a server"),
    Setting("DRAGOMAN_THREADS", "threads", _positive, "", "threads that run models on an ASGI server; default: one per CPU"),
    Setting("DRAGOMAN_QUEUE", "queue", _positive, "1024", "requests that may wait for a thread; further ones get 503"),
    Setting("DRAGOMAN_CACHE", "cache", _text, "", "folder for downloads; default: `dragoman` in the system's temporary folder"),
    Setting("DRAGOMAN_CACHE_BYTES", "cache_bytes", _positive, "", "the most bytes of downloads to keep, the least recently used are deleted first; default: as many as fit on the disk"),
    Setting("DRAGOMAN_NAME", "name", _text, "dragoman", "the server's name in its metadata"),
    Setting("DRAGOMAN_SERVER_TIMING", "server_timing", _flag, "true", "`false`: no `Server-Timing` header in answers"),
    Setting("DRAGOMAN_SITE", "site", _flag, "true", "`false`: no status page, no /docs"),
    Setting("DRAGOMAN_BASE_PATH", "base_path", _base_path, "", "path of an API mapping (custom domain) in front of the function, taken off each request"),
    Setting("DRAGOMAN_S3_ADDRESSING", "s3_addressing", _one_of("auto", "path", "virtual"), "auto", "`path` or `virtual` host style; auto: path style for every endpoint but AWS's"),
    Setting("DRAGOMAN_S3_ANONYMOUS", "s3_anonymous", _flag, "false", "`true`: unsigned requests, for public buckets"),
    Setting("DRAGOMAN_LOG_LEVEL", "log_level", _level, "INFO", "`DEBUG`, `INFO`, `WARNING` or `ERROR`"),
)  # fmt: skip


class Settings(NamedTuple):
    """The values of SETTINGS, which explains them, and of the platform.

    `cpus`: the CPUs of this process; not a whole number on Lambda. `initialization`: Lambda's type of initialization,
    "on-demand", "provisioned-concurrency" or "snap-start"; "" elsewhere.
    """

    repository: str
    preload: tuple[str, ...]
    memory_limit: int | None
    repository_poll: float
    default_model: str
    allow_code: bool
    max_body_bytes: int
    non_finite: str
    v1_dialect: str
    grps_health_control: str
    patience: float | None
    threads: int
    queue: int
    cache: Path
    cache_bytes: int | None
    name: str
    server_timing: bool
    site: bool
    base_path: str
    s3_addressing: str
    s3_anonymous: bool
    log_level: str
    cpus: float
    platform: str
    initialization: str

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Reads the settings. Raises InvalidSettings, also for an unknown DRAGOMAN_* variable: it is a typing error."""
        environ = os.environ if environ is None else environ
        known = {setting.variable for setting in SETTINGS}
        for variable in environ:
            if variable.startswith("DRAGOMAN_") and variable not in known:
                raise InvalidSettings(f"unknown setting {variable}; the settings are {', '.join(sorted(known))}")
        values = {setting.field: _value(setting, environ) for setting in SETTINGS}
        cpus = _cpus(environ)
        values["threads"] = values["threads"] or max(1, round(cpus))
        values["cache_bytes"] = values["cache_bytes"] or None
        values["cache"] = Path(values["cache"] or Path(environ.get("TMPDIR") or "/tmp") / "dragoman")  # noqa: S108 - the system's, without importing tempfile (5 ms of cold start)
        values["patience"] = values["patience"] or None
        limit = values["memory_limit"]
        values["memory_limit"] = (_usable_memory(environ) if limit == "" else limit) or None
        platform = _platform(environ)
        values["grps_health_control"] = values["grps_health_control"] or ("off" if platform == "lambda" else "instance")
        initialization = environ.get("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand") if platform == "lambda" else ""
        return cls(**values, cpus=cpus, platform=platform, initialization=initialization)


def _value(setting: Setting, environ: Mapping[str, str]) -> Any:
    text = environ.get(setting.variable, "") or setting.default
    if not text:
        return () if setting.parse is _names else ""
    try:
        return setting.parse(text)
    except ValueError as error:
        raise InvalidSettings(f"{setting.variable} is {text[:256]!r}; expected {error}") from None


def _cpus(environ: Mapping[str, str]) -> float:
    memory = environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    if memory.isdecimal():
        return int(memory) / MB_PER_VCPU
    available = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    return min(available, _cgroup_cpus(Path("/sys/fs/cgroup/cpu.max")))


def _cgroup_cpus(quota_file: Path) -> float:
    """Returns a container's CPU quota (cgroup v2: "quota period" or "max period"), infinity without one."""
    try:
        quota, _, period = quota_file.read_text().partition(" ")
        return int(quota) / int(period)
    except (OSError, ValueError):
        return float("inf")


def _usable_memory(environ: Mapping[str, str]) -> int | None:
    memory = environ.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "")
    if memory.isdecimal():
        return int(int(memory) * 2**20 * USABLE)
    return _cgroup_memory(Path("/sys/fs/cgroup/memory.max"))


def _cgroup_memory(limit_file: Path) -> int | None:
    """Returns the usable bytes of a container's memory (cgroup v2: bytes or "max"), None without a limit."""
    try:
        return int(int(limit_file.read_text()) * USABLE)
    except (OSError, ValueError):
        return None


def _platform(environ: Mapping[str, str]) -> str:
    return "lambda" if "AWS_LAMBDA_FUNCTION_NAME" in environ else "server"

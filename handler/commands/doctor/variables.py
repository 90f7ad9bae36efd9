"""The DRAGOMAN_* variables: unknown names, wrong values, and values that contradict each other."""

import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from core.errors import nearest
from handler.commands.doctor.findings import Finding, error, expected, note, warning
from handler.settings import ALIKE, PREFIX, SETTINGS, InvalidSettings, Settings, hosts
from handler.settings.sources import in_file
from handler.stores import private

KNOWN: Final = {setting.variable: setting for setting in SETTINGS}
HERE: Final = "localhost"
LOCAL: Final = "file://"
CACHE: Final = "DRAGOMAN_CACHE"
TABLE: Final = "docs/settings.md lists the settings"


def of_file(path: Path) -> tuple[list[Finding], dict[str, str], str]:
    """Returns what is wrong with dragoman.toml, the variables that its keys stand for, and its host, "" without one."""
    try:
        said = in_file(path)
    except InvalidSettings as wrong:
        what, wanted = expected(str(wrong))
        cure = f"give {wanted}" if wanted else "correct the file; docs/command-line.md has its form"
        return [error("settings-file", str(path), what.removeprefix(f"{path}: "), cure)], {}, ""
    fields = {setting.field: setting.variable for setting in SETTINGS}
    values = {fields[field]: given.text for field, given in said.items() if field in fields}
    return [], values, said["host"].text if "host" in said else ""


def examine(environ: Mapping[str, str]) -> tuple[list[Finding], dict[str, str]]:
    """Returns the faults of the variables, and the environment without the wrong ones."""
    sound, found = dict(environ), []
    for variable in sorted(name for name in environ if name.startswith(PREFIX)):
        wrong = _wrong(variable, environ)
        if wrong is not None:
            found.append(wrong)
            del sound[variable]
    return found, sound


def _wrong(variable: str, environ: Mapping[str, str]) -> Finding | None:
    try:
        Settings.from_env({variable: environ[variable]})
    except InvalidSettings as wrong:
        if variable not in KNOWN:
            cure = f"did you mean {nearest(variable, KNOWN, ALIKE)}? rename it"
            return error("unknown-setting", variable, "no setting has this name, so the server does not start", cure)
        return refused(variable, wrong)
    if variable not in KNOWN:
        what = "no setting has this name; it is ignored, as Kubernetes sets such variables for a service of that name"
        return note("unknown-setting", variable, what, f"remove it if it is yours; {TABLE}")
    return None


def refused(variable: str, wrong: InvalidSettings) -> Finding:
    """Returns the finding on a value that a setting cannot have."""
    what, wanted = expected(str(wrong))
    return error("setting-value", variable, what, f"set it to {wanted}" if wanted else TABLE)


def name_of_model(settings: Settings) -> Iterator[Finding]:
    """Yields whether no model can have the name of the repository's only one."""
    from handler.stores.loose import given_name  # noqa: PLC0415 - most repositories have several models

    try:
        given_name(settings)
    except InvalidSettings as wrong:
        yield refused("DRAGOMAN_MODEL_NAME", wrong)


def of_platform(settings: Settings) -> Iterator[Finding]:
    """Yields which platform has started the process, if one has."""
    if said := hosts.line(settings.contract):
        yield note("platform", "the environment", said, "DRAGOMAN_PLATFORM=none if that is not so")


def contradictions(settings: Settings, host: str) -> Iterator[Finding]:
    """Yields what two settings together do wrong. `host`: the address that a server listens on."""
    yield from _access(settings, host)
    yield from _keys_file(settings)
    yield from _verification(settings)
    yield from _observation(settings)
    yield from _folders(settings)
    if settings.auth == "none" and (settings.keys or settings.keys_file):
        yield warning(
            "keys-unused",
            "DRAGOMAN_AUTH",
            "there are keys, but clients do not need one: DRAGOMAN_AUTH is 'none'",
            "set DRAGOMAN_AUTH=keys, or remove DRAGOMAN_KEYS and DRAGOMAN_KEYS_FILE",
        )


def _access(settings: Settings, host: str) -> Iterator[Finding]:
    from handler.edge.gate.gate import AccessGate  # noqa: PLC0415 - the gate decides; other commands need none

    models: Any = None  # the gate keeps them for requests, and none comes
    try:
        AccessGate(settings, models)
    except InvalidSettings as wrong:
        what, wanted = expected(str(wrong))
        yield error("authentication", "DRAGOMAN_AUTH", what, wanted or _keys_cure(what))
    if settings.control == "open" and settings.auth == "none" and not _is_loopback(host):
        yield error(
            "control-open",
            "DRAGOMAN_CONTROL",
            f"it is 'open' without authentication, on {host}: every client can unload every model",
            "unset DRAGOMAN_CONTROL, or set DRAGOMAN_AUTH=keys and make a key with `dragoman keys new --rights admin`",
        )


CURES: Final = {
    "DRAGOMAN_KEYS_FILE": "name a file of lines by `dragoman keys new` that the server's user can read",
    "DRAGOMAN_JWT_JWKS": "name a file of the issuer's public keys (JWKS) that the server's user can read, or a URL",
}
"""The cure for each setting that is the first word of its refusal."""
DEFAULT_CURE: Final = "set what is missing, or DRAGOMAN_AUTH=none; docs/security.md has an example of each"


def _keys_cure(what: str) -> str:
    """Returns the cure for settings of authentication that a server refuses. `what`: its words."""
    if found := re.match(r"DRAGOMAN_KEYS(?:_FILE)?: (?:(line|entry) [0-9]+)?", what):
        return f"correct that {found[1] or 'text'}; `dragoman keys new` prints a valid line"
    return CURES.get(what.partition(" ")[0], DEFAULT_CURE)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == HERE


def _keys_file(settings: Settings) -> Iterator[Finding]:
    if not settings.keys_file:
        return
    from handler.edge.gate import keys  # noqa: PLC0415 - as above

    path = Path(settings.keys_file)
    try:
        mode = path.stat().st_mode
        known = keys.parsed(f"{settings.keys}\n{path.read_text(encoding='utf-8')}")
    except (OSError, ValueError):
        return  # the gate has said so
    if not known and settings.auth != "none":
        what = f"{path} has no key, so nobody can send a request with one"
        yield warning("keys-none", "DRAGOMAN_KEYS_FILE", what, "put the line that `dragoman keys new` prints there")
    if mode & stat.S_IWOTH:
        what = "every user of this machine can write it, and so add a key"
        yield error("keys-file-writable", "DRAGOMAN_KEYS_FILE", what, f"chmod 600 {shlex.quote(str(path))}")
    elif mode & (stat.S_IROTH | stat.S_IRGRP):
        what = "other users of this machine can read it: who has a key, with which rights on which models"
        yield warning("keys-file-readable", "DRAGOMAN_KEYS_FILE", what, f"chmod 600 {shlex.quote(str(path))}")


def _verification(settings: Settings) -> Iterator[Finding]:
    if settings.verify == "off":
        if settings.verify_key or settings.verify_roots:
            yield warning(
                "verify-off",
                "DRAGOMAN_VERIFY",
                "there are trusted keys, but models are not verified: it is 'off'",
                "set DRAGOMAN_VERIFY=signature, or remove DRAGOMAN_VERIFY_KEY and DRAGOMAN_VERIFY_ROOTS",
            )
        return
    from handler.stores.signing import policy  # noqa: PLC0415 - cryptography, for repositories that are signed

    try:
        policy.VerifyPolicy.of(settings)
    except InvalidSettings as wrong:
        what, wanted = expected(str(wrong))
        yield error("verification", "DRAGOMAN_VERIFY", what, f"set {wanted}" if wanted else "docs/signing.md")


def _observation(settings: Settings) -> Iterator[Finding]:
    """Starts what a server would start for traces and payloads, but for a folder, which it would make."""
    if settings.traces == "otlp":
        from handler.edge.observe.traces import provider  # noqa: PLC0415 - as above

        try:
            provider.connect(settings, freezes=True)
        except InvalidSettings as wrong:
            what, _, cure = str(wrong).partition(": ")
            yield error("traces", "DRAGOMAN_TRACES", what, cure)
    if "://" in settings.payload_log.removeprefix(LOCAL):
        from handler.edge.observe.payloads import places  # noqa: PLC0415 - as above

        try:
            places.place_of(settings)
        except InvalidSettings as wrong:
            what, wanted = expected(str(wrong))
            yield error(
                "payload-log", "DRAGOMAN_PAYLOAD_LOG", what, f"set {wanted}" if wanted else "docs/payload-log.md"
            )


def _folders(settings: Settings) -> Iterator[Finding]:
    """Yields the folders that a server could not write."""
    named: list[tuple[str, str]] = []
    if settings.payload_log and "://" not in settings.payload_log.removeprefix(LOCAL):
        named += [("DRAGOMAN_PAYLOAD_LOG", settings.payload_log.removeprefix(LOCAL))]
    if not settings.cache_is_default and "://" in settings.repository.removeprefix(LOCAL):
        named += [(CACHE, str(settings.cache))]
    for variable, folder in named:
        path = Path(folder).absolute()
        there = next(each for each in (path, *path.parents) if os.access(each, os.F_OK))
        if not there.is_dir():
            yield error("folder-unwritable", variable, f"{there} is not a folder", "name a folder")
        elif not os.access(there, os.W_OK | os.X_OK):
            cure = "name a folder that this user can write, or change its permissions"
            yield error("folder-unwritable", variable, f"this user cannot write {there}", cure)
        elif variable == CACHE and not settings.cache_shared:
            yield from _public(path, there, settings)


def _public(cache: Path, there: Path, settings: Settings) -> Iterator[Finding]:
    """Yields that a server would refuse the cache: other users can change it. `there`: the first folder that exists."""
    trusted = private.exempt(settings.platform)
    try:
        private.check(cache, trusted) if there == cache else private.check_parent(there, trusted)
    except private.NotPrivate as wrong:
        cure = (
            "name a folder that only this user can write, or set DRAGOMAN_CACHE_SHARED=true if those users are trusted"
        )
        yield error("cache-not-private", CACHE, f"every load fails: {cache} {wrong}", cure)
    except OSError:
        return  # it cannot be looked at, and that is a finding of its own


def named_models(settings: Settings, names: Sequence[str]) -> Iterator[Finding]:
    """Yields the models that settings name and the repository, which has `names`, does not."""
    wanted = [("DRAGOMAN_PRELOAD", name) for name in settings.preload if name != "*"]
    default = settings.default_model
    wanted += [("DRAGOMAN_DEFAULT_MODEL", default)] if default and default.rpartition("-")[0] not in names else []
    for variable, name in wanted:
        if name not in names:
            near = nearest(name, names, ALIKE)
            cure = f"did you mean {near!r}?" if near else f"name one of {', '.join(names[:8]) or 'its models'}"
            yield error("no-such-model", variable, f"the repository has no model {name!r}", cure)

"""What `dragoman serve` prints when it starts: the models, the addresses, commands to try, and problems."""

import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from core.deadline import NEVER, Deadline, within
from core.errors import ModelNotFound, ModelNotLoadable, ServingError, escaped, some
from core.records import NamedTuple
from handler.commands.called import called
from handler.lifecycle.repository import VERSION, Repository
from handler.settings import Settings
from handler.stores import open_store, paths
from handler.stores.directory import root_of

LOOK_SECONDS: Final = 5.0
"""The most that the first look at the repository takes. Until then nobody listens, not even for a probe of health."""
CURE: Final = "name another one with --repository or DRAGOMAN_REPOSITORY"
MOST_NAMED: Final = 4
USUAL: Final = "http://127.0.0.1:8080"
"""The address that `dragoman infer` asks by default."""


class Glance(NamedTuple):
    """A look at the repository. `problem`: why it has no models, or not all; "" if nothing is wrong."""

    models: Sequence[str]
    problem: str


def look(app: Any, settings: Settings, *, waits: bool) -> Glance:
    """Lists the repository's models. `waits`: as long as the store takes, and not LOOK_SECONDS."""
    from handler.lifecycle.single_flight import Background  # noqa: PLC0415 - as the application

    deadline, local = NEVER if waits else within(LOOK_SECONDS), _local(settings.repository)
    seen = _glance(lambda: app.registry.names(Background(deadline)), settings, local)
    if not seen.models and deadline.left <= 0:
        return Glance((), f"the repository did not answer within {LOOK_SECONDS:g} s; the next request tries it again")
    return _judged(seen, settings, deadline) if local is not None or waits else seen


def _glance(names: Callable[[], Sequence[str]], settings: Settings, local: Path | None) -> Glance:
    try:
        found = names()
    except ServingError as error:
        return Glance((), _missing(local) or f"the repository does not answer: {error.message}")
    is_repository = not settings.is_loose
    if local is not None and is_repository and _is_model(local, found):
        return Glance((), _empty(local))
    if found or settings.contract.hosted:  # the platform brings models later
        return Glance(found, _loose(local, found[0]) if found else "")
    if local is None:
        return Glance((), f"the repository {settings.repository!r} has no models yet")
    return Glance((), _empty(local, is_loose=settings.is_loose))


def _judged(seen: Glance, settings: Settings, deadline: Deadline) -> Glance:
    """Removes the models that no request can use, such as those without a version. The problem has the reasons.

    Looks at all models of a folder before the deadline. In a bucket, each look is a request: the first model that can
    be used is enough.
    """
    if not seen.models or settings.is_loose or settings.contract.hosted:
        return seen
    repository, is_remote, reasons = Repository(open_store(settings)), _local(settings.repository) is None, {}
    for name in seen.models:
        if deadline.left <= 0:
            break
        if reason := _unusable(repository, name, deadline):
            reasons[name] = reason
        elif is_remote:
            break
    if not reasons:
        return seen
    models = [name for name in seen.models if name not in reasons]
    told = some([*reasons.values()], MOST_NAMED, "; ")
    problem = f"not served: {told}" if models else f"no model of {settings.repository} can be served: {told}"
    return Glance(models, "; ".join(filter(None, (problem, seen.problem))))


def _unusable(repository: Repository, name: str, deadline: Deadline) -> str:
    """Returns why no version of a model can be served, "" if one can, or if the store does not answer."""
    try:
        repository.look(name, None, deadline)
    except ModelNotFound:
        return f"the folder {name!r} has no files: put a model into {name}/1, or remove the folder"
    except ModelNotLoadable as error:
        return error.message
    except ServingError:
        return ""
    return ""


def _local(repository: str) -> Path | None:
    """Returns a repository's path on this machine, None if it is elsewhere."""
    if "://" in repository and not repository.startswith("file://"):
        return None
    return root_of(repository)


def _missing(path: Path | None) -> str:
    """Returns why a path is not a repository, "" if nothing is known."""
    try:
        if path is None or paths.is_dir(path):
            return ""
        if paths.exists(path):
            return f"the repository {path} is not a directory: {CURE}"
    except OSError:
        return ""
    return f"the repository {path} does not exist: make it, or {CURE}"


def _is_model(path: Path, names: Sequence[str]) -> bool:
    """Decides whether a folder is one model's: what it has are numbers, and their folders have a version's files."""
    with suppress(OSError):
        return all(map(VERSION.fullmatch, names)) and any(path.glob("[0-9]*/model.*"))
    return False


def _loose(path: Path | None, model: str) -> str:
    """Names a file beside the models' folders, where it is not served; "" if there is none. `model`: one of them."""
    file = None
    with suppress(OSError):
        if path is not None and (path / model).is_dir():  # else the repository is elsewhere, or itself a model
            file = next(path.glob("*.onnx"), None)
    if file is None:
        return ""
    return f"{file.name} lies beside the models' folders, and is not served: move it to {file.stem}/1/model.onnx"


def _empty(path: Path, *, is_loose: bool = False) -> str:
    """Returns why a directory has no models, with the cure. `is_loose`: it may be the folder of one model."""
    loose = next((each.stem for each in path.glob("*.onnx")), None)
    if loose == "model" or any(path.glob("[0-9]*/model.*")):
        return f"the repository {path} is one model: name it with --model-name, or name the folder above it"
    if loose is not None:
        cure = f"rename {loose}.onnx to model.onnx" if is_loose else f"move {loose}.onnx to {loose}/1/model.onnx"
        return f"the repository {path} has no models: {cure}"
    return f"the repository {path} has no models: add NAME/1/model.onnx, or {CURE}"


def say(seen: Glance, settings: Settings, url: str, rpc: str, file: Path | None) -> None:
    """Prints the addresses on stdout, and problems on stderr. `rpc`: gRPC's address, or ""."""
    names = some([*map(escaped, seen.models)]) if seen.models else "no model yet"
    lines = [f"gRPC on {rpc}"] if rpc else []
    lines.append(f"dragoman serves {settings.repository} on {url}: {names}")
    if settings.workers > 1:
        lines.append(f"{settings.workers} workers share the port and answer as one server")
    if file is not None:
        lines.append(f"dragoman reads settings from {file}")
    place = "" if url == USUAL else f" --url {url}"
    key = ("", "") if settings.auth == "none" else (" -H 'Authorization: Bearer KEY'", " --key KEY")
    for example in seen.models[:1]:
        lines += ["", "Try:", f"  curl{key[0]} {url}/v2/models/{_in_url(example)}"]
        lines.append(f"  {called()} infer {_in_shell(example)} --sample{place}{key[1]}")
        lines.append(f"  curl{key[0]} -X POST {url}/v2/repository/index")
    lines += ["", f"Status page: {url}/   API: {url}/docs"] if settings.site else []
    _say(lines, seen)


def say_function(settings: Settings, url: str, api: str, file: Path | None) -> None:
    """Prints the address of the function, and commands to try. A bucket is left to the function."""
    lines = [f"dragoman runs handler.aws.lambda_handler behind an API Gateway {api.upper()} API on {url}"]
    lines.append(f"Models of {settings.repository}; one instance, which starts with the first request")
    if file is not None:
        lines.append(f"dragoman reads settings from {file}")
    local = _local(settings.repository)
    seen = Glance(("MODEL",), "")
    if local is not None:
        seen = _judged(_glance(open_store(settings).models, settings, local), settings, NEVER)
    lines += ["", "Try:", f"  curl {url}/v2/health/ready"]
    lines += [f"  {called()} infer {_in_shell(example)} --sample --url {url}" for example in seen.models[:1]]
    _say(lines, seen)


def _in_url(name: str) -> str:
    """Returns a model's name as it can stand in a URL, and in a shell."""
    return quote(name, safe="", errors="replace")


def _in_shell(name: str) -> str:
    """Returns a model's name as one word of a shell. Any publisher chooses names, so they can have any character."""
    return shlex.quote(escaped(name))


def _say(lines: Sequence[str], seen: Glance) -> None:
    print(*lines, sep="\n", flush=True)  # noqa: T201 - the addresses, and commands to try
    if seen.problem:
        print(f"dragoman: {escaped(seen.problem)}", file=sys.stderr, flush=True)  # noqa: T201 - beside the log

"""THE table of the platforms that may start this server: how each is recognised, and what each sets.

A platform sets what no flag, variable or file sets, and brings the routes that it calls. They do not exist elsewhere.
Sources: the vendors' pages that docs/platforms.md names.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from core.records import NamedTuple

Environ = Mapping[str, str]
AUTO, NONE = "auto", "none"
EVERYWHERE: Final = {"host": "0.0.0.0"}  # noqa: S104 - a platform's callers are on other machines
"""The address inside a container whose platform is in front of it."""
PRELOADED: Final = {"preload": "*"}
"""A platform's own folder has one model. Its health then tells that it is loaded, and a broken one never serves."""
SAGEMAKER_BASE: Final = "/opt/ml"
KSERVE_MODELS: Final = "/mnt/models"
EVENTS: Final = "/events"
"""The path of Lambda Web Adapter's own choice for events that are not HTTP."""
ROUTE: Final = re.compile(r"/|(?:/[A-Za-z0-9._~!$&'()*+,;=:@%-]+)+/?")
"""A path from a platform's variable. No placeholder and no empty segment can stand in it."""
OF_A_MODEL: Final = re.compile(r"/v[12]/models/([^/:%]+)(?:/versions/([0-9]+))?(?::predict|/infer)")
"""V1's and V2's paths of inference, which name a model."""


class Contract(NamedTuple):
    """The contract of a platform. `platform`: its name in the table; "" without one. `why`: how it was found.

    `sets`: settings by field, as text, with the variable that each comes from. `health`, `infer`: the paths that it
    calls; "" for none. `as_mlflow`: whether errors and answers have MLflow's forms. `hosted`: the folder below which it
    puts models that it asks to load; "" if it does not. `layout`: "versions" for a repository, "one" if the repository
    may be the folder of one model, "each" if each model's folder may do without versions. `hooks`: the paths that are
    called before a snapshot of the process, and after it goes on from one. `events`: the path that gets Lambda's events
    which are not HTTP.
    """

    platform: str = ""
    why: str = ""
    sets: Mapping[str, tuple[str, str]] = {}
    health: str = ""
    infer: str = ""
    as_mlflow: bool = False
    hosted: str = ""
    layout: str = "versions"
    hooks: tuple[str, str] = ("", "")
    events: str = ""


class HostPlatform(NamedTuple):
    """A platform. `sign`: returns why this is it, "" if it is not. `contract`: its contract."""

    title: str
    sign: Callable[[Environ], str]
    contract: Callable[[Environ], Contract]


class WrongRoute(ValueError):
    """A path of a platform's variable that cannot be a route."""


def _variables(*names: str) -> Callable[[Environ], str]:
    """Returns the sign of a platform that sets all of these variables."""

    def sign(environ: Environ) -> str:
        if not all(environ.get(name) for name in names):
            return ""
        return f"{' and '.join(names)} {'are' if len(names) > 1 else 'is'} set"

    return sign


def _never(_: Environ) -> str:
    """Returns no sign, for a platform that sets no variable of its own: a setting has to name it."""
    return ""


def _of(environ: Environ, variable: str, field: str, default: str = "") -> dict[str, tuple[str, str]]:
    """Returns the setting that a variable gives, or its default; nothing without either."""
    text = environ.get(variable) or default
    return {field: (text, variable)} if text else {}


def _from(name: str, sets: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    return {field: (text, name) for field, text in sets.items()}


def _is_folder(path: str) -> bool:
    try:
        return Path(path).is_dir()
    except OSError:  # pragma: no cover - a folder above that cannot be searched
        return False


# -- the platforms ----------------------------------------------------------------------------------------------------


def _base(environ: Environ) -> str:
    return environ.get("SAGEMAKER_BASE_DIR") or SAGEMAKER_BASE


def _is_multi_model(environ: Environ) -> bool:
    return environ.get("SAGEMAKER_MULTI_MODEL", "").lower() == "true"


def _sagemaker_sign(environ: Environ) -> str:
    """Returns why this is an endpoint.

    Studio, notebooks and training jobs have other variables of this prefix, so these two alone count. An endpoint that
    has neither has the folder of its model.
    """
    for name in ("SAGEMAKER_BIND_TO_PORT", "SAGEMAKER_MULTI_MODEL"):
        if environ.get(name):
            return f"{name} is set"
    folder = f"{_base(environ)}/model"
    return f"{folder} is there" if _is_folder(folder) else ""


def _sagemaker(environ: Environ) -> Contract:
    several, base = _is_multi_model(environ), _base(environ)
    folder = f"{base}/models" if several else f"{base}/model"
    own = {"repository": folder, **EVERYWHERE, **({"control": "open"} if several else PRELOADED)}
    sets = _from("SageMaker", own) | _of(environ, "SAGEMAKER_BIND_TO_PORT", "port")
    layout = "each" if several else "one"
    return Contract(sets=sets, health="/ping", infer="/invocations", hosted=folder if several else "", layout=layout)


def _mlflow(_: Environ) -> Contract:
    return Contract(health="/ping", infer="/invocations", as_mlflow=True, layout="one")


def _vertex(environ: Environ) -> Contract:
    sets = _from("Vertex AI", dict(EVERYWHERE)) | _of(environ, "AIP_HTTP_PORT", "port")
    if environ.get("AIP_STORAGE_URI"):
        sets |= _of(environ, "AIP_STORAGE_URI", "repository") | _from("Vertex AI", PRELOADED)
    health, infer = (_route(environ, name) for name in ("AIP_HEALTH_ROUTE", "AIP_PREDICT_ROUTE"))
    if named := OF_A_MODEL.fullmatch(infer):
        default = "-".join(filter(None, named.groups()))
        sets |= _from("AIP_PREDICT_ROUTE", {"model_name": named[1], "default_model": default})
    return Contract(sets=sets, health=health, infer=infer, layout="one")


def _route(environ: Environ, variable: str) -> str:
    """Raises WrongRoute."""
    path = environ.get(variable, "")
    if path and not ROUTE.fullmatch(path):
        raise WrongRoute(f"{variable} is {path[:256]!r}; expected a path such as /predict")
    return path if path == "/" else path.removesuffix("/")


def _azure(environ: Environ) -> Contract:
    """The folder is .../azureml-models/NAME/VERSION."""
    sets = _from("Azure ML", {**EVERYWHERE, **PRELOADED}) | _of(environ, "AZUREML_MODEL_DIR", "repository")
    *_, name, version = ("", "", *Path(environ.get("AZUREML_MODEL_DIR", "")).parts)
    sets |= {"model_name": (name, "AZUREML_MODEL_DIR")} if version.isdecimal() and name else {}
    return Contract(sets=sets, infer="/score", layout="one")


def _kserve_sign(environ: Environ) -> str:
    """Returns why this is a predictor of KServe: any other pod, and any other machine, may have one of the two."""
    in_pod = bool(environ.get("KUBERNETES_SERVICE_HOST"))
    return f"{KSERVE_MODELS} is there, in a pod of Kubernetes" if in_pod and _is_folder(KSERVE_MODELS) else ""


def _kserve(environ: Environ) -> Contract:
    sets = _from("KServe", {"repository": KSERVE_MODELS, **EVERYWHERE, **PRELOADED}) | _of(environ, "PORT", "port")
    return Contract(sets=sets, layout="one")


def _on_port(title: str, environ: Environ) -> Contract:
    return Contract(sets=_from(title, dict(EVERYWHERE)) | _of(environ, "PORT", "port"))


def _web_adapter(environ: Environ) -> Contract:
    """The adapter asks the server on the loopback, where it listens by default. Raises WrongRoute."""
    sets = _of(environ, "PORT", "port") | _of(environ, "AWS_LWA_PORT", "port")
    events = _route(environ, "AWS_LWA_PASS_THROUGH_PATH") or EVENTS
    if environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") != "snap-start":
        return Contract(sets=sets, events=events)
    before = _route(environ, "AWS_LWA_SNAPSTART_BEFORE_CHECKPOINT_PATH")
    return Contract(sets=sets, hooks=(before, _route(environ, "AWS_LWA_SNAPSTART_AFTER_RESTORE_PATH")), events=events)


HOSTS: Final = {
    "lambda": HostPlatform("Lambda", _variables("AWS_LAMBDA_FUNCTION_NAME"), _web_adapter),
    "sagemaker": HostPlatform("SageMaker", _sagemaker_sign, _sagemaker),
    "vertex": HostPlatform("Vertex AI", _variables("AIP_HTTP_PORT", "AIP_PREDICT_ROUTE"), _vertex),
    "azure": HostPlatform("Azure ML", _variables("AZUREML_MODEL_DIR"), _azure),
    "kserve": HostPlatform("KServe", _kserve_sign, _kserve),
    "knative": HostPlatform("Knative or Cloud Run", _variables("K_SERVICE", "PORT"), partial(_on_port, "Knative")),
    "fly": HostPlatform("Fly", _variables("FLY_APP_NAME"), partial(_on_port, "Fly")),
    "mlflow": HostPlatform("MLflow", _never, _mlflow),
    "port": HostPlatform("a platform that sets PORT", _never, partial(_on_port, "the platform")),
}
"""In the order in which they are looked for: KServe runs on Knative, too."""
CHOICES: Final = (AUTO, NONE, *(name for name in HOSTS if name != "lambda"))


def recognised(environ: Environ, chosen: str = AUTO) -> Contract:
    """Returns the contract to keep. `chosen`: of CHOICES; on Lambda, which nothing else looks like, it has no say.

    Raises WrongRoute.
    """
    for name, host in HOSTS.items():
        why = f"DRAGOMAN_PLATFORM is {chosen}" if name == chosen else host.sign(environ)
        if why and (chosen in (AUTO, name) or name == "lambda"):
            return host.contract(environ)._replace(platform=name, why=why)
    return Contract()


def line(contract: Contract) -> str:
    """Returns the line of the log and the doctor about the contract, "" without one."""
    if not contract.platform:
        return ""
    given = ", ".join(f"{field} {text}" for field, (text, _) in sorted(contract.sets.items()))
    said = f"started as on {HOSTS[contract.platform].title} because {contract.why}"
    return f"{said}; by default: {given}" if given else said

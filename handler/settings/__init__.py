"""THE table of DRAGOMAN_* variables, read once and checked at start; beside it, the settings of each model."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from core.errors import nearest
from core.records import NamedTuple
from handler.settings import hosts, parsers, platform, providers
from handler.settings.hosts import Contract


class InvalidSettings(Exception):
    """One line that names the variable, its value and what was expected, for the operator.

    `public`: for clients. It has no value that could be a path or a secret.
    """

    def __init__(self, message: str, public: str | None = None) -> None:
        super().__init__(message)
        self.public = message if public is None else public


class Given(NamedTuple):
    """A value as its source has it. `source`: how messages name it: a variable, a flag, or a file and its key."""

    text: str
    source: str


class Setting(NamedTuple):
    """One row of the table. `default`: as text, like a variable's value. `variable`: "" if there is none."""

    variable: str
    field: str
    parse: Callable[[str], Any]
    default: str
    about: str


PREFIX: Final = "DRAGOMAN_"
ALIKE: Final = 0.7
"""How much of a variable's name has to be that of a setting to be taken for its misspelling."""
LONGEST_WORD: Final = 8
"""A wrong value of up to so many letters and digits is quoted to clients: it is a number or a word."""
SETTINGS: Final = (
    Setting("DRAGOMAN_REPOSITORY", "repository", parsers.text, "models", "where the models are: a directory, `file://`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix`, `https://host/path`; see [stores.md](stores.md)"),
    Setting("DRAGOMAN_MODEL_NAME", "model_name", parsers.text, "", "the repository is one model's folder (`model.onnx` or `model.py` in it, or numbered versions), and the model has this name; default: on the platforms that mount one model, its settings' or its folder's"),
    Setting("DRAGOMAN_PLATFORM", "platform", parsers.one_of(*hosts.CHOICES), "auto", "the platform whose contract is kept: its port, its folder and its routes; `auto` (recognised by its environment, see [platforms.md](platforms.md)), `none`, or its name"),
    Setting("DRAGOMAN_PRELOAD", "preload", parsers.names, "", "models to load at start, by name with commas between, or `*`, each with all versions that its `version_policy` serves; the server is ready when they are"),
    Setting("DRAGOMAN_MEMORY_LIMIT", "memory_limit", parsers.size, "", "the most memory for this process, such as `900MB` or `2GiB`: the least recently used models are unloaded to make room for others; `0`: no limit; default: 90 % of the function's memory on Lambda, elsewhere 90 % of the container's limit, if it has one"),
    Setting("DRAGOMAN_REPOSITORY_POLL", "repository_poll", parsers.seconds_or_never, "60", "seconds after which a request for a model checks the repository again for new versions; `0`: only load calls and S3 events check it"),
    Setting("DRAGOMAN_DEFAULT_MODEL", "default_model", parsers.text, "", "the model for requests that do not name one, of GRPS and on a platform's route, as `name` or `name-version`; default: the repository's only one, or that of Vertex AI's path ([platforms.md](platforms.md#vertex-ai))"),
    Setting("DRAGOMAN_ALLOW_CODE", "allow_code", parsers.flag, "false", "`true`: run `model.py` files from the repository"),
    Setting("DRAGOMAN_MAX_BODY_BYTES", "max_body_bytes", parsers.positive, "67108864", "largest request body, after inflating"),
    Setting("DRAGOMAN_BYTES_IN_FLIGHT", "bytes_in_flight", parsers.size, "", "the most bytes of requests and answers at a time on a server, such as `500MB`; a body counts twice, as received and as tensors; further requests get 503; `0`: no limit; default: a quarter of `DRAGOMAN_MEMORY_LIMIT`, without one of the machine's memory"),
    Setting("DRAGOMAN_MAX_HEADER_BYTES", "max_header_bytes", parsers.positive, "65536", "largest request line with its headers; more get 431, or 414 for a long URL"),
    Setting("DRAGOMAN_HEAD_TIMEOUT", "head_timeout", parsers.seconds, "10", "seconds for a request line with its headers, counted from its first byte and from the opening of the connection"),
    Setting("DRAGOMAN_PAUSE_TIMEOUT", "pause_timeout", parsers.seconds, "20", "seconds without progress after which the server gives up a stalled body, or an answer that its client does not read (less than 1 kB a second of either)"),
    Setting("DRAGOMAN_IDLE_TIMEOUT", "idle_timeout", parsers.seconds, "75", "seconds after which `dragoman serve` closes an idle connection; it must be above that of a load balancer in front"),
    Setting("DRAGOMAN_SHUTDOWN_TIMEOUT", "shutdown_timeout", parsers.seconds, "5", "seconds after SIGTERM in which `dragoman serve` finishes the requests in flight; after that they get 503, and streams end with an error; a container's grace period must be longer"),
    Setting("DRAGOMAN_CONNECTIONS", "connections", parsers.positive, "", "the most connections at a time; for a further one, the longest idle one is closed, else it gets 503; default: three quarters of the process's limit of descriptors (all but 64 of fewer than 256), at most 10,000"),
    Setting("DRAGOMAN_NON_FINITE", "non_finite", parsers.one_of("token", "null", "error"), "token", 'how NaN and infinities are written in JSON answers: `token` (the form of the protocol: NaN under `/v1`, "NaN" under `/v2`), `null` (tensors and maps of GRPS keep "NaN", because parsers of protobuf refuse null there), or `error` (400)'),
    Setting("DRAGOMAN_V1_DIALECT", "v1_dialect", parsers.one_of(*parsers.V1_DIALECTS), "auto", "the protocol of answers under `/v1` where KServe and TensorFlow Serving differ: `auto` (both), `tfs`, `kserve`; a model's own `v1_dialect` overrides it"),
    Setting("DRAGOMAN_GRPC_OUTPUTS", "grpc_outputs", parsers.one_of(*parsers.GRPC_OUTPUTS), "mirror", "tensors of V2's answers over gRPC, Connect and gRPC-Web: `mirror` (in `contents` if the request has its own there), or `raw` (in `raw_output_contents` always, as Triton's JavaScript and Java clients need it); a model's own `grpc_outputs` overrides it"),
    Setting("DRAGOMAN_GRPS_HEALTH_CONTROL", "grps_health_control", parsers.one_of("instance", "off"), "", "`instance`: GRPS clients can set this process online and offline, and readiness follows; `off` (default on Lambda): those with the right get 501"),
    Setting("DRAGOMAN_PATIENCE", "patience", parsers.seconds, "", "seconds that a request waits while its model is loaded; then the answer is 503 with the load's progress, and the load continues (with Lambda's runtime, the seconds bound the fetch, and not what ONNX Runtime or `model.py` does after it); default: the time that the function's timeout and API Gateway's 29 s leave on Lambda, unlimited on a server"),
    Setting("DRAGOMAN_TIMEOUT", "timeout", parsers.seconds_or_never, "", "the most seconds for one inference, and for each answer of a stream: then its client gets 504 (`DEADLINE_EXCEEDED`); a model's own `timeout` overrides it; `0`: no limit; default: 60 on a server, and on Lambda the time that the function's timeout leaves"),
    Setting("DRAGOMAN_RESPONSE_STREAMING", "response_streaming", parsers.flag, "false", "`true`, with `python -m dragoman.runtime` on Lambda: answers are streamed, for a REST API or Function URL that accepts streams; see [lambda-runtime.md](lambda-runtime.md)"),
    Setting("DRAGOMAN_PROVIDERS", "providers", providers.parse, "", "ONNX Runtime's execution providers, in order of preference with commas between, such as `CUDAExecutionProvider,CPUExecutionProvider`; a model's own `providers` override it; default: the CPU's"),
    Setting("DRAGOMAN_THREADS", "threads", parsers.threads, "", "threads that run models on an ASGI server, at most 1,024; default: one per CPU"),
    Setting("DRAGOMAN_WORKERS", "workers", parsers.workers, "1", "processes of `dragoman serve` that share the port and answer as one server; each has its part of the threads, of the memory and of the other limits; see [workers.md](workers.md)"),
    Setting("DRAGOMAN_QUEUE", "queue", parsers.positive, "1024", "the most requests that wait for a thread; further ones get 503, and so do those that would wait longer than `DRAGOMAN_QUEUE_TIME`"),
    Setting("DRAGOMAN_QUEUE_TIME", "queue_time", parsers.seconds, "4", "the most seconds that a request waits for a thread, or three inferences of its model if these take longer; one that would wait longer gets 503; set it below your clients' timeouts"),
    Setting("DRAGOMAN_STREAM_ORDER", "stream_order", parsers.one_of("ready", "request"), "ready", "requests of one stream: `ready` (run in parallel, as many as there are threads; answers come when they are ready, in order for requests of the same id, or without one), or `request` (one after the other)"),
    Setting("DRAGOMAN_CACHE", "cache", parsers.text, "", "folder for downloads; default: `dragoman` in the system's temporary folder"),
    Setting("DRAGOMAN_CACHE_BYTES", "cache_bytes", parsers.positive, "", "the most bytes of downloads to keep, the least recently used are deleted first; default: as many as fit on the disk"),
    Setting("DRAGOMAN_CACHE_SHARED", "cache_shared", parsers.flag, "false", "`true`: use a `DRAGOMAN_CACHE` that other users can write, such as a volume that containers share"),
    Setting("DRAGOMAN_AUTH", "auth", parsers.one_of("none", "keys", "jwt", "both"), "none", "what a client has to send: nothing, a key, a token (a JWT), or either; health needs neither; see [security.md](security.md)"),
    Setting("DRAGOMAN_KEYS_FILE", "keys_file", parsers.text, "", "file with a line for each key, made by `dragoman keys new`; read again when it changes"),
    Setting("DRAGOMAN_KEYS", "keys", parsers.text, "", "the same lines, with semicolons between"),
    Setting("DRAGOMAN_JWT_ISSUER", "jwt_issuer", parsers.names, "", "the `iss` that tokens must have, or several with commas between"),
    Setting("DRAGOMAN_JWT_AUDIENCE", "jwt_audience", parsers.names, "", "the `aud` that tokens must have, or several with commas between, one of which is enough"),
    Setting("DRAGOMAN_JWT_JWKS", "jwt_jwks", parsers.text, "", "the issuer's public keys: an https URL or a file"),
    Setting("DRAGOMAN_JWT_ALGORITHMS", "jwt_algorithms", parsers.algorithms, "RS256,RS384,RS512,PS256,PS384,PS512,ES256,ES384,ES512,EdDSA", "the algorithms that may sign tokens"),
    Setting("DRAGOMAN_JWT_LEEWAY", "jwt_leeway", parsers.leeway, "30", "seconds by which the issuer's clock may differ"),
    Setting("DRAGOMAN_JWT_SCOPE_PREFIX", "jwt_scope_prefix", parsers.text, "dragoman:", "the prefix of rights in a token's scopes, as in `dragoman:infer`"),
    Setting("DRAGOMAN_TRUST_AUTHORIZER", "trust_authorizer", parsers.flag, "false", "`true`, on Lambda: callers that passed an API Gateway authorizer or IAM do not need another credential"),
    Setting("DRAGOMAN_AUTHORIZER_RIGHTS", "authorizer_rights", parsers.rights, "infer,read", "the rights of such callers, unless their claims have a scope with the prefix"),
    Setting("DRAGOMAN_CONTROL", "control", parsers.one_of("auto", "off", "open"), "auto", "load, unload, online and offline: `auto` (with the right `admin`; without authentication for clients on this machine, never on Lambda), `off`, or `open` (without authentication for every client)"),
    Setting("DRAGOMAN_CORS_ORIGINS", "cors_origins", parsers.origins, "", "sites whose pages are permitted to call this server, such as `https://app.example.com`, with commas between, or `*`"),
    Setting("DRAGOMAN_VERIFY", "verify", parsers.one_of("off", "digest", "code", "signature"), "off", "what a version needs to be loaded, in its file `model.sig`: `signature` (its files' digests, signed by a trusted key or certificate), `code` (the same for Python models and plugins, digests for ONNX models), `digest`, `off`; see [signing.md](signing.md)"),
    Setting("DRAGOMAN_VERIFY_KEY", "verify_key", parsers.text, "", "trusted public keys: a PEM file, or its text"),
    Setting("DRAGOMAN_VERIFY_ROOTS", "verify_roots", parsers.text, "", "trusted root certificates, to which a signer's certificate chain leads: a PEM file, or its text"),
    Setting("DRAGOMAN_VERIFY_IDENTITY", "verify_identity", parsers.identities, "", "names, with commas between, one of which a signer's certificate must have: an e-mail address, a URI, a DNS name, a common name or a subject such as `CN=release,O=Models` (semicolons between several subjects); default: any"),
    Setting("DRAGOMAN_NAME", "name", parsers.text, "dragoman", "the server's name in its metadata"),
    Setting("DRAGOMAN_SERVER_TIMING", "server_timing", parsers.flag, "true", "`false`: no `Server-Timing` header in answers"),
    Setting("DRAGOMAN_SITE", "site", parsers.flag, "true", "`false`: no status page, no /docs"),
    Setting("DRAGOMAN_BASE_PATH", "base_path", parsers.base_path, "", "path of an API mapping (custom domain) in front of the function, which is removed from each request"),
    Setting("DRAGOMAN_S3_ADDRESSING", "s3_addressing", parsers.one_of("auto", "path", "virtual"), "auto", "`path` or `virtual` host style; auto: path style for every endpoint except AWS's"),
    Setting("DRAGOMAN_S3_ANONYMOUS", "s3_anonymous", parsers.flag, "false", "`true`: unsigned requests, for public buckets of S3"),
    Setting("DRAGOMAN_LOG_LEVEL", "log_level", parsers.level, "INFO", "`DEBUG`, `INFO`, `WARNING` or `ERROR`; on Lambda the default is `AWS_LAMBDA_LOG_LEVEL`"),
    Setting("DRAGOMAN_LOG_FORMAT", "log_format", parsers.one_of("text", "json"), "", "`text` or `json`, for every line of the log; default: `text`, on Lambda `AWS_LAMBDA_LOG_FORMAT`"),
    Setting("DRAGOMAN_ACCESS_LOG", "access_log", parsers.flag, "false", "`true`: a line of the log for every request (default of `dragoman serve`); `false`: for refused ones only, ten in ten seconds; see [operations.md](operations.md#the-log)"),
    Setting("DRAGOMAN_METRICS", "metrics", parsers.metrics, "", "the names of metrics, with commas between: `triton` (default on a server), `kserve`, `mlserver` and `tfserving` for Prometheus, beside Dragoman's own; `emf` for CloudWatch; `off` (default on Lambda); see [metrics.md](metrics.md)"),
    Setting("DRAGOMAN_METRICS_FOLDER", "metrics_folder", parsers.text, "", "folder in which the processes of one server share their numbers; needed only if a program other than `dragoman serve` or uvicorn starts them"),
    Setting("DRAGOMAN_TRACES", "traces", parsers.one_of("off", "otlp"), "", "`otlp`: a trace of every request, sent by OpenTelemetry's SDK and configured by its own variables (`OTEL_EXPORTER_OTLP_ENDPOINT` and others); `off`; default: `OTEL_TRACES_EXPORTER`, else `off`; see [traces.md](traces.md)"),
    Setting("DRAGOMAN_PAYLOAD_LOG", "payload_log", parsers.text, "", "a folder, `s3://bucket/prefix` or `http(s)://` receiver that gets requests and answers of inferences as CloudEvents; default: none; see [payload-log.md](payload-log.md)"),
    Setting("DRAGOMAN_PAYLOAD_LOG_SAMPLE", "payload_log_sample", parsers.share, "1", "the share of inferences to log, from 0 to 1"),
    Setting("DRAGOMAN_PAYLOAD_LOG_SIZE", "payload_log_size", parsers.size, "1MB", "the most bytes of a request or an answer to log; an inference with more is counted, but not logged; `0`: no limit"),
    Setting("DRAGOMAN_PAYLOAD_LOG_MEMORY", "payload_log_memory", parsers.size, "64MB", "the most bytes of payloads that wait to be written; further ones are counted, but not logged; `0`: no limit"),
    Setting("DRAGOMAN_BATCH_INPUT", "batch_input", parsers.bucket_prefix, "", "on Lambda: `s3://bucket/prefix` below which new objects `MODEL/NAME.jsonl`, `.csv`, `.npy` and `.parquet` are records; their results go to `DRAGOMAN_BATCH_OUTPUT`; see [batch.md](batch.md#on-lambda)"),
    Setting("DRAGOMAN_BATCH_OUTPUT", "batch_output", parsers.bucket_or_folder, "", "on Lambda: `s3://bucket/prefix` or a folder for the results of queues' messages and of batches; default: such events are refused; see [batch.md](batch.md#on-lambda)"),
    Setting("DRAGOMAN_METRICS_NAMESPACE", "metrics_namespace", parsers.namespace, "Dragoman", "CloudWatch's namespace of `DRAGOMAN_METRICS=emf`"),
)  # fmt: skip


class Settings(NamedTuple):
    """The values of SETTINGS, which explains them, and of the platform.

    `platform`: "lambda", another row of `hosts.HOSTS`, or "server". `contract`: what it asks for. `cpus`: the CPUs of this process; not a whole number on Lambda. `initialization`: Lambda's type of initialization,
    "on-demand", "provisioned-concurrency" or "snap-start"; "" elsewhere. `cache_is_default`: DRAGOMAN_CACHE is not set.
    """

    repository: str
    model_name: str
    platform: str
    preload: tuple[str, ...]
    memory_limit: int | None
    repository_poll: float
    default_model: str
    allow_code: bool
    max_body_bytes: int
    bytes_in_flight: int | None
    max_header_bytes: int
    head_timeout: float
    pause_timeout: float
    idle_timeout: float
    shutdown_timeout: float
    connections: int | None
    non_finite: str
    v1_dialect: str
    grpc_outputs: str
    grps_health_control: str
    patience: float | None
    timeout: float | None
    response_streaming: bool
    providers: tuple[str, ...]
    threads: int
    workers: int
    queue: int
    queue_time: float
    stream_order: str
    cache: Path
    cache_bytes: int | None
    auth: str
    keys_file: str
    keys: str
    jwt_issuer: tuple[str, ...]
    jwt_audience: tuple[str, ...]
    jwt_jwks: str
    jwt_algorithms: frozenset[str]
    jwt_leeway: float
    jwt_scope_prefix: str
    trust_authorizer: bool
    authorizer_rights: tuple[str, ...]
    control: str
    cors_origins: tuple[str, ...]
    cache_shared: bool
    verify: str
    verify_key: str
    verify_roots: str
    verify_identity: tuple[str, ...]
    name: str
    server_timing: bool
    site: bool
    base_path: str
    s3_addressing: str
    s3_anonymous: bool
    log_level: str
    log_format: str
    access_log: bool
    metrics: tuple[str, ...]
    metrics_folder: str
    traces: str
    payload_log: str
    payload_log_sample: float
    payload_log_size: int
    payload_log_memory: int
    batch_input: str
    batch_output: str
    metrics_namespace: str
    cpus: float
    initialization: str
    cache_is_default: bool = False
    contract: Contract = Contract()

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None) -> "Settings":
        """Reads the settings from the environment alone. Raises InvalidSettings, also for a mistyped variable."""
        environ = os.environ if environ is None else environ
        return cls.of(in_environment(environ), environ)

    @classmethod
    def of(cls, given: Mapping[str, Given], environ: Mapping[str, str]) -> "Settings":
        """Makes the settings. `given`: by field. `environ`: has the platform's variables. Raises InvalidSettings."""
        contract = contract_of(given, environ)
        given = {**defaults_of(contract, given), **given}
        values = {setting.field: value(setting, given) for setting in SETTINGS}
        cpus = platform.cpus(environ)
        values["threads"] = values["threads"] or max(1, round(cpus))
        values["cache_bytes"] = values["cache_bytes"] or None
        is_default = not values["cache"]
        values["cache"] = Path(values["cache"] or Path(environ.get("TMPDIR") or "/tmp") / "dragoman")  # noqa: S108 - the system's, without importing tempfile (5 ms of cold start)
        values["patience"] = values["patience"] or None
        values["connections"] = values["connections"] or None
        values["bytes_in_flight"] = None if values["bytes_in_flight"] == "" else values["bytes_in_flight"]
        default = None if platform.name(environ) == "lambda" else platform.INFERENCE_SECONDS
        values["timeout"] = default if values["timeout"] == "" else values["timeout"] or None
        limit = values["memory_limit"]
        values["memory_limit"] = (platform.usable_memory(environ) if limit == "" else limit) or None
        values["platform"] = contract.platform or "server"
        platform.observed(values, environ, has_level="log_level" in given)
        is_lambda = values["platform"] == "lambda"
        values["grps_health_control"] = values["grps_health_control"] or ("off" if is_lambda else "instance")
        initialization = environ.get("AWS_LAMBDA_INITIALIZATION_TYPE", "on-demand") if is_lambda else ""
        return cls(**values, cpus=cpus, initialization=initialization, cache_is_default=is_default, contract=contract)

    @property
    def is_loose(self) -> bool:
        """Whether the repository may be one model's folder, and models may have other names than their settings say."""
        return bool(self.model_name) or self.contract.layout != "versions"

    @property
    def scraped(self) -> bool:
        """Whether Prometheus finds metrics here."""
        return self.metrics not in (("off",), ("emf",))


def contract_of(given: Mapping[str, Given], environ: Mapping[str, str]) -> Contract:
    """Returns the contract of the platform that has started this process. Raises InvalidSettings."""
    row = next(setting for setting in SETTINGS if setting.field == "platform")
    try:
        return hosts.recognised(environ, value(row, given))
    except hosts.WrongRoute as wrong:
        raise InvalidSettings(str(wrong)) from None


def defaults_of(contract: Contract, given: Mapping[str, Given]) -> dict[str, Given]:
    """Returns the platform's own values, by field, without a preload or a default model that another setting replaces."""
    sets = {field: Given(text, source) for field, (text, source) in contract.sets.items()}
    needs = {"preload": "repository", "default_model": "model_name"}
    return {field: said for field, said in sets.items() if needs.get(field) not in given}


def value(setting: Setting, given: Mapping[str, Given]) -> Any:
    """Returns a setting's value: the given one, or its default. Raises InvalidSettings."""
    said = given.get(setting.field)
    text = (said.text if said is not None else "") or setting.default
    if not text:
        return () if setting.parse in (parsers.names, parsers.identities, parsers.origins, providers.parse) else ""
    try:
        return setting.parse(text)
    except ValueError as error:
        source = setting.variable if said is None else said.source
        known = text.isalnum() and len(text) <= LONGEST_WORD
        public = f"{source} is {repr(text) if known else 'wrong'}; expected {error}"
        raise InvalidSettings(f"{source} is {text[:256]!r}; expected {error}", public) from None


def in_environment(environ: Mapping[str, str]) -> dict[str, Given]:
    """Returns what the environment sets, by field. Raises InvalidSettings for a variable that is nearly a setting's.

    A mistyped DRAGOMAN_AUTH, if it were ignored, would leave a server open. `sources.ignored` has the other unknown ones.
    """
    fields = {setting.variable: setting.field for setting in SETTINGS}
    given = {}
    for variable, text in environ.items():
        if variable in fields:
            if text:
                given[fields[variable]] = Given(text, variable)
        elif variable.startswith(PREFIX) and (meant := meant_by(variable, text)):
            raise InvalidSettings(f"unknown setting {variable}; did you mean {meant}?")
    return given


def meant_by(variable: str, text: str) -> str:
    """Returns the setting that a mistyped variable means; "" if none is similar, or if Kubernetes has set the variable."""
    names = [setting.variable.removeprefix(PREFIX) for setting in SETTINGS]
    near = nearest(variable.removeprefix(PREFIX), names, ALIKE)
    return PREFIX + near if near and not is_of_kubernetes(text) else ""


def is_of_kubernetes(text: str) -> bool:
    """Decides whether a variable's value is the address of a service, as Kubernetes sets it."""
    return text.startswith(("tcp://", "udp://", "sctp://"))

"""Each planted fault is found by doctor, alone, at its place and with its own cure; sound set-ups have none."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple
from zipfile import ZipFile, ZipInfo

import pytest

from tests.handler.commands.doctor.conftest import ARM64, ROOT, Findings, SetUp, elf
from tests.handler.commands.publish import conftest as publishing
from tests.support import s3_stand_in
from tests.support.ports import free_port
from tests.support.zoo import models as zoo

SHAPE = [{"name": "x", "datatype": "INT64", "shape": [-1, 7]}]
CRASHES = "import os\nos.abort()"
HANGS = "import time\nwhile True:\n    time.sleep(1)"
GREEDY = "kept = []\nwhile True:\n    kept.append(b'x' * 8_000_000)"
HEAVY = "kept = b'x' * 400_000_000\ndef predict(inputs, parameters):\n    return inputs"
PREDICTS = "def predict(inputs, parameters):\n    return inputs"
FUNCTION = "AWS::Serverless::Function"
UNDECIDED = "Conditions: {C: !Equals [!FindInMap [A, b, c], d]}"
MEMORY = "Type: Number, Default: 64"
HANDLER = "handler.aws.lambda_handler"
LONG = "20261123191523123456"
"""A time in microseconds, which has more digits than the number of a version."""


class Fault(NamedTuple):
    """`plant`: makes the fault. What doctor must report: its code, a part of its place, and a part of its cure."""

    code: str
    where: str
    cure: str
    plant: Callable[[SetUp], object]
    severity: str = "error"


def settings(text: object, path: str = "wine/model-settings.json") -> Callable[[SetUp], object]:
    return lambda at: at.add(path, text if isinstance(text, str) else json.dumps(text))


def toml(text: str) -> Callable[[SetUp], object]:
    return lambda at: (at.folder / "dragoman.toml").write_text(text, encoding="utf-8")


TOKENS: Final = {"DRAGOMAN_JWT_JWKS": "n", "DRAGOMAN_JWT_ISSUER": "i", "DRAGOMAN_JWT_AUDIENCE": "a"}


def variables(**values: str) -> Callable[[SetUp], object]:
    return lambda at: at.set(**values)


def python(source: str, *flags: str) -> Callable[[SetUp], object]:
    return lambda at: (at.add("code/1/model.py", source), at.loads(*flags))


def hanging(at: SetUp) -> None:
    """Adds a model that never loads, beside none that could take longer than the limit on a busy machine."""
    shutil.rmtree(at.models / "wine")
    python(HANGS, "--load-timeout", "1")(at)


def loaded(plant: Callable[[SetUp], object]) -> Callable[[SetUp], object]:
    return lambda at: (plant(at), at.loads())


def exposed(at: SetUp) -> None:
    """Lets every client in the network unload models."""
    at.set(DRAGOMAN_CONTROL="open")
    at.flags += ["--host", "0.0.0.0"]  # noqa: S104 - the fault


def bucket(**values: str) -> Callable[[SetUp], object]:
    """Puts the repository into a bucket, and sets variables after that."""
    return lambda at: (at.bucket(), at.set(**values))


def template(*changes: tuple[str, str], **parameters: str) -> Callable[[SetUp], object]:
    return lambda at: at.template(*changes, **parameters)


def small(properties: str, *sections: str, beside: str = "") -> Callable[[SetUp], object]:
    """Writes a template whose function has these properties. `beside`: those of another function."""
    function = f"F: {{Type: {FUNCTION}, Properties: {{Handler: {HANDLER}{properties}}}}}"
    resources = f"Resources: {{Other: {{Type: {FUNCTION}, Properties: {beside or '{}'}}}, {function}}}"
    return document("\n".join((*sections, resources)))


def document(text: str) -> Callable[[SetUp], object]:
    return lambda at: (at.folder / "template.yaml").write_text(text, encoding="utf-8")


def configured(config: str, **parameters: str) -> Callable[[SetUp], object]:
    """Writes samconfig.toml beside a template with these parameters, in which Memory is the function's."""
    declared = ", ".join(f"{name}: {{{rules}}}" for name, rules in ({"Memory": MEMORY} | parameters).items())
    plant = small(", MemorySize: !Ref Memory", f"Parameters: {{{declared}}}")
    return lambda at: (plant(at), (at.folder / "samconfig.toml").write_text(config, encoding="utf-8"))


def overridden(pairs: str, **parameters: str) -> Callable[[SetUp], object]:
    return configured(f"[default.deploy.parameters]\nparameter_overrides = {pairs}", **parameters)


def policy(statement: str) -> Callable[[SetUp], object]:
    """Gives the function of a small template one policy."""
    return small(f", Policies: [{statement}]")


def zipped(damage: Callable[[bytearray, ZipInfo], None]) -> Callable[[SetUp], object]:
    """Packs a built function, and damages its extension module."""

    def plant(at: SetUp) -> None:
        packed = Path(shutil.make_archive(str(at.folder / "built"), "zip", at.artifact()))
        with ZipFile(packed) as archive:
            module = next(each for each in archive.infolist() if each.filename.endswith(".so"))
        content = bytearray(packed.read_bytes())
        damage(content, module)
        packed.write_bytes(content)
        at.flags += ["--artifact", "built.zip"]

    return plant


def spoil(content: bytearray, module: ZipInfo) -> None:
    """Writes a block of an unknown type behind the file's header, which has 30 bytes and the name."""
    content[module.header_offset + 30 + len(module.filename)] = 0xFF


def encrypt(content: bytearray, module: ZipInfo) -> None:
    """Sets the flag of encryption in the directory at the end, whose entries have 46 bytes before the name."""
    content[content.rindex(module.filename.encode()) - 46 + 8] |= 1


def artifact(change: Callable[[Path], object]) -> Callable[[SetUp], object]:
    return lambda at: change(at.artifact())


def on_arm(release: str) -> Callable[[SetUp], object]:
    """Builds a function for arm64 with a release of ONNX Runtime."""

    def plant(at: SetUp) -> None:
        built = at.artifact().rename(at.folder / "built")
        elf(built, ARM64)
        information = built / f"onnxruntime-{release}.dist-info"
        information.mkdir()
        (information / "METADATA").touch()
        small(", Architectures: [arm64]")(at)
        at.flags += ["--artifact", "built"]

    return plant


def cache(below: str) -> Callable[[SetUp], object]:
    """Names a cache that is a folder that other users can write, or is below one."""

    def plant(at: SetUp) -> None:
        folder = at.folder / "open"
        folder.mkdir()
        folder.chmod(0o777)
        bucket(DRAGOMAN_CACHE=str(folder / below))(at)

    return plant


def keys_file(mode: int, text: str = f"ci sha256:{'0' * 64} infer\n") -> Callable[[SetUp], object]:
    def plant(at: SetUp) -> None:
        file = at.folder / "my keys"
        file.write_text(text, encoding="ascii")
        file.chmod(mode)
        at.set(DRAGOMAN_AUTH="keys", DRAGOMAN_KEYS_FILE=str(file))

    return plant


def untraced(at: SetUp) -> None:
    """Asks for traces where OpenTelemetry is not installed."""
    at.set(DRAGOMAN_TRACES="otlp")
    at.lack("opentelemetry")


def elsewhere(at: SetUp, **change: str) -> None:
    """Names a repository that is not there."""
    at.repository = change["to"]


def weightless(at: SetUp) -> None:
    """Keeps a model's weights in a file that is not there."""
    publishing.large(1, at.models / "large" / "1", megabytes=1)
    (at.models / "large/1/weights.bin").unlink()
    at.loads()


def other_python(built: Path) -> None:
    next(built.glob("numpy/*.so")).unlink()
    elf(built, version="cpython-311")


def sparse(path: Path, megabytes: int) -> None:
    with path.open("wb") as file:
        file.truncate(megabytes * 2**20)


FAULTS = [
    # The repository's folders.
    Fault("repository-missing", "nowhere", "mkdir -p nowhere", lambda at: elsewhere(at, to="nowhere")),
    Fault("setting-value", "DRAGOMAN_REPOSITORY", "file:///srv/models", lambda at: elsewhere(at, to="file://models")),
    Fault("repository-uri", "DRAGOMAN_REPOSITORY", "docs/stores.md", lambda at: elsewhere(at, to="ftp://models")),
    Fault("repository-empty", "models", "dragoman push", lambda at: shutil.rmtree(at.models / "wine")),
    Fault("not-a-repository", "models/wine", "name the folder above", lambda at: elsewhere(at, to="models/wine")),
    Fault(
        "loose-file", "iris.onnx", "dragoman push models/iris.onnx models/iris; then", lambda at: at.add("iris.onnx")
    ),
    Fault("loose-file", "model.py", "dragoman push models/model.py models/NAME;", lambda at: at.add("model.py")),
    Fault("foreign-model", "net.pt", "torch.onnx.export", lambda at: at.add("net.pt")),
    Fault("foreign-model", "forest/1", "dragoman convert --allow-pickle", lambda at: at.add("forest/1/forest.joblib")),
    Fault(
        "no-version-folder",
        "iris/model.onnx",
        "dragoman push models/iris/model.onnx models/iris;",
        lambda at: at.add("iris/model.onnx"),
    ),
    Fault("version-name", "iris/v3", "mv -n models/iris/v3 models/iris/3", lambda at: at.add("iris/v3/model.onnx")),
    Fault(
        "version-name",
        f"iris/{LONG}",
        f"mv -n models/iris/{LONG} models/iris/{LONG[:18]}",
        lambda at: at.add(f"iris/{LONG}/model.onnx"),
    ),
    Fault(
        "version-name",
        f"iris/v{'8' + '9' * 18}",
        f"mv -n models/iris/v{'8' + '9' * 18} models/iris/{'8' + '9' * 17 + '8'}",
        lambda at: [at.add(f"iris/{folder}{'8' + '9' * 18}/model.onnx") for folder in ("", "v")],
    ),
    Fault(
        "version-incomplete",
        "iris/2",
        "mv -n models/iris/2/net.onnx models/iris/2/model.onnx",
        lambda at: at.add("iris/2/net.onnx"),
    ),
    Fault("nested-repository", "more/iris", "move 'iris' one level up", lambda at: at.add("more/iris/1/model.onnx")),
    Fault("model-name", "a\\nb", "rename", lambda at: at.add("a\nb/1/model.onnx")),
    Fault("version-twice", "wine", "wine/001", lambda at: at.add("wine/001/model.onnx"), "warning"),
    Fault("model-empty", "void", "remove it", lambda at: (at.models / "void").mkdir(), "warning"),
    Fault("broken-link", "wine/1/x", "link", lambda at: (at.models / "wine/1/x").symlink_to("gone"), "warning"),
    Fault(
        "settings-name",
        "wine/model_settings.json",
        "mv -n models/wine/model_settings.json models/wine/model-settings.json",
        settings({}, "wine/model_settings.json"),
        "warning",
    ),
    # The settings of models.
    Fault("unknown-key", "wine/model-settings.json", "rename", settings({"canry": {}}), "warning"),
    Fault("settings-value", "wine/model-settings.json", "a whole number", settings({"max_batch_size": "8"})),
    Fault(
        "settings-value", "wine/1/model-settings.json", "correct the file", settings("{", "wine/1/model-settings.json")
    ),
    Fault(
        "settings-value", "wine/config.pbtxt", "correct the file", settings("max_batch_size: many", "wine/config.pbtxt")
    ),
    Fault(
        "config-ignored",
        "wine/config.pbtxt",
        "docs/triton.md",
        settings("optimization { }", "wine/config.pbtxt"),
        "note",
    ),
    Fault("no-version-served", "wine", "version_policy", settings({"version_policy": {"specific": {"versions": [7]}}})),
    Fault("version-missing", "wine", "push version 9", settings({"version_labels": {"stable": 9}})),
    Fault(
        "code-not-allowed",
        "code/1/model.py",
        "DRAGOMAN_ALLOW_CODE=true",
        lambda at: at.add("code/1/model.py", PREDICTS),
    ),
    # Loads, each in a process of its own.
    Fault(
        "model-file",
        "cut/1",
        "git lfs pull",
        loaded(settings("version https://git-lfs.github.com/spec/v1", "cut/1/model.onnx")),
    ),
    Fault("weights-missing", "large/1", "weights' file", weightless),
    Fault("warm-up", "wine/1", "`warmup` of its settings", loaded(settings({"warmup": [{"file": "none.json"}]}))),
    Fault("settings-mismatch", "wine/1", "repeat", loaded(settings({"inputs": SHAPE}))),
    Fault("explainer", "wine/1", "docs/explain.md", loaded(settings({"explainer": {"background": {"file": "b.npy"}}}))),
    Fault(
        "two-models", "wine/1", "remove the pipeline", loaded(settings({"pipeline": {"steps": [{"model": "iris"}]}}))
    ),
    Fault("python-error", "code/1", "repair model.py", python("1 / 0")),
    Fault("package-missing", "code/1", "pip install sklaern", python("import sklaern")),
    Fault("no-predict", "code/1", "define predict", python("x = 1")),
    Fault("load-crash", "code/1", "onnxruntime", python(CRASHES)),
    Fault("load-limit", "code/1", "--load-timeout", hanging),
    Fault("load-limit", "code/1", "--load-memory", python(GREEDY, "--load-memory", "700MB")),
    Fault(
        "memory-limit",
        "code/1",
        "raise DRAGOMAN_MEMORY_LIMIT",
        lambda at: (python(HEAVY)(at), at.set(DRAGOMAN_MEMORY_LIMIT="300MB")),
    ),
    # The settings of the process.
    Fault("unknown-setting", "DRAGOMAN_REPOSITRY", "DRAGOMAN_REPOSITORY", variables(DRAGOMAN_REPOSITRY="models")),
    Fault("setting-value", "DRAGOMAN_THREADS", "a whole number above 0", variables(DRAGOMAN_THREADS="many")),
    Fault("setting-value", "DRAGOMAN_MODEL_NAME", "a model's name", variables(DRAGOMAN_MODEL_NAME="a/b")),
    Fault("setting-value", "DRAGOMAN_BATCH_OUTPUT", "or a folder", variables(DRAGOMAN_BATCH_OUTPUT="x://y")),
    Fault("unknown-setting", "DRAGOMAN_SERVICE_HOST", "if it is yours", variables(DRAGOMAN_SERVICE_HOST="x"), "note"),
    Fault("settings-file", "dragoman.toml", "correct the file", toml("thraeds = 2")),
    Fault("setting-value", "DRAGOMAN_THREADS", "a whole number", toml('threads = "many"')),
    Fault("control-open", "DRAGOMAN_CONTROL", "dragoman keys new", toml('control = "open"\nhost = "0.0.0.0"')),
    Fault("authentication", "DRAGOMAN_AUTH", "docs/security.md", variables(DRAGOMAN_AUTH="keys")),
    Fault(
        "keys-unused", "DRAGOMAN_AUTH", "DRAGOMAN_AUTH=keys", variables(DRAGOMAN_KEYS=f"a {'0' * 64} infer"), "warning"
    ),
    Fault("authentication", "DRAGOMAN_AUTH", "correct that line", keys_file(0o600, "\nci\n")),
    Fault("authentication", "DRAGOMAN_AUTH", "correct that entry", keys_file(0o600, "[1]")),
    Fault("authentication", "DRAGOMAN_AUTH", "correct that text", keys_file(0o600, "{")),
    Fault("authentication", "DRAGOMAN_AUTH", "user can read", variables(DRAGOMAN_AUTH="keys", DRAGOMAN_KEYS_FILE="n")),
    Fault("authentication", "DRAGOMAN_AUTH", "public keys (JWKS)", variables(DRAGOMAN_AUTH="jwt", **TOKENS)),
    Fault("no-version", "lg", "mkdir models/lg/1 and", lambda at: at.add("lg/words.txt", "x")),
    Fault("keys-none", "DRAGOMAN_KEYS_FILE", "dragoman keys new", keys_file(0o600, ""), "warning"),
    Fault("traces", "DRAGOMAN_TRACES", "pip install 'dragoman[otel]'", untraced),
    Fault("payload-log", "DRAGOMAN_PAYLOAD_LOG", "s3://bucket/prefix", variables(DRAGOMAN_PAYLOAD_LOG="ftp://x/y")),
    Fault("folder-unwritable", "DRAGOMAN_PAYLOAD_LOG", "name a folder", variables(DRAGOMAN_PAYLOAD_LOG="/dev/null/x")),
    Fault("folder-unwritable", "DRAGOMAN_CACHE", "name a folder", bucket(DRAGOMAN_CACHE="/dev/null")),
    Fault("cache-not-private", "DRAGOMAN_CACHE", "or set DRAGOMAN_CACHE_SHARED=true", cache("")),
    Fault("cache-not-private", "DRAGOMAN_CACHE", "only this user can write", cache("new/one")),
    Fault("keys-file-readable", "DRAGOMAN_KEYS_FILE", "my keys'", keys_file(0o644), "warning"),
    Fault("keys-file-writable", "DRAGOMAN_KEYS_FILE", "my keys'", keys_file(0o666)),
    Fault("control-open", "DRAGOMAN_CONTROL", "dragoman keys new", exposed),
    Fault("verification", "DRAGOMAN_VERIFY", "DRAGOMAN_VERIFY_KEY", variables(DRAGOMAN_VERIFY="signature")),
    Fault("no-such-model", "DRAGOMAN_PRELOAD", "'wine'", variables(DRAGOMAN_PRELOAD="wines")),
    # The store.
    Fault("repository-uri", "DRAGOMAN_REPOSITORY", "s3://bucket/prefix", lambda at: elsewhere(at, to="s3:///models")),
    Fault("credentials-missing", "s3://", "aws configure", bucket(AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")),
    Fault("credentials-wrong", "s3://", "AWS_SECRET_ACCESS_KEY", bucket(AWS_SECRET_ACCESS_KEY="wrong")),  # noqa: S106 - it is wrong
    Fault(
        "region",
        "AWS_REGION",
        "set AWS_REGION=",
        bucket(AWS_REGION="eu-west-1", AWS_DEFAULT_REGION="eu-west-1"),
        "warning",
    ),
    Fault(
        "no-such-bucket", "s3://", "aws s3 mb", lambda at: (at.bucket(), elsewhere(at, to="s3://no-such-bucket/models"))
    ),
    Fault("repository-empty", "s3://", "check the prefix", lambda at: elsewhere(at, to=f"s3://{at.bucket()}/modles")),
    Fault(
        "store-unreachable",
        "s3://",
        "AWS_ENDPOINT_URL_S3",
        bucket(AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{free_port()}"),
    ),
    # The template and its parameters.
    Fault("unknown-parameter", "samconfig.toml", "Memory", template(Memry="2048")),
    Fault("parameter-value", "Memory", "from 128 to 10240", template(Memory="64")),
    Fault("template-rule", "template.yaml", "samconfig.toml", template(Initialization="snap-start")),
    Fault(
        "template-rule",
        "template.yaml",
        "samconfig.toml",
        template(Bucket="mine", Batch="queue", BatchBucket="mine", BatchPrefix="models"),
    ),
    Fault("timeout-gateway", "InferenceFunction", "set it to 29", template(Timeout="60"), "warning"),
    Fault(
        "function-permission", "InferenceFunction", "s3:ListBucket", template(("s3:ListBucket", "s3:ListAllMyBuckets"))
    ),
    Fault(
        "function-permission",
        "F",
        "add s3:ListBucket",
        policy("{Statement: [{Effect: Allow, Action: [s3:Get*, logs:*], Resource: '*'}]}"),
    ),
    Fault(
        "function-permission",
        "F",
        "add s3:ListBucket",
        policy("{Statement: {Effect: Allow, Action: s3:GetObject*, Resource: 'arn:aws:s3:::s3:ListBucket'}}"),
    ),
    Fault(
        "function-permission",
        "F",
        "add s3:GetObject",
        policy("{Statement: [{Effect: Allow, Action: s3:L*}, {Effect: Deny, Action: s3:GetObject, Resource: '*'}]}"),
    ),
    Fault(
        "unknown-setting", "InferenceFunction", "DRAGOMAN_PRELOAD", template(("DRAGOMAN_PRELOAD:", "DRAGOMAN_PRELAOD:"))
    ),
    Fault(
        "function-memory", "InferenceFunction", "set it to", lambda at: (python(HEAVY)(at), at.template(Memory="256"))
    ),
    Fault(
        "function-storage",
        "InferenceFunction",
        "at least",
        lambda at: (at.add("big/1/model.onnx", size=900 << 20), at.template()),
    ),
    Fault("template-unreadable", "template.yaml", "sam validate", template(("Resources:", "Resources: ["))),
    Fault("template-unreadable", "template.yaml", "sam validate", small(", MemorySize: !If [C, 1]")),
    Fault("template-unreadable", "template.yaml", "sam validate", small("", "Parameters: [a]")),
    Fault(
        "template-unreadable",
        "template.yaml",
        "sam validate",
        small(", MemorySize: !If [A, 1, 2]", "Conditions: {A: !Condition B, B: !Condition A}"),
    ),
    Fault("template-unreadable", "template.yaml", "sam validate", document("Resources: {F: &f {Properties: *f}}")),
    Fault("template-unreadable", "template.yaml", "sam validate", document("[" * 999)),
    Fault("samconfig", "samconfig.toml", "correct the file", overridden("'Memory'", Memory="Default: 512")),
    Fault(
        "samconfig",
        "samconfig.toml",
        "correct the file",
        configured("default = 'x'", Memory="Default: 512"),
    ),
    Fault(
        "parameter-value",
        "Zones",
        "set it to one of a, b",
        overridden("'Memory=512 Zones=a,d'", Zones="Type: CommaDelimitedList, AllowedValues: [a, b]"),
    ),
    # The built function.
    Fault("artifact-size", "InferenceFunction", "keep models in S3", artifact(lambda at: sparse(at / "weights", 300))),
    Fault("artifact-entry", "InferenceFunction", "sam build", artifact(lambda at: (at / "handler/aws.py").unlink())),
    Fault(
        "artifact-package", "InferenceFunction", "EXTRAS=onnx", artifact(lambda at: shutil.rmtree(at / "onnxruntime"))
    ),
    Fault(
        "artifact-mode", "InferenceFunction", "chmod -R o+rX", artifact(lambda at: (at / "handler/aws.py").chmod(0o600))
    ),
    Fault("artifact-architecture", "InferenceFunction", "ARCHITECTURE=x86_64", artifact(lambda at: elf(at, ARM64))),
    Fault("artifact-python", "InferenceFunction", "python3.13", artifact(other_python)),
    Fault("artifact-runtime", "built", "onnxruntime>=1.26", on_arm("1.25.1"), "warning"),
    Fault("artifact-unreadable", "built.zip", "name the folder", zipped(spoil)),
    Fault("artifact-unreadable", "built.zip", "name the folder", zipped(encrypt)),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.code}-{fault.where}".replace("/", "_"))
def test_a_planted_fault_is_found_with_its_cure(fault: Fault, setup: SetUp, doctor: Callable[[], Findings]) -> None:
    """Doctor reports the fault and no other; errors alone make it fail."""
    fault.plant(setup)
    found = doctor()
    assert [each["code"] for each in found.all] == [fault.code], found.report
    only = found.all[0]
    assert fault.where in only["where"]
    assert fault.cure in only["cure"]
    assert only["severity"] == fault.severity
    assert found.code == (fault.severity == "error")


def sample_folder(at: SetUp) -> None:
    shutil.copytree(ROOT / "models", at.models, dirs_exist_ok=True, ignore=shutil.ignore_patterns("make.py"))
    at.add("code/1/model.py", PREDICTS)
    at.add("wine/model-settings.json", {"version_policy": {"all": {}}, "canary": {"2": 0.1}})
    for name in ("model-settings.json~", "model-settings.json.bak", "model-settings.json.example", "1/config.txt"):
        at.add(f"wine/{name}")
    at.add("wine/2/model.onnx", zoo.adds(2).SerializeToString())
    at.loads()


def sample_bucket(at: SetUp) -> None:
    sample_folder(at)
    at.bucket()


def sample_artifact(at: SetUp) -> None:
    at.artifact()
    at.loads()


def sample_keys(at: SetUp) -> None:
    keys_file(0o600)(at)
    at.set(DRAGOMAN_CONTROL="open", DRAGOMAN_PRELOAD="*", DRAGOMAN_MEMORY_LIMIT="2GB")
    at.flags = ["--host", "0.0.0.0"]  # noqa: S104 - with keys it is sound


@pytest.mark.parametrize("sound", [sample_folder, sample_bucket, sample_artifact, sample_keys])
def test_nothing_is_found_in_a_sound_set_up(
    sound: Callable[[SetUp], None], setup: SetUp, doctor: Callable[[], Findings]
) -> None:
    """A folder with every kind of model, a bucket, a built function, and a server with keys have no finding."""
    sound(setup)
    found = doctor()
    assert (found.code, found.all) == (0, [])
    assert found.report["memory"]["least"] >= 128
    assert found.report["cold_start"]["total"] > 0


def built(plant: Callable[[SetUp], object]) -> Callable[[SetUp], object]:
    """Builds the function before its template is planted."""
    return lambda at: (at.artifact().rename(at.folder / "built"), plant(at), at.flags.extend(("--artifact", "built")))


@pytest.mark.parametrize("sound", [
    built(small(", Architectures: !Split [',', arm64]")),
    built(small(", Architectures: [x86_64]")),
    on_arm("1.26.0"),
    small(", Environment: {Variables: !If [C, {A: b}, {A: c}]}", UNDECIDED),
    small(", Environment: !If [C, {Variables: {A: b}}, {}]", UNDECIDED),
    small("", UNDECIDED, beside="!If [C, {A: 1}, {B: 2}]"),
    small("", beside="{Body: {responses: {200: {description: d}}}}"),
    lambda at: (python(HEAVY)(at), small(", Timeout: 900, MemorySize: !FindInMap [Sizes, a, b]")(at)),
    lambda at: (
        at.add("big/1/model.onnx", size=900 << 20), small(", EphemeralStorage: {Size: !FindInMap [A, b, c]}")(at)
    ),
    small(
        ", MemorySize: !If [IsOpen, 1024, 64]",
        "Parameters: {Open: {Type: String, AllowedValues: ['true', 'false'], Default: true}}",
        "Conditions: {IsOpen: !Equals [!Ref Open, !Sub '${Open}']}",
    ),
    overridden(
        "'ParameterKey=Memory,ParameterValue=512 ParameterKey=A,ParameterValue=\"b c\"'",
        A="AllowedValues: [b c]",
    ),
    overridden('"Memory=512 Who=O\'Brien"', Who="AllowedValues: [\"O'Brien\"]"),
    overridden('"Memory=512 A=\'b c\' B=d\\\\ e"', A="AllowedValues: [b c]", B="AllowedValues: [d e]"),
    overridden("['Memory=512', 'Open=true']", Open="AllowedValues: [true, false]"),
    overridden("{Memory = 512, Zones = ['a', 'b']}", Zones="Type: CommaDelimitedList, AllowedValues: [a, b, c]"),
    configured("[default.global.parameters]\nparameter_overrides = 'Memory=512'"),
    configured(
        "[default.global.parameters]\nparameter_overrides = 'Memory=1'\n"
        "[default.deploy.parameters]\nparameter_overrides = 'Memory=512'"
    ),
    policy("{Statement: [{Effect: Allow, Action: ['s3:Get*', 'S3:LIST?ucket'], Resource: 'arn:aws:s3:::b'}]}"),
    policy("{Statement: {Effect: Allow, Action: 's3:*', Resource: '*'}}"),
    policy("{Statement: [{Effect: Allow, NotAction: 'iam:*', Resource: '*'}]}"),
    policy("{Statement: [{Effect: Allow, Action: !FindInMap [A, b, c], Resource: '*'}]}"),
    policy("{Statement: !FindInMap [A, b, c]}"),
    policy("{S3ReadPolicy: {BucketName: b}}"),
    policy("AmazonS3ReadOnlyAccess"),
])  # fmt: skip
def test_nothing_is_found_in_a_sound_template(
    sound: Callable[[SetUp], object], setup: SetUp, doctor: Callable[[], Findings]
) -> None:
    """Each form that CloudFormation and SAM take is read, or is not judged."""
    sound(setup)
    found = doctor()
    assert (found.code, found.all) == (0, [])
    assert "template.yaml" in found.report["examined"]


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        ((403, "AccessDenied"), "listing-denied"),
        ((403, "RequestTimeTooSkewed"), "clock"),
        ((400, "ExpiredToken"), "credentials-expired"),
        ((301, "PermanentRedirect"), "region"),
        ((403, "InvalidAccessKeyId"), "credentials-wrong"),
    ],
)
def test_a_stores_refusal_is_found(
    refusal: tuple[int, str], code: str, setup: SetUp, doctor: Callable[[], Findings], stand_in: s3_stand_in.StandIn
) -> None:
    """What the real server here does not answer comes from a stand-in; the rest is skipped, with a word."""
    stand_in.refusal = (*refusal, {})
    setup.set(**stand_in.variables())
    setup.repository = "s3://bucket/p"
    found = doctor()
    assert [each["code"] for each in found.all] == [code]
    skipped = found.report["skipped"]
    assert skipped.pop() == "models: the repository has none to examine"
    # Only a store that took the credentials says what they lack.
    assert [each.partition(":")[0] for each in skipped] == ["IAM simulation"] * (code == "listing-denied")

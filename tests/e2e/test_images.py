"""The images of `dragoman build-image`, built and run by a container engine, without a registry of images.

Their bases are made here: Debian's Python 3.13 stands in for python:3.13-slim, and an image with the same runtime
client and emulator for AWS's own.
"""

import contextlib
import json
import os
import shutil
import sys
import tarfile
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.e2e import debian, engine, rie
from tests.e2e.engine import Engine
from tests.e2e.tools import ROOT, environment, listens, require, run
from tests.protocols.test_waiting import until
from tests.support.ports import free_port
from tests.support.remote import Remote, raw, tensors
from tests.support.wire import Wire

PYTHON, SERVER = "dragoman-python", "dragoman-server"
FUNCTION, STREAMING = "dragoman-function", "dragoman-streaming"
MB = 1_000_000
CERTIFICATE = Path(debian.CERTIFICATES) / "ca-certificates.crt"  # a network that inspects TLS has its own authority
GUARDED = ("--read-only", "--tmpfs=/tmp", "--cap-drop=ALL", "--security-opt=no-new-privileges")


@pytest.fixture(scope="module")
def containers(artifact: Path) -> Iterator[Engine]:
    with engine.running() as made:
        made.load_runtime(artifact)
        variables = {name: os.environ[name] for name in debian.PASSED_ON if name in os.environ}
        changes = [f"--change=ENV {name}={value}" for name, value in variables.items()]
        run("docker", "import", *changes, debian.base(), f"{PYTHON}:bare", env=made.env)
        yield made


@pytest.fixture(scope="module")
def built(containers: Engine, tmp_path_factory: pytest.TempPathFactory) -> Engine:
    """Build both images with the sample models inside."""
    folder = tmp_path_factory.mktemp("base")
    shutil.copyfile(CERTIFICATE, folder / "ca.crt")
    lines = f"FROM {PYTHON}:bare\nCOPY ca.crt {CERTIFICATE}\nENV PIP_CERT={CERTIFICATE}\n"
    (folder / "Dockerfile").write_text(lines, encoding="utf-8")
    run("docker", "build", "--tag", PYTHON, folder, env=containers.env)
    context = tmp_path_factory.mktemp("image") / "context"
    words = ("build-image", "models", "--tag", SERVER, "--context", context)
    run(sys.executable, "-m", "dragoman", *words)
    bases = (f"--build-arg=PYTHON={PYTHON}", f"--build-arg=LAMBDA={engine.IMAGE}")
    for target, tag in (("lambda", FUNCTION), ("streaming", STREAMING), ("server", SERVER)):
        command = ("docker", "build", "--network=host", "--target", target, "--tag", tag, *bases)
        run(*command, context, env=containers.env)
    return containers


@contextlib.contextmanager
def started(containers: Engine, *words: str) -> Iterator[Callable[[str], str]]:
    """Run a container; what is yielded asks the engine about it, in a template of Go."""
    name = run("docker", "run", "--detach", *words, env=containers.env).strip()

    def ask(template: str) -> str:
        return run("docker", "inspect", "--format", template, name, env=containers.env).strip()

    try:
        yield ask
    finally:
        run("docker", "rm", "--force", name, env=containers.env)


ADDRESS = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"


def test_the_servers_image_answers_every_protocol_without_rights(built: Engine) -> None:
    """It is not root, cannot write but to /tmp, and the engine sees that it lives."""
    with started(built, *GUARDED, SERVER) as ask:
        host = ask(ADDRESS)
        until(lambda: ask("{{.State.Health.Status}}") == "healthy")
        with Wire(host, 8080) as wire:
            rows = json.dumps({"instances": [1, 2]}).encode()
            assert wire.call("POST", "/v1/models/half_plus_three:predict", rows).json() == {"predictions": [3.5, 4.0]}
            assert wire.post("/v2/repository/models/iris/unload").status == 403
        remote = Remote(f"{host}:8081")
        x = np.array([1], np.float32)
        assert tensors(remote.infer("half_plus_three", raw("x", "FP32", x)))["y"].tolist() == [3.5]
        remote.close()
        found = run(
            "docker", "exec", ask("{{.Id}}"), "sh", "-c", "id -u; cat /opt/dragoman/sbom.cdx.json", env=built.env
        )
        user, _, bill = found.partition("\n")
        assert user == "10001"
        assert {"numpy", "onnxruntime", "grpcio"} <= {each["name"] for each in json.loads(bill)["components"]}


@pytest.mark.parametrize(("folder", "variables", "path", "words"), [
    ("/opt/ml/model", {"SAGEMAKER_BIND_TO_PORT": "9123"}, "/invocations", ("serve",)),
    ("/mnt/models", {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "PORT": "9123"}, "/v1/models/plus:predict",
     ("serve", "--model-name", "plus")),
], ids=["SageMaker", "KServe"])  # fmt: skip
def test_platforms_start_the_same_image(
    built: Engine, folder: str, variables: dict[str, str], path: str, words: tuple[str, ...]
) -> None:
    """They mount a folder of one model, without its name and version, and say the port."""
    model = ROOT / "models" / "half_plus_three" / "123"
    more = [f"--env={name}={value}" for name, value in variables.items()]
    with started(built, *GUARDED, f"--volume={model}:{folder}:ro", *more, SERVER, *words) as ask:
        host = ask(ADDRESS)
        until(lambda: listens(9123, host))
        with Wire(host, 9123) as wire:
            answer = wire.call("POST", path, b'{"instances": [1, 2]}', {"content-type": "application/json"})
            assert answer.json() == {"predictions": [3.5, 4.0]}


def test_sagemakers_sdk_starts_and_asks_the_image(built: Engine, tmp_path: Path) -> None:
    """In local mode, unmodified: JSON, CSV and arrays have the model's predictions; a refusal is SageMaker's."""
    require("docker-compose")
    tmp_path.chmod(0o755)  # the SDK unpacks the archive where it is, and mounts that
    with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as archive:
        for file in (ROOT / "models" / "iris" / "1").iterdir():
            archive.add(file, file.name)
    words = (environment("sagemaker") / "python", ROOT / "tests/e2e/sagemaker_client.py", SERVER)
    try:
        *_, last = run(*words, str(tmp_path / "model.tar.gz"), str(free_port()), env=built.env).splitlines()
    finally:
        run(
            "docker", "network", "rm", "sagemaker-local", env=built.env
        )  # the SDK leaves it, and this machine its bridge
    told = json.loads(last)
    csv = [(int(row[0]), list(map(float, row[1:]))) for row in told["found"].pop("csv")]
    others = [[(row["label"], row["probabilities"]) for row in rows] for rows in told["found"].values()]
    expected = [[0.98159033, 0.018409625, 1.4533908e-8], [0.000055761306, 0.079807974, 0.9201363]]
    for rows in (csv, *others):
        assert [label for label, _ in rows] == [0, 2]
        np.testing.assert_allclose([each for _, each in rows], expected, 1e-6)
    assert len(others) == 3
    assert "expected exactly one of dataframe_split" in json.dumps(told["refused"])


@pytest.mark.parametrize("image", [FUNCTION, STREAMING])
def test_the_functions_image_answers_with_its_models(built: Engine, image: str) -> None:
    """Lambda's emulator runs the command that the image names, with Lambda's runtime client or our own."""
    entry, words = json.loads(
        run(
            "docker", "inspect", "--format", "[{{json .Config.Entrypoint}}, {{json .Config.Cmd}}]", image, env=built.env
        )
    )
    command = [*(entry or ["/var/runtime/bootstrap"]), *(words or [])]
    with started(built, "--entrypoint", "/var/rapid/aws-lambda-rie", image, *command) as ask:
        host = ask(ADDRESS)
        body = json.dumps(rie.event("POST", "/v1/models/half_plus_three:predict", '{"instances": [1]}')).encode()
        until(lambda: listens(8080, host))
        with urllib.request.urlopen(f"http://{host}:8080{rie.PATH}", data=body, timeout=60) as found:
            assert rie.read(json.load(found)) == {"predictions": [3.5]}


def test_the_images_are_small(built: Engine) -> None:
    """A server's image has at most 350 MB, and a function's code 250 MB."""
    size = int(run("docker", "inspect", "--format", "{{.Size}}", SERVER, env=built.env))
    words = ("--rm", "--entrypoint", "/var/lang/bin/python3", FUNCTION, "-c")
    count = "import os; print(sum(os.path.getsize(os.path.join(a, n)) for a, _, f in os.walk('/var/task') for n in f))"
    code = int(run("docker", "run", *words, count, env=built.env))
    print(f"server: {size / MB:.0f} MB; function: {code / MB:.0f} MB")  # noqa: T201 - the documentation states them
    assert size <= 350 * MB
    assert code <= 250 * MB

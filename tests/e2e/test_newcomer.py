"""A newcomer installs the wheel on a bare Debian, exports a model, and serves it: by the book, without a question."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import debian, sam
from tests.e2e.expected import ANSWERS, gist
from tests.e2e.tools import ARCHITECTURE, HOME, ROOT, daemon, listens, run
from tests.support.ports import free_port, free_ports
from tests.test_documents import CONSOLE, check

EXPORT = """
from skl2onnx import to_onnx
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
wine = load_wine()
data = wine.data.astype("float32")
model = make_pipeline(StandardScaler(), LogisticRegression()).fit(data, wine.target)
open("wine.onnx", "wb").write(to_onnx(model, data[:1]).SerializeToString())
print(*model.predict(data[:2]))
"""
ROW = "14.23,1.71,2.43,15.6,127.0,2.8,3.06,0.28,2.29,5.64,1.04,3.92,1065.0"
"""The first wine of the data set, of class 0."""
IRIS = "rest-v1-classify-tfs"
"""An event of the folder, whose model is among the store's."""
Step = Callable[[str, str], str]
READY = """
import sys, time, urllib.request
for _ in range(600):
    try:
        urllib.request.urlopen(sys.argv[1], timeout=60)
        sys.exit()
    except OSError:
        time.sleep(0.2)
sys.exit("it does not answer")
"""


@pytest.fixture(scope="module")
def machine(local: sam.Local) -> Iterator[debian.Machine]:
    """Offer a new machine, whose SAM finds the image of Lambda's runtime on the engine."""
    with debian.running(local.engine) as made:
        yield made


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the distribution as its publisher does."""
    folder = tmp_path_factory.mktemp("wheel")
    run("python3", "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
    return next(folder.glob("*.whl"))


@pytest.fixture
def step(machine: debian.Machine) -> Step:
    def taken(name: str, script: str) -> str:
        """Run the lines of a step to their end, as a newcomer types them."""
        began = time.monotonic()
        printed = machine.run(script)
        print(f"{name}: {time.monotonic() - began:.1f} s", flush=True)  # noqa: T201 - for the reader: a time is no assertion
        return printed

    return taken


def label(printed: str) -> list[int]:
    """Return the class that an answer of `dragoman infer --json` has."""
    found: dict[str, list[int]] = {each["name"]: each["data"] for each in json.loads(printed)["outputs"]}
    return found["output_label"]


def test_a_newcomer_gets_to_a_served_model(machine: debian.Machine, wheel: Path, tmp_path: Path, step: Step) -> None:
    """Each step is a line that the documentation has; the model answers as scikit-learn does."""
    (tmp_path / "export.py").write_text(EXPORT, encoding="utf-8")
    (tmp_path / "ready.py").write_text(READY, encoding="utf-8")
    machine.put(wheel, tmp_path / "export.py", tmp_path / "ready.py")
    port, gateway = free_ports(2)
    step("install", f"python3 -m venv venv; venv/bin/pip install --quiet './{wheel.name}[server,onnx,doctor]'")
    assert step("version", "venv/bin/dragoman --version").startswith("dragoman ")
    step("init", "venv/bin/dragoman init project")
    assert step("doctor of init", "cd project; ../venv/bin/dragoman doctor").splitlines()[-1] == "nothing is wrong"
    step("install scikit-learn", "venv/bin/pip install --quiet scikit-learn skl2onnx")
    assert step("export", "venv/bin/python export.py").split() == ["0", "0"]
    step("push", "venv/bin/dragoman push wine.onnx my-models/wine")
    assert "served" in step("list", "venv/bin/dragoman list my-models")
    assert step("doctor", "venv/bin/dragoman doctor my-models").splitlines()[-1] == "nothing is wrong"
    assert json.loads(step("doctor as JSON", "venv/bin/dragoman doctor my-models --json"))["counts"]["error"] == 0
    machine.start("serve", f"venv/bin/dragoman serve --repository my-models --port {port}")
    machine.start("lambda", f"venv/bin/dragoman serve --lambda rest --repository my-models --port {gateway}")
    server = f"http://127.0.0.1:{port}"
    for name, url in (("serve", server), ("serve --lambda", f"http://127.0.0.1:{gateway}/Prod")):
        step(name, f"python3 ready.py {url}/v2/health/live")
        infer = f"venv/bin/dragoman infer wine --input X=[[{ROW}]] --url {url} --json"
        assert label(step(f"infer from {name}", infer)) == [0]
    assert "P50 MS" in step("bench", f"venv/bin/dragoman bench wine --sample --seconds 1 --url {server}")
    machine.run("mkdir my-models/iris; cp wine.onnx my-models/iris/model.onnx")
    cure = "dragoman push my-models/iris/model.onnx my-models/iris"
    with pytest.raises(RuntimeError, match=f"cure: {cure}; then remove it"):
        step("doctor finds", "venv/bin/dragoman doctor my-models")
    step("doctor's cure", f"venv/bin/{cure}; rm my-models/iris/model.onnx")
    assert step("doctor after it", "venv/bin/dragoman doctor my-models").splitlines()[-1] == "nothing is wrong"


def test_a_newcomer_runs_the_function(machine: debian.Machine, local: sam.Local, step: Step) -> None:
    """`init --aws`, `sam build` and `sam local start-api`, as the folder's README has them, for a model in a bucket."""
    variables = local.store.variables(local.bucket)
    own = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION")
    given = {name: variables[name] for name in own} | sam.ALONE | {"ARCHITECTURE": ARCHITECTURE}
    shell = f"export {' '.join(f'{name}={value}' for name, value in given.items())}; . venv/bin/activate"
    endpoint, place = f"AWS_ENDPOINT_URL_S3={local.store.endpoint}", f"s3://{local.bucket}/models"
    assert "served" in step("push to a bucket", f"{shell}; {endpoint} dragoman push wine.onnx {place}/wine")
    step("init --aws", f"{shell}; dragoman init --aws function")
    step("sam build", f"{shell}; cd function; sam build")
    built = machine.home / "function" / ".aws-sam" / "build" / sam.FUNCTION
    names = {entry.name for entry in built.iterdir()}
    assert {"core", "handler", "onnxruntime"} <= names
    assert not names & {"boto3", "click", "rich", "wheels", "requirements.txt", "template.yaml", "uvicorn"}
    printed = step("doctor of the function", f"{shell}; cd function; dragoman doctor")
    assert "nothing is wrong" in printed.splitlines()[-1]
    assert f"artifact .aws-sam/build/{sam.FUNCTION}" in printed
    (port,) = free_ports(1)
    parameters = f"Bucket={local.bucket} S3Endpoint={local.store.endpoint} Architecture={ARCHITECTURE}"
    serve = f"sam local start-api --skip-pull-image --port {port} --parameter-overrides {parameters}"
    machine.start("sam", f"{shell}; cd function; {serve}")
    url = f"http://127.0.0.1:{port}"
    step("sam local start-api", f"python3 ready.py {url}/v2/health/live")
    infer = f"{shell}; dragoman infer wine --input X=[[{ROW}]] --url {url} --json"
    assert label(step("infer from sam local", infer)) == [0]
    invoke = f"sam local invoke --skip-pull-image --event events/{IRIS}.json --parameter-overrides {parameters}"
    assert gist(json.loads(step("sam local invoke", f"{shell}; cd function; {invoke}"))) == ANSWERS[IRIS]


def test_make_run_serves_the_samples(tmp_path: Path) -> None:
    """The README's first command needs Python and make; its first answers come from the server that it starts."""
    port = free_port()
    command = ("make", "--directory", str(ROOT), "run", f"VENV={tmp_path / 'venv'}", f"PORT={port}")
    with daemon(*command, ready=lambda: listens(port), log=HOME / "log" / "make-run.log"):
        _, block = CONSOLE["README.md"][0]
        check(block, port)

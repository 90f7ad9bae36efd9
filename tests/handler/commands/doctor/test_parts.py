"""What doctor prints, its exit codes, and the parts that need more than a planted fault."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from core.errors import counted
from handler.cli import main
from handler.commands.doctor import (
    bucket,
    child,
    command,
    cures,
    function,
    layout,
    loads,
    permissions,
    sizing,
    template,
    tree,
)
from handler.commands.doctor.findings import Visit
from handler.settings import Settings
from handler.stores import File
from handler.stores.progress import Progress
from handler.stores.s3.listing import Page
from handler.stores.s3.location import Location
from tests.handler.commands.doctor.conftest import ROOT, Findings, SetUp
from tests.support import s3_stand_in, web

MIB = 2**20
PLACE = Location("b", "models/", None)


def codes(found: Any) -> list[str]:
    return [each.code for each in found]


SLEEPING = """
import os, time
os.mkfifo({there!r})
with open({there!r}, "w") as there:
    there.write(str(os.getpid()))
time.sleep(1000)
"""


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_process_that_loads_a_model(tmp_path: Path, number: int, code: int) -> None:
    """That process is in a session of its own, which Ctrl-C of a terminal does not reach."""
    there, file = tmp_path / "there", tmp_path / "models" / "m" / "1" / "model.py"
    file.parent.mkdir(parents=True)
    file.write_text(SLEEPING.format(there=str(there)))
    # What is started in a shell's background ignores SIGINT.
    program = "import signal, sys; signal.signal(2, signal.default_int_handler); from handler.cli import main; "
    command = [sys.executable, "-c", f"{program}sys.exit(main())", "doctor", str(tmp_path / "models")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "DRAGOMAN_ALLOW_CODE": "true"}
    with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not there.exists():
            assert process.poll() is None
            time.sleep(0.01)
        loader = int(there.read_text())
        process.send_signal(number)
        assert process.wait(60) == code
    with pytest.raises(ProcessLookupError):
        os.kill(loader, 0)


def test_a_signal_within_poll_does_not_hold_the_end_up() -> None:
    """The handler's error leaves Popen's own lock locked, for which its wait() would wait for good."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as process:  # noqa: S607 - any sleep

        def interrupted() -> None:
            process._waitpid_lock.acquire()  # type: ignore[attr-defined] # where poll() is when the signal comes
            raise KeyboardInterrupt

        process.poll = interrupted  # type: ignore[method-assign] # the moment is too short to meet it with a signal
        with pytest.raises(KeyboardInterrupt):
            loads._waited(process, loads.LoadLimits(60, None))
        assert process.returncode == -signal.SIGKILL


# -- what is printed --------------------------------------------------------------------------------------------------


def test_the_text_fits_on_one_screen(setup: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    """The worst findings come first, each with its cure; the rest are counted; measurements follow."""
    for number in range(30):
        setup.add(f"bad{number:02}/model.onnx")
    setup.add("wine/model-settings.json", {"canry": {}})
    setup.add("zero/1/model.onnx")
    assert main(["doctor", "models"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 40
    assert lines[1].startswith("ERROR   bad00/model.onnx: ")
    assert lines[2] == "        cure: dragoman push models/bad00/model.onnx models/bad00; then remove it"
    assert "... and 22 more: dragoman doctor --json" in lines
    assert any(line.startswith("memory of a function: ") for line in lines)
    assert "        without zero/1: what did not load here has no size" in lines
    assert lines[-1] == "31 errors, 1 warning"


def test_a_sound_set_up_says_so(
    setup: SetUp, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an argument the repository is that of the settings; as a file:// URI, too."""
    monkeypatch.setenv("DRAGOMAN_REPOSITORY", f"file://{setup.models}")
    assert main(["doctor", "--no-load"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[-1] == "nothing is wrong"
    assert "skipped: loads, memory and cold start: --no-load" in out


def test_the_folder_of_a_function_needs_no_models(setup: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    """`dragoman init --aws` makes one; a repository that is named has to exist."""
    setup.template()
    shutil.rmtree(setup.models)
    assert main(["doctor"]) == 0
    assert "skipped: repository: a function's folder needs no models" in capsys.readouterr().out
    assert main(["doctor", "models"]) == 1
    assert "the folder does not exist" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--load-timeout", "soon", "seconds above 0"),
        ("--load-memory", "much", "a number of bytes"),
        ("--template", "nowhere.yaml", "does not exist"),
        ("--artifact", "nowhere", "does not exist"),
    ],
)
def test_wrong_usage_is_two(
    flag: str, value: str, expected: str, setup: SetUp, capsys: pytest.CaptureFixture[str]
) -> None:
    """A flag's wrong value is one line on stderr, and nothing is examined."""
    assert main(["doctor", "models", flag, value]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"dragoman: {flag} is {value!r}")
    assert expected in captured.err
    assert captured.out == ""


def test_names_in_a_repository_cannot_forge_a_line(setup: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters of a file's name are escaped."""
    setup.add("net\n\x1b[2Jnothing is wrong.onnx")
    assert main(["doctor", "models", "--no-load"]) == 1
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "nothing is wrong" not in out.splitlines()


def test_only_the_command_imports_doctor() -> None:
    """A server, the function and the other commands do not."""
    script = "import handler.cli, handler.asgi, handler.commands.entry, sys\n"
    script += "print(sorted(name for name in sys.modules if '.doctor.' in name))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['handler.commands.doctor.flags']")


# -- the store --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("minutes", "found"), [(-20, ["clock"]), (20, ["clock"]), (1, [])])
def test_a_clock_that_is_off_is_found_by_the_stores_date(minutes: int, found: list[str]) -> None:
    """S3 refuses requests that are 15 minutes off; 5 are reported."""
    date = format_datetime(datetime.now(UTC) + timedelta(minutes=minutes), usegmt=True)
    assert codes(bucket._skew(Page([], [], None, date))) == found
    assert codes(bucket._skew(Page([], [], None, ""))) == []


def test_a_bucket_of_another_region_costs_a_request(
    setup: SetUp, doctor: Callable[[], Findings], stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store names its region in a redirect, which servers follow at each cold start."""
    stand_in.put("p/wine/1/model.onnx", b"")
    setup.set(**stand_in.variables(), AWS_REGION="eu-west-1")
    handler = s3_stand_in.Handler.do_GET

    def redirecting(self: Any) -> None:
        elsewhere = "eu-west-1" in self.headers.get("Authorization", "")
        self.store.refusal = (301, "PermanentRedirect", {"x-amz-bucket-region": "eu-north-1"}) if elsewhere else None
        handler(self)

    monkeypatch.setattr(s3_stand_in.Handler, "do_GET", redirecting)
    setup.repository = "s3://bucket/p"
    found = doctor()
    assert [(each["code"], each["cure"]) for each in found.all] == [("region", "set AWS_REGION=eu-north-1")]
    assert found.code == 0


@pytest.mark.parametrize(("most", "kept"), [(1, []), (3, ["a"]), (5, ["a", "b"])])
def test_a_long_listing_ends_before_an_incomplete_model(
    most: int,
    kept: list[str],
    setup: SetUp,
    doctor: Callable[[], Findings],
    stand_in: s3_stand_in.StandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Models that were not listed are not missing: the report says where the listing ended."""
    for name in "abcd":
        stand_in.put(f"p/{name}/1/a.bin", b"")
        stand_in.put(f"p/{name}/1/model.onnx", b"")
    monkeypatch.setattr(bucket, "MOST", most)
    listing = s3_stand_in.Handler._listing
    monkeypatch.setattr(s3_stand_in.Handler, "_listing", lambda self, query: listing(self, {**query, "max-keys": "1"}))
    setup.set(**stand_in.variables(), DRAGOMAN_PRELOAD="d")
    setup.repository = "s3://bucket/p"
    found = doctor()
    assert found.all == []
    assert counted(len(kept), "model") in found.report["examined"]
    assert command.CUT in found.report["skipped"]


ROLE = "arn:aws:iam::123456789012:role/team/server"


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch, no_aws: None) -> Iterator[dict[str, str]]:
    """A stand-in for STS and IAM: the server of tests/e2e/test_permissions.py has neither paths nor refusals."""
    told = {"arn": "arn:aws:sts::123456789012:assumed-role/server/session", "error": ""}

    class Query(web.Handler):
        def do_POST(self) -> None:
            form = parse_qs(self.body().decode())
            action = form["Action"][0]
            if told["error"] and action != "GetCallerIdentity":
                self.tell(403, f"<ErrorResponse><Error><Code>{told['error']}</Code></Error></ErrorResponse>")
            elif action in ("GetCallerIdentity", "GetRole"):
                arn = told["arn"] if action == "GetCallerIdentity" else ROLE
                inner = f"<Arn>{arn}</Arn>" if action == "GetCallerIdentity" else f"<Role><Arn>{arn}</Arn></Role>"
                self.tell(200, f"<{action}Response><{action}Result>{inner}</{action}Result></{action}Response>")
            else:
                assert form["PolicySourceArn"] == [ROLE]
                asked = form["ActionNames.member.1"][0]
                told[asked] = form["ResourceArns.member.1"][0]
                decision = told.get(f"{asked} is", "allowed")
                member = (
                    f"<member><EvalActionName>{asked}</EvalActionName><EvalDecision>{decision}</EvalDecision></member>"
                )
                inner = f"<EvaluationResults>{member}</EvaluationResults>"
                name = "SimulatePrincipalPolicy"
                self.tell(200, f"<{name}Response><{name}Result>{inner}</{name}Result></{name}Response>")

        def tell(self, status: int, document: str) -> None:
            self.answer(status, document.encode())

    with web.serving(Query) as server:
        for service in ("STS", "IAM"):
            monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", server.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
        yield told


def test_iam_is_asked_for_the_two_permissions(aws: dict[str, str]) -> None:
    """A permission that the simulation denies is an error that names what to grant."""
    visit = Visit()
    permissions.examine(Settings.from_env({}), PLACE, visit)
    assert (visit.findings, visit.examined, visit.skipped) == ([], ["permissions"], [])
    assert aws["s3:GetObject"] == "arn:aws:s3:::b/models/any"
    assert aws["s3:ListBucket"] == "arn:aws:s3:::b"
    aws["s3:ListBucket is"] = "implicitDeny"
    permissions.examine(Settings.from_env({}), PLACE, visit)
    assert [each.cure for each in visit.findings] == ["grant s3:ListBucket on arn:aws:s3:::b"]


@pytest.mark.parametrize(
    ("variables", "place", "error", "why"),
    [
        ({"DRAGOMAN_S3_ANONYMOUS": "true"}, PLACE, "", "not signed"),
        ({}, PLACE._replace(endpoint="http://127.0.0.1:9000"), "", "the store is not Amazon's"),
        ({}, PLACE, "AccessDenied", "it needs iam:SimulatePrincipalPolicy"),
        ({}, PLACE, "NoSuchEntity", "it needs iam:GetRole"),
        ({}, PLACE, "InvalidInput", "it needs an IAM user or role"),
    ],
)
def test_where_iam_cannot_simulate_a_word_says_why(
    variables: dict[str, str],
    place: Location,
    error: str,
    why: str,
    aws: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is not a finding: the permissions can exist."""
    aws["error"] = error
    if not error:
        monkeypatch.delenv("AWS_ENDPOINT_URL_IAM")
    visit = Visit()
    permissions.examine(Settings.from_env(variables), place, visit)
    assert visit.findings == []
    assert why in visit.skipped[0]


# -- the models -------------------------------------------------------------------------------------------------------


def test_the_child_measures_and_explains(setup: SetUp) -> None:
    """A load's bytes and seconds, and the cause of a failure, which a client may not read, with its line."""
    setup.loads()
    setup.set(DRAGOMAN_REPOSITORY=str(setup.models))
    measured = child._load("wine", "1")
    assert measured.keys() >= {"runtime", "fetch", "load", "cost", "peak", "size", "runtime_bytes"}
    assert measured["peak"] >= 0
    assert measured["logged"] == []
    setup.add("code/1/model.py", "x = 1\nraise ValueError('of the operator')")
    assert child._load("code", "1")["cause"] == "model.py, line 2: ValueError: of the operator"
    setup.add("typo/1/model.py", "x = 1\ndef")
    assert child._load("typo", "1")["cause"].startswith("model.py, line 2: SyntaxError")
    assert child._init()["bytes"] > 0


LEAVING = """
import subprocess, tempfile, threading, time
kept = tempfile.TemporaryDirectory()
pipe = open({pipe!r}, "w")
print(kept.name, file=pipe, flush=True)
subprocess.Popen(["sleep", "1000"], stdout=pipe)
threading.Thread(target=time.sleep, args=(1000,)).start()
def predict(inputs, parameters):
    return inputs
"""


def test_what_a_model_starts_ends_with_its_load(setup: SetUp, doctor: Callable[[], Findings]) -> None:
    """Its threads do not make the load fail; its processes and its temporary files do not outlive it."""
    pipe = setup.folder / "pipe"
    os.mkfifo(pipe)
    setup.add("code/1/model.py", LEAVING.format(pipe=str(pipe)))
    setup.loads()
    with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reader:
        assert doctor().all == []
        os.set_blocking(reader.fileno(), True)
        kept = Path(reader.read().strip())  # ends with the last process that could write
    assert kept.is_absolute()
    assert not kept.exists()


def test_the_measured_import_makes_no_folder(setup: SetUp) -> None:
    """The function makes that of its payload log."""
    log = setup.folder / "log"
    environ = {**os.environ, "DRAGOMAN_PAYLOAD_LOG": str(log)}
    assert loads.initialisation(environ, loads.LoadLimits(60, None))["bytes"] > 0
    assert not log.exists()


OF_RUNTIME = (
    "Fail: [ONNXRuntimeError] : 1 : FAIL : Load model from /m failed:/o/model.cc:1 a::B(c&&, d) "
    "Unsupported model IR version: 99"
)


@pytest.mark.parametrize(
    ("text", "cause", "code", "what"),
    [
        ("t", OF_RUNTIME, "opset", "Unsupported model IR version: 99"),
        ("model 'm' needs ONNX Runtime: pip install", "", "runtime-missing", "needs ONNX Runtime"),
        (
            "model 'm' cannot be loaded: ONNX Runtime is installed, but its import fails",
            "",
            "runtime-broken",
            "model 'm'",
        ),
        (
            "model.onnx: the name of its folder, or of one above, is not UTF-8, which ONNX Runtime",
            "",
            "folder-name",
            "model.onnx",
        ),
        ("step 't' of model 'm' needs the package tokenizers: pip", "", "text-missing", "needs the package"),
        ("the store at h does not answer (X)", "", "fetch", "the store"),
        ("something new", "", "load-refused", "something new"),
    ],
)
def test_a_refusal_has_the_cure_of_its_text(text: str, cause: str, code: str, what: str) -> None:
    """ONNX Runtime's own surroundings are left out of its text; what no pattern knows has a general cure."""
    found = cures.of_refusal("m/1", text, cause)
    assert found.code == code
    assert found.what.startswith(what) or what in found.what


def test_what_cannot_be_read_is_named(
    setup: SetUp, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file or a folder that this user may not read is an error at its own place, and hides nothing else."""
    setup.add("rest/1/model.onnx")
    setup.models = setup.models.rename(setup.folder / "my models")
    scandir, access = os.scandir, os.access

    def guarded(path: Any) -> Any:
        if Path(path).name == "rest":
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", guarded)  # the tests may run as root, who may read everything
    monkeypatch.setattr(os, "access", lambda path, mode: access(path, mode) and "wine" not in str(path))
    found, files = tree.of_folder(setup.models)
    assert [(each.code, each.where) for each in found] == [("unreadable", "rest/"), ("unreadable", "wine/1/model.onnx")]
    assert [each.cure.partition("chmod ")[2] for each in found] == [
        f"-R u+rX '{setup.models}/rest'", f"u+r '{setup.models}/wine/1/model.onnx'",
    ]  # fmt: skip
    assert files.models.keys() == {"wine"}
    assert main(["list", "my models"]) == 1
    assert capsys.readouterr().err == f"dragoman: {setup.models / 'rest'} cannot be listed: Permission denied\n"


def test_a_place_that_cannot_be_looked_at_is_a_finding(setup: SetUp, capsys: pytest.CaptureFixture[str]) -> None:
    """A link that leads to itself, and a path that no file system has, end no examination."""
    (setup.models / "round").symlink_to("round")
    found, files = tree.of_folder(setup.models)
    assert [(each.code, each.where, each.cure) for each in found] == [("unreadable", "round/", tree.REPAIR)]
    assert files.models.keys() == {"wine"}
    assert main(["doctor", "x" * 300]) == 1
    assert "cannot be listed: File name too long" in capsys.readouterr().out


# -- the function -----------------------------------------------------------------------------------------------------

SECONDS = {"runtime": 1.0, "fetch": 2.0, "load": 3.0}
LOADED = {"runtime_bytes": 30 * MIB, "cost": 100 * MIB, "peak": 300 * MIB, "pipeline": False, **SECONDS}
MEASURED: dict[str, Any] = {"init": {"seconds": 0.5, "bytes": 50 * MIB}, "models": {"a/1": LOADED, "b/1": LOADED}}


def test_memory_is_recommended_from_measured_loads() -> None:
    """The interpreter, the runtime and the largest peak must fit into nine tenths; then all models together."""
    advice = sizing.recommend(MEASURED)
    assert (advice["base"], advice["least"], advice["all"]) == (80, 448, 576)
    start = sizing.cold_start({**MEASURED, "memory": advice})
    assert (start["model"], start["init"], start["total"]) == ("a/1", 0.5, 6.5)
    assert start["at_least"] == pytest.approx(2.0 + 4.5 / advice["vcpus"], abs=0.01)
    assert sizing.recommend({}) == sizing.cold_start({}) == {}


def test_preloaded_models_must_fit_together() -> None:
    """The limit that each model fits into alone may be too small for all that must stay."""
    settings = Settings.from_env({"DRAGOMAN_PRELOAD": "*", "DRAGOMAN_MEMORY_LIMIT": "200MiB"})
    measured = {**MEASURED, "memory": sizing.recommend(MEASURED)}
    assert [each.cure for each in sizing.of_settings(settings, measured)] == [
        "set DRAGOMAN_MEMORY_LIMIT=320MiB, or preload fewer"
    ]
    assert codes(sizing.of_settings(settings._replace(preload=("a",)), measured)) == []


def test_a_function_needs_time_for_its_first_request() -> None:
    """A timeout below the measured cold start, and an import above Lambda's ten seconds, are warnings."""
    facts = function.FunctionFacts("F", 448, 512, 5, {})
    slow = {**MEASURED, "init": {"seconds": 11.0, "bytes": 50 * MIB}}
    measured = {**slow, "memory": sizing.recommend(slow)}
    measured["cold_start"] = sizing.cold_start(measured)
    assert codes(sizing.of_function(facts, measured, 0, "t")) == ["function-timeout", "function-init"]


DOCUMENT = """
Parameters: {Lit: {Type: String, Default: "no"}, Size: {Type: Number, Default: 256}}
Conditions:
  IsOn: !Equals [!Ref Lit, "yes"]
  Both: !And [!Condition IsOn, !Not [!Equals [!Ref Size, 1]]]
  Either: !Or [!Condition IsOn, !Equals [a, a]]
Globals: {Function: {Timeout: 7, Environment: {Variables: {A: b}}}}
Resources:
  Api: {Type: AWS::Serverless::HttpApi, Condition: IsOn}
  F:
    Type: AWS::Serverless::Function
    Properties:
      Handler: dragoman.aws.lambda_handler
      MemorySize: !Ref Size
      Role: !GetAtt R.Arn
      A: !If [Both, 1, 2]
      B: !If [Either, !Sub "${Size}-${AWS::Region}-${R.Arn}", 2]
      C: !Join ["/", [x, !Ref Size]]
      D: !Ref AWS::NoValue
      E: !If [Gone, 1, 2]
      G: !Sub ["${x}", {x: !Ref Size}]
"""


def test_a_templates_expressions_are_computed(tmp_path: Path) -> None:
    """Parameters, conditions and functions; what only a deployment knows stays unknown."""
    path = tmp_path / "t.yaml"
    path.write_text(DOCUMENT, encoding="utf-8")
    document = template.read(path)
    off, on = template.Expanded(document, {}), template.Expanded(document, {"Lit": "yes"})
    assert (off.resources.keys(), on.resources.keys()) == ({"F"}, {"Api", "F"})
    facts = function.find(off, document["Globals"]["Function"])
    assert facts is not None
    assert (facts.name, facts.memory, facts.timeout, facts.storage) == ("F", 256, 7, 512)
    own = facts.properties
    assert (own["A"], own["B"], own["C"]) == (2, "256-us-east-1-${R.Arn}", "x/256")
    assert (own["E"], own["Role"], own["G"]) == (template.UNKNOWN, template.UNKNOWN, "256")
    assert "D" not in own
    assert repr(template.UNKNOWN) == "a value of the deployment"
    assert on.value(document["Resources"]["F"]["Properties"]["A"]) == 1


GLOBALS = {
    "Handler": "dragoman.aws.lambda_handler",
    "MemorySize": 512,
    "Layers": ["a"],
    "Environment": {"Variables": {"A": "1", "B": "2"}},
}


OWN = {"MemorySize": 1024, "Layers": ["b"], "Environment": {"Variables": {"B": "3"}}}


def test_globals_are_merged_into_functions_of_sam() -> None:
    """As SAM does it: maps by their members, lists one behind the other, and anything else is the function's own."""
    expanded = template.Expanded({"Resources": {"F": {"Type": "AWS::Serverless::Function", "Properties": OWN}}}, {})
    facts = function.find(expanded, GLOBALS)
    assert facts is not None
    assert facts.memory == 1024
    assert facts.properties["Layers"] == ["a", "b"]
    assert facts.properties["Environment"] == {"Variables": {"A": "1", "B": "3"}}


def test_globals_are_not_those_of_cloudformations_own_functions() -> None:
    """They do not get the handler from there."""
    expanded = template.Expanded({"Resources": {"F": {"Type": "AWS::Lambda::Function", "Properties": OWN}}}, {})
    assert function.find(expanded, GLOBALS) is None


def test_a_zip_and_the_files_around_a_template_are_examined(setup: SetUp, doctor: Callable[[], Findings]) -> None:
    """An artifact may be a zip; one that is none, samconfig.toml that is no TOML, and foreign templates are named."""
    packed = setup.folder / "built.zip"
    built = setup.artifact()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in built.rglob("*"):
            archive.write(file, file.relative_to(built))
    setup.flags += ["--artifact", str(packed), "--template", "template.yaml"]
    assert doctor().all == []
    packed.write_bytes(b"not a zip")
    (setup.folder / "samconfig.toml").write_text("[", encoding="utf-8")
    assert [each["code"] for each in doctor().all] == ["samconfig", "artifact-unreadable"]
    (setup.folder / "samconfig.toml").unlink()
    (setup.folder / "template.yaml").write_bytes(b"\xff\x81")
    assert [each["code"] for each in doctor().all] == ["template-unreadable", "artifact-unreadable"]
    (setup.folder / "template.yaml").write_text(json.dumps({"Resources": {}}), encoding="utf-8")
    assert "it has no function with the handler" in doctor().report["skipped"][1]


def test_yaml_without_its_package_is_skipped(
    setup: SetUp, doctor: Callable[[], Findings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The word names the extra to install."""
    setup.template()
    monkeypatch.setitem(sys.modules, "yaml", None)
    found = doctor()
    assert found.all == []
    assert any("pip install 'dragoman[doctor]'" in each for each in found.report["skipped"])


def test_a_repository_in_another_store_is_examined(
    stand_in: s3_stand_in.StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What its store refuses is a finding, with the store's own cure."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", stand_in.url)
    asked = Settings.from_env({"DRAGOMAN_REPOSITORY": "gs://bucket/p", "DRAGOMAN_CACHE": str(tmp_path)})
    assert codes(bucket.of_store(asked)[0]) == ["repository-empty"]
    stand_in.put("p/m/1/model.onnx", b"")
    found, files = bucket.of_store(asked)
    assert (found, list(files.models if files else ())) == ([], ["m"])
    stand_in.listable = False
    [denied] = bucket.of_store(asked)[0]
    assert (denied.code, denied.cure) == ("listing-denied", "grant storage.objects.list to see its models")
    stand_in.refusal = 404, "NoSuchBucket", {}
    assert codes(bucket.of_store(asked)[0]) == ["store-refused"]
    assert codes(bucket.of_store(asked._replace(repository="http://127.0.0.1:1"))[0]) == ["store-unreachable"]
    assert codes(bucket.of_store(asked._replace(repository="gs://"))[0]) == ["repository-uri"]


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://u:s3cret@h.invalid/m", "https://h.invalid/m"),
        ("https://h.invalid/m?sig=s3cret", "https://h.invalid/m"),
        ("az://c/p?sig=s3cret", "az://c/p"),
        ("s3a://key:s3/cret@b/p", "s3a://b/p"),
    ],
)
def test_a_report_has_no_secret_of_an_address(
    uri: str, shown: str, setup: SetUp, doctor: Callable[[], Findings]
) -> None:
    """Reports go to logs of CI and to tickets."""
    setup.repository = uri
    found = doctor()
    assert f"repository {shown}" in found.report["examined"]
    assert [each["code"] for each in found.all] == ["repository-uri"]
    assert "s3/cret" not in json.dumps(found.report)
    assert "s3cret" not in json.dumps(found.report)


def test_a_packages_store_needs_only_the_protocol_of_stores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command lists its models and files. It reported a folder that does not exist."""

    class Shelf:
        """A store with one model."""

        def __init__(self, _: Settings) -> None: ...

        def models(self, _: Progress) -> list[str]:
            return ["iris"]

        def files(self, model: str, _: Progress) -> list[File]:
            return [File(f"{len(model)}/model.onnx", 7)]

    monkeypatch.setattr("handler.plugins.find", lambda *_: Shelf)
    found, files = bucket.of_store(Settings.from_env({"DRAGOMAN_REPOSITORY": "shelf://top"}))
    assert (found, files is not None and [*files.models]) == ([], ["iris"])


@pytest.mark.parametrize(("uri", "cure"), [
    ("m", "mkdir m/lg/1 and put model.onnx there, or `dragoman push FOLDER m/lg`"),
    ("my m", "mkdir 'my m/lg/1' and put model.onnx there, or `dragoman push FOLDER 'my m/lg'`"),
    ("s3://b/m", "put model.onnx into lg/1, or `dragoman push FOLDER s3://b/m/lg`"),
])  # fmt: skip
def test_the_cure_of_a_model_without_a_version_has_the_repository(uri: str, cure: str) -> None:
    """Its commands run in the current folder, as those of the other cures."""
    assert layout.NamedRepository(uri).made("lg") == cure


def test_the_cure_of_an_artifact_quotes_its_path(setup: SetUp, doctor: Callable[[], Findings]) -> None:
    """A shell would read two paths."""
    built = setup.artifact().rename(setup.folder / "my build")
    (built / "handler" / "aws.py").chmod(0o600)
    setup.flags += ["--artifact", "my build"]
    cures = {each["code"]: each["cure"] for each in doctor().all}
    assert cures["artifact-mode"] == "chmod -R o+rX 'my build'"


def test_the_cure_of_a_missing_repository_has_its_whole_path(
    setup: SetUp, doctor: Callable[[], Findings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shell does not expand a `~` in quotes."""
    monkeypatch.setenv("HOME", str(setup.folder / "o t"))
    setup.repository = "~/none"
    assert doctor().all[0]["cure"].startswith(f"mkdir -p '{setup.folder}/o t/none', or ")


@pytest.mark.parametrize(("uri", "cure"), [
    ("my models", "mv -n 'my models/a/1/a b.onnx' 'my models/a/1/model.onnx'"),
    ("m/", "mv -n 'm/a/1/a b.onnx' m/a/1/model.onnx"),
    ("~/m", "mv -n '/home/o t/m/a/1/a b.onnx' '/home/o t/m/a/1/model.onnx'"),
    ("s3://b/m", "move a/1/a b.onnx to a/1/model.onnx"),
])  # fmt: skip
def test_a_cure_runs_where_doctor_ran(uri: str, cure: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its paths begin in the current folder, or in the home folder, and it replaces nothing."""
    monkeypatch.setenv("HOME", "/home/o t")
    assert layout.NamedRepository(uri).moved("a/1/a b.onnx", "a/1/model.onnx") == cure


@pytest.mark.parametrize("where", [".", "../big iris", "../../models/big iris/"])
def test_the_cure_of_a_models_folder_names_the_one_above(
    where: str, setup: SetUp, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However it was named; `.` is not a model's name."""
    folder = setup.models / "big iris"
    folder.mkdir()
    monkeypatch.chdir(folder)
    found = layout.of_model(tree.grouped([File("1/model.onnx", 7)]), where)
    assert found is not None
    above, _, name = found.cure.partition(", whose model is 'big iris', or set ")
    assert (above, name) == (f"name the folder above it: {setup.models}", "DRAGOMAN_MODEL_NAME='big iris'")


def test_a_misnamed_file_hides_no_missing_version(setup: SetUp, doctor: Callable[[], Findings]) -> None:
    """The name of the settings is a warning, and without a version the model is not served."""
    setup.add("grape/model_settings.json", "{}")
    assert [each["code"] for each in doctor().all] == ["no-version", "settings-name"]


def test_a_misnamed_version_gets_a_free_number(setup: SetUp, doctor: Callable[[], Findings]) -> None:
    """Version 1 is there, and is served."""
    setup.add("wine/v1/model.onnx")
    assert doctor().all[0]["cure"] == "mv -n models/wine/v1 models/wine/2"


def test_misnamed_versions_of_one_number_get_one_each(setup: SetUp, doctor: Callable[[], Findings]) -> None:
    """All cures can run, one after the other: `mv` would put the second folder into the first."""
    for path in ("v0/model.onnx", "v0/b.onnx", "release-0/model.onnx", "best/model.onnx"):
        setup.add(f"grape/{path}")
    cures = [each["cure"] for each in doctor().all if each["code"] == "version-name"]
    moves = ["best models/grape/1", "release-0 models/grape/0", "v0 models/grape/2", "v0 models/grape/2"]
    assert cures == [f"mv -n models/grape/{each}" for each in moves]


@pytest.mark.parametrize("shared", ["true", "false"])
@pytest.mark.parametrize("below", ["", "new/one"])
def test_a_private_or_shared_cache_has_no_finding(
    setup: SetUp, doctor: Callable[[], Findings], shared: str, below: str
) -> None:
    """A volume that containers share may be written by all of them."""
    folder = setup.folder / "cache"
    folder.mkdir()
    folder.chmod(0o777 if shared == "true" else 0o700)
    setup.bucket()
    setup.set(DRAGOMAN_CACHE=str(folder / below), DRAGOMAN_CACHE_SHARED=shared)
    assert "DRAGOMAN_CACHE" not in [each["where"] for each in doctor().all]

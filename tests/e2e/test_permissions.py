"""doctor asks an IAM that evaluates policies, and S3 obeys the same ones: MiniStack, with its checks turned on."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import BotoCoreError, ClientError

from tests.e2e.tools import HOME, ROOT, daemon, environment
from tests.support.ports import free_port

BUCKET = "arn:aws:s3:::example-models"
OBJECTS = f"{BUCKET}/models/*"
SIMULATE = ("Allow", "iam:SimulatePrincipalPolicy", "*")
READ, LIST = ("Allow", "s3:GetObject", OBJECTS), ("Allow", "s3:ListBucket", BUCKET)
Statement = tuple[str, str, str]


@pytest.fixture(scope="module")
def cloud() -> Iterator[str]:
    """Offer the URL of S3, IAM and STS in one, with a bucket that has a model."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    settings = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "AUTH": "true", "LOG_LEVEL": "WARNING"}
    command = environment("ministack") / "ministack"
    s3 = client(url, "s3", {})

    def ready() -> bool:
        with contextlib.suppress(BotoCoreError, ClientError):
            s3.create_bucket(Bucket=BUCKET.rpartition(":")[2])
            return True
        return False

    log = HOME / "log" / "ministack.log"
    with daemon(command, ready=ready, log=log, env={**os.environ, **settings}):
        s3.put_object(Bucket="example-models", Key="models/iris/1/model.onnx", Body=b"onnx")
        yield url


def client(url: str, service: str, caller: dict[str, str]) -> Any:
    """Return a client with the caller's credentials, without them the account's own."""
    names = {"aws_access_key_id": "AWS_ACCESS_KEY_ID", "aws_secret_access_key": "AWS_SECRET_ACCESS_KEY"}
    names["aws_session_token"] = "AWS_SESSION_TOKEN"  # noqa: S105 - a variable's name
    keys = {key: caller.get(name, "test" if key != "aws_session_token" else None) for key, name in names.items()}
    return boto3.client(service, endpoint_url=url, region_name="us-east-1", **keys)


def document(*statements: Statement) -> str:
    rows = [{"Effect": effect, "Action": action, "Resource": resource} for effect, action, resource in statements]
    return json.dumps({"Version": "2012-10-17", "Statement": rows})


def user(url: str, name: str, policy: str) -> dict[str, str]:
    """Make a user with a policy, and return the variables of its credentials."""
    iam = client(url, "iam", {})
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName="own", PolicyDocument=policy)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}


def role(url: str, name: str, policy: str) -> dict[str, str]:
    """Make a role with a policy, and return the variables of a session, as a function has them."""
    iam = client(url, "iam", {})
    trust = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
    trusting = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    arn = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trusting)["Role"]["Arn"]
    iam.put_role_policy(RoleName=name, PolicyName="own", PolicyDocument=policy)
    key = client(url, "sts", {}).assume_role(RoleArn=arn, RoleSessionName="session")["Credentials"]
    found = {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
    return {**found, "AWS_SESSION_TOKEN": key["SessionToken"]}


def denied(url: str, caller: dict[str, str]) -> set[str]:
    """Return what S3 itself refuses to the caller."""
    s3, found = client(url, "s3", caller), set()
    for action, ask in (
        ("s3:GetObject", lambda: s3.get_object(Bucket="example-models", Key="models/iris/1/model.onnx")),
        ("s3:ListBucket", lambda: s3.list_objects_v2(Bucket="example-models", Prefix="models/")),
    ):
        try:
            ask()
        except ClientError as refusal:
            found.add(action if refusal.response["Error"]["Code"] == "AccessDenied" else str(refusal))
    return found


@pytest.mark.parametrize("make", [user, role])
@pytest.mark.parametrize(
    ("name", "statements", "wanted"),
    [
        ("enough", (READ, LIST), set()),
        ("wildcards", (("Allow", "s3:Get*", "*"), ("Allow", "s3:L*", "arn:aws:s3:::example-*")), set()),
        ("elsewhere", (("Allow", "s3:GetObject", f"{BUCKET}/others/*"), LIST), {"s3:GetObject"}),
        ("unlisted", (READ,), {"s3:ListBucket"}),
        ("forbidden", (("Allow", "s3:*", "*"), ("Deny", "s3:GetObject", OBJECTS)), {"s3:GetObject"}),
    ],
)
def test_doctor_finds_the_permissions_that_s3_refuses(
    cloud: str, name: str, statements: tuple[Statement, ...], wanted: set[str], make: Any
) -> None:
    """IAM's simulation, of a user's and of a role's session, agrees with what the store does."""
    caller = make(cloud, f"{name}-{make.__name__}", document(SIMULATE, *statements, ("Allow", "iam:GetRole", "*")))
    assert denied(cloud, caller) == wanted
    report = doctor(cloud, caller)
    found = {each["where"]: each for each in report["findings"] if each["code"] == "permission"}
    assert set(found) == wanted
    assert "permissions" in report["examined"]
    for action, finding in found.items():
        assert f"{name}-{make.__name__}" in finding["what"]
        assert finding["cure"] == f"grant {action} on {OBJECTS if action == 's3:GetObject' else BUCKET}"


def test_a_caller_who_is_not_permitted_to_simulate_reads_which_permission_it_takes(cloud: str) -> None:
    """The permissions of S3 can exist, so it is not a finding."""
    report = doctor(cloud, user(cloud, "reader", document(READ, LIST)))
    assert not [each for each in report["findings"] if each["code"] == "permission"]
    assert any("it needs iam:SimulatePrincipalPolicy" in each for each in report["skipped"])


def doctor(url: str, caller: dict[str, str]) -> Any:
    """Return doctor's report about the bucket, with a caller's credentials."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "DRAGOMAN_"))}
    endpoints = {f"AWS_ENDPOINT_URL_{service}": url for service in ("S3", "IAM", "STS")}
    given = {**kept, **endpoints, **caller, "AWS_REGION": "us-east-1"}
    command = (sys.executable, "-m", "dragoman", "doctor", "s3://example-models/models", "--no-load", "--json")
    done = subprocess.run(command, cwd=ROOT, env=given, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return json.loads(done.stdout)

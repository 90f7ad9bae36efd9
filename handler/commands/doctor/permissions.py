"""IAM's own simulation of the two permissions that a server needs, for the caller of these credentials."""

import os
import re
from collections.abc import Iterator
from typing import Any, Final

from handler.commands.doctor.findings import Finding, Visit, error
from handler.settings import Settings
from handler.stores.s3.location import Location

SKIPPED: Final = "IAM simulation"
ASSUMED: Final = re.compile(r"arn:([\w-]+):sts::(\d+):assumed-role/([^/]+)/.*")
ROLE: Final = ":role/"
OWN_IAM: Final = "AWS_ENDPOINT_URL_IAM"
"""botocore's variable for another IAM: that of a stack of AWS's services on this machine."""
NEEDS: Final = {
    "AccessDenied": "iam:SimulatePrincipalPolicy",
    "NoSuchEntity": "iam:GetRole, because the role's name has a path",
}
"""What the simulation needs, by IAM's error code."""
TIMEOUT: Final = 5
"""Seconds to connect, and for an answer."""


def examine(settings: Settings, place: Location, visit: Visit) -> None:
    """Adds the permissions that are missing. Where they cannot be simulated, says why."""
    if settings.s3_anonymous:
        visit.skipped.append(f"{SKIPPED}: requests are not signed (DRAGOMAN_S3_ANONYMOUS)")
        return
    if place.endpoint is not None and "amazonaws" not in place.endpoint and not os.environ.get(OWN_IAM):
        visit.skipped.append(f"{SKIPPED}: the store is not Amazon's, and {OWN_IAM} does not name its IAM")
        return
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - a third of a second

    try:
        visit.add(_denied(place))
    except ClientError as refusal:
        code = refusal.response.get("Error", {}).get("Code", "")
        visit.skipped.append(f"{SKIPPED}: IAM answered {code}; it needs {NEEDS.get(code, 'an IAM user or role')}")
    except BotoCoreError as refusal:
        visit.skipped.append(f"{SKIPPED}: {type(refusal).__name__}")
    else:
        visit.examined.append("permissions")


def _denied(place: Location) -> Iterator[Finding]:
    """Yields the permissions that IAM says are not granted. Raises ClientError, BotoCoreError."""
    iam = _client("iam")
    principal = _principal(iam, str(_client("sts").get_caller_identity()["Arn"]))
    partition = principal.split(":")[1]
    bucket = f"arn:{partition}:s3:::{place.bucket}"
    prefix = {"ContextKeyName": "s3:prefix", "ContextKeyType": "string", "ContextKeyValues": [place.prefix]}
    asked: tuple[tuple[str, str, list[Any]], ...] = (
        ("s3:GetObject", f"{bucket}/{place.prefix}any", []),
        ("s3:ListBucket", bucket, [prefix]),
    )
    for action, resource, context in asked:
        answer = iam.simulate_principal_policy(
            PolicySourceArn=principal, ActionNames=[action], ResourceArns=[resource], ContextEntries=context
        )
        decisions = {each["EvalDecision"] for each in answer["EvaluationResults"]}
        if decisions - {"allowed"}:
            target = f"{bucket}/{place.prefix}*" if action == "s3:GetObject" else bucket
            what = f"IAM says {', '.join(sorted(decisions))} to {action} for {principal}"
            yield error("permission", action, what, f"grant {action} on {target}")


def _principal(iam: Any, caller: str) -> str:
    """Returns the user or role of a caller. A session's name lacks its role's path, which IAM's simulation needs."""
    from botocore.exceptions import ClientError  # noqa: PLC0415

    principal = ASSUMED.sub(r"arn:\1:iam::\2:role/\3", caller)
    if principal == caller:
        return caller
    try:
        return str(iam.get_role(RoleName=principal.partition(ROLE)[2])["Role"]["Arn"])
    except ClientError:  # the permission is not needed for a role without a path
        return principal


def _client(service: str) -> Any:
    from botocore.config import Config  # noqa: PLC0415
    from botocore.session import get_session  # noqa: PLC0415

    config = Config(connect_timeout=TIMEOUT, read_timeout=TIMEOUT, retries={"total_max_attempts": 2})
    session = get_session()
    region = session.get_config_variable("region") or "us-east-1"
    return session.create_client(service, region_name=region, config=config)

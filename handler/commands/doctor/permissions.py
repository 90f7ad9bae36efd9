"""IAM's own simulation of the two permissions that a server needs, for the caller of these credentials."""

import re
from collections.abc import Iterator
from typing import Any, Final

from handler.commands.doctor.findings import Finding, Visit, error
from handler.settings import Settings
from handler.stores.s3.location import Location

SKIPPED: Final = "IAM simulation"
ASSUMED: Final = re.compile(r"arn:([\w-]+):sts::(\d+):assumed-role/([^/]+)/.*")
TIMEOUT: Final = 5
"""Seconds to connect, and for an answer."""


def examine(settings: Settings, place: Location, visit: Visit) -> None:
    """Adds the permissions that are missing. Where they cannot be simulated, says why."""
    if settings.s3_anonymous:
        visit.skipped.append(f"{SKIPPED}: requests are not signed (DRAGOMAN_S3_ANONYMOUS)")
        return
    if place.endpoint is not None and "amazonaws" not in place.endpoint:
        visit.skipped.append(f"{SKIPPED}: the store is not Amazon's")
        return
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - a third of a second

    try:
        visit.add(_denied(place))
    except ClientError as refusal:
        code = refusal.response.get("Error", {}).get("Code", "")
        need = (
            "sts:GetCallerIdentity and iam:SimulatePrincipalPolicy" if "AccessDenied" in code else "an IAM role or user"
        )
        visit.skipped.append(f"{SKIPPED}: IAM answered {code}; it needs {need}")
    except BotoCoreError as refusal:
        visit.skipped.append(f"{SKIPPED}: {type(refusal).__name__}")
    else:
        visit.examined.append("permissions")


def _denied(place: Location) -> Iterator[Finding]:
    """Yields the permissions that IAM says are not granted. Raises ClientError, BotoCoreError."""
    principal = ASSUMED.sub(r"arn:\1:iam::\2:role/\3", str(_client("sts").get_caller_identity()["Arn"]))
    partition = principal.split(":")[1]
    bucket = f"arn:{partition}:s3:::{place.bucket}"
    prefix = {"ContextKeyName": "s3:prefix", "ContextKeyType": "string", "ContextKeyValues": [place.prefix]}
    asked: tuple[tuple[str, str, list[Any]], ...] = (
        ("s3:GetObject", f"{bucket}/{place.prefix}any", []),
        ("s3:ListBucket", bucket, [prefix]),
    )
    iam = _client("iam")
    for action, resource, context in asked:
        answer = iam.simulate_principal_policy(
            PolicySourceArn=principal, ActionNames=[action], ResourceArns=[resource], ContextEntries=context
        )
        decisions = {each["EvalDecision"] for each in answer["EvaluationResults"]}
        if decisions - {"allowed"}:
            target = f"{bucket}/{place.prefix}*" if action == "s3:GetObject" else bucket
            what = f"IAM says {', '.join(sorted(decisions))} to {action} for {principal}"
            yield error("permission", action, what, f"grant {action} on {target}")


def _client(service: str) -> Any:
    from botocore.config import Config  # noqa: PLC0415
    from botocore.session import get_session  # noqa: PLC0415

    config = Config(connect_timeout=TIMEOUT, read_timeout=TIMEOUT, retries={"total_max_attempts": 2})
    session = get_session()
    region = session.get_config_variable("region") or "us-east-1"
    return session.create_client(service, region_name=region, config=config)

"""What a store's refusals and silences mean, with the cure of each. Never a secret, never a key of another's."""

from typing import Final
from urllib.parse import urlsplit

from core.errors import ModelNotLoadable, ModelUnavailable, ServingError
from handler.stores.s3.answers import Broken, Refused
from handler.stores.s3.location import Location

ABSENT: Final = {"NoSuchKey", "404", "NotFound"}
DENIED: Final = {"AccessDenied", "403", "Forbidden", "AllAccessDisabled"}
EXPIRED: Final = "the credentials have expired: renew them"
CURES: Final = {
    "NoSuchBucket": "bucket {bucket!r} does not exist: check DRAGOMAN_REPOSITORY and the region or endpoint",
    "InvalidBucketName": "{bucket!r} is no bucket name: check DRAGOMAN_REPOSITORY",
    "InvalidAccessKeyId": "the store does not know the access key: check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the store refuses the keys: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": EXPIRED,
    "ExpiredTokenException": EXPIRED,
    "TokenRefreshRequired": EXPIRED,
    "RequestExpired": EXPIRED,
    "InvalidToken": "the session token is refused: check AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
    "PermanentRedirect": "bucket {bucket!r} is in another region: set AWS_REGION",
    "AuthorizationHeaderMalformed": "bucket {bucket!r} is in another region: set AWS_REGION",
}


def is_absent(reason: Broken | Refused) -> bool:
    """No such object, or no permission to know: without ListBucket, S3 answers 403 for one that does not exist, too."""
    return isinstance(reason, Refused) and reason.code in ABSENT | DENIED


def is_denied(reason: Broken | Refused) -> bool:
    return isinstance(reason, Refused) and reason.code in DENIED


def told(reason: Broken | Refused, place: Location, uri: str, what: str = "") -> ServingError:
    """The error for a client. `what`: the file that was being read, where it was one."""
    if reason.code in CURES:
        return ModelNotLoadable(CURES[reason.code].format(bucket=place.bucket))
    if reason.status:
        kind = ModelUnavailable if isinstance(reason, Broken) else ModelNotLoadable
        return kind(f"the store answered {reason.status} {reason.code} for {uri}: check AWS_ENDPOINT_URL_S3")
    if isinstance(reason, Broken) and reason.started:
        return ModelUnavailable(f"{what or 'the answer'} broke off again and again ({reason})")
    return unanswered(place, str(reason))


def unanswered(place: Location, reason: str) -> ServingError:
    host = urlsplit(place.endpoint or "").hostname or "AWS"
    return ModelUnavailable(
        f"the store at {host} does not answer ({reason}): check AWS_ENDPOINT_URL_S3, AWS_REGION and the network"
    )

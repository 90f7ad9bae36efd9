"""THE table of a store's refusals with the cure of each, for servers and publishers. No message holds a secret."""

from typing import Final
from urllib.parse import urlsplit

from core.errors import ModelNotLoadable, ModelUnavailable, ServingError
from handler.stores.s3.location import Location
from handler.stores.transfer.answers import NOT_TLS, UNTRUSTED, Broken, StoreRefused, in_words, unfit

ABSENT: Final = {"NoSuchKey", "404", "NotFound"}
DENIED: Final = {"AccessDenied", "403", "Forbidden", "AllAccessDisabled"}
CROWDED: Final = {"SlowDown", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "429"}
KMS: Final = "KMS."
"""The beginning of the codes of Amazon's key management, such as KMS.DisabledException."""
EXPIRED: Final = "the credentials have expired: renew them"
ELSEWHERE: Final = "bucket {bucket!r} is in another region: set AWS_REGION"
DAMAGED: Final = "the store has received other bytes than were read: push again"
CURES: Final = {
    "NoSuchBucket": "bucket {bucket!r} does not exist: check DRAGOMAN_REPOSITORY and the region or endpoint",
    "InvalidBucketName": "{bucket!r} is not a bucket name: check DRAGOMAN_REPOSITORY",
    "InvalidAccessKeyId": "the store does not know the access key: check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the store refuses the keys: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": EXPIRED,
    "ExpiredTokenException": EXPIRED,
    "TokenRefreshRequired": EXPIRED,
    "RequestExpired": EXPIRED,
    "InvalidToken": "the session token is refused: check AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
    "PermanentRedirect": ELSEWHERE,
    "AuthorizationHeaderMalformed": ELSEWHERE,
    "InvalidObjectState": "an object is archived (in Glacier, for instance): restore it, or copy it to another class",
    "BadDigest": DAMAGED,
    "IncompleteBody": DAMAGED,
    "XAmzContentSHA256Mismatch": DAMAGED,
}
"""The meanings by S3's error code."""
BUNDLE: Final = "AWS_CA_BUNDLE, which must name a file with the authority of the store's certificate"
UNANSWERED: Final = {
    UNTRUSTED: BUNDLE,
    NOT_TLS: "the scheme of AWS_ENDPOINT_URL_S3, http:// or https:// (without one, S3_USE_HTTPS decides)",
}
"""What to check, by the error of a request without an answer."""


def is_absent(reason: Broken | StoreRefused) -> bool:
    """Decides whether an object is missing or forbidden: without ListBucket, S3 answers 403 to either."""
    return isinstance(reason, StoreRefused) and reason.code in ABSENT | DENIED


def is_denied(reason: Broken | StoreRefused) -> bool:
    """Decides whether a permission is missing."""
    return isinstance(reason, StoreRefused) and reason.code in DENIED


def meaning(status: int, code: str, place: Location, uri: str, permission: str = "") -> str:
    """Returns the meaning of a refusal. `permission`: the one that the request needs, if that is known."""
    if code in CURES:
        return CURES[code].format(bucket=place.bucket)
    if permission and code in DENIED:
        return f"{uri}: access denied: grant {permission}"
    cure = "it has too many requests, so try again later" if code in CROWDED else "check AWS_ENDPOINT_URL_S3"
    if code.startswith(KMS):
        cure = "check the KMS key that encrypts the objects, and the permission kms:Decrypt"
    return f"the store answered {in_words(status, code)} for {uri}: {cure}"


def of(reason: Broken | StoreRefused, place: Location, uri: str, what: str = "") -> ServingError:
    """Returns the error for a client. `what`: the file that was being read, empty for a listing."""
    if own := unfit(reason.code, what or "a page of the listing"):
        return ModelNotLoadable(own)
    if reason.status:
        passes = isinstance(reason, Broken) and reason.code not in CURES
        return (ModelUnavailable if passes else ModelNotLoadable)(meaning(reason.status, reason.code, place, uri))
    if isinstance(reason, Broken) and reason.started:
        return ModelUnavailable(f"{what or 'the answer'} broke off again and again ({reason})")
    return unanswered(place, str(reason))


def unanswered(place: Location, reason: str, cure: str = "") -> ServingError:
    """Returns the error for a client whose store does not answer. `reason`: a word that people find again."""
    host = urlsplit(place.endpoint or "").hostname or "AWS"
    cure = cure or UNANSWERED.get(reason, "AWS_ENDPOINT_URL_S3, AWS_REGION and the network")
    return ModelUnavailable(f"the store at {host} does not answer ({reason}): check {cure}")

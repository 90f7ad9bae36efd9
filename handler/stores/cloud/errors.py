"""What obstore's errors mean, for servers and publishers. No message holds a secret.

An error's text has the request's URL, and with a shared access signature that is a secret. So only the status, the
store's error code and a few known words are taken from it.
"""

import re
from typing import Final

from core.errors import ModelNotLoadable, ModelUnavailable, ServingError, shown
from handler.stores.cloud.providers import NO_CREDENTIALS, CloudPlace
from handler.stores.transfer.answers import Broken, StoreRefused, in_words, is_transient, unfit

STATUS: Final = re.compile(r"non-2xx status code: (\d{3})")
CODE: Final = re.compile(r"<Code>\s*(\w{1,64})\s*</Code>")
LONGEST: Final = 16_384
"""Characters of an error's text that are searched. It has the store's answer, twice."""
TRANSIENT_CODES: Final = {"RequestTimeout", "SlowDown", "InternalError", "ServerBusy", "OperationTimedOut"}
DENIED: Final = {
    "403",
    "AccessDenied",
    "Forbidden",
    "AuthorizationPermissionMismatch",
    "InsufficientAccountPermissions",
}
ABSENT: Final = {"404", "NoSuchKey", "BlobNotFound"}
NOT_A_PATH: Final = "InvalidPath "
"""The beginning of the code for an object that the client cannot list; its key follows."""
KEY: Final = re.compile('[Pp]ath "([^"\n]{1,1024})"')
TOKEN: Final = "token request"  # noqa: S105 - obstore's words
METADATA: Final = ("169.254.169.254", "metadata.google.internal", "/computeMetadata/", "/metadata/identity/")
"""The servers that have the credentials of a cloud's own machines. Elsewhere they do not answer."""
WORDS: Final = {
    "dns error": "unknown host",
    "failed to lookup": "unknown host",
    "ConnectionRefused": "connection refused",
    "UnknownIssuer": "unknown certificate",
    "certificate": "wrong certificate",
    "timed out": "timeout",
    "TimedOut": "timeout",
    "ConnectionReset": "connection reset",
    "IncompleteMessage": "connection closed",
    "connection closed": "connection closed",
    "kind: Body": "broken answer",
    "kind: Decode": "broken answer",
}
"""Words in the client's error texts, and what they mean. The first one found counts."""
STATUSES: Final = {
    "NotFoundError": 404,
    "FileNotFoundError": 404,
    "PermissionDeniedError": 403,
    "UnauthenticatedError": 401,
    "PreconditionError": 412,
    "AlreadyExistsError": 412,
    "NotModifiedError": 304,
}
"""The statuses by obstore's classes, for errors whose text has none."""


def reason(error: Exception, *, started: bool = False) -> Broken | StoreRefused:
    """Returns the meaning of an error: whether a retry can succeed, the status, and the store's code."""
    text = str(error)[:LONGEST]
    if NOT_A_PATH.strip() in type(error).__name__:
        named = KEY.search(text)
        return StoreRefused(200, NOT_A_PATH + (named[1] if named else ""))
    found, coded = STATUS.search(text), CODE.search(text)
    status = int(found[1]) if found else STATUSES.get(type(error).__name__, 0)
    if TOKEN in text:
        return _of_token(text, status)
    code = coded[1] if coded else str(status)
    if not status:
        return Broken(_word(text, type(error).__name__), started=started)
    if is_transient(status) or code in TRANSIENT_CODES:
        return Broken(in_words(status, code), status, code)
    return StoreRefused(status, code)


def _of_token(text: str, status: int) -> Broken | StoreRefused:
    if any(each in text for each in METADATA):  # it may answer at the next attempt, on a machine that has just begun
        return Broken(NO_CREDENTIALS, code=NO_CREDENTIALS)
    if 400 <= status < 500:  # noqa: PLR2004 - refusals
        return StoreRefused(401, "401")
    return Broken(_word(text, "the credentials' server"), status)


def _word(text: str, default: str) -> str:
    return next((meaning for words, meaning in WORDS.items() if words in text), default)


def is_denied(found: Broken | StoreRefused) -> bool:
    """Decides whether a permission is missing."""
    return isinstance(found, StoreRefused) and found.code in DENIED


def is_absent(found: Broken | StoreRefused) -> bool:
    """Decides whether an object is missing, or forbidden: without the permission to list, the clouds answer 403."""
    return isinstance(found, StoreRefused) and found.code in ABSENT | DENIED


def meaning(found: Broken | StoreRefused, place: CloudPlace, uri: str, permission: str) -> str:
    """Returns the meaning of a refusal. `permission`: the one that the request needs."""
    if found.code in place.provider.cures:
        return place.provider.cures[found.code].format(bucket=place.bucket)
    if found.code.startswith(NOT_A_PATH):
        key = shown(found.code.removeprefix(NOT_A_PATH))
        return f"{uri} cannot be listed: an object's key has an empty part, '.' or '..': rename or delete {key}"
    if found.code in DENIED:
        return f"{uri}: access denied: grant {permission}"
    if found.code in ABSENT:
        return f"{uri}: the store has no such object or {place.provider.noun}: check DRAGOMAN_REPOSITORY"
    return f"the store answered {in_words(found.status, found.code)} for {uri}"


def of(found: Broken | StoreRefused, place: CloudPlace, uri: str, what: str = "") -> ServingError:
    """Returns the error for a client. `what`: the file that was being read, empty for a listing."""
    if own := unfit(found.code, what):
        return ModelNotLoadable(own)
    read, listed, _ = place.provider.permissions
    if found.status or found.code in place.provider.cures:
        passes = isinstance(found, Broken) and found.code not in place.provider.cures
        text = meaning(found, place, uri, read if what else listed)
        return (ModelUnavailable if passes else ModelNotLoadable)(text)
    if isinstance(found, Broken) and found.started:
        return ModelUnavailable(f"{what or 'the answer'} broke off again and again ({found})")
    return unanswered(place, str(found))


def unanswered(place: CloudPlace, why: str) -> ServingError:
    """Returns the error for a client whose store does not answer. `why`: words that people find again."""
    account = "AZURE_STORAGE_ACCOUNT and " if place.provider.scheme == "az" else ""
    return ModelUnavailable(f"the store at {place.host} does not answer ({why}): check {account}the network")

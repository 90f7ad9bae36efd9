"""A repository in a bucket: whether the store answers, takes the credentials and lists; in S3, whether clocks agree."""

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from core.deadline import within
from core.errors import ModelNotLoadable, ServingError
from handler.commands.doctor.findings import Finding, error, warning
from handler.commands.doctor.tree import Tree, grouped
from handler.settings import InvalidSettings, Settings
from handler.stores import File, Forbidden, open_store
from handler.stores.progress import Progress
from handler.stores.s3 import errors, listing
from handler.stores.s3.client import Client
from handler.stores.s3.listing import Page, Unreadable
from handler.stores.s3.location import Location, locate
from handler.stores.s3.session import NO_CREDENTIALS
from handler.stores.transfer.answers import Broken, StoreRefused
from handler.stores.transfer.retries import Failed, OutOfTime

SECONDS: Final = 30.0
"""The most seconds for one answer of the store, all attempts together."""
SKEW: Final = 300.0
"""Seconds. S3 refuses requests that are 900 off (RequestTimeTooSkewed); a clock that is 300 off does not stay there."""
MOST: Final = 100_000
"""The most objects that are listed."""
CODES: Final = {
    "NoSuchBucket": "no-such-bucket",
    "InvalidBucketName": "no-such-bucket",
    "InvalidAccessKeyId": "credentials-wrong",
    "SignatureDoesNotMatch": "credentials-wrong",
    "InvalidToken": "credentials-wrong",
    "RequestTimeTooSkewed": "clock",
    "PermanentRedirect": "region",
    "AuthorizationHeaderMalformed": "region",
}
"""The kinds of findings by S3's error code."""
CURES: Final = {
    "no-such-bucket": "check the bucket's name in DRAGOMAN_REPOSITORY, and AWS_ENDPOINT_URL_S3; `aws s3 mb` makes one",
    "credentials-wrong": "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN: "
    "`aws sts get-caller-identity` says whose they are",
    "credentials-expired": "renew them: `aws sso login`, or a new AWS_SESSION_TOKEN",
    "credentials-missing": "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile with `aws configure`; "
    "for a public bucket DRAGOMAN_S3_ANONYMOUS=true",
    "region": "set AWS_REGION to the bucket's region: `aws s3api get-bucket-location` says which",
    "clock": "set this machine's clock: `timedatectl set-ntp true`",
    "listing-denied": "grant s3:ListBucket on the bucket; without it no version is found by itself",
    "store-refused": "correct the variable that is named; docs/stores.md has them all",
    "store-unreachable": "check AWS_ENDPOINT_URL_S3, AWS_REGION and the network",
}


def examine(settings: Settings) -> tuple[list[Finding], Tree | None]:
    """Returns the faults on the way to the bucket, and its files; None if they cannot be listed."""
    uri = settings.repository
    try:
        place = locate(uri, os.environ)
    except InvalidSettings as wrong:
        return [error("repository-uri", "DRAGOMAN_REPOSITORY", str(wrong), "name it as s3://bucket/prefix")], None
    client = Client(settings, place)
    try:
        region = client.bucket.region
        pages = list(_pages(client, place))
    except _Stopped as stopped:
        return [_refused(uri, stopped.finding, str(stopped))], None
    except ServingError as wrong:
        missing = wrong.message.startswith(NO_CREDENTIALS[:24])
        code = "credentials-missing" if missing else "store-unreachable"
        return [_refused(uri, "credentials-expired" if wrong.message == errors.EXPIRED else code, wrong.message)], None
    found = [*_skew(pages[0]), *_elsewhere(place, region, client.bucket.region)]
    files = [File(each.key[len(place.prefix) :], each.size, each.etag) for page in pages for each in page.objects]
    tree = grouped([file for file in files if file.path])
    if not tree.models and not tree.loose:
        return [*found, _empty(client, place, uri)], None
    if pages[-1].following is not None:
        tree.models.pop(files[-1].path.partition("/")[0], None)  # it may have more files
        tree = tree._replace(is_whole=False)
    return found, tree


def of_store(settings: Settings) -> tuple[list[Finding], Tree | None]:
    """Returns the same for a store other than S3, whose own words have the cure."""
    uri = settings.repository
    try:
        store = open_store(settings._replace(verify="off"))
        models = _everything(store, Progress(within(SECONDS)))
    except InvalidSettings as wrong:
        return [error("repository-uri", "DRAGOMAN_REPOSITORY", str(wrong), CURES["store-refused"])], None
    except Forbidden as denied:
        what, _, cure = str(denied).partition(": ")
        return [error("listing-denied", uri, what, cure)], None
    except ServingError as wrong:
        code = "store-refused" if isinstance(wrong, ModelNotLoadable) else "store-unreachable"
        return [error(code, uri, wrong.message, CURES["store-refused"])], None
    if not models:
        cure = f"check the prefix; `dragoman push FOLDER {uri}/NAME` publishes a model"
        return [error("repository-empty", uri, "there is no model below it", cure)], None
    return [], grouped([file._replace(path=f"{name}/{file.path}") for name, files in models.items() for file in files])


def _everything(store: Any, progress: Progress) -> Mapping[str, Sequence[File]]:
    """Returns the files of each model. Our stores list them in few requests; other packages' perhaps cannot."""
    if hasattr(store, "everything"):
        found: Mapping[str, Sequence[File]] = store.everything(progress)
        return found
    return {name: store.files(name, progress) for name in store.models(progress)}


class _Stopped(Exception):
    """The store does not list. `finding`: the code of the finding."""

    def __init__(self, finding: str, text: str) -> None:
        super().__init__(text)
        self.finding = finding


def _refused(uri: str, code: str, what: str) -> Finding:
    return error(code, uri, what, CURES[code])


def _pages(client: Client, place: Location) -> Iterator[Page]:
    """Yields the listing's pages, up to a limit. Raises _Stopped, ServingError."""
    token: dict[str, str] = {}
    count = 0
    while count < MOST:
        page = _page(client, place, {"prefix": place.prefix, **token})
        yield page
        count += len(page.objects)
        if page.following is None:
            return
        token = {"continuation-token": page.following}


def _page(client: Client, place: Location, parameters: dict[str, str]) -> Page:
    progress = Progress(within(SECONDS))
    try:
        return listing.page(*client.tried(lambda bucket: bucket.list(parameters, progress.left), progress))
    except Unreadable as wrong:
        raise _Stopped("store-unreachable", f"its answer is not S3's: {wrong}") from None
    except OutOfTime:
        raise _Stopped("store-unreachable", f"it has not answered in {SECONDS:.0f} s") from None
    except Failed as failed:
        reason = failed.reason
        said = errors.of(reason, place, f"s3://{place.bucket}/{place.prefix}").message
        raise _Stopped(_code(reason), said) from None


def _code(reason: Broken | StoreRefused) -> str:
    if errors.is_denied(reason):
        return "listing-denied"
    if errors.CURES.get(reason.code) == errors.EXPIRED:
        return "credentials-expired"
    return CODES.get(reason.code, "store-unreachable")


def _skew(page: Page) -> Iterator[Finding]:
    try:
        store = parsedate_to_datetime(page.date)
    except ValueError:  # the store does not say
        return
    seconds = (datetime.now(UTC) - store.replace(tzinfo=store.tzinfo or UTC)).total_seconds()
    if abs(seconds) > SKEW:
        off = f"this machine's clock is {abs(seconds) / 60:.0f} minutes {'ahead of' if seconds > 0 else 'behind'}"
        yield error("clock", "this machine", f"{off} the store's; S3 refuses 15", CURES["clock"])


def _elsewhere(place: Location, asked: str, answered: str) -> Iterator[Finding]:
    if asked != answered:
        what = f"bucket {place.bucket!r} is in {answered}, and requests begin in {asked}: each cold start asks twice"
        yield warning("region", "AWS_REGION", what, f"set AWS_REGION={answered}")


def _empty(client: Client, place: Location, uri: str) -> Finding:
    """Returns the finding for a prefix without an object. Names the folders that the bucket has."""
    try:
        others = sorted(_page(client, place, {"delimiter": "/", "max-keys": "9"}).folders)
    except (_Stopped, ServingError):
        others = []
    there = f"; the bucket has {', '.join(others[:8])}" if others else ""
    push = f"`dragoman push FOLDER {uri}/NAME` publishes a model"
    return error("repository-empty", uri, f"there is no object below it{there}", f"check the prefix; {push}")

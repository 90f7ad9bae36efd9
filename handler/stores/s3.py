"""A repository in S3 or anything that speaks its API. boto3's core is imported when the first store is opened.

Needs GetObject, and ListBucket for finding versions; nothing else is called.
"""

import logging
import os
import shutil
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from tempfile import mkdtemp
from typing import Any, Final, NamedTuple, NoReturn
from urllib.parse import urlsplit

from core.errors import ModelNotLoadable, ModelUnavailable, ServingError
from handler.settings import InvalidSettings, Settings
from handler.stores import File, Folder, Forbidden

log = logging.getLogger(__name__)
CHUNK: Final = 1024 * 1024
BODY_TRIES: Final = 3
"""botocore retries requests, but never a body that breaks off."""
ABSENT: Final = {"NoSuchKey", "404", "NotFound"}
DENIED: Final = {"AccessDenied", "403", "Forbidden", "AllAccessDisabled"}
CURES: Final = {
    "NoSuchBucket": "bucket {bucket!r} does not exist: check DRAGOMAN_REPOSITORY and the region or endpoint",
    "InvalidBucketName": "{bucket!r} is no bucket name: check DRAGOMAN_REPOSITORY",
    "InvalidAccessKeyId": "the store does not know the access key: check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the store refuses the keys: check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the credentials have expired: renew them",
    "InvalidToken": "the session token is refused: check AWS_SESSION_TOKEN",
    "RequestTimeTooSkewed": "this machine's clock is wrong: set it",
    "PermanentRedirect": "bucket {bucket!r} is in another region: set AWS_REGION",
    "AuthorizationHeaderMalformed": "bucket {bucket!r} is in another region: set AWS_REGION",
}


class Location(NamedTuple):
    """Where a repository is. `endpoint` None: AWS itself."""

    bucket: str
    prefix: str
    endpoint: str | None


def locate(uri: str, environ: Mapping[str, str]) -> Location:
    """`s3://bucket/prefix`, or Triton's `s3://host:port/bucket/prefix` and `s3://https://host:port/bucket/prefix`."""
    rest = uri.removeprefix("s3://")
    endpoint = None
    if rest.startswith(("http://", "https://")):
        parts = urlsplit(rest)
        endpoint, rest = f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/")
    elif ":" in rest.partition("/")[0]:
        host, _, rest = rest.partition("/")
        endpoint = f"http://{host}"
    bucket, _, prefix = rest.partition("/")
    if not bucket:
        raise InvalidSettings(f"DRAGOMAN_REPOSITORY is {uri[:256]!r}; expected s3://bucket/prefix")
    prefix = prefix.strip("/")
    return Location(bucket, f"{prefix}/" if prefix else "", endpoint or _endpoint(environ))


def _endpoint(environ: Mapping[str, str]) -> str | None:
    for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT"):
        if endpoint := environ.get(variable):
            secure = environ.get("S3_USE_HTTPS", "1").lower() not in ("0", "false")
            return endpoint if "://" in endpoint else f"{'https' if secure else 'http'}://{endpoint}"
    return None


class S3Store:
    def __init__(self, settings: Settings) -> None:
        self.uri = settings.repository
        self._settings = settings
        self._place = locate(settings.repository, os.environ)
        self._lock = threading.Lock()
        self._made: Any = None

    @property
    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._connect()
            return self._made

    def _connect(self) -> Any:
        from botocore import UNSIGNED  # noqa: PLC0415 - a third of a second of cold start
        from botocore.config import Config  # noqa: PLC0415
        from botocore.session import get_session  # noqa: PLC0415

        session = get_session()
        region = os.environ.get("AWS_REGION") or session.get_config_variable("region") or "us-east-1"
        endpoint = self._place.endpoint
        style = self._settings.s3_addressing
        if style == "auto" and endpoint and not endpoint.rstrip("/").endswith(".amazonaws.com"):
            style = "path"
        log.info("repository %s: endpoint %s, region %s, %s addressing", self.uri, endpoint or "AWS", region, style)
        config = Config(
            s3={"addressing_style": style},  # type: ignore[arg-type] # checked by the setting
            signature_version=UNSIGNED if self._settings.s3_anonymous else None,
            connect_timeout=3,
            read_timeout=20,
            retries={"mode": "standard", "max_attempts": 3},
            # Few compatible stores send checksums, and rclone's made botocore raise TypeError under the default.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
        )
        verify = False if os.environ.get("S3_VERIFY_SSL", "1").lower() in ("0", "false") else None
        return session.create_client("s3", region_name=region, endpoint_url=endpoint, config=config, verify=verify)

    def check(self) -> None:
        try:
            self._call("list_objects_v2", Prefix=self._place.prefix, MaxKeys=1)
        except Forbidden:
            return  # it answers; single files may still be readable

    def models(self) -> Sequence[str]:
        prefix = self._place.prefix
        try:
            pages = list(self._pages(prefix, Delimiter="/"))
        except Forbidden:
            raise ModelUnavailable(
                f"bucket {self._place.bucket!r} may not be listed: grant s3:ListBucket to see its models"
            ) from None
        folders = (entry["Prefix"] for page in pages for entry in page.get("CommonPrefixes", ()))
        return sorted(folder[len(prefix) : -1] for folder in folders)

    def files(self, model: str) -> Sequence[File]:
        # With its slash: without, the listing of "model" would hold "model-2", too.
        prefix = f"{self._place.prefix}{model}/"
        found = (entry for page in self._pages(prefix) for entry in page.get("Contents", ()))
        files = (File(entry["Key"][len(prefix) :], entry["Size"]) for entry in found)
        return [file for file in files if _is_plain(file.path)]

    def read(self, model: str, path: str) -> bytes | None:
        try:
            content: bytes = self._body(model, File(path), None)
        except _Absent:
            return None
        return content

    def fetch(self, model: str, version: str, files: Sequence[File]) -> Folder:
        folder = self._temporary(model, sum(file.size or 0 for file in files))
        for file in files:
            target = folder.path / PurePosixPath(file.path).relative_to(version)
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                self._body(model, file, target)
            except _Absent:
                raise ModelUnavailable(f"{file.path} of model {model!r} is missing or forbidden") from None
        return folder

    def _temporary(self, model: str, size: int) -> Folder:
        """A new folder in the cache, which goes with the object."""
        cache = self._settings.cache
        try:
            cache.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(cache).free
            if size > free:
                raise ModelNotLoadable(
                    f"model {model!r} has {size} bytes, {free} are free: enlarge DRAGOMAN_CACHE (ephemeral storage)"
                )
            folder = Folder(Path(mkdtemp(prefix="model-", dir=cache)))
        except OSError as error:
            raise ModelNotLoadable(f"DRAGOMAN_CACHE cannot be written: {error.strerror}") from error
        weakref.finalize(folder, shutil.rmtree, folder.path, ignore_errors=True)
        return folder

    def _body(self, model: str, file: File, target: Path | None) -> bytes:
        """One object, whole: into `target`, else returned."""
        from botocore.exceptions import HTTPClientError, IncompleteReadError, ResponseStreamingError  # noqa: PLC0415

        key = f"{self._place.prefix}{model}/{file.path}"
        for left in reversed(range(BODY_TRIES)):
            answer = self._call("get_object", Key=key)
            try:
                return _drain(answer, target)
            except (HTTPClientError, IncompleteReadError, ResponseStreamingError, OSError) as error:
                log.warning("reading %s broke off: %s", key, error)
                if not left:
                    raise ModelUnavailable(f"{file.path} of model {model!r} broke off {BODY_TRIES} times") from error
        raise AssertionError  # the loop returns or raises

    def _pages(self, prefix: str, **options: Any) -> Iterator[Any]:
        token: dict[str, str] = {}
        while True:
            page = self._call("list_objects_v2", Prefix=prefix, **options, **token)
            yield page
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _call(self, method: str, **arguments: Any) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            return getattr(self._client, method)(Bucket=self._place.bucket, **arguments)
        except ClientError as error:
            self._refused(error, method)
        except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no URL
            raise self._unanswered(error) from error

    def _refused(self, error: Any, method: str) -> NoReturn:
        code = str(error.response.get("Error", {}).get("Code", ""))
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        log.warning("%s on %s: %s", method, self.uri, error)
        if code in CURES:
            raise ModelNotLoadable(CURES[code].format(bucket=self._place.bucket)) from error
        if code in ABSENT and method == "get_object":
            raise _Absent from error
        if code in DENIED:
            # Without ListBucket, S3 answers 403 for an object that does not exist, too.
            raise (Forbidden if method == "list_objects_v2" else _Absent) from error
        kind = ModelUnavailable if status >= 500 or code in ("SlowDown", "RequestTimeout") else ModelNotLoadable  # noqa: PLR2004 - server errors
        raise kind(f"the store answered {status} {code} for {self.uri}: check AWS_ENDPOINT_URL_S3") from error

    def _unanswered(self, error: Exception) -> ServingError:
        log.warning("%s: %s", self.uri, error)
        kind = type(error).__name__
        if "Credential" in kind:
            return ModelNotLoadable("no usable AWS credentials: set them (DRAGOMAN_S3_ANONYMOUS=true: a public bucket)")
        host = urlsplit(self._place.endpoint or "").hostname or "AWS"
        return ModelUnavailable(
            f"the store at {host} does not answer ({kind}): check AWS_ENDPOINT_URL_S3, AWS_REGION and the network"
        )


class _Absent(Exception):
    """No such object, or no permission to know."""


def _drain(answer: Any, target: Path | None) -> bytes:
    """The body into `target` under another name first, or returned; its length is checked by botocore and here."""
    expected = answer["ContentLength"]
    if target is None:
        content: bytes = answer["Body"].read()
        received = len(content)
    else:
        content = b""
        partial = target.with_name(target.name + ".partial")
        with partial.open("wb") as file:
            received = sum(file.write(chunk) for chunk in answer["Body"].iter_chunks(CHUNK))
        if received == expected:
            partial.replace(target)
    if received != expected:
        raise OSError(f"{received} of {expected} bytes")
    return content


def _is_plain(path: str) -> bool:
    """No folder marker, and nothing that would leave the model's folder."""
    segments = path.split("/")
    return not any(segment in ("", ".", "..") or "\\" in segment or "\0" in segment for segment in segments)

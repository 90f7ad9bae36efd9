"""The place of a repository in S3: the forms of its URI, and the variables that name an endpoint."""

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from core.records import NamedTuple
from handler.settings import InvalidSettings

ELSEWHERE: Final = "they belong in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
"""No request would use them, and every error text would show them."""


class Location(NamedTuple):
    """A repository's place. `prefix`: of keys, empty or with a slash at its end. `endpoint`: URL, None for AWS."""

    bucket: str
    prefix: str
    endpoint: str | None


def locate(uri: str, environ: Mapping[str, str], setting: str = "DRAGOMAN_REPOSITORY") -> Location:
    """Parses `s3://bucket/prefix`, or Triton's `s3://host:port/bucket/prefix` and `s3://https://host:port/bucket/prefix`.

    The URI's endpoint comes before those of `environ`. `setting`: names the URI in errors. Raises InvalidSettings.
    """
    endpoint, path = _split(uri.removeprefix("s3://"))
    bucket, _, prefix = path.partition("/")
    if "@" in (endpoint or ""):
        raise InvalidSettings(f"{setting} holds credentials; {ELSEWHERE}")
    if not bucket or not _is_url(endpoint or ""):
        expected = "expected s3://bucket/prefix"
        raise InvalidSettings(f"{setting} is {uri[:256]!r}; {expected}", f"{setting}: {expected}")
    prefix = prefix.strip("/")
    return Location(bucket, f"{prefix}/" if prefix else "", endpoint or _endpoint(environ))


def _split(rest: str) -> tuple[str | None, str]:
    """Returns the endpoint that a URI names, None without one, and what follows it."""
    scheme = "http"
    if rest.startswith(("http://", "https://")):
        scheme, _, rest = rest.partition("://")
    elif ":" not in rest.partition("/")[0]:
        return None, rest
    host, _, path = rest.partition("/")
    return f"{scheme}://{host}", path.lstrip("/")


def _endpoint(environ: Mapping[str, str]) -> str | None:
    """Returns the endpoint that the variables name, with a scheme."""
    for variable in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT"):
        if endpoint := environ.get(variable):
            secure = environ.get("S3_USE_HTTPS", "1").lower() not in ("0", "false")
            url = endpoint if "://" in endpoint else f"{'https' if secure else 'http'}://{endpoint}"
            if "@" in url:
                raise InvalidSettings(f"{variable} holds credentials; {ELSEWHERE}")
            if not _is_url(url):
                expected = "expected a URL such as http://host:9000"
                raise InvalidSettings(f"{variable} is {endpoint[:256]!r}; {expected}", f"{variable}: {expected}")
            return url
    return None


def _is_url(text: str) -> bool:
    """Decides whether a URL's host and port can be parsed."""
    try:
        return urlsplit(text).port != 0
    except ValueError:
        return False

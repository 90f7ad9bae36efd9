"""Where a repository in S3 is: its URI's forms and the variables that name an endpoint."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from handler.settings import InvalidSettings


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

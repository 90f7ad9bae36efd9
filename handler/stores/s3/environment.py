"""Region, keys and certificates that the environment names by itself, as it does on Lambda.

botocore reads the same variables, and importing it takes a third of a second of cold start. botocore decides where a
profile, a configuration file, or a variable that is not read here could change the answer. A test compares the two.
"""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from importlib.machinery import PathFinder
from typing import Final

from core.records import NamedTuple
from handler.stores.s3.addresses import Host

DEFAULT_REGION: Final = "us-east-1"
FILES: Final = (
    ("AWS_CONFIG_FILE", "~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    ("AWS_DATA_PATH", "~/.aws/models"),
)
"""Files that botocore reads if they exist: the variables that name them, and their default paths."""
OTHERS: Final = ("AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_DEFAULTS_MODE", "AWS_DATA_PATH")
REGIONAL: Final = "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT"
TOKENS: Final = ("AWS_SECURITY_TOKEN", "AWS_SESSION_TOKEN")
NOW: Final = timedelta()
RENEWAL: Final = timedelta(minutes=15)
"""Keys that expire sooner are read again, as botocore does."""


class Keys(NamedTuple):
    """Credentials. `token`: of temporary ones, else None. `expires`: None if the environment does not set it."""

    access_key: str
    secret_key: str
    token: str | None
    expires: datetime | None = None

    def expire_within(self, span: timedelta) -> bool:
        """Decides whether fewer than `span` are left."""
        return self.expires is not None and self.expires - datetime.now(UTC) < span


def keys(environ: Mapping[str, str]) -> Keys | None:
    """Returns the environment's credentials, or None where botocore must look for them."""
    access_key, secret_key = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if not access_key or not secret_key or not _is_all(environ):
        return None
    token = next((environ[name] for name in TOKENS if environ.get(name)), None)
    text = environ.get("AWS_CREDENTIAL_EXPIRATION")
    if not text:
        return Keys(access_key, secret_key, token)
    try:
        expires = datetime.fromisoformat(text)
    except ValueError:
        return None
    return Keys(access_key, secret_key, token, expires) if expires.tzinfo else None


def host(environ: Mapping[str, str]) -> Host | None:
    """Returns the environment's region and kind of host, or None where botocore must look for them."""
    regional = environ.get(REGIONAL, "legacy")
    if regional not in ("legacy", "regional") or not _is_all(environ):
        return None
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION
    fips, dualstack = (
        environ.get(name, "").lower() == "true" for name in ("AWS_USE_FIPS_ENDPOINT", "AWS_USE_DUALSTACK_ENDPOINT")
    )
    return Host(region, fips, dualstack, regional == "legacy")


def certificates(bundle: str | None, environ: Mapping[str, str]) -> str:
    """Returns the file of the certificates to trust: `bundle`, REQUESTS_CA_BUNDLE, certifi's, or botocore's own."""
    if named := bundle or environ.get("REQUESTS_CA_BUNDLE"):
        return named
    try:
        from certifi import where  # noqa: PLC0415 - 6 ms, and Lambda's runtime does not have it
    except ImportError:
        found = PathFinder.find_spec("botocore")  # which does not import it
        return os.path.join(os.path.dirname((found and found.origin) or ""), "cacert.pem")  # noqa: PTH118, PTH120 - cold start
    return where()


def _is_all(environ: Mapping[str, str]) -> bool:
    """Decides whether botocore's answer depends only on the variables that are read here."""
    if any(name in environ for name in OTHERS):
        return False
    paths = (environ.get(name, default) for name, default in FILES)
    return not any(os.path.exists(os.path.expandvars(os.path.expanduser(path))) for path in paths)  # noqa: PTH110, PTH111 - as botocore

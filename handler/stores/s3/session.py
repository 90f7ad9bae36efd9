"""A bucket's URL, credentials, certificates and proxy, as botocore finds them.

botocore is only imported where the environment does not name everything by itself (see `environment`).
"""

import logging
import os
import re
import ssl
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from io import BytesIO
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from core.errors import ModelNotLoadable
from handler.settings import Settings
from handler.stores.s3 import addresses, environment, errors
from handler.stores.s3.environment import DEFAULT_REGION, NOW, RENEWAL, Keys
from handler.stores.s3.http import BucketReader
from handler.stores.s3.location import Location
from handler.stores.s3.signature import Login, signed

log = logging.getLogger(__name__)
K = TypeVar("K", Keys, Keys | None)
VISIBLE: Final = re.compile(r"[!-~]*")
NO_CREDENTIALS: Final = (
    "AWS credentials are missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, "
    "or DRAGOMAN_S3_ANONYMOUS=true for a public bucket"
)


def connect(settings: Settings, place: Location, region: str = "") -> BucketReader:
    """Returns the bucket. No request is sent yet. `region`: another than the configured one. Raises ServingError."""
    return _by_environment(settings, place, region) or _by_botocore(settings, place, region)


def _by_environment(settings: Settings, place: Location, region: str) -> BucketReader | None:
    """Returns None where botocore must be asked."""
    host = environment.host(os.environ)
    if settings.s3_anonymous or host is None or environment.keys(os.environ) is None:
        return None
    host = host._replace(region=region or host.region)
    url = addresses.base_url(place.bucket, place.endpoint, addressing_style(settings, place), host)
    if url is None:
        return None
    return _bucket(settings, place, url, host.region, lambda: os.environ.get("AWS_CA_BUNDLE"))


def _by_botocore(settings: Settings, place: Location, region: str) -> BucketReader:
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - a third of a second of cold start
    from botocore.session import get_session  # noqa: PLC0415

    session = get_session()
    region = region or region_of(session)
    try:
        url = base_url(client(session, settings, place, region), place.bucket)
    except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is not a URL
        log.warning("%s: %s", settings.repository, error)
        raise errors.unanswered(place, type(error).__name__) from error
    return _bucket(settings, place, url, region, lambda: session.get_config_variable("ca_bundle"))


def _bucket(
    settings: Settings, place: Location, url: str, region: str, bundle: Callable[[], str | None]
) -> BucketReader:
    _check("the region", region)
    try:
        tls = _tls(bundle) if url.startswith("https:") else None
    except OSError as error:
        log.warning("%s: %s", settings.repository, error)
        raise errors.unanswered(place, type(error).__name__, errors.BUNDLE) from error
    log.info("repository %s: %s, region %s", settings.repository, url, region)
    return BucketReader(url, region, Anonymous() if settings.s3_anonymous else KeySigner(region), tls, proxy_of(url))


def region_of(session: Any) -> str:
    """Returns the configured region. `session`: botocore's."""
    return os.environ.get("AWS_REGION") or session.get_config_variable("region") or DEFAULT_REGION


def addressing_style(settings: Settings, place: Location) -> Any:
    """Returns `auto`, `path` or `virtual`, as botocore's Config has it: few stores but AWS's have a host per bucket."""
    own = place.endpoint and not place.endpoint.rstrip("/").endswith(".amazonaws.com")
    return "path" if own and settings.s3_addressing == "auto" else settings.s3_addressing


def verifies() -> bool:
    """Decides whether the store must show a valid certificate. S3_VERIFY_SSL=0 switches that off, as in KServe."""
    return os.environ.get("S3_VERIFY_SSL", "1").lower() not in ("0", "false")


def client(session: Any, settings: Settings, place: Location, region: str) -> Any:
    """Returns botocore's client for a bucket's store, without a signature. Raises BotoCoreError, ValueError."""
    from botocore import UNSIGNED  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    config = Config(s3={"addressing_style": addressing_style(settings, place)}, signature_version=UNSIGNED)
    return session.create_client("s3", region_name=region, endpoint_url=place.endpoint, config=config)


def base_url(client: Any, bucket: str) -> str:
    """Returns a bucket's URL, without a slash at its end, by botocore's rules. Raises BotoCoreError, ValueError."""
    from botocore.awsrequest import AWSResponse  # noqa: PLC0415
    from botocore.compat import HTTPHeaders  # noqa: PLC0415

    # A presigned URL would be simpler to get, but for AWS it has the global endpoint's host.
    urls: list[str] = []

    def answer(request: Any, **_: Any) -> Any:
        urls.append(request.url)
        return AWSResponse(request.url, 200, HTTPHeaders(), BytesIO())

    client.meta.events.register("before-send.s3.GetObject", answer)
    client.get_object(Bucket=bucket, Key="-")
    if not urlsplit(urls[0]).hostname:
        raise ValueError(urls[0])
    return urls[0].removesuffix("/-")


def _tls(bundle: Callable[[], str | None]) -> ssl.SSLContext:
    """Returns a context that trusts the certificates of `bundle`, botocore's own if it names none."""
    if not verifies():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    return ssl.create_default_context(cafile=environment.certificates(bundle(), os.environ))


def proxy_of(url: str) -> str | None:
    """Returns the URL of the proxy for `url`, None without one."""
    if sys.platform == "linux" and not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - 3 ms that hardly any function needs

    parts = urlsplit(url)
    proxy = None if proxy_bypass(parts.netloc) else getproxies().get(parts.scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


class Anonymous:
    """Sends requests without a signature, for public buckets."""

    def sign(self, _method: str, _url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        return headers

    def renew(self) -> None:
        """Does nothing: there are no credentials."""


class KeySigner:
    """Signature Version 4 with the environment's keys, or with those that botocore finds and refreshes."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._keys: Keys | None = None
        self._chain: Any = None  # botocore's credentials
        self._lock = threading.Lock()

    def sign(self, method: str, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        keys = self._current()
        return signed(method, url, headers, Login(keys.access_key, keys.secret_key, keys.token, self._region))

    def renew(self) -> None:
        """Looks for credentials anew: the present ones can be an hour old, from a file or the metadata service."""
        with self._lock:
            self._keys = self._chain = None

    def _current(self) -> Keys:
        with self._lock:
            if self._chain is None and (self._keys is None or self._keys.expire_within(RENEWAL)):
                self._keys = _sendable(environment.keys(os.environ))
            if self._keys is None and self._chain is None:
                self._chain = _chain()
            keys, chain = self._keys, self._chain
        if keys is None:
            return _frozen(chain)
        if keys.expire_within(NOW):
            raise ModelNotLoadable(errors.EXPIRED)
        return keys


def _chain() -> Any:
    """Returns the credentials that botocore finds: in profiles, SSO, containers, instances. Raises ModelNotLoadable."""
    from botocore.session import get_session  # noqa: PLC0415

    with _usable():
        found = get_session().get_credentials()
    if found is None:
        raise ModelNotLoadable(NO_CREDENTIALS)
    return found


def _frozen(chain: Any) -> Keys:
    """Returns the keys that botocore's credentials have now. It refreshes them in time where it can."""
    with _usable():
        frozen = chain.get_frozen_credentials()
    return _sendable(Keys(frozen.access_key, frozen.secret_key, frozen.token))


def _sendable(keys: K) -> K:
    """Returns the keys. Raises ModelNotLoadable for one that a header cannot hold."""
    if keys is not None:
        _check("the access key", keys.access_key)
        _check("the secret key", keys.secret_key)
        _check("the session token", keys.token or "")
    return keys


def _check(name: str, text: str) -> None:
    """Raises ModelNotLoadable, without the text, which http.client would quote."""
    if not VISIBLE.fullmatch(text):
        told = "remove it. `echo` writes a line end, `printf` does not"
        raise ModelNotLoadable(f"{name} of the AWS settings has a blank or a line end: {told}")


@contextmanager
def _usable() -> Iterator[None]:
    """Turns botocore's errors into ModelNotLoadable, without their text."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415

    try:
        yield
    except BotoCoreError as error:
        log.warning("%s", error)
        raise ModelNotLoadable(f"{NO_CREDENTIALS} ({type(error).__name__})") from error

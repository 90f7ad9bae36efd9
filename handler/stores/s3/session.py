"""Credentials, region, endpoint and TLS as botocore finds them. It is imported with the first request to a store."""

import logging
import os
import ssl
import threading
from collections.abc import Mapping
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from core.errors import ModelNotLoadable
from handler.settings import Settings
from handler.stores.s3 import errors
from handler.stores.s3.http import Bucket
from handler.stores.s3.location import Location
from handler.stores.s3.signature import Login, signed

log = logging.getLogger(__name__)
NO_CREDENTIALS = "no usable AWS credentials: set them (DRAGOMAN_S3_ANONYMOUS=true: a public bucket)"


def connect(settings: Settings, place: Location, region: str = "") -> Bucket:
    """The bucket; `region`: another than is configured. Raises ServingError."""
    from botocore.exceptions import BotoCoreError  # noqa: PLC0415 - a third of a second of cold start
    from botocore.session import get_session  # noqa: PLC0415

    session = get_session()
    region = region or region_of(session)
    try:
        url = base_url(session, settings, place, region)
        tls = _tls(session) if url.startswith("https:") else None
    except (BotoCoreError, ValueError, OSError) as error:  # ValueError: an endpoint that is no URL
        log.warning("%s: %s", settings.repository, error)
        raise errors.unanswered(place, type(error).__name__) from error
    log.info("repository %s: %s, region %s", settings.repository, url, region)
    signer = Anonymous() if settings.s3_anonymous else Signer(region, session)
    return Bucket(url, region, signer, tls, _proxy(url))


def region_of(session: Any) -> str:
    """The configured one."""
    return os.environ.get("AWS_REGION") or session.get_config_variable("region") or "us-east-1"


def addressing_style(settings: Settings, place: Location) -> Any:
    """As botocore's Config has it: few stores but AWS's have a host for each bucket."""
    own = place.endpoint and not place.endpoint.rstrip("/").endswith(".amazonaws.com")
    return "path" if own and settings.s3_addressing == "auto" else settings.s3_addressing


def verifies() -> bool:
    """Whether the store must prove by a certificate who it is: not where S3_VERIFY_SSL says so, as KServe has it."""
    return os.environ.get("S3_VERIFY_SSL", "1").lower() not in ("0", "false")


def base_url(session: Any, settings: Settings, place: Location, region: str) -> str:
    """URL of the bucket, without a slash at its end: botocore knows AWS's partitions and hosts."""
    from botocore import UNSIGNED  # noqa: PLC0415
    from botocore.awsrequest import AWSResponse  # noqa: PLC0415
    from botocore.compat import HTTPHeaders  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    config = Config(s3={"addressing_style": addressing_style(settings, place)}, signature_version=UNSIGNED)
    client = session.create_client("s3", region_name=region, endpoint_url=place.endpoint, config=config)
    # A presigned URL would be simpler to get, but for AWS it has the global endpoint's host.
    urls: list[str] = []

    def answer(request: Any, **_: Any) -> Any:
        urls.append(request.url)
        return AWSResponse(request.url, 200, HTTPHeaders(), BytesIO())

    client.meta.events.register("before-send.s3.GetObject", answer)
    client.get_object(Bucket=place.bucket, Key="-")
    if not urlsplit(urls[0]).hostname:
        raise ValueError(urls[0])
    return urls[0].removesuffix("/-")


def _tls(session: Any) -> ssl.SSLContext:
    """AWS_CA_BUNDLE or botocore's own certificates."""
    from botocore.httpsession import get_cert_path  # noqa: PLC0415

    if not verifies():
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        return context
    return ssl.create_default_context(cafile=get_cert_path(session.get_config_variable("ca_bundle") or True))


def _proxy(url: str) -> str | None:
    from botocore.utils import get_environ_proxies  # noqa: PLC0415

    proxy = get_environ_proxies(url).get(urlsplit(url).scheme)
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


class Anonymous:
    """For public buckets."""

    def sign(self, _method: str, _url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        return headers

    def renew(self) -> None:
        """There is nothing to renew."""


class Signer:
    """Signature Version 4 with the default chain's credentials, which botocore refreshes in time where it can."""

    def __init__(self, region: str, session: Any) -> None:
        self._region = region
        self._session = session
        self._credentials: Any = None
        self._lock = threading.Lock()

    def sign(self, method: str, url: str, headers: Mapping[str, str]) -> Mapping[str, str]:
        frozen = self._frozen()
        login = Login(frozen.access_key, frozen.secret_key, frozen.token, self._region)
        return signed(method, url, headers, login)

    def renew(self) -> None:
        """With a new session: the old one may hold what a file or the metadata service said an hour ago."""
        from botocore.session import get_session  # noqa: PLC0415

        with self._lock:
            self._session, self._credentials = get_session(), None

    def _frozen(self) -> Any:
        from botocore.exceptions import BotoCoreError  # noqa: PLC0415

        try:
            with self._lock:
                if self._credentials is None:
                    self._credentials = self._session.get_credentials()
                credentials = self._credentials
            if credentials is None:
                raise ModelNotLoadable(NO_CREDENTIALS)
            return credentials.get_frozen_credentials()
        except BotoCoreError as error:
            log.warning("%s", error)
            raise ModelNotLoadable(f"{NO_CREDENTIALS} ({type(error).__name__})") from error

"""Makes botocore's client for a place from the settings and the environment. The first client imports botocore."""

import logging
from typing import Any

from handler.settings import Settings
from handler.stores.s3.location import Location
from handler.stores.s3.session import addressing_style, region_of, verifies

log = logging.getLogger(__name__)


def connect(settings: Settings, place: Location, **more: Any) -> Any:
    """Returns a client. `more`: options of botocore's Config, which come before a server's."""
    from botocore import UNSIGNED  # noqa: PLC0415 - a third of a second of cold start
    from botocore.config import Config  # noqa: PLC0415
    from botocore.session import get_session  # noqa: PLC0415

    session = get_session()
    region, style, endpoint = region_of(session), addressing_style(settings, place), place.endpoint
    log.info("bucket %s: endpoint %s, region %s, %s addressing", place.bucket, endpoint or "AWS", region, style)
    options: dict[str, Any] = {
        "s3": {"addressing_style": style},
        "signature_version": UNSIGNED if settings.s3_anonymous else None,
        "connect_timeout": 3,
        "read_timeout": 20,
        "retries": {"mode": "standard", "max_attempts": 3},
        # Few compatible stores send checksums. With the default, rclone's made botocore raise TypeError.
        "request_checksum_calculation": "when_required",
        "response_checksum_validation": "when_required",
    }
    verify = None if verifies() else False
    config = Config(**options | more)
    return session.create_client("s3", region_name=region, endpoint_url=endpoint, config=config, verify=verify)

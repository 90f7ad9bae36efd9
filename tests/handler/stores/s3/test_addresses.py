"""handler.stores.s3.addresses: botocore's own answers are the oracle."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError
from botocore.session import get_session

from handler.settings import Settings
from handler.stores.s3 import session
from handler.stores.s3.addresses import PARTITIONS, Host, base_url
from handler.stores.s3.location import Location

pytestmark = pytest.mark.usefixtures("no_aws")

KNOWN = get_session()
REGIONS = [
    region
    for partition in KNOWN.get_available_partitions()
    for region in KNOWN.get_available_regions("s3", partition)
    if region.rsplit("-", 2)[0] in PARTITIONS
]
ONE_OF_EACH = list({region.rsplit("-", 2)[0]: region for region in REGIONS}.values())
STYLES = ("auto", "path", "virtual")
BUCKETS = (
    *("models", "my-models", "my.models", "My_Models", "-models", "models-", "a..b", "192.168.1.1", "ab", "a" * 64),
    *("a--b", "models--use1-az4--x-s3", "models--op-s3", "arn:aws:s3:eu-west-1:123456789012:accesspoint/models", "a b"),
)
ENDPOINTS = (
    *(
        "http://127.0.0.1:9000",
        "https://store.example/",
        "https://h/storage/v1/s3/",
        "http://[::1]:9",
        "http://h:9/a//b",
    ),
    *("https://s3.eu-west-1.amazonaws.com", "https://s3-accelerate.amazonaws.com", "http://us:pass@h", "http://h/?x=1"),
    *("http://localhost", "ftp://h", "http://h/a b", "https://H.Example/../x", "http://"),
)


@cache
def oracle() -> Any:
    """Returns a session that has not read this machine's own configuration."""
    return get_session()


@cache
def client(endpoint: str | None, style: str, region: str) -> Any:
    """Returns botocore's client for every bucket of a store."""
    settings = Settings.from_env({"DRAGOMAN_S3_ADDRESSING": style})
    return session.client(oracle(), settings, Location("", "", endpoint), region)


def host(region: str) -> Host:
    """Returns the host, with every variant."""
    return Host(region, fips=True, dualstack=True)


def theirs(bucket: str, endpoint: str | None, style: str, region: str) -> str | None:
    """Returns botocore's host, None if it refuses."""
    own = endpoint and not endpoint.rstrip("/").endswith(".amazonaws.com")
    try:
        made = client(endpoint, "path" if own and style == "auto" else style, region)
        return session.base_url(made, bucket)
    except (BotoCoreError, ValueError):
        return None


@pytest.mark.parametrize(("fips", "dualstack"), [*product((False, True), repeat=2)])
def test_a_buckets_host_is_botocores_in_every_region(
    monkeypatch: pytest.MonkeyPatch, *, fips: bool, dualstack: bool
) -> None:
    """The variants are FIPS and dual-stack. Only if Amazon offers neither is the refusal left to botocore."""
    client.cache_clear()
    monkeypatch.setenv("AWS_USE_FIPS_ENDPOINT", str(fips))
    monkeypatch.setenv("AWS_USE_DUALSTACK_ENDPOINT", str(dualstack))
    expected = {region: theirs("models", None, "auto", region) for region in REGIONS}
    client.cache_clear()
    assert {region: base_url("models", None, "auto", Host(region, fips, dualstack)) for region in REGIONS} == expected
    assert all(expected.values()) or fips or dualstack


@pytest.mark.parametrize("style", STYLES)
def test_every_bucket_name_is_addressed_as_botocore_does(style: str) -> None:
    """Each partition is tried in one region, as a subdomain or in the path. Names that are not plain are botocore's."""
    left = set()
    for bucket, region in product(BUCKETS, ONE_OF_EACH):
        if (url := base_url(bucket, None, style, Host(region))) is None:
            left.add(bucket)
        else:
            assert url == theirs(bucket, None, style, region)
    assert left == {bucket for bucket in BUCKETS if "--" in bucket or bucket[0] == "-" or {*bucket} & {*" :"}}


@pytest.mark.parametrize("style", STYLES)
def test_every_endpoint_is_addressed_as_botocore_does(style: str) -> None:
    """The variables for FIPS and dual-stack do not matter. URLs that are not plain are left to botocore."""
    left = set()
    for bucket, endpoint, region in product(BUCKETS, ENDPOINTS, ("us-east-1", "garage")):
        if (url := base_url(bucket, endpoint, "path" if style == "auto" else style, host(region))) is None:
            left.add(endpoint if bucket == "models" else "")
        else:
            assert url == theirs(bucket, endpoint, style, region)
    plain = (*ENDPOINTS[:4], ENDPOINTS[5], ENDPOINTS[9])
    assert left == {"", *ENDPOINTS} - {*plain}


def test_us_east_1_has_a_host_of_its_own_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS_S3_US_EAST_1_REGIONAL_ENDPOINT asks for it."""
    client.cache_clear()
    monkeypatch.setenv("AWS_S3_US_EAST_1_REGIONAL_ENDPOINT", "regional")
    url = theirs("models", None, "auto", "us-east-1")
    client.cache_clear()
    assert base_url("models", None, "auto", Host("us-east-1", legacy=False)) == url
    assert base_url("models", None, "auto", Host("us-east-1")) != url


@pytest.mark.parametrize(
    "region", ["aws-global", "fips-us-east-1", "us-east-1-fips", "s3-external-1", "EU", "garage", "xx-west-1", "a.b"]
)
def test_what_is_no_region_of_aws_is_left_to_botocore(region: str) -> None:
    """So is a future region, whose partition is not known."""
    assert base_url("models", None, "auto", Host(region)) is None

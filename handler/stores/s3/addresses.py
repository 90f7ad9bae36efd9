"""A bucket's URL by Amazon's rules, without botocore. A test compares every answer with botocore's own.

`base_url` answers for plain regions, bucket names and endpoints. It leaves the rest to botocore: unknown regions, ARNs
of access points, directory buckets, endpoints with a login or a query, and variants that Amazon does not offer.
"""

import re
from typing import Final

from core.records import NamedTuple


class Partition(NamedTuple):
    """A part of AWS with regions of its own. `suffix` ends its host names; the flags say which variants it offers."""

    suffix: str
    fips: bool = True
    dualstack: bool = True


class Host(NamedTuple):
    """What chooses the host. `legacy`: us-east-1 means the global host, as it did before it had its own."""

    region: str
    fips: bool = False
    dualstack: bool = False
    legacy: bool = True


AWS: Final = Partition("amazonaws.com")
PARTITIONS: Final = {
    **dict.fromkeys(("us", "eu", "ap", "sa", "ca", "me", "af", "il", "mx", "us-gov"), AWS),
    "cn": Partition("amazonaws.com.cn", fips=False),
    "eusc-de": Partition("amazonaws.eu"),
    "us-iso": Partition("c2s.ic.gov"),
    "us-isob": Partition("sc2s.sgov.gov"),
    "eu-isoe": Partition("cloud.adc-e.uk", dualstack=False),
    "us-isof": Partition("csp.hci.ic.gov", dualstack=False),
}
"""The partitions by the beginning of a region's name: us-gov of us-gov-west-1."""
# Patterns are compiled when they are needed: each costs 0.2 ms of cold start.
REGION: Final = r"([a-z]+(?:-[a-z]+)?)-[a-z]+-[0-9]+"
LABEL: Final = r"(?!.*fips)[a-z0-9]+(-[a-z0-9]+)*"
"""A region of a store that is not Amazon's: `garage`, `ru-central1`."""
NAME: Final = r"(?!.*--)[A-Za-z0-9][A-Za-z0-9._-]{0,254}"
"""A bucket's name. Two hyphens end in a suffix of another kind of bucket: `--x-s3`."""
SUBDOMAIN: Final = r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"
ENDPOINT: Final = r"(https?)://([A-Za-z0-9.-]+|\[[0-9A-Fa-f:]+\])(:[0-9]+)?((?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*)/?"
ADDRESS: Final = r"([0-9]{1,3}\.){3}[0-9]{1,3}|\[.*"
"""A host that is an IP address, which has no subdomains."""


def base_url(bucket: str, endpoint: str | None, style: str, host: Host) -> str | None:
    """Returns the bucket's URL without a slash at its end, or None where botocore must be asked.

    `endpoint`: None for AWS. `style`: `auto`, `path` or `virtual`, as botocore's `addressing_style`.
    """
    if not re.fullmatch(NAME, bucket):
        return None
    return _of_aws(bucket, style, host) if endpoint is None else _of_endpoint(bucket, endpoint, style, host.region)


def _of_aws(bucket: str, style: str, host: Host) -> str | None:
    found = re.fullmatch(REGION, host.region)
    partition = PARTITIONS.get(found[1]) if found else None
    if partition is None or (host.fips and not partition.fips) or (host.dualstack and not partition.dualstack):
        return None
    service = f"s3{'-fips' if host.fips else ''}{'.dualstack' if host.dualstack else ''}"
    is_global = host.region == "us-east-1" and host.legacy and service == "s3"
    name = f"{service}.{partition.suffix}" if is_global else f"{service}.{host.region}.{partition.suffix}"
    if style != "path" and re.fullmatch(SUBDOMAIN, bucket):
        return f"https://{bucket}.{name}"
    return f"https://{name}/{bucket}"


def _of_endpoint(bucket: str, endpoint: str, style: str, region: str) -> str | None:
    found = re.fullmatch(ENDPOINT, endpoint)
    if found is None or "s3-accelerate" in endpoint or not re.fullmatch(LABEL, region):
        return None
    scheme, host, port, path = found.groups(default="")
    if style == "virtual" and "." in bucket and scheme == "http":
        return None
    if style == "virtual" and re.fullmatch(SUBDOMAIN, bucket) and not re.fullmatch(ADDRESS, host):
        return f"{scheme}://{bucket}.{host}{port}{path}"
    return f"{scheme}://{host}{port}{path}/{bucket}"

"""THE table of the buckets that publishers write to and read from, by URI scheme."""

from typing import Final

from handler import plugins
from handler.commands.publish.buckets.port import Bucket
from handler.settings import Settings

BUCKETS: Final = {
    "s3": "handler.commands.publish.buckets.s3:S3Bucket",
    "gs": "handler.commands.publish.buckets.cloud:CloudBucket",
    "az": "handler.commands.publish.buckets.cloud:CloudBucket",
    "https": "handler.commands.publish.buckets.web:WebBucket",
    "http": "handler.commands.publish.buckets.web:WebBucket",
}
READ_ONLY: Final = ("https", "http")


def opened(settings: Settings, uri: str) -> Bucket:
    """Returns the bucket's prefix of a repository. Raises InvalidSettings, ServingError."""
    bucket: Bucket = plugins.resolve(BUCKETS[uri.partition("://")[0]])(settings, uri)
    return bucket

"""handler.stores.s3.location: the forms of a repository's URI, and the variables that name an endpoint."""

from __future__ import annotations

import re

import pytest

from handler.settings import InvalidSettings
from handler.stores.s3.location import Location, locate


@pytest.mark.parametrize(
    ("uri", "environ", "place"),
    [
        ("s3://b", {}, Location("b", "", None)),
        ("s3://b/p/q/", {}, Location("b", "p/q/", None)),
        (
            "s3://b/p",
            {"AWS_ENDPOINT_URL_S3": "http://a:1", "AWS_ENDPOINT_URL": "http://b"},
            Location("b", "p/", "http://a:1"),
        ),
        ("s3://b/p", {"AWS_ENDPOINT_URL": "https://e"}, Location("b", "p/", "https://e")),
        ("s3://b/p", {"S3_ENDPOINT": "e:9"}, Location("b", "p/", "https://e:9")),
        ("s3://b/p", {"S3_ENDPOINT": "e:9", "S3_USE_HTTPS": "0"}, Location("b", "p/", "http://e:9")),
        ("s3://h:9000/b/p", {}, Location("b", "p/", "http://h:9000")),
        ("s3://https://h:9000/b/p", {"AWS_ENDPOINT_URL_S3": "http://a"}, Location("b", "p/", "https://h:9000")),
        ("s3://http://h/b", {}, Location("b", "", "http://h")),
        ("s3://[::1]:9000/b", {}, Location("b", "", "http://[::1]:9000")),
    ],
)
def test_a_repository_is_located(uri: str, environ: dict[str, str], place: Location) -> None:
    """The cases are AWS's form, Triton's, and every variable that names an endpoint."""
    assert locate(uri, environ) == place


@pytest.mark.parametrize("uri", ["s3://", "s3:///x", "s3://http://h", "s3://h:9000"])
def test_a_repository_without_a_bucket_is_a_wrong_setting(uri: str) -> None:
    """The start fails."""
    with pytest.raises(InvalidSettings, match="expected s3://bucket/prefix"):
        locate(uri, {})


@pytest.mark.parametrize("uri", ["s3://http://[::1/b/m", "s3://[::1/b/m", "s3://h:x/b", "s3://https://h:99999/b"])
def test_a_repository_at_no_address_is_a_wrong_setting(uri: str) -> None:
    """The start fails, and the error has the value."""
    with pytest.raises(
        InvalidSettings, match=re.escape(f"DRAGOMAN_REPOSITORY is {uri!r}; expected s3://bucket/prefix")
    ):
        locate(uri, {})


@pytest.mark.parametrize("variable", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "S3_ENDPOINT"])
def test_an_endpoint_that_is_no_address_is_a_wrong_setting(variable: str) -> None:
    """The error has the setting's own name."""
    with pytest.raises(InvalidSettings, match=rf"{variable} is 'http://\[::1'; expected a URL"):
        locate("s3://b/m", {variable: "http://[::1"})

"""handler.stores.s3.signature: botocore's signer is the oracle."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from handler.stores.s3.signature import Login, signed


@pytest.mark.parametrize("token", [None, "session/token+=="])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:9000/bucket/m/1/model.onnx",
        "https://bucket.s3.eu-west-1.amazonaws.com/a%20b/%C3%BC~-_.%21",
        "https://h:443/b",
        "http://[::1]:80/b/x",
        "http://h/b?delimiter=%2F&encoding-type=url&list-type=2&prefix=a%2Fb%20c",
        "https://bucket.h/?continuation-token=a%2Bb%3D%3D&list-type=2",
    ],
)
def test_a_signature_is_botocores(url: str, method: str, token: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The signatures of the same moment agree header by header."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: moment)
    request = AWSRequest(method, url, headers={"x-amz-checksum-mode": "ENABLED"})
    S3SigV4Auth(Credentials("key", "secret", token), "s3", "eu-west-1").add_auth(request)
    login = Login("key", "secret", token, "eu-west-1")
    ours = signed(method, url, {"x-amz-checksum-mode": "ENABLED"}, login, moment.timestamp())
    theirs = {name.lower(): value for name, value in request.headers.items()}
    assert {name.lower(): value for name, value in ours.items()} == theirs


def test_dates_of_the_signature_are_utc() -> None:
    """The machine's zone does not matter."""
    headers = signed("GET", "http://h/", {}, Login("k", "s", None, "r"))
    assert headers["X-Amz-Date"][:8] == time.strftime("%Y%m%d", time.gmtime())

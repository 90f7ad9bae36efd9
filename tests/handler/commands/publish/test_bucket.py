"""handler.commands.publish.bucket: what a store's refusals mean to a publisher, by canned answers as botocore's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from core.errors import ModelUnavailable
from handler.commands.publish.bucket import Bucket, Only, Taken
from handler.commands.refused import Refused
from handler.settings import Settings
from tests.handler.commands.publish.conftest import large

if TYPE_CHECKING:
    from pathlib import Path

    from tests.handler.commands.publish import conftest

DENIED = {"head_object": "s3:GetObject", "delete_object": "s3:DeleteObject", "put_object": "s3:PutObject"}


def refusing(code: str, status: int) -> Any:
    """A client that refuses whatever it is asked."""

    class Client:
        def __getattr__(self, method: str) -> Any:
            def refuse(**_: Any) -> Any:
                answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
                raise ClientError(answer, method)

            return refuse

    return Client()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """A bucket that nobody is asked about."""
    variables = {
        "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    return Bucket(Settings.from_env({}), "s3://b/models")


@pytest.mark.parametrize(
    ("code", "status", "kind", "message"),
    [
        ("AccessDenied", 403, Refused, "s3://b/models: access denied: grant {permission}"),
        ("ExpiredToken", 400, Refused, "the credentials have expired"),
        ("Strange", 418, Refused, "the store answered 418 Strange for s3://b/models: check AWS_ENDPOINT_URL_S3"),
        ("BadDigest", 400, Refused, "the store has received other bytes than were read: push again"),
        ("NotImplemented", 501, Refused, "the store has no {method}"),
        ("PreconditionFailed", 412, Taken, ""),
        ("ConditionalRequestConflict", 409, Taken, ""),
        ("NoSuchUpload", 404, Taken, ""),
    ],
)
@pytest.mark.parametrize("method", DENIED)
def test_every_refusal_has_its_meaning(
    place: Bucket, code: str, status: int, kind: type[Exception], message: str, method: str
) -> None:
    """With the permission that is missing."""
    place._client = refusing(code, status)
    ask = {
        "head_object": lambda: place.head("k"),
        "delete_object": lambda: place.delete("k"),
        "put_object": lambda: place.put("k", b"", "", "", Only()),
    }[method]
    with pytest.raises(kind) as refusal:
        ask()
    assert message.format(permission=DENIED[method], method=method) in str(refusal.value)


def test_an_object_that_is_not_there_has_no_head(place: Bucket) -> None:
    """HEAD has no body: the code is the status."""
    place._client = refusing("404", 404)
    assert place.head("k") is None


def test_a_store_that_does_not_answer_is_said_so(place: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the stores' own words."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(ModelUnavailable, match="the store at 127.0.0.1 does not answer .ConnectionRefusedError.: "):
        list(place.items(""))


def test_what_cannot_be_taken_back_is_said(
    run: Any, bucket: conftest.Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key that may put and neither delete nor abort; uploads of others are not its business."""
    call = Bucket._call

    def allowed(self: Any, method: str, key: str | None = None, **arguments: Any) -> Any:
        if method in ("delete_object", "abort_multipart_upload", "list_multipart_uploads"):
            raise Refused("denied")
        if method == "head_object":
            raise Refused("no permission to look")
        return call(self, method, key, **arguments)

    monkeypatch.setattr(Bucket, "_call", allowed)
    code, _, err = run("push", large(1, tmp_path / "m", 20), f"{bucket.uri}/m")
    assert code == 1
    assert err.splitlines()[-2:] == [f"left behind in {bucket.uri}: m/1/weights.bin", "dragoman: no permission to look"]

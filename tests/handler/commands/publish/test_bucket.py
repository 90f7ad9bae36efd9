"""handler.commands.publish.buckets.s3: what S3's refusals mean to a publisher, with canned answers like botocore's."""

from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from core.errors import ModelUnavailable
from handler.commands.publish.buckets.port import Only, Taken
from handler.commands.publish.buckets.s3 import S3Bucket
from handler.commands.refused import Refused
from handler.settings import Settings
from tests.handler.commands.publish import conftest
from tests.handler.commands.publish.conftest import large
from tests.support import web

DENIED = {"head_object": "s3:GetObject", "delete_object": "s3:DeleteObject", "put_object": "s3:PutObject"}


def refusing(code: str, status: int) -> Any:
    """Returns a client that refuses every request."""

    class Client:
        def __getattr__(self, method: str) -> Any:
            def refuse(**_: Any) -> Any:
                answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
                raise ClientError(answer, method)

            return refuse

    return Client()


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> S3Bucket:
    """A bucket that gets no requests."""
    variables = {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    return S3Bucket(Settings.from_env({}), "s3://b/models")


@pytest.mark.parametrize(("code", "status", "kind", "message"), [
    ("AccessDenied", 403, Refused, "s3://b/models: access denied: grant {permission}"),
    ("ExpiredToken", 400, Refused, "the credentials have expired"),
    ("Strange", 418, Refused, "the store answered 418 Strange for s3://b/models: check AWS_ENDPOINT_URL_S3"),
    ("KMS.DisabledException", 400, Refused, "for s3://b/models: check the KMS key that encrypts the objects"),
    ("BadDigest", 400, Refused, "the store has received other bytes than were read: push again"),
    ("NotImplemented", 501, Refused, "the store has no {method}"),
    ("PreconditionFailed", 412, Taken, ""),
    ("ConditionalRequestConflict", 409, Taken, ""),
    ("NoSuchUpload", 404, Taken, ""),
])  # fmt: skip
@pytest.mark.parametrize("method", DENIED)
def test_every_refusal_has_its_meaning(
    place: S3Bucket, code: str, status: int, kind: type[Exception], message: str, method: str
) -> None:
    """The message names the missing permission."""
    place._client = refusing(code, status)
    ask = {
        "head_object": lambda: place.head("k"),
        "delete_object": lambda: place.delete("k"),
        "put_object": lambda: place.put("k", b"", "", "", Only()),
    }[method]
    with pytest.raises(kind) as refusal:
        ask()
    assert message.format(permission=DENIED[method], method=method) in str(refusal.value)


@pytest.mark.parametrize("pages", [3, 1])
def test_uploads_are_listed_page_by_page(place: S3Bucket, pages: int) -> None:
    """S3 lists a thousand at a time. A store that goes on with the same page for ever ends the list."""

    class Client:
        def list_multipart_uploads(self, **asked: str) -> Any:
            last = asked.get("KeyMarker", "")
            assert (asked["Prefix"], asked.get("UploadIdMarker", "")) == ("models/m/1/", last and f"id-{last}")
            key = f"models/m/1/{min(pages, int(last[-1:] or 0) + 1)}"
            page = {"IsTruncated": not key.endswith("3"), "Uploads": [{"Key": key, "UploadId": f"id-{key}"}]}
            return page | {"NextKeyMarker": key, "NextUploadIdMarker": f"id-{key}"}

    place._client = Client()
    assert [key for key, _ in place.uploads("m/1/")] == (["m/1/1", "m/1/2", "m/1/3"] if pages > 1 else ["m/1/1"] * 2)


def test_an_object_that_is_not_there_has_no_head(place: S3Bucket) -> None:
    """HEAD has no body: the status is the code."""
    place._client = refusing("404", 404)
    assert place.head("k") is None


@pytest.mark.parametrize("name", ["sha256", "Sha256", "SHA256"])
def test_a_checksum_is_found_in_any_case_of_its_name(place: S3Bucket, name: str) -> None:
    """Rclone and old MinIO send the name with a capital letter."""
    found = {"ContentLength": 1, "Metadata": {name: "a1"}}
    place._client = type("Client", (), {"head_object": lambda *_, **__: found})()
    head = place.head("k")
    assert head is not None
    assert head.sha256 == "a1"


def test_a_store_that_does_not_answer_is_said_so(place: S3Bucket) -> None:
    """The message is the one that the stores use."""
    with pytest.raises(ModelUnavailable, match="the store at 127.0.0.1 does not answer .ConnectionRefusedError.: "):
        list(place.items(""))


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("certified", [True, False])
def test_a_publisher_distinguishes_an_unknown_certificate_from_a_store_without_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, certified: bool
) -> None:
    """Botocore has one name for both."""
    context = web.certified(tmp_path)[0] if certified else None
    with web.serving(web.Handler, context) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"https://127.0.0.1:{server.server_port}")
        kind, cure = ("SSLCertVerificationError", "AWS_CA_BUNDLE") if certified else ("SSLError", "the scheme of")
        with pytest.raises(ModelUnavailable, match=rf"does not answer \({kind}\): check {cure}"):
            S3Bucket(Settings.from_env({}), "s3://b/models").head("k")


def test_what_cannot_be_taken_back_is_said(
    run: Any, bucket: conftest.Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key may put, but neither delete nor abort; uploads of others do not count."""

    def refuse(method: str, *_: Any) -> None:
        if method in ("delete_object", "abort_multipart_upload", "list_multipart_uploads"):
            raise Refused("denied")
        if method == "head_object":
            raise Refused("no permission to look")

    conftest.around(monkeypatch, before=refuse)
    code, _, err = run("push", large(1, tmp_path / "m", 20), f"{bucket.uri}/m")
    assert code == 1
    assert err.splitlines()[-2:] == [f"left behind in {bucket.uri}: m/1/weights.bin", "dragoman: no permission to look"]

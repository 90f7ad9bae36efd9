"""botocore's client for a stand-in's objects, without a network: it makes thousands of requests a second."""

from collections.abc import Callable
from typing import Any

from botocore.exceptions import ClientError, ConnectionClosedError

from tests.support.s3_writes import META, Objects, Refusal

CONDITIONS = {
    "IfMatch": "If-Match", "IfNoneMatch": "If-None-Match", "ContentMD5": "Content-MD5",
    "CopySourceRange": "x-amz-copy-source-range", "CopySourceIfMatch": "x-amz-copy-source-if-match",
}  # fmt: skip


class Client:
    """Asks `fate` before each request; see the stand-in. "repeated": the answer is lost, and the client repeats it."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.fate: Callable[[], str] = lambda: ""

    def __getattr__(self, method: str) -> Any:
        work = getattr(self, f"_{method}")

        def ask(**asked: Any) -> Any:
            fate = self.fate()
            if fate == "unasked":
                raise ConnectionClosedError(endpoint_url="")
            try:
                if fate == "refused":
                    raise Refusal(403, "AccessDenied")  # noqa: TRY301 - as the store's own
                answer = work(asked)
                if fate == "repeated":
                    if "Body" in asked:
                        asked["Body"].seek(0)
                    answer = work(asked)
            except Refusal as refusal:
                status, code = refusal.args
                said = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
                raise ClientError(said, method) from refusal
            if fate == "lost":
                raise ConnectionClosedError(endpoint_url="")
            return answer

        return ask

    def _head_object(self, asked: Any) -> Any:
        thing = self._objects.things.get(asked["Key"])
        if thing is None:
            raise Refusal(404, "404")
        meta = {name.removeprefix(META): value for name, value in thing.meta.items()}
        return {"ContentLength": len(thing.content), "Metadata": meta}

    def _put_object(self, asked: Any) -> Any:
        self._objects.put(asked["Key"], headers(asked), asked["Body"].read())

    def _create_multipart_upload(self, asked: Any) -> Any:
        return {"UploadId": self._objects.begin(asked["Key"], headers(asked))}

    def _upload_part(self, asked: Any) -> Any:
        return {"ETag": self._objects.part(asked["UploadId"], asked["PartNumber"], asked["Body"].read())}

    def _upload_part_copy(self, asked: Any) -> Any:
        source = {"x-amz-copy-source": f"{asked['CopySource']['Bucket']}/{asked['CopySource']['Key']}"}
        content = self._objects.copied(headers(asked) | source)
        return {"CopyPartResult": {"ETag": self._objects.part(asked["UploadId"], asked["PartNumber"], content)}}

    def _complete_multipart_upload(self, asked: Any) -> Any:
        numbers = [each["PartNumber"] for each in asked["MultipartUpload"]["Parts"]]
        self._objects.complete(asked["UploadId"], headers(asked), numbers)

    def _abort_multipart_upload(self, asked: Any) -> Any:
        self._objects.abort(asked["UploadId"])

    def _list_multipart_uploads(self, asked: Any) -> Any:
        found = list(self._objects.uploads.items())
        uploads = [{"Key": each.key, "UploadId": name} for name, each in found if each.key.startswith(asked["Prefix"])]
        return {"Uploads": uploads}

    def _delete_object(self, asked: Any) -> Any:
        self._objects.delete(asked["Key"], headers(asked))


def headers(asked: dict[str, Any]) -> dict[str, str]:
    """Returns the headers as they would be sent."""
    meta = {META + name: value for name, value in asked.get("Metadata", {}).items()}
    return {CONDITIONS[name]: value for name, value in asked.items() if name in CONDITIONS} | meta

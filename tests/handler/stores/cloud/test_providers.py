"""handler.stores.cloud.providers and errors: the forms of a URI, the variables, and the client's error texts."""

import json

import pytest

from handler.settings import InvalidSettings
from handler.stores.cloud import errors
from handler.stores.cloud.providers import AZURE, GOOGLE, CloudPlace, locate
from handler.stores.transfer.answers import Broken

KEY = "AccountName=a;AccountKey=a2V5;"


@pytest.mark.parametrize(
    ("uri", "environ", "bucket", "prefix", "host", "config"),
    [
        ("gs://b", {}, "b", "", "storage.googleapis.com", {}),
        ("gs://b/p/q/", {"GOOGLE_BASE_URL": "http://h:1"}, "b", "p/q/", "h", {"base_url": "http://h:1"}),
        ("az://c/p", {"AZURE_STORAGE_ACCOUNT": "a", "AZURE_STORAGE_KEY": "a2V5"}, "c", "p/", "a.blob.core.windows.net",
         {"account_name": "a", "account_key": "a2V5"}),
        ("az://c", {"AZURE_STORAGE_ENDPOINT": "https://a.blob.core.windows.net/"}, "c", "", "a.blob.core.windows.net",
         {"account_name": "a", "endpoint": "https://a.blob.core.windows.net"}),
        ("az://c", {"AZURE_STORAGE_CONNECTION_STRING": KEY}, "c", "", "a.blob.core.windows.net",
         {"account_name": "a", "account_key": "a2V5"}),
        ("az://c", {"AZURE_STORAGE_CONNECTION_STRING": f"{KEY}BlobEndpoint=http://h:1/a/;"}, "c", "", "h",
         {"account_name": "a", "account_key": "a2V5", "endpoint": "http://h:1/a"}),
        ("az://c", {"AZURE_STORAGE_CONNECTION_STRING": f"{KEY}EndpointSuffix=core.chinacloudapi.cn"}, "c", "",
         "a.blob.core.chinacloudapi.cn",
         {"account_name": "a", "account_key": "a2V5", "endpoint": "https://a.blob.core.chinacloudapi.cn"}),
        ("az://c", {"AZURE_STORAGE_CONNECTION_STRING": "SharedAccessSignature=sv=1&sig=x%3D;"
                    "BlobEndpoint=https://a.blob.core.windows.net"}, "c", "", "a.blob.core.windows.net",
         {"account_name": "a", "sas_key": "sv=1&sig=x%3D", "endpoint": "https://a.blob.core.windows.net"}),
        ("az://c", {"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true"}, "c", "", "127.0.0.1",
         {"use_emulator": "true", "account_name": "devstoreaccount1",
          "endpoint": "http://127.0.0.1:10000/devstoreaccount1"}),
    ],
)  # fmt: skip
def test_a_place_is_read(
    uri: str, environ: dict[str, str], bucket: str, prefix: str, host: str, config: dict[str, str]
) -> None:
    """The variables are those of the clouds' own tools; obstore reads the others itself."""
    place = locate(uri, environ)
    assert (place.bucket, place.prefix, place.host, dict(place.config)) == (bucket, prefix, host, config)


def test_an_emulator_of_google_is_asked_without_a_token() -> None:
    """The variable is that of Google's libraries."""
    place = locate("gs://b", {"STORAGE_EMULATOR_HOST": "127.0.0.1:4443"})
    assert place.endpoint == "http://127.0.0.1:4443"
    assert json.loads(place.config["service_account_key"])["disable_oauth"]


@pytest.mark.parametrize(
    ("uri", "environ", "message"),
    [
        ("gs://", {}, "DRAGOMAN_REPOSITORY is 'gs://'; expected gs://bucket/prefix"),
        ("az://h:1/c", {}, "expected az://container/prefix"),
        ("gs://user:word@b/p", {}, "DRAGOMAN_REPOSITORY holds credentials; they belong in GOOGLE_APPLICATION_"),
        ("az://c", {}, "az:// needs an account: set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING"),
        ("az://c", {"AZURE_STORAGE_CONNECTION_STRING": "s3cret"}, "is wrong; expected Name=value;Name=value"),
    ],
)
def test_a_wrong_place_is_refused(uri: str, environ: dict[str, str], message: str) -> None:
    """The message names the setting, and holds no secret."""
    with pytest.raises(InvalidSettings) as refusal:
        locate(uri, environ)
    assert message in str(refusal.value)
    assert "word" not in str(refusal.value)
    assert "s3cret" not in str(refusal.value)


STATUS = "Server returned non-2xx status code:"
GS, AZ = CloudPlace(GOOGLE, "b", "p/", {}), CloudPlace(AZURE, "c", "p/", {"account_name": "a"})


@pytest.mark.parametrize(
    ("place", "text", "message"),
    [
        (AZ, f"{STATUS} 404 Not Found: <Code>ContainerNotFound</Code>", "container 'c' does not exist: check"),
        (AZ, f"{STATUS} 403 Forbidden: <Code>AuthenticationFailed</Code>",
         "AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN, and this machine's clock"),
        (AZ, f"{STATUS} 403 Forbidden: <Code>AuthorizationPermissionMismatch</Code>",
         "az://c: access denied: grant Storage Blob Data Reader"),
        (AZ, f"{STATUS} 409 Conflict: <Code>BlobArchived</Code>", "in the archive tier: rehydrate it, or copy it"),
        (AZ, f"{STATUS} 403 Forbidden: <Code>KeyBasedAuthenticationNotPermitted</Code>", "unset the key, so that an "),
        (AZ, f"{STATUS} 404 Not Found: ", "az://c: the store has no such object or container: check"),
        (AZ, "error sending request, dns error",
         "a.blob.core.windows.net does not answer (unknown host): check AZURE_STORAGE_ACCOUNT and the network"),
        (AZ, "token request: GET http://169.254.169.254/metadata/identity/token", "or run with a managed identity"),
        (AZ, f"token request: POST https://login {STATUS} 400 Bad Request", "the store refuses the credentials"),
        (AZ, "token request: POST https://login dns error", "does not answer (unknown host)"),
        (GS, f"{STATUS} 403 Forbidden: <Code>AccessDenied</Code>", "access denied: grant storage.objects.list"),
        (GS, f"{STATUS} 429 Too Many Requests: ", "the store answered 429 for gs://b"),
        (GS, "something that nobody knows https://user:word@h", "does not answer (ValueError): check the network"),
    ],
)  # fmt: skip
def test_an_error_of_the_client_is_told_in_words(place: CloudPlace, text: str, message: str) -> None:
    """Nothing of its own text is repeated but the status and the code."""
    found = errors.reason(ValueError(text))
    told = errors.of(found, place, f"{place.provider.scheme}://{place.bucket}").message
    assert message in told
    assert "word" not in told


def test_a_body_that_broke_off_is_told_as_such() -> None:
    """The file is named."""
    found = errors.reason(ValueError("kind: Body"), started=True)
    assert isinstance(found, Broken)
    assert (
        errors.of(found, GS, "gs://b", "model.onnx").message == "model.onnx broke off again and again (broken answer)"
    )

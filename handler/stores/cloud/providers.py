"""THE table of the clouds by URI scheme: names, variables, and the cure of each refusal.

obstore reads its own variables (GOOGLE_*, AZURE_*). What stands here besides are the names that the clouds' own tools
use: AZURE_STORAGE_CONNECTION_STRING, AZURE_STORAGE_ACCOUNT, AZURE_STORAGE_KEY and STORAGE_EMULATOR_HOST.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from core.records import NamedTuple
from handler.settings import InvalidSettings

Environment = Mapping[str, str]
NO_CREDENTIALS: Final = "NoCredentials"
"""The code of a request for which the client found no credentials."""
DEFAULT_EMULATOR: Final = "http://127.0.0.1:10000/devstoreaccount1"


class Provider(NamedTuple):
    """A cloud. `store`: its class in obstore.store. `noun`: its word for a bucket. `extra`: what installs its client.

    `config`: obstore's options by the variables; it raises InvalidSettings. `permissions`: to read, to list, to write.
    `cures`: the meanings by the store's error code; {bucket} stands for the bucket's name.
    """

    scheme: str
    store: str
    noun: str
    extra: str
    config: Callable[[Environment], dict[str, str]]
    permissions: tuple[str, str, str]
    variables: str
    cures: Mapping[str, str]


class CloudPlace(NamedTuple):
    """A repository's place. `prefix`: of keys, empty or with a slash at its end. `config`: obstore's options."""

    provider: Provider
    bucket: str
    prefix: str
    config: Mapping[str, str]

    @property
    def endpoint(self) -> str:
        """The URL of another server than the cloud's own, empty without one."""
        return self.config.get("endpoint") or self.config.get("base_url") or ""

    @property
    def host(self) -> str:
        """The name of the server for messages."""
        account = self.config.get("account_name")
        own = f"{account}.blob.core.windows.net" if account else "storage.googleapis.com"
        return urlsplit(self.endpoint).hostname or own


def locate(uri: str, environ: Environment, setting: str = "DRAGOMAN_REPOSITORY") -> CloudPlace:
    """Parses `gs://bucket/prefix` or `az://container/prefix`. `setting`: names it in errors. Raises InvalidSettings."""
    scheme, _, path = uri.partition("://")
    provider = PROVIDERS[scheme]
    bucket, _, prefix = path.partition("/")
    if "@" in bucket:
        raise InvalidSettings(f"{setting} holds credentials; they belong in {provider.variables}")
    if not bucket or ":" in bucket:
        expected = f"expected {scheme}://{provider.noun}/prefix"
        raise InvalidSettings(f"{setting} is {uri[:256]!r}; {expected}", f"{setting}: {expected}")
    prefix = prefix.strip("/")
    return CloudPlace(provider, bucket, f"{prefix}/" if prefix else "", provider.config(environ))


def _google(environ: Environment) -> dict[str, str]:
    """Returns the options for an emulator, none for Google's own: obstore reads its variables itself."""
    host = environ.get("STORAGE_EMULATOR_HOST", "")
    if not host:
        url = environ.get("GOOGLE_BASE_URL", "")
        return {"base_url": url} if url else {}
    url = host if "://" in host else f"http://{host}"
    # An emulator has no accounts: no token is asked for.
    key = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
    return {"base_url": url, "service_account_key": json.dumps(key)}


def _azure(environ: Environment) -> dict[str, str]:
    said = _connection(environ.get("AZURE_STORAGE_CONNECTION_STRING", ""))
    account = environ.get("AZURE_STORAGE_ACCOUNT") or environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    found = {
        "account_name": said.get("AccountName") or account,
        "account_key": said.get("AccountKey") or environ.get("AZURE_STORAGE_KEY", ""),
        "sas_key": said.get("SharedAccessSignature", ""),
        "endpoint": _blobs(said) or environ.get("AZURE_STORAGE_ENDPOINT", "").rstrip("/"),  # the portal shows a slash
    }
    emulated = environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() == "true"
    if said.get("UseDevelopmentStorage", "").lower() == "true" or (emulated and not found["account_name"]):
        return {"use_emulator": "true", "account_name": "devstoreaccount1", "endpoint": DEFAULT_EMULATOR}
    if not found["account_name"]:
        host = urlsplit(found["endpoint"]).hostname or ""
        found["account_name"] = host.partition(".")[0] if host.endswith(".blob.core.windows.net") else ""
    if not found["account_name"]:
        raise InvalidSettings("az:// needs an account: set AZURE_STORAGE_ACCOUNT or AZURE_STORAGE_CONNECTION_STRING")
    return {name: text for name, text in found.items() if text}


def _connection(text: str) -> dict[str, str]:
    """Parses a connection string, `Name=value;Name=value`. Raises InvalidSettings, which does not show it."""
    said = {}
    for part in filter(None, (each.strip() for each in text.split(";"))):
        name, separator, value = part.partition("=")
        if not separator:
            raise InvalidSettings("AZURE_STORAGE_CONNECTION_STRING is wrong; expected Name=value;Name=value")
        said[name] = value
    return said


def _blobs(said: Mapping[str, str]) -> str:
    """Returns the endpoint of a connection string, empty for the usual one."""
    if endpoint := said.get("BlobEndpoint", ""):
        return endpoint.rstrip("/")
    suffix, account = said.get("EndpointSuffix", ""), said.get("AccountName", "")
    if not account or suffix in ("", "core.windows.net"):
        return ""
    return f"{said.get('DefaultEndpointsProtocol', 'https')}://{account}.blob.{suffix}"


_NO_BUCKET: Final = "bucket {bucket!r} does not exist: check DRAGOMAN_REPOSITORY"
_NO_CONTAINER: Final = "container {bucket!r} does not exist: check DRAGOMAN_REPOSITORY and the account"
_GOOGLES: Final = "GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT_KEY"
_AZURES: Final = (
    "AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN"
)
_BAD_GOOGLE: Final = f"the store refuses the credentials: check {_GOOGLES}"
_BAD_AZURE: Final = f"the store refuses the credentials: check {_AZURES}, and this machine's clock"
GOOGLE: Final = Provider(
    "gs",
    "GCSStore",
    "bucket",
    "gcs",
    _google,
    ("storage.objects.get", "storage.objects.list", "storage.objects.create and storage.objects.delete"),
    _GOOGLES,
    {
        "NoSuchBucket": _NO_BUCKET,
        "InvalidBucketName": "{bucket!r} is not a bucket's name: check DRAGOMAN_REPOSITORY",
        "401": _BAD_GOOGLE,
        "AuthenticationRequired": _BAD_GOOGLE,
        "InvalidSecurity": _BAD_GOOGLE,
        "InvalidToken": _BAD_GOOGLE,
        "ExpiredToken": "the credentials have expired: renew them",
        NO_CREDENTIALS: "no credentials for gs:// are found: set GOOGLE_APPLICATION_CREDENTIALS, or run as a service "
        "account of Google Cloud; for a public bucket set GOOGLE_SKIP_SIGNATURE=true",
    },
)
AZURE: Final = Provider(
    "az",
    "AzureStore",
    "container",
    "azure",
    _azure,
    ("Storage Blob Data Reader", "Storage Blob Data Reader", "Storage Blob Data Contributor"),
    _AZURES,
    {
        "ContainerNotFound": _NO_CONTAINER,
        "ResourceNotFound": _NO_CONTAINER,
        "ContainerBeingDeleted": "container {bucket!r} is being deleted: check DRAGOMAN_REPOSITORY",
        "OutOfRangeInput": "{bucket!r} is not a container's name: check DRAGOMAN_REPOSITORY",
        "InvalidResourceName": "{bucket!r} is not a container's name: check DRAGOMAN_REPOSITORY",
        "AccountIsDisabled": "the account is disabled: check AZURE_STORAGE_ACCOUNT",
        "BlobArchived": "an object is in the archive tier: rehydrate it, or copy it to another tier",
        "KeyBasedAuthenticationNotPermitted": "the account does not permit its key: unset the key, so that an identity "
        "is used, or permit shared keys",
        "401": _BAD_AZURE,
        "AuthenticationFailed": _BAD_AZURE,
        "InvalidAuthenticationInfo": _BAD_AZURE,
        "AuthorizationFailure": f"the store refuses the request: check {_AZURES}, and the account's firewall",
        "NoAuthenticationInformation": _BAD_AZURE,
        "PublicAccessNotPermitted": "the container is not public: set AZURE_STORAGE_CONNECTION_STRING, or unset "
        "AZURE_SKIP_SIGNATURE",
        NO_CREDENTIALS: "no credentials for az:// are found: set AZURE_STORAGE_CONNECTION_STRING or AZURE_STORAGE_KEY, "
        "or run with a managed identity; for a public container set AZURE_SKIP_SIGNATURE=true",
    },
)
PROVIDERS: Final = {each.scheme: each for each in (GOOGLE, AZURE)}

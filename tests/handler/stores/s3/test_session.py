"""handler.stores.s3.session and environment: botocore's own client, credentials and signer are the oracle."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from botocore import httpsession
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.session import get_session

from core.errors import ModelNotLoadable, ModelUnavailable
from handler.settings import Settings
from handler.stores.s3 import environment, session, signature
from handler.stores.s3.location import locate
from handler.stores.s3.session import Anonymous, KeySigner, connect
from handler.stores.s3.store import S3Store

if TYPE_CHECKING:
    from tests.support import s3_stand_in

pytestmark = pytest.mark.usefixtures("no_aws")

ROOT = Path(__file__).parents[4]
MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
REGION = {"AWS_REGION": "eu-west-1"}
CERTIFI = httpsession.where()


@pytest.fixture(autouse=True)
def _bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves only the variables and files that a test sets."""
    for name in [*os.environ]:
        if name.startswith(("AWS_S3_", "AWS_USE_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    for name in ("AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", *KEYS):
        monkeypatch.delenv(name, raising=False)


def configure(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> Settings:
    """Sets the variables; returns settings of a bucket."""
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return Settings.from_env({"DRAGOMAN_REPOSITORY": "s3://models/p"})


def ahead(minutes: float) -> str:
    """Returns a time in the form of AWS_CREDENTIAL_EXPIRATION."""
    return (datetime.now(UTC) + timedelta(minutes=minutes)).isoformat()


@pytest.mark.parametrize(
    "environ",
    [
        REGION,
        {},
        {"AWS_DEFAULT_REGION": "cn-north-1"},
        REGION | {"AWS_DEFAULT_REGION": "us-west-2"},
        REGION | {"AWS_SESSION_TOKEN": "token/+="},
        REGION | {"AWS_SESSION_TOKEN": "new", "AWS_SECURITY_TOKEN": "old"},
        REGION | {"AWS_SESSION_TOKEN": "token", "AWS_CREDENTIAL_EXPIRATION": ahead(600)},
        REGION | {"AWS_CREDENTIAL_EXPIRATION": ahead(600).replace("+00:00", "Z")},
        REGION | {"AWS_USE_FIPS_ENDPOINT": "TRUE", "AWS_USE_DUALSTACK_ENDPOINT": "true"},
        REGION | {"AWS_USE_FIPS_ENDPOINT": "1", "AWS_USE_DUALSTACK_ENDPOINT": ""},
        {"AWS_REGION": "us-east-1", "AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "regional"},
        REGION | {"AWS_S3_USE_ARN_REGION": "false", "AWS_S3_BUCKET": "models"},
        REGION | {"HTTPS_PROXY": "http://us:pass@proxy:3128", "HTTP_PROXY": "http://other:1"},
        REGION | {"https_proxy": "proxy:3128", "NO_PROXY": "localhost,.example"},
        REGION | {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "amazonaws.com"},
        REGION | {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "*"},
        REGION | {"AWS_CA_BUNDLE": CERTIFI, "REQUESTS_CA_BUNDLE": "/none"},
        REGION | {"REQUESTS_CA_BUNDLE": CERTIFI},
        REGION | {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9000"},
        {"AWS_REGION": "garage", "AWS_ENDPOINT_URL": "https://store.example/s3"},
        REGION | {"S3_ENDPOINT": "store:9000", "S3_USE_HTTPS": "0", "HTTP_PROXY": "http://proxy:1"},
        REGION | {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://127.0.0.1:9", "AWS_ROLE_ARN": "a"},
    ],
    ids=lambda environ: "-".join(environ) or "keys-alone",
)
def test_what_the_environment_says_is_what_botocore_finds(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    """They agree with botocore's client on URL, region, proxy, certificates, keys and signature for the same bucket."""
    settings = configure(monkeypatch, KEYS | environ)
    place = locate(settings.repository, os.environ)
    used: list[str | None] = []
    monkeypatch.setattr("ssl.create_default_context", lambda **given: used.append(given["cafile"]))
    ours = session._by_environment(settings, place, "")
    assert ours is not None
    asked = get_session()
    client = session.client(asked, settings, place, ours.region)
    assert ours._base == session.base_url(client, place.bucket)
    assert ours.region == session.region_of(asked)
    http = client._endpoint.http_session
    proxy = http._proxy_config.proxy_url_for(ours._base)
    assert (ours._proxy and ours._proxy.geturl()) == proxy
    assert used == ([httpsession.get_cert_path(http._verify)] if ours._base.startswith("https:") else [])

    monkeypatch.setattr("botocore.auth.get_current_datetime", lambda *_, **__: MOMENT)
    clock = SimpleNamespace(strftime=time.strftime, gmtime=lambda _: MOMENT.timetuple())
    monkeypatch.setattr(signature, "time", clock)
    request = AWSRequest("GET", f"{ours._base}/p/x")
    S3SigV4Auth(asked.get_credentials(), "s3", ours.region).add_auth(request)
    assert dict(ours._signer.sign("GET", f"{ours._base}/p/x", {})) == dict(request.headers.items())


@pytest.mark.parametrize(
    "environ",
    [
        {"AWS_SECRET_ACCESS_KEY": ""},
        {"AWS_PROFILE": "other"},
        {"AWS_DEFAULT_PROFILE": "other"},
        {"AWS_CONFIG_FILE": __file__},
        {"AWS_SHARED_CREDENTIALS_FILE": __file__},
        {"AWS_DATA_PATH": "/somewhere"},
        {"AWS_DEFAULTS_MODE": "standard"},
        {"AWS_S3_US_EAST_1_REGIONAL_ENDPOINT": "what?"},
        {"AWS_REGION": "xx-west-1"},
        {"AWS_CREDENTIAL_EXPIRATION": "Fri, 2 Jan 2037 03:04:05 GMT"},
        {"AWS_CREDENTIAL_EXPIRATION": "2037-01-02T03:04:05"},
    ],
    ids="-".join,
)
def test_what_might_say_otherwise_is_left_to_botocore(monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> None:
    """These are profiles and files, and variables that are not read here."""
    settings = configure(monkeypatch, KEYS | REGION | environ)
    assert session._by_environment(settings, locate(settings.repository, {}), "") is None


def test_a_file_at_its_usual_place_is_left_to_botocore(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is in ~/.aws, and no variable names another."""
    monkeypatch.delenv("AWS_CONFIG_FILE")
    monkeypatch.setenv("HOME", str(tmp_path))
    settings = configure(monkeypatch, KEYS | REGION)
    place = locate(settings.repository, {})
    assert session._by_environment(settings, place, "") is not None
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "config").write_text("[default]\ns3 =\n  addressing_style = path\n")
    assert session._by_environment(settings, place, "") is None
    assert connect(settings, place)._base == "https://models.s3.eu-west-1.amazonaws.com"


@pytest.mark.parametrize("minutes", [60, 5, -1])
def test_keys_that_expire_are_read_again_when_botocore_does(monkeypatch: pytest.MonkeyPatch, minutes: float) -> None:
    """Reading begins a quarter of an hour before their end; after it they are refused."""
    configure(monkeypatch, KEYS | {"AWS_CREDENTIAL_EXPIRATION": ahead(60)})
    signer, theirs = KeySigner("eu-west-1"), get_session().get_credentials()

    def both() -> tuple[str, ...]:
        signed = signer.sign("GET", "http://h/", {})["Authorization"]
        return signed.partition("Credential=")[2].partition("/")[0], theirs.get_frozen_credentials().access_key

    assert both() == ("key", "key")
    configure(monkeypatch, {"AWS_ACCESS_KEY_ID": "new", "AWS_CREDENTIAL_EXPIRATION": ahead(minutes)})
    assert both() == ("key", "key")
    expires = datetime.now(UTC) + timedelta(minutes=5)
    signer._keys = environment.Keys("key", "secret", None, expires)
    theirs._expiry_time = expires
    if minutes > 0:
        assert both() == ("new", "new")
        return
    with pytest.raises(ModelNotLoadable, match="credentials have expired"):
        both()
    with pytest.raises(RuntimeError, match="still expired"):
        theirs.get_frozen_credentials()


def test_without_certifi_the_certificates_are_botocores_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lambda's runtime is such a place."""
    monkeypatch.setitem(sys.modules, "certifi", None)
    assert environment.certificates(None, {}) == httpsession.DEFAULT_CA_BUNDLE
    assert environment.certificates("", {}) == httpsession.DEFAULT_CA_BUNDLE


FETCH = """
import sys
from handler.settings import Settings
from handler.stores import open_store
from handler.stores.progress import Progress

store = open_store(Settings.from_env())
folder = store.fetch("m", "1", store.files("m"), Progress())
print((folder.path / "x").read_text())
print([name for name in ("botocore", "boto3", "urllib3", "certifi", "urllib.request") if name in sys.modules])
"""


def test_a_fetch_does_not_import_botocore_where_the_environment_says_all(
    stand_in: s3_stand_in.StandIn, tmp_path: Path
) -> None:
    """A separate process runs it on the stand-in, as on Lambda."""
    stand_in.put("p/m/1/x", b"content")
    environ = stand_in.variables() | REGION | {"AWS_SESSION_TOKEN": "t", "DRAGOMAN_CACHE": str(tmp_path / "cache")}
    environ |= {"PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", FETCH], env=environ, cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["content", "[]"]
    assert "/eu-west-1/s3/" in stand_in.signed[0]


def test_a_restored_instance_signs_with_the_keys_that_the_environment_has_then(
    monkeypatch: pytest.MonkeyPatch, stand_in: s3_stand_in.StandIn, tmp_path: Path
) -> None:
    """The rule holds after disconnect; until then it keeps those that it has."""
    configure(monkeypatch, stand_in.variables())
    settings = Settings.from_env({"DRAGOMAN_REPOSITORY": "s3://bucket/p", "DRAGOMAN_CACHE": str(tmp_path)})
    store = S3Store(settings)
    store.check()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "restored")
    store.check()
    store.disconnect()
    store.check()
    keys = [each.partition("Credential=")[2].partition("/")[0] for each in stand_in.signed]
    assert keys == ["k", "k", "restored"]


def test_proxies_of_the_environment_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hosts in NO_PROXY are asked directly."""
    monkeypatch.setenv("http_proxy", "proxy:3128")
    monkeypatch.setenv("https_proxy", "http://proxy:3129")
    monkeypatch.setenv("no_proxy", "inside.example")
    assert session.proxy_of("http://h/b") == "http://proxy:3128"
    assert session.proxy_of("https://h/b") == "http://proxy:3129"
    assert session.proxy_of("http://inside.example/b") is None


def test_certificates_are_checked_unless_that_is_switched_off(
    secure: tuple[str, str], stand_in: s3_stand_in.StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AWS_CA_BUNDLE names the trusted ones; S3_VERIFY_SSL=0 is KServe's."""
    url, certificate = secure
    stand_in.put("p/m/x", b"content")
    monkeypatch.setattr("handler.stores.transfer.retries.FIRST_PAUSE", 0.001)
    for name, value in stand_in.variables(url).items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_env({"DRAGOMAN_REPOSITORY": "s3://bucket/p", "DRAGOMAN_CACHE": str(tmp_path)})
    with pytest.raises(ModelUnavailable, match="does not answer .SSLCertVerificationError.: check AWS_CA_BUNDLE"):
        S3Store(settings).read("m", "x")
    monkeypatch.setenv("AWS_CA_BUNDLE", certificate)
    assert S3Store(settings).read("m", "x") == b"content"
    monkeypatch.delenv("AWS_CA_BUNDLE")
    monkeypatch.setenv("S3_VERIFY_SSL", "0")
    assert S3Store(settings).read("m", "x") == b"content"


@pytest.mark.parametrize(("bundle", "cure"), [
    ("", r"\(SSLError\): check the scheme of AWS_ENDPOINT_URL_S3, http:// or https://"),
    ("empty.pem", r"\(SSLError\): check AWS_CA_BUNDLE"),
    ("missing.pem", r"\(FileNotFoundError\): check AWS_CA_BUNDLE"),
])  # fmt: skip
def test_a_store_without_tls_and_a_bundle_without_certificates_have_cures_of_their_own(
    stand_in: s3_stand_in.StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bundle: str, cure: str
) -> None:
    """Python has one name for both errors, and an endpoint without a scheme is asked over https."""
    monkeypatch.setattr("handler.stores.transfer.retries.FIRST_PAUSE", 0.001)
    (tmp_path / "empty.pem").touch()
    if bundle:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / bundle))
    settings = stand_in.settings(monkeypatch, stand_in.url.removeprefix("http://"), DRAGOMAN_CACHE=str(tmp_path))
    with pytest.raises(ModelUnavailable, match=f"127.0.0.1 does not answer {cure}"):
        S3Store(settings).read("m", "x")


def test_credentials_that_cannot_be_had_are_no_usable_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key without a secret is an example; the message has the reason's kind, not its text."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    with pytest.raises(ModelNotLoadable, match="AWS credentials are missing.*PartialCredentialsError"):
        KeySigner("us-east-1").sign("GET", "http://h/", {})


@pytest.mark.parametrize(("name", "what"), [
    ("AWS_ACCESS_KEY_ID", "access key"),
    ("AWS_SECRET_ACCESS_KEY", "secret key"),
    ("AWS_SESSION_TOKEN", "session token"),
])  # fmt: skip
@pytest.mark.parametrize("profile", [{}, {"AWS_CONFIG_FILE": "config", "AWS_PROFILE": "default"}])
def test_keys_with_a_line_end_are_refused_without_their_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, what: str, profile: dict[str, str]
) -> None:
    """As `echo` writes it into a secret: a header cannot hold it, and http.client's error quotes the header."""
    monkeypatch.chdir(tmp_path)
    Path("config").write_text("[default]\n")
    configure(monkeypatch, KEYS | profile | {name: "hidden\n"})
    with pytest.raises(ModelNotLoadable, match=f"the {what} of the AWS settings has a blank or a line") as refused:
        KeySigner("us-east-1").sign("GET", "http://h/", {})
    assert "hidden" not in refused.value.message


def test_a_region_with_a_line_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Botocore accepts it where an endpoint is named."""
    settings = configure(monkeypatch, KEYS | {"AWS_REGION": "eu\n", "AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9"})
    with pytest.raises(ModelNotLoadable, match="the region of the AWS settings has a blank or a line end"):
        connect(settings, locate(settings.repository, os.environ))


@pytest.mark.parametrize("profile", [{}, {"AWS_CONFIG_FILE": "config", "AWS_PROFILE": "default"}])
def test_renewed_credentials_are_looked_for_anew(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, profile: dict[str, str]
) -> None:
    """The current environment is read; with a profile, botocore does it."""
    monkeypatch.chdir(tmp_path)
    Path("config").write_text("[default]\n")
    configure(monkeypatch, KEYS | profile)
    signer = KeySigner("us-east-1")
    assert "Credential=key/" in signer.sign("GET", "http://h/", {})["Authorization"]
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "new")
    assert "Credential=key/" in signer.sign("GET", "http://h/", {})["Authorization"]
    signer.renew()
    assert "Credential=new/" in signer.sign("GET", "http://h/", {})["Authorization"]
    Anonymous().renew()

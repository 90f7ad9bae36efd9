"""`dragoman sign` and `verify`, and `dragoman push --sign-key`: what they write, and what servers make of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from core.errors import ServingError
from core.operations import ModelRef
from handler.lifecycle.registry import Registry
from handler.settings import Settings
from tests.handler.commands.publish.conftest import Bucket, adds
from tests.support.registries import get
from tests.support.signing import DIGITAL, certificate, key, pem, private, public

if TYPE_CHECKING:
    from pathlib import Path

ROOT = certificate("root", "root", ca=True)
LEAF = certificate("leaf", "root", more=(DIGITAL,))


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with keys and certificates."""
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "key").write_bytes(private(key()))
    (folder / "pub").write_text(public(key()))
    (folder / "other").write_text(public(key("other")))
    (folder / "leafkey").write_bytes(private(key("leaf")))
    (folder / "leaf").write_text(pem(LEAF))
    (folder / "root").write_text(pem(ROOT))
    (folder / "rsa").write_bytes(private(rsa.generate_private_key(65537, 2048)))
    locked = BestAvailableEncryption(b"x")
    (folder / "locked").write_bytes(key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, locked))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model's folder with two versions."""
    for number in (1, 2):
        adds(number, tmp_path / "m" / str(number))
    return tmp_path / "m"


def loads(repository: object, **verify: str) -> str:
    """Returns the signer of the model's newest version, as a server sees it."""
    variables = {"DRAGOMAN_REPOSITORY": str(repository), "DRAGOMAN_CACHE": f"{repository}-cache"}
    models = Registry(Settings.from_env({**variables, "DRAGOMAN_VERIFY": "signature", **verify}))
    version = get(models, ModelRef("m")).spec.version
    served = models._catalog.models["m"].versions[int(version)]
    assert served.loaded is not None
    return served.loaded.parameters["signer"]


def test_each_version_of_a_model_is_signed(run: Any, model: Path, keys: Path) -> None:
    """The folder is then a repository that a server verifies."""
    code, out, err = run("sign", model, "--key", keys / "key")
    assert (code, err) == (0, "")
    assert [line.split(", ")[0].rpartition(":")[0] for line in out.splitlines()] == [
        f"{model}/{number}: signed by key" for number in (1, 2)
    ]
    assert out.splitlines()[0].endswith(", 1 file")
    assert loads(model.parent, DRAGOMAN_VERIFY_KEY=str(keys / "pub")).startswith("key:")
    code, out, err = run("verify", model, "--key", keys / "pub")
    assert (code, err) == (0, "")
    assert out.count(": verified, digest sha256:") == 2
    assert run("verify", model, "--version", "2", "--key", keys / "pub")[1].count("verified") == 1


def test_a_file_address_names_a_folder_of_this_machine(run: Any, model: Path, keys: Path) -> None:
    """As it does for the repository."""
    address = model.as_uri()
    assert run("sign", address, "--key", keys / "key")[0] == 0
    code, out, _ = run("verify", address, "--key", keys / "pub")
    assert (code, out.count(f"{model}/")) == (0, 2)
    assert run("push", address, model.parent / "r" / "m")[0] == 0
    assert run("index", (model.parent / "r").as_uri())[1].startswith(f"{model.parent}/r/index.json: 1 model")
    code, _, err = run("verify", "file://m", "--key", keys / "pub")
    assert (code, "the path is 'file://m'; expected a path, or file:// and a path from the root" in err) == (2, True)


@pytest.mark.parametrize("words", [("sign", "{}", "--unsigned"), ("index", "{}"), ("push", "{}", "r/m")])
def test_an_address_that_is_not_on_this_machine_is_refused(run: Any, words: tuple[str, ...]) -> None:
    """It is shown as it was given."""
    for address in ("s3://b/x", "ftp://h/x"):
        code, _, err = run(*(word.format(address) for word in words))
        told = f"{address!r} is not on this machine; expected a path: `dragoman pull` fetches a model"
        assert (code, told in err) == (2, True), err


def test_a_certificate_signs(run: Any, model: Path, keys: Path) -> None:
    """Its chain goes with it; the verifiers keep the roots."""
    assert run("sign", model, "--key", keys / "leafkey", "--cert", keys / "leaf")[0] == 0
    code, out, _ = run("verify", model, "--roots", keys / "root", "--identity", "leaf")
    assert (code, out.count("signed by certificate:CN=leaf")) == (0, 2)
    code, _, err = run("verify", model, "--roots", keys / "root", "--identity", "another")
    assert (code, "is not an expected identity" in err) == (1, True)
    assert loads(model.parent, DRAGOMAN_VERIFY_ROOTS=str(keys / "root")) == "certificate:CN=leaf"


def test_hidden_files_are_neither_signed_nor_in_the_way(run: Any, model: Path, keys: Path) -> None:
    """They are not pushed, either."""
    for name in (".git/x", ".hidden", "sub/.DS_Store", "sub/__pycache__/x.pyc"):
        (model / "1" / name).parent.mkdir(exist_ok=True)
        (model / "1" / name).write_bytes(b"x")
    assert run("sign", model, "--key", keys / "key")[0] == 0
    assert run("verify", model, "--key", keys / "pub")[0] == 0
    (model / "1/sub/seen").write_bytes(b"x")
    assert "'sub/seen' is not listed in model.sig" in run("verify", model, "--key", keys / "pub")[2]


def test_a_version_takes_over_its_models_settings(run: Any, model: Path, keys: Path) -> None:
    """The signature does not cover the model's own; settings that choose a version stay outside."""
    said = {"max_batch_size": 3, "version_policy": {"latest": {"num_versions": 2}}}
    (model / "model-settings.json").write_text(json.dumps(said))
    (model / "2/model-settings.json").write_text('{"max_batch_size": 5}')
    assert run("sign", model, "--key", keys / "key")[0] == 0
    own = [json.loads((model / number / "model-settings.json").read_bytes()) for number in "12"]
    assert own == [{"max_batch_size": 3}, {"max_batch_size": 5}]
    assert loads(model.parent, DRAGOMAN_VERIFY_KEY=str(keys / "pub"))
    (model / "model-settings.json").write_text('{"platform": "x"}')
    assert "'platform' in its model's model-settings.json is not" in run("verify", model, "--key", keys / "pub")[2]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("sign", "m", "--key", "keys/pub"), "keys/pub holds no private key that can be read"),
        (("sign", "m", "--key", "keys/none"), "keys/none cannot be read: No such file"),
        (("sign", "m", "--key", "keys/rsa"), "keys/rsa holds a key of the kind RSA; expected an ECDSA key"),
        (("sign", "m", "--key", "keys/locked"), "keys/locked is encrypted"),
        (("sign", "m", "--key", "keys/key", "--cert", "keys/leaf"), "keys/leaf is the certificate of another key"),
        (("sign", "m", "--key", "keys/key", "--cert", "keys/key"), "keys/key holds a PEM block 'PRIVATE KEY'"),
        (("sign", "m", "--unsigned", "--cert", "keys/leaf"), "is a certificate without its private key"),
        (("sign", "none", "--key", "keys/key"), "there is no file or folder none"),
        (("sign", "m/1/model.onnx", "--key", "keys/key"), "is a file; expected the folder of a version"),
        (("sign", ".", "--key", "keys/key"), ". is a repository, with model m: add the model's name, ./NAME"),
        (("verify", ".", "--digest"), "is a repository, with model m"),
        (("verify", "m"), "no signer is trusted: name a public key with --key"),
        (("verify", "m", "--key", "keys/pub"), "m/1 is not verified: it has no model.sig"),
        (("verify", "m", "--key", "keys/key"), "--key holds a PEM block 'PRIVATE KEY'; expected PUBLIC KEY"),
        (("verify", "m", "--roots", "keys/none"), "--roots is 'keys/none', which cannot be read"),
        (("push", "m", "r/m", "--sign-key", "keys/rsa"), "keys/rsa holds a key of the kind RSA"),
        (("push", "m", "r/m", "--sign-cert", "keys/leaf"), "is a certificate without its private key"),
    ],
)
def test_what_cannot_be_signed_or_verified_is_refused(
    run: Any, model: Path, keys: Path, arguments: tuple[str, ...], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal has one line; nothing is written."""
    monkeypatch.chdir(model.parent)
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert reason in err
    assert err.count("\n") == 1
    assert not list(model.rglob("model.sig"))


PIPELINE = json.dumps({"pipeline": {"steps": [{"model": "m"}]}})
ENSEMBLE = 'ensemble_scheduling { step [{ model_name: "m" input_map { key: "x" value: "x" } }] }'


@pytest.mark.parametrize(("files", "named", "reason"), [
    ({"model-settings.json": PIPELINE}, "p", "p/model-settings.json has the pipeline outside a version, where no "),
    ({"config.pbtxt": ENSEMBLE}, "p", "put the pipeline into p/1/pipeline.json, and sign p"),
    ({"model-settings.json": PIPELINE, "1/.x": ""}, "p", "p/1 is empty: put the pipeline of "),
    ({"config.pbtxt": ENSEMBLE, "1/.x": ""}, "p/1", "p/config.pbtxt into p/1/pipeline.json"),
    ({"config.pbtxt": ENSEMBLE, "model-settings.json": "[]", "2/.x": ""}, "p", "p/config.pbtxt into p/2/pipeline.json"),
    ({"config.pbtxt": "max_batch_size: 2", "1/.x": ""}, "p", "p/1 is empty"),
])  # fmt: skip
@pytest.mark.parametrize("command", [("sign", "--unsigned"), ("verify", "--digest")])
def test_a_pipeline_outside_a_version_is_not_signed(
    run: Any, tmp_path: Path, files: dict[str, str], named: str, reason: str, command: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """No server would accept the signature, which covers a version's files."""
    monkeypatch.chdir(tmp_path)
    for path, text in files.items():
        (tmp_path / "p" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "p" / path).write_text(text)
    code, out, err = run(command[0], named, command[1])
    assert (code, out, err.count("\n")) == (1, "", 1)
    assert reason in err
    assert ("pipeline" in err) is ("pipeline" in reason)
    assert not list(tmp_path.rglob("model.sig"))


def test_a_versions_own_pipeline_is_signed(run: Any, model: Path, keys: Path) -> None:
    """It can be in either of the two files. Servers name this cure for a pipeline that is outside a version."""
    pipeline = model.parent / "p"
    (pipeline / "1").mkdir(parents=True)
    variables = {"DRAGOMAN_VERIFY": "signature", "DRAGOMAN_VERIFY_KEY": str(keys / "pub"),
                 "DRAGOMAN_REPOSITORY": str(model.parent), "DRAGOMAN_CACHE": f"{model.parent}-cache"}  # fmt: skip
    assert run("sign", model, "--key", keys / "key")[0] == 0
    for name, text in (
        ("model-settings.json", PIPELINE),
        ("pipeline.json", json.dumps(json.loads(PIPELINE)["pipeline"])),
    ):
        (pipeline / "1" / name).write_text(text)
        assert run("sign", pipeline, "--key", keys / "key")[0] == 0
        assert get(Registry(Settings.from_env(variables)), ModelRef("p")).spec.version == "1"
        (pipeline / "1" / name).unlink()
    (pipeline / "1" / "model.sig").unlink()
    (pipeline / "model-settings.json").write_text(PIPELINE)
    with pytest.raises(
        ServingError, match="put the pipeline into p/1/pipeline.json, and sign that with `dragoman sign`"
    ):
        get(Registry(Settings.from_env(variables)), ModelRef("p"))


def test_a_link_is_not_signed(run: Any, model: Path, keys: Path) -> None:
    """Verifiers refuse it."""
    (model / "1/labels").symlink_to(keys / "pub")
    assert "labels is a symbolic link" in run("sign", model, "--key", keys / "key")[2]


def test_digests_without_a_signature(run: Any, model: Path, keys: Path) -> None:
    """They serve servers that trust every signer."""
    assert run("sign", model, "--unsigned")[1].count(": digests only, digest sha256:") == 2
    assert run("verify", model, "--digest")[0] == 0
    assert "model.sig has digests and no signature" in run("verify", model, "--key", keys / "pub")[2]
    with pytest.raises(ServingError, match="has digests and no signature"):
        loads(model.parent, DRAGOMAN_VERIFY_KEY=str(keys / "pub"))


@pytest.mark.parametrize("source", ["m", "m/1", "m/1/model.onnx"])
def test_a_push_signs(run: Any, model: Path, keys: Path, source: str) -> None:
    """The signature covers the pushed files and the model's settings; the source folder stays as it is."""
    if source == "m":
        (model / "model-settings.json").write_text('{"max_batch_size": 3}')
    target = model.parent / "r" / "m"
    code, out, _ = run("push", model.parent / source, target, "--sign-key", keys / "key")
    assert (code, "; signed by key:" in out) == (0, True)
    assert not list(model.rglob("model.sig"))
    assert loads(target.parent, DRAGOMAN_VERIFY_KEY=str(keys / "pub"))


def test_a_push_keeps_a_signature(run: Any, model: Path, keys: Path) -> None:
    """It stays byte for byte. One that does not fit is refused, and --sign-key replaces it."""
    run("sign", model, "--key", keys / "key")
    text, target = (model / "1/model.sig").read_bytes(), model.parent / "r" / "m"
    assert run("push", model / "1", target)[0] == 0
    assert (target / "1/model.sig").read_bytes() == text
    (model / "1/more").write_bytes(b"x")
    assert "model.sig does not list 'more' as it is: sign it again" in run("push", model / "1", target)[2]
    assert run("push", model / "1", target, "--sign-key", keys / "key")[0] == 0
    (model / "2/model.sig").write_bytes(b"{}")
    assert "model.sig has no mediaType: sign it again, or remove model.sig" in run("push", model / "2", target)[2]


def test_a_signature_that_does_not_fit_is_refused_before_any_version_is_sent(run: Any, model: Path, keys: Path) -> None:
    """Version 1 was there when version 2 was refused, and in the way of the next attempt."""
    run("sign", model, "--key", keys / "key")
    (model / "2/more").write_bytes(b"x")
    assert run("push", model, model.parent / "r" / "m")[0] == 1
    assert not (model.parent / "r").exists()


def test_a_bucket_has_signed_versions(run: Any, bucket: Bucket, model: Path, keys: Path, tmp_path: Path) -> None:
    """A version is pushed, verified, served, pulled and replaced. It is refused when one byte has changed."""
    target = f"{bucket.uri}/m"
    assert run("push", model, target, "--sign-key", keys / "key", "--quiet")[0] == 0
    assert bucket.keys() == ["m/1/model.onnx", "m/1/model.sig", "m/2/model.onnx", "m/2/model.sig"]
    code, out, _ = run("verify", target, "--key", keys / "pub")
    assert (code, out.count(": verified, digest sha256:")) == (0, 2)
    more = {"DRAGOMAN_CACHE": str(tmp_path / "c"), "DRAGOMAN_VERIFY_KEY": str(keys / "pub")}
    assert loads(bucket.uri, **more).startswith("key:")
    assert run("pull", target, tmp_path / "out", "--quiet")[0] == 0
    assert run("verify", tmp_path / "out", "--key", keys / "pub")[0] == 0
    assert run("push", model / "1", target, "--version", "2", "--force", "--sign-key", keys / "key", "--quiet")[0] == 0
    assert loads(bucket.uri, **more).startswith("key:")
    content = bucket.get("m/2/model.onnx")
    bucket.put("m/2/model.onnx", content[:-1] + bytes([content[-1] ^ 1]))
    code, _, err = run("verify", target, "--version", "2", "--key", keys / "pub")
    assert (code, "'model.onnx' differs from model.sig" in err) == (1, True)
    with pytest.raises(ServingError, match="'model.onnx' differs from model.sig"):
        loads(bucket.uri, **more)

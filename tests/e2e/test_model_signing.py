"""The format's own tool, model_signing, and ours each verify what the other has signed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e import tools
from tests.support.signing import DIGITAL, SIGNED, certificate, key, pem, private, public

if TYPE_CHECKING:
    from pathlib import Path

CURVES = ("prime256v1", "secp384r1", "secp521r1")
OURS = (sys.executable, "-m", "dragoman")


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    """A folder with a key, and a chain of certificates."""
    folder = tmp_path / "keys"
    folder.mkdir()
    (folder / "key").write_bytes(private(key()))
    (folder / "pub").write_text(public(key()))
    (folder / "leafkey").write_bytes(private(key("leaf")))
    root, middle = certificate("root", "root", ca=True), certificate("middle", "root", ca=True)
    for name, each in (("root", root), ("middle", middle), ("leaf", certificate("leaf", "middle", more=(DIGITAL,)))):
        (folder / name).write_text(pem(each))
    return folder


@pytest.fixture
def version(tmp_path: Path) -> Path:
    """A version's folder, without a signature."""
    shutil.copytree(SIGNED / "1", tmp_path / "1")
    return tmp_path / "1"


def runs(*command: str | Path) -> bool:
    """Returns whether a command succeeds."""
    return subprocess.run(command, cwd=tools.ROOT, capture_output=True, check=False).returncode == 0


def theirs(verb: str, method: str, version: Path, *arguments: str | Path) -> bool:
    """Returns whether model_signing succeeds."""
    program = tools.environment("signing") / "model_signing"
    return runs(program, verb, method, version, "--signature", version / "model.sig", *arguments)


def spoiled(version: Path) -> Path:
    """Changes a file of the version."""
    (version / "sub/notes.txt").write_text("Notes\n")
    return version


def test_they_verify_our_key(version: Path, keys: Path) -> None:
    """They also refuse a version that was changed afterwards."""
    (version / ".hidden").write_bytes(b"x")
    assert runs(*OURS, "sign", version, "--key", keys / "key")
    assert theirs("verify", "key", version, "--public_key", keys / "pub")
    assert not theirs("verify", "key", spoiled(version), "--public_key", keys / "pub")


def test_we_verify_their_key(version: Path, keys: Path) -> None:
    """We also refuse a version that was changed afterwards."""
    assert theirs("sign", "key", version, "--private_key", keys / "key")
    assert runs(*OURS, "verify", version, "--key", keys / "pub")
    assert not runs(*OURS, "verify", spoiled(version), "--key", keys / "pub")


def test_they_verify_our_certificate(version: Path, keys: Path) -> None:
    """They also refuse a version that was changed afterwards."""
    assert runs(*OURS, "sign", version, "--key", keys / "leafkey", "--cert", keys / "leaf", "--cert", keys / "middle")
    assert theirs("verify", "certificate", version, "--certificate_chain", keys / "root")
    assert not theirs("verify", "certificate", spoiled(version), "--certificate_chain", keys / "root")


def test_we_verify_their_certificate(version: Path, keys: Path) -> None:
    """We also refuse a version that was changed afterwards."""
    chain = ("--signing_certificate", keys / "leaf", "--certificate_chain", keys / "middle")
    assert theirs("sign", "certificate", version, "--private_key", keys / "leafkey", *chain)
    assert runs(*OURS, "verify", version, "--roots", keys / "root")
    assert not runs(*OURS, "verify", spoiled(version), "--roots", keys / "root")


@pytest.mark.parametrize("curve", CURVES)
def test_both_know_the_same_curves(version: Path, keys: Path, curve: str) -> None:
    """Each curve has its hash; OpenSSL has made these keys."""
    tools.run("openssl", "ecparam", "-name", curve, "-genkey", "-out", keys / "made")
    (keys / "made.pub").write_text(tools.run("openssl", "ec", "-in", keys / "made", "-pubout"))
    assert theirs("sign", "key", version, "--private_key", keys / "made")
    assert runs(*OURS, "verify", version, "--key", keys / "made.pub")
    assert runs(*OURS, "sign", version, "--key", keys / "made")
    assert theirs("verify", "key", version, "--public_key", keys / "made.pub")

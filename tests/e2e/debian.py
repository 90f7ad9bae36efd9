"""A bare Debian in a container: its base system and Python, and nothing of this machine but its network."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.engine import Engine
from tests.e2e.tools import HOME, require, run

SUITE = "bookworm"  # its python3 is 3.11, the oldest that Dragoman supports
PACKAGES = ("python3", "python3-venv", "ca-certificates", "make")
MIRROR = "http://deb.debian.org/debian"
IMAGE = "dragoman-debian"
LEFT_OUT = ("usr/share/doc", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")  # as Debian's slim images
CERTIFICATES = "/etc/ssl/certs"
PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT")
USER = "newcomer"


@dataclass(frozen=True, slots=True)
class Machine:
    """A running container. Commands are those of a user without rights, in an empty home."""

    engine: Engine
    name: str

    def run(self, script: str) -> str:
        """Run a script with bash to its end and return its output; nobody answers a question. A failure shows it."""
        return run("docker", "exec", "--user", USER, self.name, "bash", "-euc", f"cd; {script}", env=self.engine.env)

    def start(self, script: str) -> None:
        """Leave a script running, with its output in ~/log."""
        command = f"cd; exec >log 2>&1; {script}"
        run("docker", "exec", "--detach", "--user", USER, self.name, "bash", "-euc", command, env=self.engine.env)

    def put(self, *files: Path) -> None:
        """Copy files into the user's home."""
        for file in files:
            run("docker", "cp", file, f"{self.name}:/home/{USER}/{file.name}", env=self.engine.env)


def base(suite: str = SUITE) -> Path:
    """Return the base system as an archive, which is made once."""
    archive = HOME / f"{suite}-slim-{'-'.join(PACKAGES)}.tar"
    if not archive.exists():
        require("debootstrap")
        with tempfile.TemporaryDirectory(prefix="dragoman-debian-") as folder:
            run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, folder, MIRROR)
            without = (f"--exclude=./{each}/*" for each in LEFT_OUT)
            place = (f"--directory={folder}", f"--file={archive}.part", ".")
            run("tar", "--create", "--one-file-system", *without, *place)
        Path(f"{archive}.part").rename(archive)
    return archive


@contextlib.contextmanager
def running(engine: Engine) -> Iterator[Machine]:
    """Offer a new machine. It has this one's network: the tests' engine gives its containers no way out."""
    run("docker", "import", base(), IMAGE, env=engine.env)
    variables = [f"--env={name}={os.environ[name]}" for name in PASSED_ON if name in os.environ]
    # A network that inspects TLS has its own authority.
    mount = f"--volume={CERTIFICATES}:{CERTIFICATES}:ro"
    options = ("--detach", "--rm", "--network=host", "--init", mount, *variables)
    name = run("docker", "run", *options, IMAGE, "sleep", "infinity", env=engine.env).strip()
    try:
        run("docker", "exec", name, "useradd", "--create-home", USER, env=engine.env)
        yield Machine(engine, name)
    finally:
        run("docker", "kill", name, env=engine.env)

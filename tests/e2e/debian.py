"""A bare Debian in a container: its base system and Python, SAM, and nothing of this machine but its network."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.engine import Engine
from tests.e2e.tools import HOME, require, run, site_packages

SUITE = "trixie"  # its python3 is 3.13, as Lambda's
PACKAGES = ("python3", "python3-venv", "ca-certificates", "make")
MIRROR = "http://deb.debian.org/debian"
IMAGE = "dragoman-debian"
LEFT_OUT = ("usr/share/doc", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")  # as Debian's slim images
CERTIFICATES = "/etc/ssl/certs"
PASSED_ON = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "PIP_INDEX_URL", "PIP_CERT", "PIP_DEFAULT_TIMEOUT")
USER = "newcomer"
SAM = "/opt/sam"
LAUNCHER = f"""#!/usr/bin/python3
import sys
sys.path.insert(0, "{SAM}")
from samcli.cli.main import cli
cli(prog_name="sam")
"""


@dataclass(frozen=True, slots=True)
class Machine:
    """A running container. Commands are those of a user without rights, in an empty home.

    The home has the same path on this machine: the engine finds the folders there that SAM gives its containers.
    """

    engine: Engine
    name: str
    home: Path

    def run(self, script: str) -> str:
        """Run a script with bash to its end and return its output; nobody answers a question. A failure shows it."""
        return run("docker", "exec", "--user", USER, self.name, "bash", "-euc", f"cd; {script}", env=self.engine.env)

    def start(self, name: str, script: str) -> None:
        """Leave a script running, with its output in ~/NAME.log."""
        command = f"cd; exec >{name}.log 2>&1; {script}"
        run("docker", "exec", "--detach", "--user", USER, self.name, "bash", "-euc", command, env=self.engine.env)

    def put(self, *files: Path) -> None:
        """Copy files into the user's home."""
        for file in files:
            shutil.copy(file, self.home)


def base() -> Path:
    """Return the base system as an archive, which is made once."""
    archive = HOME / f"{SUITE}-slim-{'-'.join(PACKAGES)}.tar"
    if not archive.exists():
        require("debootstrap")
        with tempfile.TemporaryDirectory(prefix="dragoman-debian-") as folder:
            run("debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, folder, MIRROR)
            without = (f"--exclude=./{each}/*" for each in LEFT_OUT)
            place = (f"--directory={folder}", f"--file={archive}.part", ".")
            run("tar", "--create", "--one-file-system", *without, *place)
        Path(f"{archive}.part").rename(archive)
    return archive


@contextlib.contextmanager
def running(engine: Engine) -> Iterator[Machine]:
    """Offer a new machine with SAM's command line, which reaches the engine. The network is this machine's."""
    run("docker", "import", base(), IMAGE, env=engine.env)
    home = Path(tempfile.mkdtemp(prefix="dragoman-newcomer-"))
    home.chmod(0o755)
    engine.socket.chmod(0o666)  # its folder is root's alone
    # A network that inspects TLS has its own authority.
    mounts = (f"{CERTIFICATES}:{CERTIFICATES}:ro", f"{site_packages('sam')}:{SAM}:ro", f"{home}:{home}")
    volumes = [f"--volume={each}" for each in (*mounts, f"{engine.socket}:/run/docker.sock")]
    variables = [f"--env={name}={os.environ[name]}" for name in PASSED_ON if name in os.environ]
    options = ("--detach", "--rm", "--network=host", "--init", *volumes, *variables)
    name = run("docker", "run", *options, IMAGE, "sleep", "infinity", env=engine.env).strip()
    try:
        launcher = f"cat >/usr/local/bin/sam <<'END'\n{LAUNCHER}END\nchmod 755 /usr/local/bin/sam"
        user = f"useradd --home-dir {home} {USER}; chown {USER}: {home}"
        run("docker", "exec", name, "bash", "-euc", f"{launcher}\n{user}", env=engine.env)
        yield Machine(engine, name, home)
    finally:
        run("docker", "kill", name, env=engine.env)
        shutil.rmtree(home, ignore_errors=True)

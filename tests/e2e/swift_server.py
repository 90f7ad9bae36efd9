"""OpenStack Swift's S3 API as one process tree, in Swift's environment.

swift_server.py FOLDER HOST PORT OBJECT-PORT CONTAINER-PORT ACCOUNT-PORT USER SECRET. The folder must be on a filesystem
with user xattrs. All parts end with this process, even when it is killed.
"""

import ctypes
import os
import pwd
import signal
import sys
from pathlib import Path

from swift.common.ring import RingBuilder
from swift.common.wsgi import run_wsgi
from swift.obj.server import global_conf_callback

PR_SET_PDEATHSIG = 1
FILTERS = {
    "catch_errors": "", "gatekeeper": "", "listing_formats": "",
    "s3api": "location = us-east-1\nstorage_domain = localhost\n", "tempauth": "user_{user} = {secret} .admin\n",
    "slo": "",
}  # fmt: skip
SWIFT_CONF = """[swift-hash]
swift_hash_path_suffix = local
swift_hash_path_prefix = local
[storage-policy:0]
name = one
default = yes
"""
DEFAULT = """[DEFAULT]
bind_ip = {host}
bind_port = {port}
swift_dir = {etc}
devices = {devices}
user = {owner}
mount_check = false
workers = 0
log_level = WARNING
disable_fallocate = true
fallocate_reserve = 0
"""


def write_rings(etc: Path, ports: dict[str, int]) -> None:
    """Write a ring with one replica on one device, called sda, for each of the three kinds of server."""
    for kind, port in ports.items():
        ring = RingBuilder(2, 1, 1)
        place = {"id": 0, "region": 1, "zone": 1, "ip": "127.0.0.1", "port": port, "device": "sda", "weight": 1.0}
        ring.add_dev({**place, "replication_ip": "127.0.0.1", "replication_port": port, "meta": ""})
        ring.rebalance(seed=0)
        ring.get_ring().save(str(etc / f"{kind}.ring.gz"))


def write_settings(folder: Path, ports: dict[str, int], host: str, port: int, login: dict[str, str]) -> Path:
    etc, devices = folder / "etc", folder / "node"
    etc.mkdir(parents=True)
    (devices / "sda").mkdir(parents=True)
    (etc / "swift.conf").write_text(SWIFT_CONF)
    common = {"etc": etc, "devices": devices, "owner": pwd.getpwuid(os.getuid()).pw_name}
    for kind, own_port in ports.items():
        default = DEFAULT.format(host="127.0.0.1", port=own_port, **common)
        app = f"[pipeline:main]\npipeline = {kind}-server\n[app:{kind}-server]\nuse = egg:swift#{kind}\n"
        (etc / f"{kind}-server.conf").write_text(default + app)
    proxy = DEFAULT.format(host=host, port=port, **common)
    proxy += f"[pipeline:main]\npipeline = {' '.join(FILTERS)} proxy-server\n"
    proxy += "[app:proxy-server]\nuse = egg:swift#proxy\naccount_autocreate = true\n"
    proxy += "error_suppression_limit = 1000000\n"  # else it avoids a server for a minute that was slow to start
    proxy += "".join(
        f"[filter:{name}]\nuse = egg:swift#{name}\n{text.format(**login)}" for name, text in FILTERS.items()
    )
    (etc / "proxy-server.conf").write_text(proxy)
    write_rings(etc, ports)
    return etc


def serve(etc: Path, kind: str, parent: int) -> None:
    """Become one of the servers; Swift was imported before the fork, which is half of its start-up."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
    more = {"global_conf_callback": global_conf_callback} if kind == "object" else {}
    os._exit(run_wsgi(str(etc / f"{kind}-server.conf"), f"{kind}-server", **more) or 0)


def main(folder: str, host: str, port: str, *more: str) -> None:
    *inner, user, secret = more
    ports = dict(zip(("object", "container", "account"), map(int, inner), strict=True))
    login = {"user": user.replace(":", "_"), "secret": secret}
    etc = write_settings(Path(folder).resolve(), ports, host, int(port), login)
    parent = os.getpid()
    for kind in (*ports, "proxy"):
        if not os.fork():
            serve(etc, kind, parent)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    os.wait()  # none of them ends by itself
    sys.exit("a part of Swift has ended")


if __name__ == "__main__":
    main(*sys.argv[1:])

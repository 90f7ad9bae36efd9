"""The commands that need an AWS account run against MiniStack: buckets, and the whole stack of template.yaml.

`sam build` and the built function, also that of `init --aws`, have tests of their own: its code is left out here.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.sam import ALONE
from tests.e2e.tools import HOME, ROOT, daemon, environment, listens
from tests.support.ports import free_port
from tests.support.walks import BLOCK, COMMAND, Walk

BY = "tests/e2e/test_aws_pages.py"
PAGES = ("docs/aws.md", "README.md", "docs/init.md", "docs/deploy.md", "docs/platforms.md")
LAST = ("sam delete", "aws s3 rb")
ANSWERS = "\\n\\nexample-models\\n" + "\\n" * 60
"""To the questions of `sam deploy --guided`: the stack's name, the region, the bucket, and the rest as it is."""


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Offers an empty account, whose endpoint and credentials are in the environment."""
    port = free_port()
    settings = {"GATEWAY_PORT": str(port), "BIND_HOST": "127.0.0.1", "LOG_LEVEL": "WARNING"}
    own = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    elsewhere = {name: value for name, value in ALONE.items() if not name.startswith("AWS_ENDPOINT")}
    for name, value in {**elsewhere, **own}.items():
        monkeypatch.setenv(name, value)
    command, log = environment("ministack") / "ministack", HOME / "log" / "ministack-pages.log"
    with daemon(command, ready=lambda: listens(port), log=log, env={**os.environ, **settings}):
        yield


def commands() -> dict[str, str]:
    """Returns each command of the pages once, with what it prints; what deletes comes last."""
    found: dict[str, str] = {}
    for page in PAGES:
        for named, _, _, content in BLOCK.findall((ROOT / page).read_text("utf-8")):
            for command, shown in COMMAND.findall(content) if named == BY else ():
                found.setdefault(command, shown)
    return {command: found[command] for command in sorted(found, key=lambda each: each.startswith(LAST))}


def test_the_commands_of_the_pages_work_in_an_account(account: None, tmp_path: Path) -> None:
    """From an empty account to a stack and a bucket with models, and back to an empty account."""
    (tmp_path / "models").symlink_to(ROOT / "models")
    (tmp_path / "template.yaml").symlink_to(ROOT / "template.yaml")
    (tmp_path / "events").symlink_to(ROOT / "events")  # the template's folder of code before `sam build`
    aws, sam = environment("aws") / "aws", environment("sam") / "sam"
    given = {
        ".venv/bin/dragoman": "dragoman",
        "sam build": "true",
        "sam deploy": f"printf '{ANSWERS}' | {sam} deploy",
        "sam delete": f"yes | {sam} delete",
        "aws s3": f"{aws} s3",
    }
    with ExitStack() as stack:
        walk = Walk(tmp_path, stack, given)
        for command, shown in commands().items():
            walk.run(command, shown)

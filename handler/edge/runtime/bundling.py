"""Writes init.bundle: `python -m handler.edge.runtime.bundling`, the last step of the build of a function's artifact.

It runs in the artifact, whose modules are compiled, with the runtime's Python. Where the artifact cannot be imported,
because it is for another processor, it writes nothing: the init phase is a tenth longer then.
"""

import json
import marshal
import os
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from handler.edge.runtime.bundle import FILE, ROOT, Bundle, file_of

HEADER: Final = 16
"""Bytes before the code in a .pyc file (PEP 552)."""
INIT: Final = """
import sys
import handler.edge.runtime.bundle
early = {*sys.modules, "handler.aws"}
import handler.aws
handler.aws.lambda_handler
import json
found = ((name, getattr(each, "__file__", None), hasattr(each, "__path__")) for name, each in sys.modules.items())
print(json.dumps([each for each in found if each[0] not in early]))
"""
FUNCTION: Final = {
    "AWS_LAMBDA_FUNCTION_NAME": "function",
    "DRAGOMAN_REPOSITORY": "s3://bucket/models",
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "none",
    "AWS_SECRET_ACCESS_KEY": "none",
}
"""The environment of a function whose models are in a bucket. Its init phase sends no request."""
OTHERS: Final = ("AWS_", "DRAGOMAN_", "PYTHON")
"""Variables of the machine that builds."""


def imported() -> list[tuple[str, bool]] | None:
    """Returns the artifact's modules that the init phase imports, and whether each is a package; None if it fails."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS)} | FUNCTION
    done = subprocess.run(  # noqa: S603 - this interpreter
        [sys.executable, "-c", INIT], env=environ, cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.stderr.write(f"init.bundle is not written: {(done.stderr.strip() or 'no message').splitlines()[-1]}\n")
        return None
    modules = json.loads(done.stdout)
    return [(name, is_package) for name, file, is_package in modules if file == file_of(name, is_package=is_package)]


def main() -> None:
    Path(FILE).unlink(missing_ok=True)  # else the modules would come from there
    codes: Bundle = {}
    for name, is_package in imported() or ():
        compiled = Path(cache_from_source(file_of(name, is_package=is_package))).read_bytes()
        codes[name] = marshal.loads(compiled[HEADER:]), is_package  # noqa: S302 - the artifact's own
    if codes:
        Path(FILE).write_bytes(marshal.dumps((sys.implementation.cache_tag, codes)))


if __name__ == "__main__":
    main()

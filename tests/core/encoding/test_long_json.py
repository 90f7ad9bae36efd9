"""core.encoding.long_json: long texts in every dialect's answers, where memory is short."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from core.encoding import jsonio, long_json
from core.encoding.long_json import LONGEST
from tests.support import needs

ROOT = Path(__file__).parents[3]
CHILD = """
import resource, sys
import numpy as np
from pathlib import Path
from core.dialects.grps import json_write
from core.dialects.grps.content import Tensors, Text
from core.dialects.v1.answer import Output, columns
from core.dialects.v2 import generate, infer, rpc_json_answer
from core.encoding import jsonio, keys
from core.encoding.exact_json import dumps_exact
from core.encoding.jsonio import NonFinite
from core.operations import ModelSpec
from core.tensor import TextTensor
from core.wire import Call, HttpRequest, Options
from handler.edge.observe.payloads.events import CloudEvent
from tests.support.grps_samples import result, tensor

content = b"a:" * 2**23
text, output = content.decode(), tensor("y", "BYTES", [content])
many = np.array([text[:1000]] * 17_000, object)
flat, nested = TextTensor("y", many), TextTensor("y", many.reshape(-1, 2))

def reply(dialect, name):
    body = b'{"id": "%b"%b}' % (name, b', "inputs": []' if dialect is infer else b"")
    call = Call(HttpRequest("POST", "/", {}, body, Options()), {"model": "m"})
    if dialect is infer:
        return infer.decode(call)[1]
    return generate.decode(call, stream=False)[0].decode(ModelSpec("m", "7", "python", None, None))[1]

def write(*content):
    return json_write.write(*content, json_write.snake, NonFinite.QUOTED)

short, long = ({dialect: reply(dialect, name) for dialect in (infer, generate)} for name in (b"1", content))
request = b'{"x": "%b"}' % content
each = {
    "infer": lambda: b"".join(short[infer](result(output)).parts),
    "infer, many": lambda: b"".join(short[infer](result(flat)).parts),
    "generate, many": lambda: b"".join(short[generate](result(flat)).parts),
    "grps, many": lambda: write(Tensors((flat,))),
    "v1, many": lambda: jsonio.dumps(columns([Output("y", flat)], NonFinite.BARE)),
    "v1, rows of many": lambda: jsonio.dumps(columns([Output("y", nested)], NonFinite.BARE)),
    "generate": lambda: b"".join(short[generate](result(output)).parts),
    "infer's id": lambda: b"".join(long[infer](result()).parts),
    "generate's id": lambda: b"".join(long[generate](result()).parts),
    "v1": lambda: jsonio.dumps(columns([Output("y", output)], NonFinite.BARE)),
    "v1 in base64": lambda: jsonio.dumps(columns([Output("y_bytes", output)], NonFinite.BARE)),
    "grps": lambda: write(Tensors((output,))),
    "grps's str_data": lambda: write(Text(text)),
    "connect": lambda: jsonio.dumps(rpc_json_answer.answer(result(output), text, None, None, wants_raw=False)),
    "event": lambda: dumps_exact({text: [text, 1]}),
    "payload": lambda: CloudEvent({}, "application/octet-stream", "", content).line(),
    "request": lambda: request if keys.has_all_members(request, {"x": text}) else b"",
}
for kind, written in each.items():
    told = []
    for room in (12, 160):
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + room * 2**20, -1))
        try:
            told.append(f"{len(written()) >> 22}")
        except MemoryError:
            told.append("no memory")
        resource.setrlimit(resource.RLIMIT_AS, (-1, -1))
    print(kind, *told, sep=", ", flush=True)
"""
TOLD = """infer, no memory, 4
infer, many, no memory, 4
generate, many, no memory, 4
grps, many, no memory, 4
v1, many, no memory, 4
v1, rows of many, no memory, 4
generate, no memory, 4
infer's id, no memory, 4
generate's id, no memory, 4
v1, no memory, 4
v1 in base64, no memory, 5
grps, no memory, 4
grps's str_data, no memory, 4
connect, no memory, 9
event, no memory, 8
payload, no memory, 5
request, 4, 4
"""


@needs.GLIBC
def test_a_long_text_is_written_in_the_memory_that_there_is() -> None:
    """For 16 MB, the writer of ordinary answers asks for 256 MB, and ends the process if it does not get them.

    Many short texts are as long together.
    """
    freed = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}  # else the allocator keeps what one writer has freed
    child = [sys.executable, "-c", CHILD]
    done = subprocess.run(child, cwd=ROOT, env=freed, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, TOLD), done.stderr


@pytest.mark.parametrize("text", ["a" * (LONGEST + 1), "é\U0001f600" * LONGEST, "".join(map(chr, range(256))) * 1025])
def test_a_long_text_has_the_writers_own_form(text: str) -> None:
    """It may be anywhere in a value, beside arrays and other texts."""
    value: dict[str, Any] = {"": 1, "x": [text, text], "y": text, "z": np.arange(3)}
    held = {"": 1, "x": long_json.texts([text, text]), "y": long_json.text(text), "z": np.arange(3)}
    assert jsonio.dumps(held) == orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    assert jsonio.dumps(long_json.text(text)) == orjson.dumps(text)


def test_short_texts_are_themselves() -> None:
    """Beside a long one, and many of them together, too."""
    for values in (["a" * LONGEST, ""], [], ["a" * LONGEST] * 3):
        assert long_json.texts(values) == values
        assert json.loads(jsonio.dumps(long_json.array(values))) == values
    beside = ["b", "a" * (LONGEST + 1)]
    for values in (beside * 17 + ["b"] * 1025, ["a\n\u00e9" * 1000, ""] * 1025, ["a"] * 3000 + beside):
        for made in (long_json.texts, long_json.array):
            assert json.loads(jsonio.dumps(made(values))) == values


def test_a_lone_surrogate_is_not_written() -> None:
    """The writer of ordinary answers raises a TypeError, too."""
    for count in (1, LONGEST):
        with pytest.raises(TypeError, match="surrogates not allowed"):
            jsonio.dumps(long_json.text("\ud800" + "a" * count))


def test_a_value_that_json_cannot_carry_is_refused_beside_a_long_text() -> None:
    """The error names its type, as that of any other value does."""
    for value in ({1}, [long_json.text("a" * (LONGEST + 1)), {1}]):
        with pytest.raises(TypeError, match="Type is not JSON serializable: set"):
            jsonio.dumps(value)

"""Requests that V2 refuses beside bad inferences: paths, names, versions, encodings, models that fail."""

import gzip
import json
import zlib
from typing import Any, Final

import ml_dtypes
import numpy as np

from tests.support.checks import refused
from tests.support.wire import COMPRESS, HEADER_LENGTH, binary_input, json_input, pack
from tests.support.zoo.models import JSON_DATATYPES

M: Final = "/v2/models"
R: Final = "/v2/repository"
X: Final = {"inputs": [json_input("x", "INT64", np.array([0]))]}
TEXT: Final = "vector_int32/infer"
BODY: Final = json.dumps({"inputs": [json_input("INPUT0", "INT32", np.array([1, 2, 3], np.int32))]}).encode()
ONE_KIND: Final = {"name": "kind", "datatype": "BYTES", "shape": [1]}


def at(rows: str, path: str, **more: Any) -> list[Any]:
    """Returns the case of a path that is refused: an inference is a POST, anything else a GET."""
    return refused(rows, path, X if path.endswith("/infer") else None, **more)


def binary(rows: str, model: str, name: str, values: Any, text: str, *, out: bool = False) -> list[Any]:
    """Returns the case of a refused binary input; `out`: binary outputs are asked for."""
    head, part = binary_input(name, "BF16" if values.dtype == ml_dtypes.bfloat16 else "BYTES", values)
    body, headers = pack({"inputs": [head], "parameters": {"binary_data_output": out}}, [part])
    return refused(rows, f"{M}/{model}/infer", body, text=text, **headers)


ODD_VERSIONS = ("abc", "v10", "-1", "1.0", "01", "0", "+1", "1%20", "%31%00", "10" * 600, "%D9%A1", "1e0", "_1", ".")
HOSTILE = (
    ".", "..", "%2e%2e", "%2f", "%00", "a" * 3000, "..%2fzoo%2fadd_sub", "../models/add_sub", "%2fetc%2fpasswd",
    "..%5cadd_sub", "%252e%252e", "%ff%fe", "add_sub%0a", "%0d%0aX-Header:%201", "%20",
    "%3Cscript%3Ealert(1)%3C%2Fscript%3E", "versions%2f1", ".git", "add_sub%2fready", "add_sub%2Fversions",
)  # fmt: skip
CLIENTS = tuple(range(400, 500))
NAMES: Final = [
    *(case for rest in ("", "/ready", "/infer") for case in (
        *at("R-023 R-024 R-025 R-026 R-208", f"{M}/unheard_of{rest}", text="...unheard_of...", status=404),
        *at("R-027 R-028", f"{M}/versions/versions/3{rest}", text="...versions...3...", status=404),
        *(each for version in ODD_VERSIONS for each in at("R-029", f"{M}/versions/versions/{version}{rest}",
                                                          status=(400, 404))))),
    *(case for model, version in (("versions_latest", 2), ("versions_specific", 10)) for rest in ("", "/infer")
      for case in at("R-028", f"{M}/{model}/versions/{version}{rest}", status=404)),
    *(case for name in HOSTILE for case in (
        *(each for rest in ("", "/ready", "/infer", "/versions/1", "/stats", "/config")
          for each in at("R-032", f"{M}/{name}{rest}", status=CLIENTS)),
        *(each for verb in ("load", "unload")
          for each in refused("R-032", f"{R}/models/{name}/{verb}", {}, status=CLIENTS)))),
    *(case for rest in ("stats", "config")
      for case in at("", f"{M}/unheard_of/{rest}", text="...unheard_of...", status=404)),
]  # fmt: skip

PATHS = ("/v2/nothing", f"{M}/add_sub/nothing", f"{M}/add_sub/versions", "/v2/health", "/v3", "/nothing/at/all")
ABSENT = (
    "GET /v2/systemsharedmemory/status", "POST /v2/systemsharedmemory/region/r/register",
    "GET /v2/cudasharedmemory/status", "POST /v2/cudasharedmemory/unregister", "GET /v2/trace/setting",
    f"POST {M}/add_sub/trace/setting", "GET /v2/logging", "POST /v2/logging",
)  # fmt: skip
BROKEN: Final = (
    "broken_onnx", "broken_empty", "broken_newest", "broken_settings", "py_broken_no_predict", "py_broken_import",
    "py_broken_syntax", "py_broken_exit", "py_broken_interrupt",
)  # fmt: skip
PLACES: Final = [
    *(case for path in PATHS for method in ("GET", "POST")
      for case in refused("R-033", f"{method} {path}", b"", status=404)),
    *(case for path in ABSENT
      for case in refused("R-430 R-208", path, b"{}" if path.startswith("POST") else b"", status=404)),
    *(case for verb in ("generate", "generate_stream")
      for case in refused("R-200 R-201 R-202 R-203 R-208", f"{M}/add_sub/{verb}", b"{}", text="...INPUT0...")),
    *refused("", f"{R}/index", b"{", b"[]", b'"x"', b"\xff", b'{"ready": "yes"}'),
    *(case for verb in ("load", "unload") for case in (
        *refused("R-412 R-414 R-208", f"{R}/models/unheard_of/{verb}", {}, text="...unheard_of...", status=404),
        *refused("", f"{R}/models/spare_reload/{verb}", b"{", b"[]", b"\xff", b'{"parameters": 1}'))),
    *refused("", f"{R}/models/spare_reload/load", {"parameters": {"config": "{}"}},
             {"parameters": {"file:1/model.onnx": "AA=="}}, status=(400, 501)),
    *(case for model in ("broken_onnx", "broken_empty", "broken_settings", "py_broken_import")
      for case in refused("", f"{R}/models/{model}/load", {}, text=f"...{model}...", status=503)),
    *(case for model in BROKEN for rest in ("", "/config")
      for case in at("", f"{M}/{model}{rest}", text=f"...{model}...", status=503)),
]  # fmt: skip

GZIP, DEFLATE = gzip.compress(BODY, mtime=0), zlib.compress(BODY)
CODED: Final = [
    *(case for coding in ("br", "zstd", "compress", "nonsense")
      for case in refused("R-152 R-208", f"{M}/{TEXT}", BODY, text=f"...{coding}...", status=415,
                          Content_Encoding=coding)),
    *refused("R-153 R-208", f"{M}/{TEXT}", BODY, GZIP[:-9], GZIP[:20] + b"\xff\xff\xff" + GZIP[23:],
             GZIP[:-8] + bytes(8), b"", Content_Encoding="gzip"),
    *refused("R-153 R-208", f"{M}/{TEXT}", BODY, DEFLATE[:-5], DEFLATE[:-4] + bytes(4), Content_Encoding="deflate"),
    *(case for coding in COMPRESS for case in refused("R-154 R-208", f"{M}/{TEXT}", COMPRESS[coding](bytes(80 << 20)),
                                                      status=413, Content_Encoding=coding)),
]  # fmt: skip

RAISED: Final = (
    "exception", "system_exit", "recursion", "long", "surrogate", "assertion", "keyboard_interrupt", "cancelled",
    "generator_exit", "stop_iteration", "base", "silent",
)  # fmt: skip
NONSENSE = (
    "nothing", "array", "empty", "other_name", "number_as_name", "complex", "time", "ints_as_objects",
    "none_as_value", "class",
)  # fmt: skip
NOT_UTF8: Final = np.array([b"\xff\xfe\x00\x01", b"\x80", b"caf\xe9", b"\xed\xa0\x80"], object)
CALCULATED: Final = [
    *refused("R-204 R-205 R-208 R-203", f"{M}/fails/infer", {"inputs": [json_input("index", "INT64", np.array([7]))]},
             status=500),
    *(case for model, kinds in (("py_raises", RAISED), ("py_returns", NONSENSE)) for kind in kinds
      for case in refused("R-204 R-205", f"{M}/{model}/infer", {"inputs": [{**ONE_KIND, "data": [kind]}]}, status=500)),
    *(case for model, body in (("add_sub", bytes(128)), ("matrix", bytes(16)), ("vector_bytes", b"abc"),
                               ("vector_int32", bytes(7)))
      for case in refused("R-323", f"{M}/{model}/infer", body, **{HEADER_LENGTH: "0"})),
    *(case for kind in JSON_DATATYPES if "INT" in kind
      for case in refused("R-143", f"{M}/vector_{kind.lower()}/infer", *(
          f'{{"inputs": [{{"name": "INPUT0", "datatype": "{kind}", "shape": [1], "data": [{element}]}}]}}'
          for element in ('"NaN"', "null", "NaN", '"Infinity"', "-Infinity")), text="...INPUT0...")),
    *(case for each in NOT_UTF8.tolist() for case in binary("R-312 R-325", "identity_bytes", "INPUT0",
                                                            np.array([each], object), "...INPUT0...", out=True)),
    *binary("R-312 R-201", "py_raw_bytes", "data", NOT_UTF8, "...binary..."),
    *binary("N-01 R-201", "identity_bf16", "INPUT0", np.array([1.0], ml_dtypes.bfloat16), "...binary..."),
    *refused("", f"{M}/broken_newest/versions/1/infer", X, status=404),
    *refused("", f"{M}/broken_newest/infer", X, text="...broken_newest...", status=503),
]  # fmt: skip
REFUSED: Final = [*NAMES, *PLACES, *CODED, *CALCULATED]

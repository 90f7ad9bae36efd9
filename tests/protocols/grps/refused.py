"""Refused messages of GRPS: rows of the catalogue, the content, the code, and words of the text."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np

from tests.support.catalogue import row
from tests.support.grps_client import FLAT, JSON, Http, Rpc, refusal, to_json, to_message


class Refused(NamedTuple):
    """A document, bytes or tensors for a model. Content that only JSON or only messages can express has one form."""

    model: str
    content: Any
    code: int
    text: str = ""
    query: dict[str, str] = {}  # noqa: RUF012 - never written

    def texts(self, http: Http, rpc: Rpc) -> Iterator[str]:
        """Sends the content in every form that it has. Yields the texts of the refusals."""
        if isinstance(self.content, bytes):
            yield http.predict(self.content, model=self.model).refusal(self.code)
            yield refusal(rpc.ask("Predict", model=self.model, bin_data=self.content), self.code)
        elif isinstance(self.content, str):
            yield http.call("POST", "infer/predict", self.content.encode(), {"Content-Type": JSON}).refusal(self.code)
        elif isinstance(self.content, list):
            yield http.infer(self.model, *(to_json(*tensor) for tensor in self.content)).refusal(self.code)
            tensors = {"tensors": [to_message(*tensor) for tensor in self.content]}
            yield refusal(rpc.ask("Predict", model=self.model, gtensors=tensors), self.code)
        elif "message" in self.content:
            tensors = {"tensors": [{"name": "x", "shape": [2], **self.content["message"]}]}
            yield refusal(rpc.ask("Predict", model=self.model, gtensors=tensors), self.code)
        else:
            yield http.predict({"model": self.model, **self.content}, **self.query).refusal(self.code)
            if self.content.keys() == {"str_data"} or self.content.get("gmap", {}).keys() == {"s_s"}:
                yield refusal(rpc.ask("Predict", model=self.model, **self.content), self.code)


def refused(rows: str, model: str, *contents: Any, code: int = 400, text: str = "", **query: str) -> list[Any]:
    """Returns a case for each content."""
    named = {name.replace("_", "-"): value for name, value in query.items()}
    return [row(rows, Refused(model, content, code, text, named), name=model) for content in contents]


def tensor(**members: Any) -> dict[str, Any]:
    """Returns gtensors of a correct tensor with a mistake; `...` leaves a member out."""
    right = {"name": "x", "dtype": "DT_INT32", "shape": [2], "flat_int32": [1, 2], **members}
    return {"gtensors": {"tensors": [{name: value for name, value in right.items() if value is not ...}]}}


INTEGERS = np.arange(4, dtype=np.int32)
NAMES = (
    ("INPUT0",), ("INPUT0", ""), ("", "INPUT1"), ("INPUT0", "INPUT0"), ("INPUT0", "nope"), ("",), ("", "", ""), (),
)  # fmt: skip
OTHERS = (
    ("DT_INT64", np.ones((1, 2), np.int64)), ("DT_FLOAT64", np.ones((1, 2))), ("DT_FLOAT32", np.ones(2, np.float32)),
    ("DT_FLOAT32", np.ones((1, 3), np.float32)), ("DT_FLOAT32", np.ones((), np.float32)),
)  # fmt: skip
NO_ARRAYS = (
    [], [[]], [[1, 2], [3]], [1, [2]], [["1", "2"]], [[None, 1]], [[True, 1]], [[1e300, 1]], "a", {}, [{}], True,
)  # fmt: skip
NO_MAPS = (
    {"s_s": {"INPUT0": "a"}}, {"s_f": {"INPUT0": 1.0}, "s_d": {"INPUT0": 1.0}}, {"s_f": {"nope": 1.0}}, {},
    {"s_f": {"INPUT0": "x"}}, {"s_f": [1]}, {"s_i32": {"INPUT0": 2**31}}, {"s_d": {"INPUT0": 1e300}},
)  # fmt: skip
BEYOND = {"bool": ("DT_UINT8", (2, 255)), "uint16": ("DT_INT32", (-1, 65536)), "uint32": ("DT_INT64", (-1, 2**32)),
          "uint64": ("DT_INT64", (-1,)), "bf16": ("DT_FLOAT32", (3.4e38,))}  # fmt: skip
CONTRADICTING = (
    *({"dtype": dtype} for dtype in (0, "DT_INVALID", 10, "FP32", ..., None, True)),
    *({"shape": shape} for shape in ([3], [], ..., [-2], [2.5], 2, [2**32, 0], [2, 1] * 17)),
    *({"flat_int32": flat} for flat in (..., None, [1, None], [1, True], [1, 2**31], [1, 0.5], [[1, 2]], 5, [1, "x"],
                                        [1, 2, 3], [])),
    {"name": 5}, {"flat_int32": ..., "flat_float32": [1, 2]}, {"flatInt32": [1, 2]},
    {"dtype": "DT_UINT8", "flat_uint8": [1, 300]}, {"dtype": "DT_FLOAT32", "flat_float32": [1, 1e39]},
    {"dtype": "DT_FLOAT16", "flat_float16": [1, 65520]}, {"dtype": "DT_STRING", "flat_string": ["a", 1]},
    {"dtype": "DT_INT64", "flat_int64": ["1", "9223372036854775808"]},
)  # fmt: skip
MESSAGES = (
    {"dtype": 0, "flat_int32": [1, 2]}, {"dtype": 10, "flat_int32": [1, 2]}, {"dtype": 4, "flat_int32": [1]},
    {"dtype": 4, "flat_float32": [1, 2]}, {"dtype": 1, "flat_uint8": [1, 256]}, {"dtype": 2, "flat_int8": [1, 128]},
    {"dtype": 3, "flat_int16": [1, -32769]}, {"dtype": 6, "flat_float16": [1, 1e6]},
)  # fmt: skip
BARE = (
    '{"model": "untold", "gtensors": {"tensors": [{"dtype": 7, "shape": [1], "flat_float32": [%s]}]}}',
    '{"model": "pairs", "ndarray": [[1, %s]]}', '{"model": "text", "str_data": "a", "x": [%s]}',
)  # fmt: skip
SELECTORS = ("nope", "nope-1", "my-model-3", "my-model-x", "../text", "text-", "-", "a\0", "ż")
REFUSED: Final = [
    *(case for model in ("any_add_sub", "octets") for case in refused("GRPS-043", model, {"str_data": "a"})),
    *refused("GRPS-043", "pairs", {"str_data": "1"}, bytes(8)),
    *(case for model, data in (("any_add_sub", b"a"), ("identity_int8", b"a"), ("octets-fixed", b"four"))
      for case in refused("GRPS-043", model, data)),
    *refused("GRPS-043", "text-1", {"gmap": {"s_s": {"nope": "a"}}}),
    *refused("GRPS-044", "text", {"bin_data": "YQ=="}, text="bin_data should use application/octet-stream format."),
    *refused("GRPS-048", "any_add_sub", *([(name, "DT_INT32", INTEGERS) for name in names] for names in NAMES)),
    *refused("GRPS-049", "pairs", *([("INPUT0", dtype, array)] for dtype, array in OTHERS)),
    *refused("GRPS-054", "identity_fp32", *({"ndarray": value} for value in NO_ARRAYS)),
    *(case for model in ("identity_fp64", "identity_int32", "text", "any_add_sub")
      for case in refused("GRPS-055", model, {"ndarray": [1]})),
    *refused("GRPS-063", "identity_fp32", *({"gmap": maps} for maps in NO_MAPS)),
    *refused("GRPS-065", "text", *({"str_data": "a", **more} for more in (
        {"gtensors": {}}, {"ndarray": [1]}, {"gmap": {}}, {"bin_data": ""}, {"strData": "b"}))),
    *(case for model, (dtype, values) in BEYOND.items() for value in values for case in refused(
        "GRPS-083", f"identity_{model}", [("INPUT0", dtype, np.array([value], FLAT[dtype][1]))], text="out of range")),
    *refused("GRPS-087", "untold", *(tensor(**members) for members in CONTRADICTING)),
    *refused("GRPS-088", "untold", *({"message": members} for members in MESSAGES)),
    *refused("GRPS-089", "bare", *(body % token for body in BARE for token in ("NaN", "Infinity", "-Infinity"))),
    *(case for selector in SELECTORS for case in refused("GRPS-033", selector, {"str_data": "a"}, b"a", code=404)),
    *(case for odd in (5, ["text"], {"name": "text"}, True)
      for case in refused("GRPS-034", "text", {"model": odd, "str_data": "a"}, text="'model'")),
    *(case for model in ("broken", "broken-1")
      for case in refused("GRPS-035", model, {"str_data": "a"}, code=503, text="broken")),
    *refused("GRPS-100", "pairs", {"ndarray": [[1, 2]]}, streaming="true", return_ndarray="true",
             text="Bad Request, err: Streaming and ret ndarray are not supported at the same time."),
]  # fmt: skip

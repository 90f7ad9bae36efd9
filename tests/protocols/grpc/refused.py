"""Refused messages of the Open Inference Protocol: rows of the catalogue, message, code, and its text."""

from typing import Any, Final

import numpy as np

from core.schema import open_inference as oip
from tests.protocols.grpc.bad_messages import BAD_MESSAGES
from tests.support.catalogue import row
from tests.support.remote import question, raw

X: Final = raw("x", "INT64", np.array([0]))
KINDS = ("exception", "system_exit", "recursion", "long", "surrogate", "assertion", "keyboard_interrupt", "silent")
NOT_THERE = (("unheard_of", ""), ("versions", "3"), ("versions", "latest"), ("", ""), ("../zoo", ""), ("a\0b", ""))
STAY_BROKEN = ("broken_onnx", "broken_empty", "py_broken_import", "py_broken_exit")


def fp16_in_the_field_of_fp32() -> oip.ModelInferRequest:
    """Returns a request whose contents have no field of their own."""
    tensor = oip.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP16", shape=[2])
    tensor.contents.fp32_contents.extend([1, 2])
    return question("identity_fp16", tensor)


def raised(kind: str) -> oip.ModelInferRequest:
    """Returns a request for a Python model that fails in this way."""
    return question("py_raises", raw("kind", "BYTES", np.array([kind.encode()], object)))


def body(message: Any) -> bytes:
    """Returns the bytes of a message."""
    return message if isinstance(message, bytes) else message.SerializeToString()


REFUSED: Final = [
    *(row("G-200 G-201 G-202", body(bad.message), "invalid_argument", bad.culprit, name=bad.name)
      for bad in BAD_MESSAGES),
    *(row("G-203 G-204 G-205", body(question(model, X, model_version=version)), "not_found",
          version or model.partition("\0")[0], name="not_there") for model, version in NOT_THERE),
    row("G-206 G-207", body(question("fails", raw("index", "INT64", np.array([99])))), "internal", "fails"),
    *(row("G-206 G-210", body(raised(kind)), "internal", "py_raises|internal error", name=kind)
      for kind in KINDS),
    # The code is never UNAVAILABLE, after which a client would retry again and again.
    *(row("", body(question(model, X)), "failed_precondition", model, name=model) for model in STAY_BROKEN),
    row("G-209", body(fp16_in_the_field_of_fp32()), "invalid_argument", "raw"),
]  # fmt: skip

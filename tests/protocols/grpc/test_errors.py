"""What is refused over gRPC, with which code and words, and that the server lives."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import grpc
import numpy as np
import pytest

from core.schema import open_inference as oip
from tests.protocols.grpc.bad_messages import BAD_MESSAGES, Bad
from tests.support.checks import INTERNALS
from tests.support.remote import Remote, alive, question, raw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.server import Server

X = raw("x", "INT64", np.array([0]))
KINDS = ["exception", "system_exit", "recursion", "long", "surrogate", "assertion", "keyboard_interrupt", "silent"]


def refusal(remote: Remote, message: oip.ModelInferRequest | bytes, code: grpc.StatusCode) -> str:
    """The text of the refusal that comes with this code."""
    with pytest.raises(grpc.RpcError) as refused:
        remote.ask("ModelInfer", message)
    text: str = refused.value.details()
    assert refused.value.code() is code, text
    assert text.strip()
    assert not INTERNALS.search(text), text
    return text


@pytest.mark.row("G-200", "G-201", "G-202")
@pytest.mark.parametrize("bad", BAD_MESSAGES, ids=lambda bad: bad.name)
def test_a_bad_message_is_refused_by_the_name_of_its_culprit(remote: Remote, bad: Bad) -> None:
    """INVALID_ARGUMENT."""
    text = refusal(remote, bad.message, grpc.StatusCode.INVALID_ARGUMENT)
    assert re.search(bad.culprit, text), text


@pytest.mark.row("G-203", "G-204", "G-205")
@pytest.mark.parametrize(
    ("model", "version"),
    [("unheard_of", ""), ("versions", "3"), ("versions", "latest"), ("", ""), ("../zoo", ""), ("a\0b", "")],
)
def test_inference_with_what_is_not_there_is_not_found(remote: Remote, model: str, version: str) -> None:
    """A name can lead nowhere else."""
    text = refusal(remote, question(model, X, model_version=version), grpc.StatusCode.NOT_FOUND)
    assert (version or model.partition("\0")[0]) in text


@pytest.mark.row("G-206", "G-207")
def test_a_failure_of_the_runtime_is_internal(remote: Remote) -> None:
    """A right request to a model that cannot answer it."""
    text = refusal(remote, question("fails", raw("index", "INT64", np.array([99]))), grpc.StatusCode.INTERNAL)
    assert "fails" in text


@pytest.mark.row("G-206", "G-210")
@pytest.mark.parametrize("kind", KINDS)
def test_a_failure_of_a_python_model_is_internal(remote: Remote, kind: str) -> None:
    """However it fails, and however long its words are."""
    message = question("py_raises", raw("kind", "BYTES", np.array([kind.encode()], object)))
    refusal(remote, message, grpc.StatusCode.INTERNAL)


@pytest.mark.parametrize("model", ["broken_onnx", "broken_empty", "py_broken_import", "py_broken_exit"])
def test_a_model_that_stays_broken_is_never_called_unavailable(remote: Remote, model: str) -> None:
    """A client would try again and again."""
    text = refusal(remote, question(model, X), grpc.StatusCode.FAILED_PRECONDITION)
    assert model in text


def test_who_is_to_come_later_is_told_when(launch: Callable[..., Server], zoo: Path) -> None:
    """In the trailing metadata, as Retry-After over HTTP."""
    remote = Remote(launch(rpc=True, REPOSITORY=str(zoo)).rpc_netloc)
    for _ in range(2):  # the second time the failure is remembered
        with pytest.raises(grpc.RpcError) as refused:
            remote.infer("broken_onnx", X)
        trailers = dict(refused.value.trailing_metadata())
        assert int(trailers["retry-after"]) >= 1
    remote.close()


@pytest.mark.row("G-208")
def test_the_server_lives_after_every_bad_message_in_a_row(remote: Remote) -> None:
    """On one connection."""
    for bad in BAD_MESSAGES:
        with pytest.raises(grpc.RpcError):
            remote.ask("ModelInfer", bad.message)
    alive(remote)


@pytest.mark.row("G-209")
def test_fp16_in_the_field_of_fp32_is_refused(remote: Remote) -> None:
    """With the cure."""
    tensor = oip.ModelInferRequest.InferInputTensor(name="INPUT0", datatype="FP16", shape=[2])
    tensor.contents.fp32_contents.extend([1, 2])
    assert "raw" in refusal(remote, question("identity_fp16", tensor), grpc.StatusCode.INVALID_ARGUMENT)


def test_a_client_is_told_what_is_too_large(launch: Callable[..., Server], zoo: Path) -> None:
    """Before and after it is inflated: a small message may be a very large one."""
    remote = Remote(launch(rpc=True, REPOSITORY=str(zoo), MAX_BODY_BYTES="1000000").rpc_netloc)
    message = question("vector_fp32", raw("INPUT0", "FP32", np.zeros(1 << 20, np.float32)))
    for coding in (None, grpc.Compression.Gzip, grpc.Compression.Deflate):
        with pytest.raises(grpc.RpcError) as refused:
            remote.ask("ModelInfer", message, compression=coding)
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    alive(remote)
    remote.close()

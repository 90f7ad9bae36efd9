"""core.checks: questions that do not fit their model."""

import re
from typing import Any

import numpy as np
import pytest

from core.dtype import DATATYPES
from core.errors import InvalidInput, TooMany
from core.operations import Infer, RequestedOutput
from core.tensor import Tensor, TensorSpec
from tests.support.engine_samples import BYTES, FP32, INT32, REF, Echo, run, spec, tensor
from tests.support.v1_samples import signature

FP64 = DATATYPES["FP64"]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ((tensor("a", 1, 2),), "needs input 'b', which is missing"),
        ((), "needs input 'a', which is missing"),
        ((tensor("a", 1, 2), tensor("c", 1, 2)), "has no input 'c'; it has .'a', 'b'."),
        ((tensor("a", 1, 2), tensor("b", 1, 2), tensor("c", 1, 2)), "has no input 'c'"),
        ((tensor("a", 1, 2), tensor("a", 1, 2)), "input 'a' is given twice"),
        ((tensor("a", 1, 2), tensor("b", 1, 2, datatype=INT32)), "input 'b' is INT32; the model expects FP32"),
        ((tensor("a", 1, 3), tensor("b", 1, 2)), r"input 'a' has shape \[1, 3\]; the model expects \[-1, 2\]"),
        ((tensor("a", 2), tensor("b", 1, 2)), r"input 'a' has shape \[2\]"),
    ],
)
def test_inputs_that_do_not_fit_the_model_are_refused_by_name(inputs: tuple[Tensor, ...], message: str) -> None:
    """The refusal names the input that is missing, unknown, given twice or of another datatype or shape."""
    with pytest.raises(InvalidInput, match=message):
        run(Infer(REF, inputs))


ANY = [Echo((spec("a", None), spec("b", None)), (spec("y"),)), Echo(None, None)]


@pytest.mark.parametrize("model", ANY)
@pytest.mark.parametrize("shapes", [
    ((60_000, 0), (0, 60_000)), ((60_000, 0), (60_000, 0)), ((128, 512, 0), (128, 0, 32_768)),
    ((1024, 0, 1024),) * 2,
])  # fmt: skip
def test_inputs_without_elements_whose_product_has_too_many_are_refused(
    model: Echo, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """Otherwise a request of a hundred bytes would get an answer of gigabytes."""
    with pytest.raises(TooMany, match="the 2 inputs without elements could make a product of [0-9]+ elements; at most"):
        run(Infer(REF, tuple(tensor(name, *shape) for name, shape in zip("ab", shapes, strict=True))), model)


@pytest.mark.parametrize("model", ANY)
@pytest.mark.parametrize("shapes", [
    ((4096, 0), (0, 4096)), ((0,), (0, 4_194_304)), ((32, 32, 0, 128),) * 2, ((32, 0, 32, 128),) * 2,
    ((60_000, 0), (1, 60_000)), ((32_768, 2, 0), (32_768, 0, 128)),
    ((256, 12, 0, 64),) * 2, ((64, 32, 0, 128),) * 2, ((64, 16, 0, 256),) * 2,
])  # fmt: skip
def test_inputs_without_elements_are_accepted_within_reason(
    model: Echo, shapes: tuple[tuple[int, ...], tuple[int, ...]]
) -> None:
    """The first step of a language model has past keys and values of no token."""
    run(Infer(REF, tuple(tensor(name, *shape) for name, shape in zip("ab", shapes, strict=True))), model)


def test_an_input_of_fp64_takes_fp32() -> None:
    """Every FP32 is an FP64, exactly; nothing else is converted, and the shape is checked as ever."""
    model = Echo((spec("a", (2,), FP64),), (spec("y", None, FP64),))
    values = np.array([0.1, np.nan], np.float32)
    (found,) = run(Infer(REF, (Tensor("a", FP32, values),)), model).outputs
    assert found.array.dtype == np.float64
    np.testing.assert_array_equal(found.array, values.astype(np.float64))
    both = Echo((spec("a", (2,), FP64), spec("b", (2,), FP64)), (spec("y", None, FP64),))
    (found,) = run(Infer(REF, (Tensor("a", FP32, values), tensor("b", 2, datatype=FP64))), both).outputs
    assert found.array.dtype == np.float64
    for wrong in (tensor("a", 2, datatype=INT32), tensor("a", 3)):
        with pytest.raises(InvalidInput, match="input 'a' (is INT32; the model expects FP64|has shape)"):
            run(Infer(REF, (wrong,)), model)


@pytest.mark.parametrize(("platform", "shape", "given", "hints"), [
    ("onnx_onnxv1", (1, 2), (3, 2), 1), ("onnx_onnxv1", (1, -1), (0, 2), 1), ("python", (1, 2), (3, 2), 0),
    ("onnx_onnxv1", (1, 2), (3, 4), 0), ("onnx_onnxv1", (2, 2), (3, 2), 0), ("onnx_onnxv1", (1,), (3,), 0),
    ("onnx_onnxv1", (1, 2), (2,), 0), ("onnx_onnxv1", (), (1,), 0),
])  # fmt: skip
def test_a_batch_that_is_fixed_at_one_says_how_to_export_a_free_one(
    platform: str, shape: tuple[int, ...], given: tuple[int, ...], hints: int
) -> None:
    """Other shapes that do not fit are the client's mistake alone."""
    model = Echo((spec("a", shape),), (spec("y"),))
    model.spec = model.spec._replace(platform=platform)
    with pytest.raises(InvalidInput, match=re.escape(f"the model expects {list(shape)}")) as refused:
        run(Infer(REF, (tensor("a", *given),)), model)
    assert refused.value.message.count("dynamic_shapes={'a': {0: 'batch'}}") == hints


@pytest.mark.parametrize(
    ("asked", "message"),
    [(["q"], "has no output 'q'; it has .'y', 'z'."), (["y", "y"], "output 'y' is asked for twice")],
)
def test_outputs_that_the_model_does_not_have_are_refused_by_name(asked: list[str], message: str) -> None:
    """The refusal names the output that is unknown or asked for twice."""
    outputs = tuple(RequestedOutput(name) for name in asked)
    with pytest.raises(InvalidInput, match=message):
        run(Infer(REF, (tensor("a", 1, 2), tensor("b", 1, 2)), outputs))


def test_a_model_that_says_nothing_of_its_tensors_takes_and_gives_anything() -> None:
    """A model without a spec refuses a name given twice and a raw request, and nothing else."""
    model = Echo(None, None)
    assert [t.name for t in run(Infer(REF, (tensor("any", 3),)), model).outputs] == ["free"]
    assert [t.name for t in run(Infer(REF, (tensor("any", 3),), (RequestedOutput("q", 1),)), model).outputs] == ["q"]
    with pytest.raises(InvalidInput, match="twice"):
        run(Infer(REF, (tensor("any", 3), tensor("any", 3))), model)
    with pytest.raises(InvalidInput, match="does not say its inputs"):
        run(Infer(REF, (), raw=b""), model)


ANY, ROWS = spec("y", None), spec("y", (-1, -1))


@pytest.mark.parametrize(("datatype", "shape", "output", "batch", "raw", "expected"), [
    (FP32, (-1, -1), ANY, 8, b"\0" * 32, (1, 8)),
    (FP32, (-1, 2), ROWS, 0, b"\0" * 16, (2, 2)), (FP32, (2, -1), ANY, 8, b"\0" * 16, (2, 2)),
    (BYTES, (-1,), ANY, 8, b"ab", (1,)), (BYTES, (-1, 1), ANY, 8, b"ab", (1, 1)),
    (BYTES, (1, 1), ANY, 0, b"ab", (1, 1)),
])  # fmt: skip
def test_a_raw_request_to_a_model_with_a_batch_size_is_a_batch_of_one(
    datatype: Any, shape: tuple[int, ...], output: Any, batch: int, raw: bytes, expected: tuple[int, ...]
) -> None:
    """A second variable size then follows from the bytes. Without a batch size, the rows do."""
    model = Echo((spec("a", shape, datatype),), (output,))
    model.spec = model.spec._replace(max_batch_size=batch)
    (found,) = run(Infer(REF, (), raw=raw), model).outputs
    assert found.array.shape == expected
    assert not datatype.is_bytes or found.array.reshape(-1).tolist() == [raw]


def test_a_raw_request_of_half_an_element_is_refused() -> None:
    """The refusal says what the size must be a multiple of."""
    model = Echo((spec("a", (-1, 2)),), None)
    with pytest.raises(InvalidInput, match=r"has 9 bytes; FP32 \[-1, 2\] needs a multiple of 8"):
        run(Infer(REF, (), raw=bytes(9)), model)


def test_a_raw_request_of_more_than_one_row_is_refused_by_a_model_with_a_batch_size() -> None:
    """It has twice the bytes of its only row."""
    model = Echo((spec("a", (-1, 2)),), (ANY,))
    model.spec = model.spec._replace(max_batch_size=8)
    with pytest.raises(InvalidInput, match="input 'a'"):
        run(Infer(REF, (), raw=bytes(16)), model)


@pytest.mark.parametrize(("shape", "raw", "expected"), [
    ((-1, 2), b"\0" * 16, (2, 2)), ((2, 2), b"\0" * 16, (2, 2)), ((), b"\0" * 4, ()), ((-1,), b"", (0,)),
    ((-1, 0), b"", (0, 0)),
])  # fmt: skip
def test_a_raw_request_takes_its_shape_from_the_model(
    shape: tuple[int, ...], raw: bytes, expected: tuple[int, ...]
) -> None:
    """The one variable dimension follows from the size."""
    result = run(Infer(REF, (), raw=raw), Echo((spec("a", shape),), (spec("y"),)))
    assert result.outputs[0].array.shape == expected


@pytest.mark.parametrize(("inputs", "raw", "message"), [
    ((spec("a"), spec("b")), b"", "for one input; model 'm' has 2"),
    ((spec("a", (-1, -1)),), b"", r"\[-1, -1\], which does not follow from its size"),
    ((spec("a", None),), b"", "of any rank, which does not follow"),
    ((spec("a", (-1, 2)),), b"\0" * 7, "7 bytes"),
    ((spec("a", (2,), BYTES),), b"x", r"BYTES \[2\]; only BYTES \[1\] can be one element"),
    ((spec("a", None, BYTES),), b"x", "of any rank"),
])  # fmt: skip
def test_a_raw_request_that_is_not_clear_is_refused(inputs: tuple[TensorSpec, ...], raw: bytes, message: str) -> None:
    """Several inputs, several variable dimensions and several texts are refused."""
    with pytest.raises(InvalidInput, match=message):
        run(Infer(REF, (), raw=raw), Echo(inputs, (spec("y"),)))


def test_a_raw_request_may_be_one_text() -> None:
    """The whole body is the element."""
    result = run(Infer(REF, (), raw=b"ab"), Echo((spec("a", (1,), BYTES),), (spec("y"),)))
    assert result.outputs[0].array.tolist() == [b"ab"]


def optional(*signatures: Any) -> Echo:
    """A model of inputs a and b, of which b may be missing, and outputs y and z."""
    model = Echo((spec("a"), spec("b")._replace(optional=True)), (spec("y"), spec("z")))
    model.spec = model.spec._replace(signatures={str(n): s for n, s in enumerate(signatures)})
    return model


def test_an_input_that_a_signature_does_without_may_be_missing() -> None:
    """Only that signature's outputs may be asked for without the input."""
    model = optional(signature({"a": "a"}, {"y": "y"}), signature({"a": "a", "b": "b"}, {"z": "z"}))
    only = (tensor("a", 1, 2),)
    assert [t.name for t in run(Infer(REF, only, (RequestedOutput("y"),)), model).outputs] == ["y"]
    both = run(Infer(REF, (*only, tensor("b", 1, 2)), (RequestedOutput("z"),)), model)
    assert [t.name for t in both.outputs] == ["z"]
    for outputs in ((RequestedOutput("z"),), (RequestedOutput("y"), RequestedOutput("z")), ()):
        with pytest.raises(InvalidInput, match="needs input 'b', which is missing"):
            run(Infer(REF, only, outputs), model)
    with pytest.raises(InvalidInput, match="needs input 'a', which is missing"):
        run(Infer(REF, (tensor("b", 1, 2),), (RequestedOutput("y"),)), model)
    with pytest.raises(InvalidInput, match="has no input 'q'"):
        run(Infer(REF, (*only, tensor("q", 1)), (RequestedOutput("y"),)), model)


def test_a_signature_that_takes_anything_needs_nothing() -> None:
    """A model without signatures needs every input."""
    only = Infer(REF, (tensor("a", 1, 2),), (RequestedOutput("y"),))
    assert len(run(only, optional(signature(None, {"y": "y"}))).outputs) == 1
    with pytest.raises(InvalidInput, match="needs input 'b'"):
        run(only, optional())

"""The tests cover the five forms of content: their tensors, their answers, and the models that cannot take them."""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.catalogue import row
from tests.support.grps_client import Http, Rpc, ok, refusal, to_json, to_message

TEXT_MODELS = ["text", "text-scalar", "text-matrix", "texts", "untold", "raw"]
OCTET_MODELS = ["octets", "octets-batch", "untold", "raw"]
INTEGERS = np.arange(4, dtype=np.int32)
FLOATS = np.array([[0.5, -1.5], [np.nan, np.inf]], np.float32)


def gtensors(*tensors: Any) -> dict[str, Any]:
    """Returns the content of a request."""
    return {"gtensors": {"tensors": list(tensors)}}


@pytest.mark.row("GRPS-040")
@pytest.mark.parametrize("text", ["hello grps", "", "żółw \U0001f422\0\n", "x" * 100_000, "[1, 2]"])
@pytest.mark.parametrize("model", TEXT_MODELS)
def test_a_text_goes_through_a_model_of_one_string(http: Http, rpc: Rpc, model: str, text: str) -> None:
    """The string may be of any rank."""
    for name in ("str_data", "strData"):
        assert http.predict({"model": model, name: text}).content() == {"str_data": text}
    answer = ok(rpc.ask("Predict", model=model, str_data=text))
    assert (answer.WhichOneof("data_oneof"), answer.str_data) == ("str_data", text)


@pytest.mark.parametrize(("model", "data"), [
    *(row("GRPS-041", model, data, name=f"{model} {len(data)}") for model in OCTET_MODELS
      for data in (b"\0\xff{}", b"{}", bytes(range(256)) * 1000)), row("GRPS-042", "octets", b""),
])  # fmt: skip
def test_bytes_go_through_a_model_of_bytes(http: Http, rpc: Rpc, model: str, data: bytes) -> None:
    """They are one string or a vector of UINT8; over gRPC, an empty field is still present."""
    assert not data or http.predict(data, model=model).bytes() == data
    answer = ok(rpc.ask("Predict", model=model, bin_data=data))
    assert (answer.WhichOneof("data_oneof"), answer.bin_data) == ("bin_data", data)


@pytest.mark.row("GRPS-045")
def test_strings_that_are_no_text_are_answered_as_bytes(http: Http, rpc: Rpc) -> None:
    """The protocol's strings could not carry them."""
    for model in ("raw", "untold"):
        assert http.predict(b"\xff", model=model).bytes() == b"\xff"
        assert rpc.ask("Predict", model=model, bin_data=b"\xff").bin_data == b"\xff"
    chunks = list(http.stream({"model": "changes", "str_data": "a"}))
    assert b"\xff\xfe" in b"".join(chunks)


def both(http: Http, rpc: Rpc, model: str, *tensors: tuple[str, str, Any]) -> list[dict[str, Any]]:
    """Returns the outputs over HTTP and gRPC."""
    over_http = http.infer(model, *(to_json(*tensor) for tensor in tensors)).tensors()
    return [over_http, rpc.infer(model, *(to_message(*tensor) for tensor in tensors))]


@pytest.mark.row("GRPS-046", "GRPS-047")
@pytest.mark.parametrize("names", [("INPUT0", "INPUT1"), ("INPUT1", "INPUT0"), ("", "")])
def test_tensors_are_inputs_by_name_or_by_position(http: Http, rpc: Rpc, names: tuple[str, str]) -> None:
    """Outputs have the model's names."""
    left, right = INTEGERS, np.full(4, 3, np.int32)
    if names[0] == "INPUT1":
        left, right = right, left
    tensors = [(name, "DT_INT32", array) for name, array in zip(names, (left, right), strict=True)]
    for found in both(http, rpc, "any_add_sub", *tensors):
        assert list(found) == ["OUTPUT0", "OUTPUT1"]
        assert found["OUTPUT0"].tolist() == [3, 4, 5, 6]
        assert found["OUTPUT1"].tolist() == [-3, -2, -1, 0]


@pytest.mark.row("GRPS-050")
def test_a_model_that_does_not_say_its_inputs_takes_all(http: Http, rpc: Rpc) -> None:
    """They have their names, or their positions."""
    for found in both(http, rpc, "untold", ("a", "DT_INT32", INTEGERS), ("b", "DT_FLOAT32", FLOATS)):
        assert list(found) == ["a", "b"]
        assert np.array_equal(found["b"], FLOATS, equal_nan=True)
    for found in both(http, rpc, "untold", ("", "DT_INT32", INTEGERS), ("", "DT_FLOAT32", FLOATS)):
        assert list(found) == ["input-0", "input-1"]


@pytest.mark.row("GRPS-051")
def test_an_image_goes_through_whole(http: Http, rpc: Rpc) -> None:
    """It has 150,528 floats, which come back to the bit."""
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    for found in both(http, rpc, "image", ("INPUT0", "DT_FLOAT32", image)):
        assert np.array_equal(found["OUTPUT0"], image)


@pytest.mark.row("GRPS-052")
@pytest.mark.parametrize("value", [[[1, 2]], [[0.5, 1e-3], [3, 4]], [[1, "NaN"]]])
def test_nested_lists_are_the_only_input(http: Http, value: Any) -> None:
    """They become FP32. The answer is a tensor, unless an ndarray is asked for."""
    expected = np.array([[float(x) for x in row] for row in value], np.float32)
    document = {"model": "pairs", "ndarray": value}
    assert np.array_equal(http.predict(document).tensors()["OUTPUT0"], expected, equal_nan=True)
    for said in ("true", "TRUE", "True"):
        content = http.predict(document, **{"return-ndarray": said}).content()
        assert list(content) == ["ndarray"]
        assert np.array_equal(
            np.array([[float(x) for x in row] for row in content["ndarray"]], np.float32), expected, equal_nan=True
        )
    for said in ("false", "1", ""):
        assert "gtensors" in http.predict(document, **{"return-ndarray": said}).content()


@pytest.mark.row("GRPS-053")
def test_a_bare_number_is_a_scalar(http: Http) -> None:
    """It comes back as one, and 0 is data."""
    for number in (0, 1.5):
        answer = http.predict({"model": "identity_fp32", "ndarray": number}, **{"return-ndarray": "true"})
        assert answer.content() == {"ndarray": number}


@pytest.mark.row("GRPS-056")
def test_an_ndarray_can_be_asked_for_whatever_was_sent(http: Http) -> None:
    """Tensors are an example."""
    document = {"model": "pairs", **gtensors(to_json("INPUT0", "DT_FLOAT32", FLOATS))}
    content = http.predict(document, **{"return-ndarray": "true"}).content()
    assert content == {"ndarray": [[0.5, -1.5], ["NaN", "Infinity"]]}


@pytest.mark.row("GRPS-057")
def test_outputs_that_are_no_ndarray_are_400_in_grps_words(http: Http) -> None:
    """Outputs of another type and several outputs are refused."""
    asked = {"return-ndarray": "true"}
    text = http.predict({"model": "text", "str_data": "a"}, **asked).refusal(400)
    assert text == "No float32 tensors in output. Cannot convert to ndarray."
    pair = gtensors(to_json("a", "DT_FLOAT32", FLOATS), to_json("b", "DT_FLOAT32", FLOATS))
    assert http.predict({"model": "untold", **pair}, **asked).refusal(400) == "NDArray only support one tensor"


@pytest.mark.row("GRPS-058")
def test_an_ndarray_over_grpc_is_400(rpc: Rpc) -> None:
    """Its message is empty."""
    refusal(rpc.ask("Predict", model="pairs", ndarray={}), 400)


MAPS = {
    "s_s": {"bytes": "żółw"}, "s_i32": {"bool": 1, "uint8": 255, "int16": -(2**15), "uint16": 65535, "int32": -(2**31)},
    "s_i64": {"uint32": 2**32 - 1, "int64": -(2**63), "uint64": 2**63 - 1}, "s_f": {"fp16": 0.5, "fp32": 0.25},
    "s_d": {"fp64": 1e300},
}  # fmt: skip
BACK = {field: {f"{name}_out": value for name, value in values.items()} for field, values in MAPS.items()}


def strings(maps: Any) -> Any:
    """Returns maps as JSON has them: integers of 64 bits are strings."""
    return {**maps, "s_i64": {name: str(value) for name, value in maps["s_i64"].items()}}


@pytest.mark.row("GRPS-059", "GRPS-060")
@pytest.mark.parametrize("told", [lambda maps: maps, strings], ids=["numbers", "strings"])
def test_a_map_is_an_element_for_each_input(http: Http, rpc: Rpc, told: Callable[[Any], Any]) -> None:
    """It comes back as one, in the maps that the outputs' types have."""
    assert http.predict({"model": "singles", "gmap": told(MAPS)}).content() == {"gmap": strings(BACK)}
    answer = ok(rpc.ask("Predict", model="singles", gmap=MAPS))
    assert {field: dict(getattr(answer.gmap, field)) for field in BACK} == BACK


@pytest.mark.row("GRPS-061")
def test_integers_are_floats_too_but_floats_no_integers(http: Http) -> None:
    """A number is converted exactly, or not at all."""
    maps = {**MAPS, "s_f": {}, "s_i32": {**MAPS["s_i32"], "fp16": 2, "fp32": 3}, "s_d": {"fp64": 1}}
    content = http.predict({"model": "singles", "gmap": maps}).content()
    assert content["gmap"]["s_f"] == {"fp16_out": 2.0, "fp32_out": 3.0}
    wrong = {**MAPS, "s_i32": {**MAPS["s_i32"]}, "s_d": {"fp64": 1.0, "int32": 1.0}}
    wrong["s_i32"].pop("int32")
    assert "int32" in http.predict({"model": "singles", "gmap": wrong}).refusal(400)


@pytest.mark.row("GRPS-062")
def test_bytes_of_a_map_are_base64_in_json(http: Http, rpc: Rpc) -> None:
    """They are a string of any bytes, or a vector of UINT8."""
    blob = base64.b64encode(b"\xff\xfe").decode()
    answer = http.predict({"model": "raw", "gmap": {"s_b": {"data": blob}}})
    assert answer.content() == {"gmap": {"s_b": {"data": blob}}}
    assert dict(rpc.ask("Predict", model="raw", gmap={"s_b": {"data": b"\xff"}}).gmap.s_b) == {"data": b"\xff"}
    found = http.predict({"model": "octets", "gmap": {"s_b": {"INPUT0": blob}}}).tensors()
    assert found["OUTPUT0"].tolist() == [255, 254]
    for odd in ("*", "a", 5, None):
        http.predict({"model": "raw", "gmap": {"s_b": {"data": odd}}}).refusal(400)


@pytest.mark.row("GRPS-064")
def test_a_map_of_a_model_that_does_not_say_its_inputs_has_the_maps_types(http: Http, rpc: Rpc) -> None:
    """It comes back as it was sent."""
    assert http.predict({"model": "untold", "gmap": MAPS}).content() == {"gmap": strings(MAPS)}
    answer = rpc.ask("Predict", model="untold", gmap=MAPS)
    assert {field: dict(getattr(answer.gmap, field)) for field in MAPS} == MAPS


@pytest.mark.row("GRPS-066")
def test_no_content_is_400(http: Http, rpc: Rpc) -> None:
    """The text is GRPS's."""
    for document in ({"model": "text"}, {"model": "text", "str_data": None}, {"model": "text", "s_t": {}}):
        assert http.predict(document).refusal(400) == "No legal field in json."
    refusal(rpc.ask("Predict", model="text"), 400)


@pytest.mark.row("GRPS-067")
def test_what_nobody_knows_is_ignored_at_every_level(http: Http) -> None:
    """The rule includes a status in a request."""
    tensor = {**to_json("INPUT0", "DT_FLOAT32", FLOATS), "x": {"y": [1]}, "flat_int32": [1]}
    document = {"model": "pairs", "status": {"code": "x"}, "a": None, "gtensors": {"tensors": [tensor], "b": 1}}
    assert np.array_equal(http.predict(document).tensors()["OUTPUT0"], FLOATS, equal_nan=True)


@pytest.mark.row("GRPS-068")
def test_lower_camel_case_is_read_everywhere_and_never_written(http: Http) -> None:
    """Protobuf reads both."""
    tensor = {"name": "INPUT0", "dtype": "DT_FLOAT32", "shape": [1, 2], "flatFloat32": [0.5, 1.5]}
    answer = http.predict({"model": "pairs", **gtensors(tensor)})
    assert b"flat_float32" in answer.body
    assert answer.tensors()["OUTPUT0"].tolist() == [[0.5, 1.5]]
    content = http.predict({"model": "untold", "gmap": {"sI64": {"a_b": "5"}, "sS": {"c": "d"}}}).content()
    assert content == {"gmap": {"s_i64": {"a_b": "5"}, "s_s": {"c": "d"}}}


@pytest.mark.row("GRPS-069")
def test_a_model_that_fails_is_500_in_one_line(http: Http, rpc: Rpc) -> None:
    """The text has the class of the error alone."""
    for text in (
        http.predict({"model": "raises", "str_data": "a"}).refusal(500),
        refusal(rpc.ask("Predict", model="raises", str_data="a"), 500),
    ):
        assert text == "model 'raises' raised ValueError"
    index = to_json("index", "DT_INT64", np.array([99]))
    http.infer("fails", index).refusal(500)
    x, y = (to_json(name, "DT_FLOAT32", np.ones(size, np.float32)) for name, size in (("x", 2), ("y", 3)))
    assert "refuses the shapes of its inputs" in http.infer("offset", x, y).refusal(400)


@pytest.mark.row("GRPS-070")
def test_what_the_protocol_cannot_carry_is_500_with_the_reason(http: Http, rpc: Rpc) -> None:
    """The cases are a number beyond int64, and several strings of any bytes."""
    assert "9223372036854775808" in http.predict({"model": "raises", "str_data": "large"}).refusal(500)
    assert "DT_INT64" in refusal(rpc.ask("Predict", model="raises", str_data="large"), 500)

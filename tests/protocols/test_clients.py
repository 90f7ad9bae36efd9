"""The official clients of the Open Inference Protocol run unmodified, and each of them gets what it is promised."""

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.protocols.v2.test_values import extremes, special
from tests.support.catalogue import row
from tests.support.kserve_client import KServe
from tests.support.server import Server, serve_rpc
from tests.support.triton import Elsewhere, Refused, Triton
from tests.support.wire import same
from tests.support.zoo.models import DATATYPES, JSON_DATATYPES, LABELS

# tritonclient's asyncio does not read answers if it needs only the status.
pytestmark = pytest.mark.filterwarnings("ignore:Unclosed connection:ResourceWarning")
LEFT = np.arange(16, dtype=np.int32)
RIGHT = np.full(16, 3, np.int32)
BOTH = {"INPUT0": ("INT32", LEFT), "INPUT1": ("INT32", RIGHT)}
BF16 = np.array([1.0, -2.5, 3e38, np.inf], DATATYPES["BF16"].numpy)
X = {"x": ("INT64", np.array([0]))}
SCORES = {"features": ("FP32", np.array([0.1, 0.5, -1.0, 0.25], np.float32))}


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Removes the environment's proxies, which kserve's httpx obeys on the loopback, too."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def client(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    """A client of the kind that the case names."""
    library, kind, *form = request.param.split("_")
    netloc = server.rpc_netloc if kind == "grpc" else server.netloc
    if request.param == "triton_grpc":
        yield Elsewhere(request.getfixturevalue("elsewhere"), netloc)
    elif library == "triton":
        with closing(Triton(kind, netloc, binary=not form)) as made:
            yield made
    else:
        yield KServe(kind, netloc, binary=not form)


def clients(**rows: str) -> pytest.MarkDecorator:
    """Returns a case for each client, with the rows of the catalogue that it covers."""
    return pytest.mark.parametrize("client", [row(ids, name, name=name) for name, ids in rows.items()], indirect=True)


@clients(triton_http="R-500", triton_aio="R-512", triton_grpc="G-400", kserve_rest="R-550 R-551", kserve_grpc="G-450")
def test_health_is_seen(client: Any) -> None:
    """The server is live and ready, a model is ready once it has answered, and an unknown one is not."""
    assert client.live() is True
    assert client.ready() is True
    client.infer("add_sub", BOTH)
    assert client.ready("add_sub") is True
    assert client.ready("unheard_of") is False


@clients(triton_http="R-500 R-501", triton_aio="R-512", triton_grpc="G-400")
def test_versions_and_metadata_are_seen(client: Any) -> None:
    """A version has readiness and metadata of its own."""
    client.infer("add_sub", BOTH)
    assert client.ready("add_sub", "1")
    assert not client.ready("add_sub", "2")
    assert client.asked("get_server_metadata")["name"] == "dragoman"
    assert "binary_tensor_data" in client.asked("get_server_metadata")["extensions"] or client.kind == "grpc"
    assert [port["name"] for port in client.asked("get_model_metadata", "add_sub")["inputs"]] == ["INPUT0", "INPUT1"]
    assert client.asked("get_model_metadata", "versions", "2")["versions"] == ["1", "2", "10"]


@clients(
    triton_http="R-502 R-503", triton_http_json="R-503", triton_aio="R-512", triton_aio_json="R-512",
    triton_grpc="G-401", kserve_rest="R-552", kserve_rest_json="R-552", kserve_grpc="G-451", kserve_grpc_typed="G-451",
)  # fmt: skip
def test_an_inference_is_answered(client: Any) -> None:
    """Both outputs come with the id and the version."""
    found = client.infer("add_sub", BOTH, request_id="номер 1")
    assert (found.id, found.version) == (
        "номер 1",
        None if client.kind == "rest" else "1",
    )  # kserve's REST client drops it
    assert np.array_equal(found.tensors["OUTPUT0"], LEFT + RIGHT)
    assert np.array_equal(found.tensors["OUTPUT1"], LEFT - RIGHT)


@clients(triton_http="R-503", triton_http_json="R-503", triton_aio="R-512")
@pytest.mark.parametrize("binary", [False, True])
def test_an_output_may_be_binary_or_json(client: Any, *, binary: bool) -> None:
    """The form of the inputs does not matter."""
    found = client.infer("add_sub", BOTH, "OUTPUT1", binary_out=binary)
    assert list(found.tensors) == ["OUTPUT1"]
    assert np.array_equal(found.tensors["OUTPUT1"], LEFT - RIGHT)
    own = client.inputs(BOTH), "", client.outputs(("OUTPUT1",), 0, binary=binary)
    assert ("data" in client.call("infer", "add_sub", *own).get_output("OUTPUT1")) is not binary


@clients(kserve_rest="R-552", kserve_rest_json="R-552")
def test_outputs_may_be_all_binary_or_mixed(client: KServe) -> None:
    """The parameter asks for all, and each output for itself, in the order asked."""
    found = client.infer("add_sub", BOTH, parameters={"binary_data_output": True})
    assert np.array_equal(found.tensors["OUTPUT0"], LEFT + RIGHT)
    found = client.infer("add_sub", BOTH, "OUTPUT1", "OUTPUT0", binary_out={"OUTPUT1": True, "OUTPUT0": False})
    assert list(found.tensors) == ["OUTPUT1", "OUTPUT0"]
    assert np.array_equal(found.tensors["OUTPUT1"], LEFT - RIGHT)
    assert np.array_equal(found.tensors["OUTPUT0"], LEFT + RIGHT)


@clients(triton_grpc="G-402", kserve_grpc="G-451", kserve_rest="R-552")
def test_only_the_outputs_asked_for_come(client: Any) -> None:
    """The other one is absent."""
    found = client.infer("add_sub", BOTH, "OUTPUT1")
    assert list(found.tensors) == ["OUTPUT1"]
    assert np.array_equal(found.tensors["OUTPUT1"], LEFT - RIGHT)


def round_trip(client: Any, datatype: str, values: Any) -> Any:
    """Returns the output of an identity for these values."""
    return client.infer(DATATYPES[datatype].model, {"INPUT0": (datatype, values)}, "OUTPUT0").tensors["OUTPUT0"]


@clients(
    triton_http="R-504", triton_http_json="R-505", triton_aio="R-512", triton_aio_json="R-512", triton_grpc="G-403",
    kserve_rest="R-553 R-554 R-555", kserve_grpc="G-452 G-453",
)  # fmt: skip
@pytest.mark.parametrize("datatype", JSON_DATATYPES)
def test_every_datatype_goes_there_and_back(client: Any, datatype: str) -> None:
    """Every value comes back to the bit, through decimal text, too."""
    values = extremes(datatype)
    assert same(round_trip(client, datatype, values), values)


@clients(triton_http="R-504 N-01", triton_grpc="G-403 N-01")
def test_bf16_goes_there_and_back(client: Any) -> None:
    """It travels with ml_dtypes, as this client wants it."""
    assert same(round_trip(client, "BF16", BF16), BF16)


@clients(kserve_rest_json="R-554 R-555", kserve_grpc_typed="G-453")
@pytest.mark.parametrize("datatype", ["BYTES", "UINT64", "INT64", "FP64"])
def test_elements_in_the_document_go_there_and_back(client: Any, datatype: str) -> None:
    """Texts beyond ASCII and every digit of the largest integer survive."""
    values = {"BYTES": np.array(["één".encode(), b"", "日本".encode()], object)}.get(datatype, extremes(datatype))
    assert same(round_trip(client, datatype, values), values)


@clients(
    triton_http_json="R-513", triton_aio_json="R-512 R-513", triton_grpc="G-414", kserve_rest="R-557",
    kserve_grpc="G-454", kserve_grpc_typed="G-454",
)  # fmt: skip
@pytest.mark.parametrize("datatype", ["FP32", "FP64"])
def test_non_finite_numbers_go_there_and_back(client: Any, datatype: str) -> None:
    """NaN and both infinities are themselves in every form."""
    assert same(round_trip(client, datatype, special(datatype)), special(datatype))


@clients(triton_http_json="R-513", triton_grpc="G-414")
def test_non_finite_halves_go_there_and_back(client: Any) -> None:
    """FP16 has them as well."""
    assert same(round_trip(client, "FP16", special("FP16")), special("FP16"))


@clients(kserve_rest_json="R-556")
def test_null_of_a_client_is_nan(client: KServe) -> None:
    """The client's orjson writes null for NaN and for infinities."""
    expected = np.array([np.nan, np.nan, np.nan, 1.5], np.float32)
    assert same(round_trip(client, "FP32", special("FP32")), expected)


@clients(kserve_rest="R-556")
def test_infinities_come_back_as_json(client: KServe) -> None:
    """Sent as bytes and answered as JSON, all three survive."""
    found = client.infer("vector_fp32", {"INPUT0": ("FP32", special("FP32"))})
    assert same(found.tensors["OUTPUT0"], special("FP32"))


@clients(triton_http="R-509", triton_http_json="R-509", triton_grpc="G-407", kserve_rest="R-554 R-326")
@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BYTES"])
def test_empty_tensors_go_there_and_back(client: Any, datatype: str) -> None:
    """Kserve's client sends null data without the header."""
    shape = (0,) if isinstance(client, KServe) else (0, 3)
    if isinstance(client, KServe) and datatype != "FP32":
        shape = (2,)
    values = np.zeros(shape, DATATYPES[datatype].numpy) if datatype != "BYTES" else np.full(shape, b"a", object)
    found = client.infer(DATATYPES[datatype].model, {"INPUT0": (datatype, values)})
    assert found.tensors["OUTPUT0"].shape == shape


@clients(triton_http="R-506", triton_http_json="R-506", triton_aio="R-512")
@pytest.mark.parametrize("request_coding", [None, "gzip", "deflate"])
@pytest.mark.parametrize("response_coding", [None, "gzip", "deflate"])
def test_both_directions_may_be_compressed(
    client: Triton, request_coding: str | None, response_coding: str | None
) -> None:
    """Every pair of codings is right for an answer that is worth compressing."""
    values = np.arange(5000, dtype=np.float32)
    codings = {"request_compression_algorithm": request_coding, "response_compression_algorithm": response_coding}
    found = client.infer("vector_fp32", {"INPUT0": ("FP32", values)}, "OUTPUT0", **codings)
    assert np.array_equal(found.tensors["OUTPUT0"], values)


@clients(triton_grpc="G-404")
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_messages_may_be_compressed(client: Any, coding: str) -> None:
    """The client's own argument asks for it."""
    values = np.zeros(50_000, np.float32)
    found = client.infer("vector_fp32", {"INPUT0": ("FP32", values)}, compression_algorithm=coding)
    assert np.array_equal(found.tensors["OUTPUT0"], values)


@clients(triton_http="R-507", triton_aio="R-512", triton_grpc="G-405")
@pytest.mark.parametrize("version", ["1", "2", "10"])
def test_the_version_asked_for_runs(client: Any, version: str) -> None:
    """The answer names it."""
    found = client.infer("versions", X, version=version)
    assert (found.tensors["y"].tolist(), found.version) == ([int(version)], version)


@clients(triton_http="R-508", triton_grpc="G-406")
def test_everything_that_infer_takes_is_taken(client: Any) -> None:
    """Sequence, priority, timeout and custom parameters reach the model, and none that is the protocol's own."""
    own = {"own": "value", "flag": True, "number": 2, "real": 0.5}
    more: dict[str, Any] = {"query_params": {"a": "b"}} if client.kind == "http" else {}
    tritons = {"sequence_id": 9, "sequence_start": True, "sequence_end": True, "priority": 2, "timeout": 10**7}
    x = {"x": ("FP32", np.ones(2, np.float32))}
    headers = {"x-request-id": "1"}
    found = client.infer("py_echo_parameters", x, parameters=own, headers=headers, **tritons, **more)
    assert json.loads(found.tensors["parameters"][0]) == own | tritons


def refusal(call: Any, *arguments: Any) -> tuple[str, str]:
    """Returns status and text of a call that must fail."""
    with pytest.raises(Refused) as refused:
        call(*arguments)
    return refused.value.args[0], refused.value.args[1]


@clients(
    triton_http="R-510", triton_aio="R-510 R-512", triton_grpc="G-408", kserve_rest="R-558", kserve_grpc="G-455",
)  # fmt: skip
def test_errors_have_status_and_text(client: Any) -> None:
    """The exception shows an unknown model, a bad request and a model that fails; the client goes on."""
    names = client.kind == "grpc"
    one = {"INPUT0": BOTH["INPUT0"]}
    for model, inputs, word, status in (
        ("unheard_of", BOTH, "unheard_of", "NOT_FOUND" if names else "404"),
        ("add_sub", one, "INPUT1", "INVALID_ARGUMENT" if names else "400"),
        ("fails", BOTH, "index", "INVALID_ARGUMENT" if names else "400"),
        ("fails", {"index": ("INT64", np.array([7]))}, "fails", "INTERNAL" if names else "500"),
    ):
        code, text = refusal(client.infer, model, inputs)
        assert code == status
        assert word in text
    assert np.array_equal(client.infer("add_sub", BOTH).tensors["OUTPUT1"], LEFT - RIGHT)


@clients(triton_http="R-510", triton_grpc="G-408")
def test_what_is_not_there_is_refused(client: Any) -> None:
    """Shared memory and trace settings do not exist here."""
    if client.kind == "grpc":
        assert refusal(client.call, "get_trace_settings")[0] == "UNIMPLEMENTED"
        return
    own = client.module.InferInput("INPUT0", [4], "INT32")
    own.set_shared_memory("region", 16)
    code, text = refusal(client.call, "infer", "vector_int32", [own])
    assert (code, "shared" in text) == ("400", True)
    assert refusal(client.call, "get_system_shared_memory_status")[0] == "404"


@clients(triton_http="R-510", triton_aio="R-510", triton_grpc="G-408")
@pytest.mark.parametrize(("model", "version", "text"), [
    ("unheard_of", "", "Request for unknown model: 'unheard_of' is not found"),
    ("versions", "7", "Request for unknown model: 'versions' version 7 is not found: it serves 1, 2, 10"),
])  # fmt: skip
def test_unknown_models_are_refused_in_tritons_words(client: Any, model: str, version: str, text: str) -> None:
    """Programs that were written for Triton match on them. An id of the client's own in the error changes nothing."""
    found = refusal(partial(client.infer, version=version, headers={"x-request-id": "mine"}), model, X)
    assert found == ("NOT_FOUND" if client.kind == "grpc" else "404", text)


@clients(triton_http="R-430", triton_aio="R-430", triton_grpc="G-309")
@pytest.mark.parametrize(("method", "word"), [
    ("get_system_shared_memory_status", "shared memory is not offered"),
    ("unregister_cuda_shared_memory", "shared memory is not offered"),
    ("get_trace_settings", "trace settings are not offered"),
    ("get_log_settings", "log settings are not offered"),
])  # fmt: skip
def test_what_is_not_offered_is_named(client: Any, method: str, word: str) -> None:
    """The exception says it."""
    status, text = refusal(client.call, method)
    assert status == ("UNIMPLEMENTED" if client.kind == "grpc" else "404")
    assert word in text


@clients(triton_http="R-511", triton_aio="R-512", triton_grpc="G-409")
def test_several_requests_on_their_way_are_answered_each(client: Any) -> None:
    """Every request has its own result."""
    found = client.several("add_sub", BOTH, 20)
    assert [result.id for result in found] == [str(number) for number in range(20)]
    assert all(np.array_equal(result.tensors["OUTPUT0"], LEFT + RIGHT) for result in found)


@clients(triton_grpc="G-410")
def test_a_stream_has_an_answer_or_an_error_for_each_request(client: Any) -> None:
    """The error does not end the stream."""
    found = client.stream(
        ("add_sub", BOTH, {"request_id": "1"}),
        ("unheard_of", BOTH, {"request_id": "2"}),
        ("add_sub", BOTH, {"request_id": "3", "enable_empty_final_response": True}),
    )
    (failed,) = (each for each in found if isinstance(each, str))
    assert "unheard_of" in failed
    first, third = sorted((each for each in found if each is not failed), key=lambda each: each[0].id)
    assert np.array_equal(first[0].tensors["OUTPUT0"], LEFT + RIGHT)
    assert (third[0].id, third[1]) == ("3", True)


@pytest.mark.row("G-311")
def test_a_quick_request_of_a_stream_overtakes_a_slow_one(
    elsewhere: ProcessPoolExecutor, zoo: Path, tmp_path: Path
) -> None:
    """The slow one is answered afterwards, and both answers have their ids."""
    with serve_rpc(tmp_path / "log", REPOSITORY=str(zoo), ALLOW_CODE="true", THREADS="4") as server:
        client = Elsewhere(elsewhere, server.rpc_netloc)
        assert client.overtaken("py_waits", str(tmp_path / "gate"), "add_sub", BOTH) == ["2", "1"]


@clients(triton_grpc="G-413")
def test_the_client_with_asyncio_infers_and_streams(client: Any) -> None:
    """Requests at once and a stream are answered."""
    ids, found = client.awaited_stream("add_sub", BOTH, 8)
    assert sorted(ids) == [str(number) for number in range(8)]
    assert all(np.array_equal(each, LEFT + RIGHT) for each in found)


@clients(triton_http="R-514", triton_aio="R-512", triton_grpc="G-400 G-411")
def test_a_model_is_loaded_listed_and_unloaded(client: Any) -> None:
    """The index tells its state, and an unknown model is refused."""
    spare = {"http": "spare_triton", "aio": "spare_aio", "grpc": "spare_rpc_triton"}[client.kind]
    client.call("load_model", spare)
    assert client.ready(spare)
    index = client.asked("get_model_repository_index")
    states = {entry["name"]: entry.get("state") for entry in (index["models"] if client.kind == "grpc" else index)}
    assert states[spare] == "READY"
    client.call("unload_model", spare)
    assert not client.ready(spare)
    if client.kind != "aio":  # this leaves the connection of the refusal open
        assert "unheard_of" in refusal(client.call, "load_model", "unheard_of")[1]


@clients(triton_http="R-515", triton_http_json="R-515", triton_grpc="G-402")
def test_the_best_classes_come_with_labels(client: Any) -> None:
    """The highest score is first."""
    found = client.infer("classifier", SCORES, "scores", classes=2).tensors["scores"]
    assert [text.decode().split(":")[1:] for text in found] == [["1", LABELS[1]], ["3", LABELS[3]]]


@clients(triton_http="R-516", triton_aio="R-512", triton_grpc="G-412")
def test_the_configuration_of_a_model_is_read(client: Any) -> None:
    """perf_analyzer reads it; gRPC's JSON writes integers of 64 bits as texts."""
    config = client.asked("get_model_config", "add_sub")
    config = config["config"] if client.kind == "grpc" else config
    assert config["name"] == "add_sub"
    found = [(port["name"], port["data_type"], [int(size) for size in port["dims"]]) for port in config["input"]]
    assert found == [("INPUT0", "TYPE_INT32", [16]), ("INPUT1", "TYPE_INT32", [16])]


@clients(triton_http="R-517", triton_aio="R-512", triton_grpc="G-411")
@pytest.mark.parametrize("which", [("add_sub",), ("add_sub", "1"), ()])
def test_the_statistics_of_a_model_are_read(client: Any, which: tuple[str, ...]) -> None:
    """A model, a version and all models may be asked for."""
    client.infer("add_sub", BOTH)
    entries = client.asked("get_inference_statistics", *which)["model_stats"]
    (own,) = [entry for entry in entries if entry["name"] == "add_sub"]
    assert int(own["inference_stats"]["success"]["count"]) > 0

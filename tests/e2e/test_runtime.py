"""The artifact runs under Lambda's own runtime, with its models in a real S3 server."""

import json
import struct
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.e2e import rie, s3
from tests.e2e.expected import ANSWERS, EVENTS, HALF_PLUS_THREE, floats, gist
from tests.support.ports import free_port

MODEL = "/v2/models/half_plus_three"
REQUEST = json.dumps({"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 5]}]})


@pytest.fixture
def bucket(store: s3.Store) -> str:
    """Offer a separate bucket with the sample models."""
    return store.fill(f"b-{uuid4()}")


def test_the_first_request_loads_the_model_and_answers(cold: rie.Rie) -> None:
    """Readiness is correct before and after, and never loads; inference loads, and never says "not yet"."""
    status, readiness = cold.http("GET", f"{MODEL}/ready")
    assert (status, readiness["ready"]) == (503, False)
    assert readiness["reason"]
    status, answer = cold.http("POST", f"{MODEL}/infer", REQUEST)
    assert (status, answer["outputs"][0]["data"]) == (200, HALF_PLUS_THREE)
    assert cold.http("GET", f"{MODEL}/ready") == (200, {"name": "half_plus_three", "ready": True})
    assert cold.inits() == 1


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: event.stem)
def test_every_event_is_answered(warm: rie.Rie, event: Path) -> None:
    """Each platform's event is understood, with its stage, its headers and its encoding of bytes."""
    assert gist(warm.invoke(json.loads(event.read_text(encoding="utf-8")))) == ANSWERS[event.stem]


def test_an_unknown_event_fails_the_invocation(warm: rie.Rie) -> None:
    """Its sender retries or sees it; no answer looks like success."""
    error = warm.invoke({"Records": [{"eventSource": "aws:sqs", "body": "?"}]})
    assert error["errorType"] == "UnsupportedEvent"
    assert "warm-up" in error["errorMessage"]


def test_tensors_travel_as_bytes_both_ways(warm: rie.Rie) -> None:
    """The binary extension survives base64 in the event and in the answer."""
    x = {"name": "x", "shape": [3], "datatype": "FP32", "parameters": {"binary_data_size": 12}}
    head = json.dumps({"inputs": [x], "parameters": {"binary_data_output": True}})
    body = head.encode() + struct.pack("<3f", -1, 0, 1e6)
    status, answer = warm.http("POST", f"{MODEL}/infer", body, Inference_Header_Content_Length=str(len(head)))
    assert (status, floats(answer)) == (200, [2.5, 3.0, 500003.0])


def test_an_answer_that_lambda_cannot_carry_is_an_error_of_the_protocol(cold: rie.Rie) -> None:
    """Lambda would end the instance; instead the client learns the size and the limit, and the instance lives."""
    count = 1_800_000
    x: dict[str, Any] = {"name": "x", "shape": [count], "datatype": "FP32", "data": [1] * count}
    body = json.dumps({"inputs": [x]}, separators=(",", ":"))
    status, answer = cold.http("POST", f"{MODEL}/infer", body)
    assert status == 413
    assert "6291556" in answer["error"]
    assert cold.http("POST", f"{MODEL}/infer", REQUEST)[0] == 200
    assert cold.inits() == 1


def test_models_named_for_preload_are_loaded_before_the_first_request(artifact: Path, store: s3.Store) -> None:
    """They cost init time, and no request."""
    with rie.running(artifact, {**store.variables(), "DRAGOMAN_PRELOAD": "half_plus_three,iris"}) as instance:
        assert instance.http("GET", "/v2/health/ready") == (200, {"live": True, "ready": True})
        assert instance.http("GET", "/v2/models/iris/ready")[0] == 200
        assert instance.http("GET", "/v2/models/strings/ready")[0] == 503


@pytest.mark.parametrize(("wrong", "told"), [
    ({"AWS_SECRET_ACCESS_KEY": "wrong"}, "AWS_SECRET_ACCESS_KEY"),
    ({"AWS_ACCESS_KEY_ID": "", "AWS_SECRET_ACCESS_KEY": ""}, "credentials"),
    ({"DRAGOMAN_REPOSITORY": "s3://no-such-bucket/models"}, "no-such-bucket"),
    ({"AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{free_port()}"}, "AWS_ENDPOINT_URL_S3"),
], ids=["secret", "keys", "bucket", "endpoint"])  # fmt: skip
def test_a_store_that_cannot_be_read_is_named_with_its_cure(
    artifact: Path, store: s3.Store, wrong: dict[str, str], told: str
) -> None:
    """Infer and readiness say what to check; the instance is alive."""
    with rie.running(artifact, {**store.variables(), **wrong}) as instance:
        for method, path, body in (("POST", f"{MODEL}/infer", REQUEST), ("GET", "/v2/health/ready", None)):
            status, answer = instance.http(method, path, body)
            assert (status, told in answer["error"]) == (503, True), answer
        assert instance.http("GET", "/v2/health/live")[0] == 200
        assert instance.inits() == 1


def test_a_setting_that_is_wrong_is_named_in_every_answer(artifact: Path, store: s3.Store) -> None:
    """The function starts all the same, so that the reason reaches every client."""
    with rie.running(artifact, {**store.variables(), "DRAGOMAN_ALLOW_CODE": "perhaps"}) as instance:
        status, answer = instance.http("POST", f"{MODEL}/infer", REQUEST)
        assert (status, "DRAGOMAN_ALLOW_CODE" in answer["error"]) == (503, True)


def test_a_model_that_left_the_bucket_is_not_found_where_it_was_not_loaded(
    artifact: Path, store: s3.Store, bucket: str
) -> None:
    """An instance that has loaded it continues to serve it."""
    with rie.running(artifact, store.variables(bucket)) as instance:
        assert instance.http("POST", f"{MODEL}/infer", REQUEST)[0] == 200
        for key in ("half_plus_three/123/model.onnx", "half_plus_three/model-settings.json", "strings/1/model.onnx"):
            store.client.delete_object(Bucket=bucket, Key=f"{s3.PREFIX}/{key}")
        assert instance.http("POST", f"{MODEL}/infer", REQUEST)[0] == 200
        status, answer = instance.http("GET", "/v2/models/strings")
        assert (status, "strings" in answer["error"]) == (404, True)
    with rie.running(artifact, store.variables(bucket)) as instance:
        assert instance.http("POST", f"{MODEL}/infer", REQUEST)[0] == 404


def test_a_corrupt_model_is_reported_and_loads_after_its_repair(artifact: Path, store: s3.Store, bucket: str) -> None:
    """The error, readiness and the index have the failure; an event about the new object repairs it."""
    key = f"{s3.PREFIX}/half_plus_three/123/model.onnx"
    good = store.client.get_object(Bucket=bucket, Key=key)["Body"].read()
    store.client.put_object(Bucket=bucket, Key=key, Body=good[: len(good) // 2])
    created = json.loads(
        next(event for event in EVENTS if event.stem == "s3-object-created").read_text(encoding="utf-8")
    )
    created["Records"][0]["s3"]["bucket"]["name"] = bucket
    with rie.running(artifact, store.variables(bucket)) as instance:
        status, answer = instance.http("POST", f"{MODEL}/infer", REQUEST)
        assert (status, "half_plus_three" in answer["error"]) == (503, True)
        assert instance.http("GET", f"{MODEL}/ready")[1]["reason"]
        index = {row["name"]: row for row in instance.http("POST", "/v2/repository/index")[1]}
        assert (index["half_plus_three"]["state"], bool(index["half_plus_three"]["reason"])) == ("UNAVAILABLE", True)
        store.client.put_object(Bucket=bucket, Key=key, Body=good)
        assert gist(instance.invoke(created)) == ["half_plus_three"]
        assert instance.http("POST", f"{MODEL}/infer", REQUEST)[0] == 200


def test_the_status_page_finds_its_way_below_the_stage(warm: rie.Rie) -> None:
    """The site is served, and its links keep the stage that a client's URL must have."""
    status, page = warm.http("GET", "/", Accept="text/html")
    assert (status, b"half_plus_three" in page) == (200, True)
    status, page = warm.http("GET", "/docs")
    assert (status, b"/Prod/openapi.json" in page) == (200, True)

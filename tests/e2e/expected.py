"""What the function must answer to each of events/*.json, whichever way the event reaches it."""

import struct
from typing import Any

from tests.e2e.rie import read
from tests.e2e.tools import ROOT

EVENTS = sorted((ROOT / "events").glob("*.json"))
HALF_PLUS_THREE = [3.5, 4.0, 5.5]
READY = {"live": True, "ready": True}
ANSWERS: dict[str, Any] = {
    "alb-health-check": READY, "alb-infer-json": HALF_PLUS_THREE, "alb-multi-value-infer-binary": HALF_PLUS_THREE,
    "alb-predict-encoded-colon": HALF_PLUS_THREE, "direct-invoke": HALF_PLUS_THREE,
    "function-url-infer-binary": HALF_PLUS_THREE, "function-url-infer-json": HALF_PLUS_THREE,
    "function-url-predict-kserve": HALF_PLUS_THREE, "http-v2-infer-binary": HALF_PLUS_THREE,
    "http-v2-infer-gzip": HALF_PLUS_THREE, "http-v2-infer-json": ["hello", "Grüße"],
    "http-v2-predict-tfs": HALF_PLUS_THREE, "rest-v1-classify-tfs": ["setosa", "versicolor", "virginica"],
    "rest-v1-infer-binary": HALF_PLUS_THREE, "rest-v1-infer-gzip-inflated-by-the-gateway": HALF_PLUS_THREE,
    "rest-v1-infer-json": HALF_PLUS_THREE,
    "rest-v1-infer-json-as-base64": ["setosa", "versicolor", "virginica", "versicolor"],
    "rest-v1-predict-b64": ["hello", "Grüße"], "rest-v1-predict-tfs": HALF_PLUS_THREE, "rest-v1-ready": READY,
    "rest-v1-regress-tfs": [3.5, 4.0, 5.5], "s3-object-created": ["half_plus_three"],
    "s3-object-created-eventbridge": ["iris"], "schedule": "warm",
    "warm-up-ping": "warm", "warm-up-serverless-plugin": "warm",
}  # fmt: skip


def gist(answer: dict[str, Any]) -> Any:
    """Return what an answer says, without its platform's form: the first output's data, or the whole."""
    if "statusCode" in answer:
        assert answer["statusCode"] == 200, answer
        body = read(answer)
        return floats(body) if isinstance(body, bytes) else gist(body)
    if "checked" in answer:
        return [checked["model"] for checked in answer["checked"] if checked["ready"]]
    if "model_name" in answer:
        data = answer["outputs"][0]["data"]
        return [label(text) for text in data] if answer["model_name"] == "iris" else data
    if len(answer) == 1:  # an answer of V1
        (values,) = answer.values()
        return [best(value) if isinstance(value, list) else value for value in values]
    return "warm" if answer.get("warm") else answer


def floats(body: bytes) -> list[float]:
    """Return the FP32 tensor behind the JSON of a binary answer."""
    return list(struct.unpack("<3f", body[-12:]))


def best(classes: list[list[Any]]) -> Any:
    """Return the label with the highest score of V1's [label, score] pairs."""
    return max(classes, key=lambda pair: pair[1])[0]


def label(text: str) -> str:
    """Return the label of a class, which is written as score:index:label."""
    return text.split(":")[2]

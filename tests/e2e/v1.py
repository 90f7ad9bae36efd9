"""The answers that /v1 must give on the real parts, and the models that are used beside the sample ones."""

import base64
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.zoo.v1 import SETTINGS, onnx_models

MODELS: Final = ("binary_names", "labelled", "photo")
NO_TEXT: Final = bytes((0, 255, 254, 128))


def write(folder: Path) -> Path:
    """Write the models with labels and with binary values as a repository."""
    files = {f"{place}/model.onnx": model.SerializeToString() for place, model in onnx_models().items()}
    files |= {f"{name}/model-settings.json": json.dumps(settings).encode() for name, settings in SETTINGS.items()}
    for place, content in files.items():
        if place.partition("/")[0] in MODELS:
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            (folder / place).write_bytes(content)
    return folder


class Exchange(NamedTuple):
    """A request below /v1/models and its answer. `body`: the text unchanged, None for a GET."""

    path: str
    body: Any
    answer: Any
    status: int = 200

    @property
    def text(self) -> str | None:
        return self.body if self.body is None or isinstance(self.body, str) else json.dumps(self.body)


def b64(content: bytes) -> dict[str, str]:
    return {"b64": base64.b64encode(content).decode()}


AVAILABLE: Final = {"version": "123", "state": "AVAILABLE", "status": {"error_code": "OK", "error_message": ""}}
EXAMPLES: Final = {"signature_name": "tensorflow/serving/regress", "examples": [{"x": 1.0}, {"x": 2.0}]}
# TF Serving's page asks for the status first: its models are loaded before anybody can ask.
SESSION: Final = (
    Exchange("half_plus_three:predict", '{"instances": [1.0,2.0,5.0]}', {"predictions": [3.5, 4.0, 5.5]}),
    Exchange("half_plus_three:regress", EXAMPLES, {"results": [3.5, 4.0]}),
    Exchange(
        "half:predict", '{"instances": [1.0,5.0]}', {"error": "Servable not found for request: Latest(half)"}, 404
    ),
    Exchange("half_plus_three", None, {"name": "half_plus_three", "ready": True, "model_version_status": [AVAILABLE]}),
    Exchange("half_plus_three/versions/123", None, {"model_version_status": [AVAILABLE]}),
)
ROW: Final = {"instances": [0]}
EXCHANGES: Final = {
    "columns": Exchange("half_plus_three:predict", {"inputs": {"x": [1, 2, 5]}}, {"outputs": [3.5, 4.0, 5.5]}),
    "both": Exchange("half_plus_three:predict", {"inputs": [1]}, {"predictions": [3.5], "outputs": [3.5]}),
    "newest": Exchange("labelled:predict", ROW, {"predictions": [10]}),
    "version": Exchange("labelled/versions/2:predict", ROW, {"predictions": [2]}),
    "label": Exchange("labelled/labels/stable:predict", ROW, {"predictions": [1]}),
    "encoded-colon": Exchange("half_plus_three%3Apredict", {"instances": [1]}, {"predictions": [3.5]}),
    "encoded-colon-of-a-version": Exchange("labelled/versions/2%3Apredict", ROW, {"predictions": [2]}),
    "encoded-colon-of-a-label": Exchange("labelled/labels/stable%3apredict", ROW, {"predictions": [1]}),
    "encoded-space": Exchange("labelled/labels/pre%20release:predict", ROW, {"predictions": [10]}),
    "b64": Exchange("binary_names:predict", {"signature_name": "one", "instances": [b64("Grüße".encode()), "hello"]},
                    {"predictions": [b64("Grüße".encode()), b64(b"hello")]}),
    "b64-that-is-no-text": Exchange("photo:predict", {"instances": [b64(NO_TEXT)]}, {"predictions": [b64(NO_TEXT)]}),
    "infinity": Exchange("half_plus_three:predict", '{"instances": [Infinity, -Infinity]}',
                         {"predictions": [float("inf"), float("-inf")]}),
    "unknown-version": Exchange("labelled/versions/3:predict", ROW,
                                {"error": "Servable not found for request: Specific(labelled, 3)"}, 404),
    "unknown-label": Exchange("labelled/labels/nightly:predict", ROW,
                              {"error": "Unrecognized servable version label: nightly"}, 400),
    "unknown-verb": Exchange("half_plus_three:guess", ROW,
                             {"error": "Malformed request: POST /v1/models/half_plus_three:guess"}, 400),
}  # fmt: skip

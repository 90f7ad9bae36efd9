"""MLflow's own client of scoring servers, unmodified, asks a server that keeps MLflow's contract."""

import json
from pathlib import Path
from shutil import copytree

import numpy as np

from tests.e2e.tools import ROOT, environment, run
from tests.protocols.platforms.test_contracts import JSON, TENSOR, asked, started


def test_mlflows_client_reads_every_form(tmp_path: Path) -> None:
    """Data frames, arrays and arrays by name have the predictions that V2 has; a refusal has MLflow's code and text."""
    copytree(ROOT / "models" / "iris" / "1", tmp_path / "m")
    flags = ("--port", "PORT", "--platform", "mlflow", "--repository", str(tmp_path / "m"))
    with started(tmp_path / "log", {}, flags) as server:
        outputs = asked(server, "POST", "/v2/models/m/infer", JSON, {"inputs": [TENSOR]}).tensors()
        told = json.loads(run(environment("mlflow") / "python", ROOT / "tests/e2e/mlflow_client.py", str(server.port)))
    for form, predictions in told["found"].items():
        rows = predictions if isinstance(predictions, list) else [dict(zip(predictions, pair, strict=True))
            for pair in zip(*predictions.values(), strict=True)]  # fmt: skip
        np.testing.assert_array_equal([row["label"] for row in rows], outputs["label"], form)
        np.testing.assert_allclose([row["probabilities"] for row in rows], outputs["probabilities"], 1e-6, err_msg=form)
    assert told["columns"] == ["label", "probabilities"]
    assert "error code 400" in told["refused"]
    assert '"error_code":"BAD_REQUEST"' in told["refused"]
    assert told["version"]

"""The client of SageMaker's local mode, unmodified, asks a server that is started as a container there."""

import json
import os
from pathlib import Path
from shutil import copytree

import numpy as np

from tests.e2e.tools import ROOT, environment, run
from tests.protocols.platforms.test_contracts import JSON, TENSOR, asked, started


def test_the_client_of_local_mode_reads_every_form(tmp_path: Path) -> None:
    """JSON, CSV and arrays of numpy have the predictions that V2 has; a refusal is SageMaker's."""
    copytree(ROOT / "models" / "iris" / "1", tmp_path / "model")
    platform = {"SAGEMAKER_BIND_TO_PORT": "PORT", "SAGEMAKER_BASE_DIR": str(tmp_path)}
    with started(tmp_path / "log", platform) as server:
        expected = asked(server, "POST", "/v2/models/model/infer", JSON, {"inputs": [TENSOR]}).tensors()
        program = (environment("sagemaker") / "python", ROOT / "tests/e2e/sagemaker_client.py", str(server.port))
        *_, last = run(
            *program, env=os.environ | {"SAGEMAKER_SUPPRESS_V2_WARNING": "1"}
        ).splitlines()  # its log is above
    told = json.loads(last)
    csv = [(int(row[0]), list(map(float, row[1:]))) for row in told["found"].pop("csv")]
    others = [[(row["label"], row["probabilities"]) for row in rows] for rows in told["found"].values()]
    for rows in (csv, *others):
        assert [label for label, _ in rows] == list(expected["label"])
        np.testing.assert_allclose([each for _, each in rows], expected["probabilities"], 1e-6)
    assert "expected exactly one of dataframe_split" in json.dumps(told["refused"])

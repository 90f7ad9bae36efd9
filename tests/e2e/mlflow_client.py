"""Asks a scoring server with MLflow's own client, in each of the forms that it sends. Prints what it got as JSON."""

import json
import sys
from typing import Any

import numpy as np
import pandas as pd
from mlflow.pyfunc.scoring_server.client import ScoringServerClient

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]])
NAMES = ["sepal length", "sepal width", "petal length", "petal width"]


def main(port: int) -> dict[str, Any]:
    """Returns the predictions of each form of the same rows, and the text of a refusal."""
    client = ScoringServerClient("127.0.0.1", port)
    client.wait_server_ready()
    forms = {
        "frame": pd.DataFrame(ROWS, columns=NAMES),
        "array": ROWS,
        "lists": ROWS.tolist(),  # arrays by name, which it offers, fail in the client itself
        "float32 frame": pd.DataFrame(ROWS.astype(np.float32), index=[7, 8], columns=NAMES),
    }
    found = {name: client.invoke(data, params={})["predictions"] for name, data in forms.items()}
    table = client.invoke(forms["frame"]).get_predictions()
    try:
        client.invoke(pd.DataFrame({"a": ["text"], "b": [1.0]}))
    except Exception as refused:  # noqa: BLE001 - the client raises no other class
        return {
            "found": found,
            "columns": list(table.columns),
            "refused": str(refused),
            "version": client.get_version(),
        }
    raise AssertionError("a frame of texts was not refused")


print(json.dumps(main(int(sys.argv[1]))))  # noqa: T201 - the result

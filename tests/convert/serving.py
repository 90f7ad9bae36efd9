"""Asks a server for a converted model: over V2, V1 and gRPC by `dragoman infer`, and for explanations."""

import json
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.server import Server

Run = Callable[..., tuple[int, str, str]]


def get(server: Server, path: str, body: Any = None) -> Any:
    url = f"http://{server.netloc}{path}"
    content = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, content), timeout=100) as answer:
        return json.loads(answer.read())


def inputs(name: str, server: Server) -> list[str]:
    return [each["name"] for each in get(server, f"/v2/models/{name}")["inputs"]]


def check_served(name: str, server: Server, run: Run, file: Path, answers: Mapping[str, Any]) -> None:
    """`file`: rows by input, as .npz. `answers`: the library's own for them, by output; those of "" are the last's."""
    places = {"v2": f"http://{server.netloc}", "v1": f"http://{server.netloc}", "grpc": server.rpc_netloc}
    for protocol, url in places.items():
        code, out, err = run("infer", name, "--protocol", protocol, "--url", url, "--file", file, "--json")
        assert (code, err) == (0, ""), protocol
        outputs = json.loads(out)["outputs"]
        found = {each["name"]: each["data"] for each in outputs} | {"": outputs[-1]["data"]}
        for output, expected in answers.items():
            ours = np.array(found[output], float).reshape(np.shape(expected))
            np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4, err_msg=protocol)


def check_explained(name: str, server: Server, instance: Any) -> None:
    """The scores of a row and the mean over the background make up the prediction."""
    (found,) = get(server, f"/v1/models/{name}:explain", {"instances": [instance]})["explanations"]
    total = found["base_value"] + sum(_leaves(found["importance_scores"]))
    assert total == pytest.approx(found["prediction"], abs=1e-4 * max(1, abs(found["prediction"])))


def _leaves(scores: Any) -> list[float]:
    if isinstance(scores, dict | list):
        return [leaf for each in (scores.values() if isinstance(scores, dict) else scores) for leaf in _leaves(each)]
    return [scores]

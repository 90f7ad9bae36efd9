"""Asks a server with SageMaker's own SDK, as its local mode asks a container. Prints what it got as JSON."""

import json
import sys
from typing import Any

import boto3
import numpy as np
from sagemaker.deserializers import CSVDeserializer, JSONDeserializer
from sagemaker.local import LocalSession
from sagemaker.local.entities import _wait_for_serving_container
from sagemaker.predictor import Predictor
from sagemaker.serializers import CSVSerializer, JSONSerializer, NumpySerializer

ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]], np.float32)


def main(port: int) -> dict[str, Any]:
    """Returns the answers to the same rows in each form, and the text of a refusal."""
    session = LocalSession(boto3.Session(region_name="us-east-1"))
    session.config = {"local": {"serving_port": port}}
    _wait_for_serving_container(port)  # what local mode does once its container has started

    def predictor(serializer: Any, deserializer: Any) -> Predictor:
        return Predictor("local", sagemaker_session=session, serializer=serializer, deserializer=deserializer)

    plain = predictor(JSONSerializer(), JSONDeserializer())
    found = {
        "json": plain.predict({"instances": ROWS.tolist()})["predictions"],
        "csv": predictor(CSVSerializer(), CSVDeserializer()).predict(ROWS),
        "npy": predictor(NumpySerializer(), JSONDeserializer()).predict(ROWS)["predictions"],
        "named": plain.predict({"instances": ROWS.tolist()}, custom_attributes="tfs-model-name=model")["predictions"],
    }
    return {"found": found, "refused": plain.predict({"rows": 1})}  # local mode does not read statuses


print(json.dumps(main(int(sys.argv[1]))))  # noqa: T201 - the result

"""Serves a model with SageMaker's own SDK in local mode, which starts the image, and asks it in each form.

Its arguments are the image, the archive of the model, and a free port. Prints what it got as JSON, in the last line.
"""

import json
import sys
from typing import Any

import boto3
import numpy as np
from sagemaker.deserializers import CSVDeserializer, JSONDeserializer
from sagemaker.local import LocalSession
from sagemaker.model import Model
from sagemaker.predictor import Predictor
from sagemaker.serializers import CSVSerializer, JSONSerializer, NumpySerializer

NAME = "local"
ROLE = "arn:aws:iam::123456789012:role/nobody"  # local mode does not use it
ROWS = np.array([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]], np.float32)


def asked(session: LocalSession) -> dict[str, Any]:
    """Returns the answers to the same rows in each form, and the text of a refusal."""

    def predictor(serializer: Any, deserializer: Any) -> Predictor:
        return Predictor(NAME, sagemaker_session=session, serializer=serializer, deserializer=deserializer)

    plain = predictor(JSONSerializer(), JSONDeserializer())
    found = {
        "json": plain.predict({"instances": ROWS.tolist()})["predictions"],
        "csv": predictor(CSVSerializer(), CSVDeserializer()).predict(ROWS),
        "npy": predictor(NumpySerializer(), JSONDeserializer()).predict(ROWS)["predictions"],
        "named": plain.predict({"instances": ROWS.tolist()}, custom_attributes="tfs-model-name=model")["predictions"],
    }
    return {"found": found, "refused": plain.predict({"rows": 1})}  # local mode does not read statuses


def main(image: str, archive: str, port: int) -> dict[str, Any]:
    """Deploys the model, asks it, and removes it."""
    session = LocalSession(boto3.Session("nobody", "nothing", region_name="us-east-1"))
    session.config = {"local": {"serving_port": port}}
    model = Model(image, f"file://{archive}", ROLE, Predictor, sagemaker_session=session)
    try:
        model.deploy(1, "local", endpoint_name=NAME)
        return asked(session)
    finally:
        session.sagemaker_client.delete_endpoint(NAME)


print(json.dumps(main(*sys.argv[1:3], int(sys.argv[3]))))  # noqa: T201 - the result

"""The control of ours on Lambda: raw ASGI, Mangum and numpy; for a POST, one signed GET of a model, and ONNX Runtime.

The model is CONTROL_OBJECT, a path below AWS_ENDPOINT_URL_S3. Nothing is listed, checked, kept or tried again.
"""

import os
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import numpy as np
from mangum import Mangum

Message = MutableMapping[str, Any]
ALGORITHM = "AWS4-HMAC-SHA256"
UNSIGNED = "UNSIGNED-PAYLOAD"
SIGNED = "host;x-amz-content-sha256;x-amz-date"


def signed(host: str, path: str) -> dict[str, str]:
    """Returns the headers of a GET (AWS, "Signature Version 4")."""
    import hashlib  # noqa: PLC0415 - a health check does not need it
    import hmac  # noqa: PLC0415
    import time  # noqa: PLC0415

    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    region = os.environ["AWS_DEFAULT_REGION"]
    scope = f"{now[:8]}/{region}/s3/aws4_request"
    asked = f"GET\n{path}\n\nhost:{host}\nx-amz-content-sha256:{UNSIGNED}\nx-amz-date:{now}\n\n{SIGNED}\n{UNSIGNED}"
    key = b"AWS4" + os.environ["AWS_SECRET_ACCESS_KEY"].encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"{ALGORITHM}\n{now}\n{scope}\n{hashlib.sha256(asked.encode()).hexdigest()}"
    credential = f"{os.environ['AWS_ACCESS_KEY_ID']}/{scope}"
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    return {
        "x-amz-content-sha256": UNSIGNED,
        "x-amz-date": now,
        "Authorization": f"{ALGORITHM} Credential={credential}, SignedHeaders={SIGNED}, Signature={signature}",
    }


def infer(body: bytes) -> bytes:
    """Fetches the model, loads it and runs it on the first input of a V2 request."""
    import json  # noqa: PLC0415 - a health check does not need it
    from http.client import HTTPConnection  # noqa: PLC0415

    import onnxruntime  # noqa: PLC0415

    host, path = os.environ["AWS_ENDPOINT_URL_S3"].partition("://")[2], os.environ["CONTROL_OBJECT"]
    connection = HTTPConnection(host)
    connection.request("GET", path, headers=signed(host, path))
    session = onnxruntime.InferenceSession(connection.getresponse().read())
    tensor = json.loads(body)["inputs"][0]
    x = np.array(tensor["data"], np.float32).reshape(tensor["shape"])
    (y,) = session.run(None, {tensor["name"]: x})
    output = {"name": "y", "shape": y.shape, "datatype": "FP32", "data": y.ravel().tolist()}
    return json.dumps({"model_name": "tiny", "outputs": [output]}).encode()


async def app(
    scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
) -> None:
    asked = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    live = b'{"live":%s}' % str(bool(np.True_)).lower().encode()
    await send({"type": "http.response.body", "body": infer(asked["body"]) if scope["method"] == "POST" else live})


lambda_handler = Mangum(app, lifespan="off")

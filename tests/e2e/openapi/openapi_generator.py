"""Calls every operation with the Python client that openapi-generator has made. Runs in the client's environment.

Arguments: the client's folder, the server's URL, the key. Reads the calls as JSON; writes status and answer of each.
"""

import inspect
import json
import re
import sys
from typing import Any

folder, url, key = sys.argv[1:]
sys.path.insert(0, folder)

import openapi_client  # noqa: E402 - it is made by the test


def snake(name: str) -> str:
    """As the generator spells names."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).replace("-", "_").lower()


def pascal(name: str) -> str:
    """As the generator spells classes."""
    return "".join(part[:1].upper() + part[1:] for part in re.split(r"[ _]", name))


def made(model: Any, body: Any) -> Any:
    """A request. from_dict sends null for a member of any type that is absent; model_validate drops unknown members.

    It does not read alternatives either, such as the inputs of one model.
    """
    reads = "additional_properties" in model.model_fields or model.__name__.endswith("InferRequest")
    return (model.from_dict if reads else model.model_validate)(body)


def call(client: Any, asked: dict[str, Any]) -> tuple[int, Any]:
    """Status and answer of one operation."""
    group = getattr(openapi_client, f"{pascal(asked['tag'])}Api")(client)
    run = getattr(group, f"{snake(asked['operation'])}_with_http_info")
    arguments = {snake(name): value for name, value in asked["parameters"].items()}
    if asked["body"] is not None:
        known = {snake(name) for name in asked["known"]}
        name = next(name for name in inspect.signature(run).parameters if name not in known)
        model = getattr(openapi_client, pascal(asked["schema"]), None)
        arguments[name] = asked["body"] if model is None else made(model, asked["body"])
    answer = run(**arguments)
    data = answer.data
    return answer.status_code, data.to_dict() if hasattr(data, "to_dict") else json.loads(
        json.dumps(data, default=repr)
    )


configuration = openapi_client.Configuration(host=url, access_token=key)
with openapi_client.ApiClient(configuration) as client:
    json.dump([call(client, asked) for asked in json.load(sys.stdin)], sys.stdout)

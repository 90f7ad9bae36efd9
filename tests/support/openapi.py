"""The published OpenAPI description, and functions that several test modules use on it."""

import asyncio
import json
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import jsonschema_rs

from handler.edge.app import App
from tests.support.asgi import application

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final[dict[str, Any]] = json.loads((ROOT / "handler" / "site" / "openapi.json").read_bytes())
SCHEMAS: Final = DOCUMENT["components"]["schemas"]
JSON: Final = "application/json"
OCTETS: Final = "application/octet-stream"
serving: Final = partial(application, inline=True)


def ask(
    app: App, target: str, body: Any = None, headers: dict[str, str] | None = None, method: str = "POST"
) -> httpx.Response:
    """Sends one request; a body that is not bytes is sent as JSON. `headers`: in place of the media type."""
    if headers is None:
        headers = {} if body is None else {"content-type": OCTETS if isinstance(body, bytes) else JSON}
    content = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()

    async def exchange() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://local") as client:
            return await client.request(method, target, content=content, headers=headers)

    return asyncio.run(exchange())


def resolved(node: dict[str, Any]) -> dict[str, Any]:
    """Returns the target of a local reference."""
    for step in node.get("$ref", "#").split("/")[1:]:
        node = (node if step != "components" else DOCUMENT)[step]
    return node


def validate(schema: dict[str, Any], value: Any) -> None:
    """Raises for a value that does not obey a schema of the description."""
    jsonschema_rs.validate({**schema, "components": DOCUMENT["components"]}, value)


def validator(name: str) -> Any:
    """Returns a validator of one of the description's schemas, for many values."""
    return jsonschema_rs.validator_for({**SCHEMAS[name], "components": DOCUMENT["components"]})


def nested(flat: Sequence[Any], shape: Sequence[int]) -> list[Any]:
    """Returns the elements as lists in lists."""
    if len(shape) <= 1:
        return list(flat)
    step = math.prod(shape[1:])
    return [nested(flat[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


def plain(value: Any) -> Any:
    """Rounds numbers to as many digits as every machine calculates alike."""
    if isinstance(value, dict):
        return {key: plain(member) for key, member in value.items()}
    if isinstance(value, list):
        return [plain(member) for member in value]
    return f"{value:.4g}" if isinstance(value, float) else value

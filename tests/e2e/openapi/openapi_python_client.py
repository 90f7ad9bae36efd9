"""Calls every operation with the client that openapi-python-client has made. Runs in its environment.

Arguments: the client's folder, the server's URL, the key. Reads the calls as JSON; writes status and answer of each.
"""

import importlib
import inspect
import json
import sys
from enum import EnumType
from pathlib import Path
from typing import Any

sys.path.remove(str(Path(__file__).parent))  # this file has the package's name

from openapi_python_client.strings import ClassName, PythonIdentifier, snake_case

folder, url, key = Path(sys.argv[1]), *sys.argv[2:]
sys.path.insert(0, str(folder.parent))


def call(client: Any, asked: dict[str, Any]) -> tuple[int, Any]:
    """Status and answer of one operation."""
    name = snake_case(asked["operation"])
    module = importlib.import_module(f"{folder.name}.api.{snake_case(asked['tag'])}.{name}")
    arguments = {PythonIdentifier(name, ""): value for name, value in asked["parameters"].items()}
    if asked["body"] is not None:
        models = importlib.import_module(f"{folder.name}.models")
        arguments["body"] = getattr(models, ClassName(asked["schema"], "")).from_dict(asked["body"])
    kinds = inspect.get_annotations(module.sync_detailed)
    for name, value in arguments.items():
        if isinstance(kinds[name], EnumType):
            arguments[name] = kinds[name](value)
    answer = module.sync_detailed(client=client, **arguments)
    data = answer.parsed
    plain = [each.to_dict() for each in data] if isinstance(data, list) else data
    return int(answer.status_code), plain.to_dict() if hasattr(plain, "to_dict") else plain


client = importlib.import_module(folder.name).AuthenticatedClient(base_url=url, token=key)
json.dump([call(client, asked) for asked in json.load(sys.stdin)], sys.stdout)

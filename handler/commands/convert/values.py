"""Numbers and text of a SavedModel as model-settings.json holds them."""

import base64
from typing import Any


def jsonable(value: Any) -> Any:
    r"""What `tolist` gives, with text for bytes; those that are no text as {"b64": ...}.

    >>> jsonable([b"ant", [1.5, b"\xff"]])
    ['ant', [1.5, {'b64': '/w=='}]]
    """
    if isinstance(value, list):
        return [jsonable(element) for element in value]
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(value).decode()}

"""The details of an error: google.rpc.RequestInfo, with the id that the client has sent.

Sources: googleapis' google/rpc/status.proto and error_details.proto; the Connect protocol's "Error Details"; gRPC's
"Richer error model", which has the whole google.rpc.Status in the trailer grpc-status-details-bin.
"""

from base64 import b64encode
from typing import Any, Final

from core.schema.fields import head

BINARY: Final = b"grpc-status-details-bin"
REQUEST_INFO: Final = "google.rpc.RequestInfo"
URL: Final = b"type.googleapis.com/" + REQUEST_INFO.encode()
CODE: Final = b"\x08"
"""The key of field 1, a varint. gRPC's codes are below 128, so that each is its own varint."""


def in_json(own_id: bytes) -> list[dict[str, Any]]:
    """Returns the details of Connect's JSON. Its base64 has no padding."""
    value = unpadded(_field(1, own_id)).decode()
    return [{"type": REQUEST_INFO, "value": value, "debug": {"requestId": own_id.decode()}}]


def status(number: int, message: str, own_id: bytes) -> bytes:
    """Returns google.rpc.Status. `number`, `message`: those of the call, which clients compare with these."""
    info = _field(1, URL) + _field(2, _field(1, own_id))
    return CODE + bytes((number,)) + _field(2, message.encode()) + _field(3, info)


def unpadded(value: bytes) -> bytes:
    """Returns base64 as gRPC's binary headers and Connect's details have it."""
    return b64encode(value).rstrip(b"=")


def _field(number: int, value: bytes) -> bytes:
    return head(number, len(value)) + value

"""gRPC's server reflection (grpc.reflection.v1, and v1alpha with the same messages): the services and their .proto."""

from collections.abc import Sequence
from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import DecodeError

from core.errors import InvalidInput, shown
from core.schema.pool import POOL
from core.schema.reflection import (
    ErrorResponse,
    ExtensionNumberResponse,
    FileDescriptorResponse,
    ListServiceResponse,
    ServerReflectionRequest,
    ServerReflectionResponse,
    ServiceResponse,
)

SERVICES: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
METHOD: Final = "ServerReflectionInfo"
INVALID_ARGUMENT: Final = 3
NOT_FOUND: Final = 5


def answer(body: bytes, services: Sequence[str]) -> bytes:
    """Returns the answer to one request of the stream. Raises InvalidInput for bytes that are not a request."""
    try:
        request = ServerReflectionRequest.FromString(body)
    except DecodeError:
        raise InvalidInput(f"the {len(body)} bytes of the request are not a ServerReflectionRequest") from None
    response = _answer(request, services)
    response.valid_host = request.host
    response.original_request.CopyFrom(request)
    return response.SerializeToString()


def _answer(request: ServerReflectionRequest, services: Sequence[str]) -> ServerReflectionResponse:
    kind = request.WhichOneof("message_request")
    if kind is None:
        return _error(INVALID_ARGUMENT, "the request has no message_request, or one of an unknown kind")
    if kind == "list_services":
        listed = ListServiceResponse(service=[ServiceResponse(name=name) for name in services])
        return ServerReflectionResponse(list_services_response=listed)
    try:
        return _found(request, kind)
    except KeyError:
        asked = request.file_containing_extension.containing_type or getattr(request, kind)
        return _error(NOT_FOUND, f"there is no {shown(asked)} here")


def _found(request: ServerReflectionRequest, kind: str) -> ServerReflectionResponse:
    """Raises KeyError."""
    if kind == "file_by_filename":
        return _file(POOL.FindFileByName(request.file_by_filename))
    if kind == "file_containing_symbol":
        return _file(_containing(request.file_containing_symbol))
    if kind == "file_containing_extension":  # no message has extensions
        raise KeyError(kind)
    known = POOL.FindMessageTypeByName(request.all_extension_numbers_of_type)
    none = ExtensionNumberResponse(base_type_name=known.full_name)
    return ServerReflectionResponse(all_extension_numbers_response=none)


def _containing(symbol: str) -> FileDescriptor:
    try:
        return POOL.FindFileContainingSymbol(symbol)
    except KeyError:  # a method, which the pool does not find by its symbol
        service, _, method = symbol.rpartition(".")
        return POOL.FindServiceByName(service).methods_by_name[method].containing_service.file


def _file(descriptor: FileDescriptor) -> ServerReflectionResponse:
    file = FileDescriptorProto()
    descriptor.CopyToProto(file)
    response = FileDescriptorResponse(file_descriptor_proto=[file.SerializeToString()])
    return ServerReflectionResponse(file_descriptor_response=response)


def _error(code: int, message: str) -> ServerReflectionResponse:
    return ServerReflectionResponse(error_response=ErrorResponse(error_code=code, error_message=message))

"""gRPC's server reflection (grpc.reflection.v1, and v1alpha with the same messages): the services and their .proto."""

from collections.abc import Callable, Sequence
from typing import Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from core import operations as ops
from core.bounds import check_call
from core.errors import shown
from core.rpc import Rpc, RpcMethod, methods
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
from core.wire import Right, Waits

SERVICES: Final = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
METHOD: Final = "ServerReflectionInfo"
INVALID_ARGUMENT: Final = 3
NOT_FOUND: Final = 5
OLDER_FILE: Final = "reflection_v1alpha.proto"


def _add_older() -> None:
    """Adds v1alpha's file to the pool. It is that of v1 under another package."""
    file = FileDescriptorProto()
    POOL.FindServiceByName(SERVICES[0]).file.CopyToProto(file)
    package, older = (service.rpartition(".")[0] for service in SERVICES)
    file.name, file.package = OLDER_FILE, older
    for message in file.message_type:
        for field in filter(lambda field: field.type_name, message.field):
            field.type_name = field.type_name.replace(package, older)
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(package, older)
            method.output_type = method.output_type.replace(package, older)
    POOL.Add(file)


_add_older()


def reflection(services: Sequence[str]) -> tuple[RpcMethod, ...]:
    """Returns the method of both versions. `services`: the names of all others."""
    names = (*services, *SERVICES)

    def decode(
        request: ServerReflectionRequest,
    ) -> tuple[ops.Operation, Callable[[ops.Readiness], tuple[ServerReflectionResponse, ...]]]:
        return ops.ServerLive(), lambda _: (answer(request, names),)

    found = methods(SERVICES[0], Rpc(METHOD, decode, Waits.NOTHING, _read, right=Right.READ))
    return tuple(method._replace(service=service) for service in SERVICES for method in found)


def _read(body: bytes) -> ServerReflectionRequest:
    """Raises TooLarge, DecodeError."""
    check_call(len(body))
    return ServerReflectionRequest.FromString(body)


def answer(request: ServerReflectionRequest, services: Sequence[str]) -> ServerReflectionResponse:
    """Returns the answer to one request of the stream."""
    response = _answer(request, services)
    response.valid_host = request.host
    response.original_request.CopyFrom(request)
    return response


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

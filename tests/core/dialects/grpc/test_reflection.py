"""core.dialects.grpc.reflection: the services, their files, and the names that are unknown."""

from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from core.dialects.grpc import reflection as reflection_rpc
from core.dialects.v2.rpc import SERVICE
from core.errors import InvalidInput
from core.schema import reflection

METHOD, OLDER = reflection_rpc.reflection(["a.B", "c.D"])


def reflected(**question: Any) -> reflection.ServerReflectionResponse:
    """Returns the answer to a tool's question."""
    request = reflection.ServerReflectionRequest(host="h", **question)
    _, answers = METHOD.rpc.decode(METHOD.read(request.SerializeToString()))
    (response,) = answers(None)
    assert response.valid_host == "h"
    assert response.original_request == request
    return response


def test_reflection_lists_the_services() -> None:
    """It lists the services that it is given, and its own two."""
    found = [service.name for service in reflected(list_services="*").list_services_response.service]
    assert found == ["a.B", "c.D", *reflection_rpc.SERVICES]


@pytest.mark.parametrize(("question", "file"), [
    ({"file_by_filename": "open_inference.proto"}, "open_inference.proto"),
    ({"file_containing_symbol": SERVICE}, "open_inference.proto"),
    ({"file_containing_symbol": f"{SERVICE}.ModelInfer"}, "open_inference.proto"),
    ({"file_containing_symbol": "inference.ModelInferRequest.InferInputTensor"}, "open_inference.proto"),
    ({"file_containing_symbol": "inference.DataType"}, "open_inference.proto"),
    ({"file_containing_symbol": "grpc.health.v1.Health"}, "health.proto"),
    ({"file_containing_symbol": "grpc.reflection.v1.ServerReflection"}, "reflection.proto"),
    ({"file_containing_symbol": "grpc.reflection.v1.ErrorResponse"}, "reflection.proto"),
    ({"file_containing_symbol": "grpc.reflection.v1alpha.ServerReflection"}, "reflection_v1alpha.proto"),
    ({"file_containing_symbol": f"{OLDER.service}.{OLDER.rpc.name}"}, "reflection_v1alpha.proto"),
    ({"file_containing_symbol": "grpc.reflection.v1alpha.ErrorResponse"}, "reflection_v1alpha.proto"),
    ({"file_by_filename": "reflection_v1alpha.proto"}, "reflection_v1alpha.proto"),
])  # fmt: skip
def test_reflection_gives_the_file_of_a_name(question: dict[str, str], file: str) -> None:
    """The file is a descriptor that any tool reads."""
    (found,) = reflected(**question).file_descriptor_response.file_descriptor_proto
    assert FileDescriptorProto.FromString(found).name == file


@pytest.mark.parametrize(("question", "code", "culprit"), [
    ({"file_by_filename": "nope.proto"}, 5, "there is no 'nope.proto' here"),
    ({"file_containing_symbol": "nope"}, 5, "there is no 'nope' here"),
    ({"file_containing_symbol": f"{SERVICE}.Nope"}, 5, "Nope' here"),
    ({"file_containing_symbol": ""}, 5, "there is no '' here"),
    ({"file_containing_extension": {"containing_type": "inference.DataType"}}, 5, "there is no 'inference.DataT"),
    ({"all_extension_numbers_of_type": "nope"}, 5, "there is no 'nope' here"),
    ({}, 3, "has no message_request, or one of an unknown kind"),
])  # fmt: skip
def test_reflection_says_what_it_does_not_have(question: dict[str, Any], code: int, culprit: str) -> None:
    """The error is an answer, because the stream continues."""
    error = reflected(**question).error_response
    assert error.error_code == code
    assert culprit in error.error_message


def test_reflection_knows_that_messages_have_no_extensions() -> None:
    """proto3 does not have them."""
    response = reflected(all_extension_numbers_of_type="inference.ModelInferRequest").all_extension_numbers_response
    assert (response.base_type_name, list(response.extension_number)) == ("inference.ModelInferRequest", [])


def test_both_versions_have_the_same_method() -> None:
    """Older tools ask for the service that was there before version 1."""
    assert METHOD._replace(service="grpc.reflection.v1alpha.ServerReflection") == OLDER


def test_the_older_version_is_described_by_messages_of_its_own() -> None:
    """A tool can make a pool of that file alone, and reads the messages of the other version with it."""
    (found,) = reflected(file_by_filename=reflection_rpc.OLDER_FILE).file_descriptor_response.file_descriptor_proto
    pool = DescriptorPool()
    pool.AddSerializedFile(found)
    method = pool.FindServiceByName(OLDER.service).methods_by_name[OLDER.rpc.name]
    assert method.input_type.full_name == "grpc.reflection.v1alpha.ServerReflectionRequest"
    answer = GetMessageClass(method.output_type).FromString(reflected(list_services="*").SerializeToString())
    assert str(answer) == str(reflected(list_services="*"))


def test_reflection_refuses_bytes_that_ask_nothing() -> None:
    """The refusal ends the stream."""
    with pytest.raises(InvalidInput, match="the 2 bytes of the request are not a ServerReflectionRequest"):
        METHOD.read(b"\x1a\xff")

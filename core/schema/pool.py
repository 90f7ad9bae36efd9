"""Makes message classes of descriptor sets, in a pool of this project's own.

Modules that protoc generates register their messages in protobuf's default pool, which takes every name once.
tritonclient.grpc registers messages of the same names there, so it could not be imported beside such modules.
"""

from pkgutil import get_data
from typing import Final

from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

POOL: Final = DescriptorPool()


def messages(name: str, package: str = __package__) -> dict[str, type[Message]]:
    """Returns the classes of the messages in <name>.proto by name; those inside a message are its attributes.

    `package`: that of <name>.binpb.
    """
    (file,) = FileDescriptorSet.FromString(get_data(package, f"{name}.binpb") or b"").file
    POOL.Add(file)
    found = POOL.FindFileByName(file.name).message_types_by_name
    return {message: GetMessageClass(descriptor) for message, descriptor in found.items()}


def method(service: str, name: str) -> tuple[MethodDescriptor, type[Message], type[Message]]:
    """Returns the descriptor of a service's method, and the classes of its requests and answers."""
    descriptor = POOL.FindServiceByName(service).methods_by_name[name]
    return descriptor, GetMessageClass(descriptor.input_type), GetMessageClass(descriptor.output_type)

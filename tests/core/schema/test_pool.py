"""core.schema.pool and the files that proto/ becomes, against protoc and against tritonclient's messages."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from core.dialects.grpc.health import health
from core.dialects.v2.rpc import V2_RPC
from core.errors import InvalidInput
from core.rpc import Form
from core.schema import pool

ROOT: Final = Path(__file__).parents[3]
FOLDERS: Final = {
    "model_server_config": ROOT / "handler" / "commands" / "convert",
    "triton_model_config": ROOT / "handler" / "settings" / "triton",
}
"""The folders of schemas whose descriptor set and types are not in core/schema."""
NAMES: Final = sorted(path.stem for path in (ROOT / "proto").glob("*.proto"))

MLSERVERS: Final = {"inference.ModelMetadataResponse.parameters", "inference.ModelMetadataResponse.ParametersEntry"}
"""A field that Triton does not have, and its type. Triton's clients skip it."""
TRITON: Final = """
import sys
from core.schema import open_inference
import tritonclient.grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from tritonclient.grpc import model_config_pb2, service_pb2
assert open_inference.ModelInferRequest is not service_pb2.ModelInferRequest
theirs = FileDescriptorSet()
for module in (service_pb2, model_config_pb2):
    module.DESCRIPTOR.CopyToProto(theirs.file.add())
sys.stdout.buffer.write(theirs.SerializeToString())
"""


def beside(name: str, suffix: str) -> Path:
    """Returns the path of protoc's output for <name>.proto."""
    return FOLDERS.get(name, ROOT / "core" / "schema") / f"{name}.{suffix}"


def ours(name: str) -> FileDescriptorSet:
    """Returns the descriptor set as it is in the tree."""
    return FileDescriptorSet.FromString(beside(name, "binpb").read_bytes())


def messages(found: FileDescriptorSet) -> Iterator[tuple[str, DescriptorProto]]:
    """Returns every message by its full name, nested ones too."""
    waiting = [(f"{file.package}.{message.name}", message) for file in found.file for message in file.message_type]
    while waiting:
        name, message = waiting.pop()
        yield name, message
        waiting += [(f"{name}.{inner.name}", inner) for inner in message.nested_type]


def described(field: FieldDescriptorProto) -> tuple[object, ...]:
    """Returns what a field is on the wire."""
    return field.number, field.type, field.label, field.type_name, field.HasField("oneof_index")


@pytest.fixture(scope="module")
def theirs() -> FileDescriptorSet:
    """Imports tritonclient's messages where ours had been imported before."""
    done = subprocess.run([sys.executable, "-c", TRITON], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return FileDescriptorSet.FromString(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_a_descriptor_set_is_what_protoc_makes_of_its_source_now(name: str, tmp_path: Path) -> None:
    """A difference means that `make proto` was forgotten."""
    target = tmp_path / "fresh"
    arguments = [f"--proto_path={ROOT / 'proto'}", f"--descriptor_set_out={target}", f"{name}.proto"]
    assert protoc.main(["protoc", *arguments]) == 0
    assert FileDescriptorSet.FromString(target.read_bytes()) == ours(name)


def annotated(tree: ast.Module | ast.ClassDef, name: str) -> Iterator[tuple[str, set[str]]]:
    """Returns every class of a .pyi by its full name, with the names that it annotates."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            fields = {n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)}
            yield f"{name}.{node.name}", fields
            yield from annotated(node, f"{name}.{node.name}")


@pytest.mark.parametrize("name", NAMES)
def test_the_types_for_mypy_name_every_field_of_every_message(name: str) -> None:
    """They do not name anything else."""
    package = ours(name).file[0].package
    types = dict(annotated(ast.parse(beside(name, "pyi").read_text(encoding="utf-8")), package))
    for message, descriptor in messages(ours(name)):
        if descriptor.options.map_entry:
            continue
        lower = {field for field in types[message] if field.islower()}
        assert lower == {field.name for field in descriptor.field}, message


def test_every_field_is_on_the_wire_what_tritonclient_has(theirs: FileDescriptorSet) -> None:
    """Number, type, repetition and the message type are equal."""
    known = dict(messages(theirs))
    for name, message in messages(ours("open_inference")):
        if name in MLSERVERS:
            continue
        fields = {field.name: described(field) for field in known[name].field}
        for field in message.field:
            if f"{name}.{field.name}" not in MLSERVERS:
                assert fields[field.name] == described(field), (name, field.name)


def test_every_value_of_an_enumeration_is_the_one_of_tritonclient(theirs: FileDescriptorSet) -> None:
    """Names and numbers are equal."""
    known = {enum.name: enum for file in theirs.file for enum in file.enum_type}
    for enum in ours("open_inference").file[0].enum_type:
        assert list(enum.value) == list(known[enum.name].value)


def test_every_method_is_the_one_of_tritonclient(theirs: FileDescriptorSet) -> None:
    """Its messages are equal, and so is which of them are streams."""
    (known,) = [service for file in theirs.file for service in file.service]
    (service,) = ours("open_inference").file[0].service
    assert service.name == known.name
    methods = {method.name: method for method in known.method}
    for method in service.method:
        same = methods[method.name]
        assert (method.input_type, method.output_type) == (same.input_type, same.output_type)
        assert (method.client_streaming, method.server_streaming) == (same.client_streaming, same.server_streaming)


def test_the_tables_have_every_method_of_their_services_in_order() -> None:
    """A method that the schema announces is served."""
    for name, table in (("open_inference", V2_RPC), ("health", health([]))):
        (service,) = ours(name).file[0].service
        assert [method.rpc.name for method in table] == [method.name for method in service.method]


def test_what_a_method_is_comes_from_its_source() -> None:
    """Streams are exchanged or watched; only a method that changes nothing accepts GET."""
    forms = {method.rpc.name: method.form for method in (*V2_RPC, *health([]))}
    assert forms.pop("ModelStreamInfer") is Form.EXCHANGE
    assert forms.pop("Watch") is Form.WATCH
    assert set(forms.values()) == {Form.UNARY}
    unsafe = {method.rpc.name for method in V2_RPC if not method.safe}
    assert unsafe == {"ModelStreamInfer", "RepositoryModelLoad", "RepositoryModelUnload"}


@pytest.mark.parametrize("method", [*V2_RPC, *health([])], ids=lambda method: method.rpc.name)
def test_bytes_that_are_no_message_are_the_clients_mistake(method: object) -> None:
    """The refusal names the message and not the bytes."""
    assert isinstance(method, type(V2_RPC[0]))
    with pytest.raises(InvalidInput, match=rf"the 2 bytes of the request are not a {method.request.DESCRIPTOR.name}"):
        method.read(b"\x0a\xff")


def test_there_are_messages_of_sources_alone() -> None:
    """A name without a descriptor set is a mistake in this project."""
    with pytest.raises(FileNotFoundError):
        pool.messages("unheard_of")

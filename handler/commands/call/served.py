"""What a server says of a model: its inputs and outputs. A name that it does not have is compared with those it has."""

import json
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from core.dtype import DATATYPES
from core.errors import nearest, shown
from core.records import NamedTuple
from core.tensor import Tensor, TensorSpec
from handler.commands import v1_signatures
from handler.commands.call.transport import LIVE, NOT_FOUND, OK, Packet, Transport, reason
from handler.commands.refused import Refused
from handler.commands.v1_signatures import ChosenSignature

SERVICE: Final = "/inference.GRPCInferenceService"


class CalledModel(NamedTuple):
    """A model as its server describes it. `version`: "" for the one that the server chooses. None: not declared.

    `signature`: for V1, which names inputs and outputs by their aliases; None if the server does not describe it.
    """

    name: str
    version: str
    inputs: tuple[TensorSpec, ...] | None
    outputs: tuple[TensorSpec, ...] | None
    signature: ChosenSignature | None = None

    def path(self, prefix: str) -> str:
        """Returns the model's path under /v1 or /v2."""
        version = f"/versions/{quote(self.version, safe='')}" if self.version else ""
        return f"/{prefix}/models/{quote(self.name, safe='')}{version}"


def described(transport: Transport, name: str, version: str, *, rpc: bool) -> CalledModel:
    """Asks for a model's metadata. `rpc`: over gRPC. Raises Refused, also for a model that is not there."""
    model = CalledModel(name, version, None, None)
    packet = _rpc_question(model) if rpc else Packet(model.path("v2"), method="GET")
    landed = transport.call(packet)
    if landed.status == OK:
        inputs, outputs = _rpc_answer(landed.body, _optional(model, transport)) if rpc else _answer(landed.body)
        return model._replace(inputs=inputs, outputs=outputs)
    if landed.status != NOT_FOUND:
        raise Refused(f"model {shown(name)}: {reason(landed)}")
    names = _names(transport, rpc=rpc)
    if name in names:
        raise Refused(reason(landed).removeprefix(f"{NOT_FOUND} "))
    if not names and not rpc and transport.call(LIVE).status == NOT_FOUND:  # V2 demands it of every server
        raise Refused(
            f"{NOT_FOUND} {packet.path}: another server is at --url, or its path, such as a stage's, is wrong"
        )
    raise Refused(f"model {shown(name)} does not exist{hint(name, names)}")


def signed(transport: Transport, model: CalledModel, tensors: Sequence[Tensor]) -> CalledModel:
    """Asks for a model's signatures. Returns the model with one that has the tensors. Raises Refused."""
    landed = transport.call(Packet(f"{model.path('v1')}/metadata", method="GET"))
    if landed.status != OK or model.inputs is None:
        return model
    try:
        told = json.loads(landed.body)
    except ValueError:
        return model
    names = [tensor.name for tensor in tensors]
    found = v1_signatures.chosen(v1_signatures.read(told, model.inputs, model.outputs or ()), names, ())
    if found is None:
        given = ", ".join(map(shown, names))
        raise Refused(f"model {shown(model.name)} has no V1 signature with the inputs {given}: use another --protocol")
    return model._replace(signature=found)


def hint(word: str, known: Sequence[str]) -> str:
    """Returns which known name was probably meant, or which ones there are."""
    if near := nearest(word, known):
        return f"; did you mean {near}?"
    shortened = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")  # noqa: PLR2004 - a line's worth
    return f"; expected {'one of ' if len(known) > 1 else ''}{shortened}" if known else ""


def _answer(body: bytes) -> tuple[Any, Any]:
    try:
        document = json.loads(body)
        return tuple(_specs(document.get(role)) for role in ("inputs", "outputs"))  # type: ignore[return-value] # two
    except (ValueError, AttributeError, TypeError, KeyError):
        raise Refused(f"this is not the metadata of a model: {body[:256]!r}") from None


def _specs(members: Any) -> tuple[TensorSpec, ...] | None:
    if not members:
        return None
    return tuple(
        TensorSpec(
            each["name"],
            DATATYPES[each["datatype"]],
            None if (each.get("parameters") or {}).get("any_rank") else tuple(map(int, each["shape"])),
            optional=bool((each.get("parameters") or {}).get("optional")),
        )
        for each in members
    )


def _rpc_question(model: CalledModel) -> Packet:
    from core.schema.open_inference import ModelMetadataRequest  # noqa: PLC0415 - protobuf, for this protocol alone

    message = ModelMetadataRequest(name=model.name, version=model.version)
    return Packet(f"{SERVICE}/ModelMetadata", message.SerializeToString())


def _rpc_answer(body: bytes, optional: frozenset[str]) -> tuple[Any, Any]:
    from core.schema.open_inference import ModelMetadataResponse  # noqa: PLC0415 - as above

    message = ModelMetadataResponse.FromString(body)
    found = []
    for role in (message.inputs, message.outputs):
        specs = [
            TensorSpec(each.name, DATATYPES[each.datatype], tuple(each.shape), optional=each.name in optional)
            for each in role
        ]
        found.append(tuple(specs) or None)
    return found[0], found[1]


def _optional(model: CalledModel, transport: Transport) -> frozenset[str]:
    """Returns the names of optional inputs, which only the configuration has over gRPC."""
    from core.schema.open_inference import ModelConfigRequest, ModelConfigResponse  # noqa: PLC0415 - as above

    message = ModelConfigRequest(name=model.name, version=model.version)
    landed = transport.call(Packet(f"{SERVICE}/ModelConfig", message.SerializeToString()))
    inputs = ModelConfigResponse.FromString(landed.body).config.input if landed.status == OK else ()
    return frozenset(each.name for each in inputs if each.optional)


def _names(transport: Transport, *, rpc: bool) -> list[str]:
    """Returns the names of the server's models; none if it does not list them for this caller."""
    if rpc:
        from core.schema.open_inference import RepositoryIndexResponse  # noqa: PLC0415 - as above

        landed = transport.call(Packet(f"{SERVICE}/RepositoryIndex"))
        models = RepositoryIndexResponse.FromString(landed.body).models if landed.status == OK else ()
        return sorted({each.name for each in models})
    landed = transport.call(Packet("/v2/repository/index"))
    try:
        return sorted({each["name"] for each in json.loads(landed.body)}) if landed.status == OK else []
    except (ValueError, TypeError, KeyError):
        return []

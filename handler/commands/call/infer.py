"""`dragoman infer`: one request, and its answer as a table or JSON."""

import time

from core.records import NamedTuple
from handler.commands.call import defaults, inputs, shown
from handler.commands.call.protocols import PROTOCOLS, CallProtocol, answer
from handler.commands.call.served import CalledModel, described, signed
from handler.commands.call.transport import OK, GrpcTransport, HttpTransport, Packet, Transport, reason
from handler.commands.options import CommandOptions
from handler.commands.refused import Refused
from handler.stores.paths import expanded


class PreparedCall(NamedTuple):
    """A request that is ready to be sent."""

    protocol: CallProtocol
    model: CalledModel
    packet: Packet


def connect(options: CommandOptions) -> Transport:
    """Returns a connection to the server that the flags name; it is opened by its first request. Raises Refused."""
    key = _key(options)
    if PROTOCOLS[options.protocol].rpc:
        return GrpcTransport(options.url or defaults.GRPC, key, options.timeout)
    return HttpTransport(options.url or defaults.URL, key, options.timeout)


def _key(options: CommandOptions) -> str | None:
    """Returns the key, or what its file has. Raises Refused."""
    said: str | None = options.key
    if said is None or not said.startswith("@"):
        return said
    try:
        return expanded(said[1:]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"--key {said}: {getattr(error, 'strerror', None) or 'not a text'}") from None


def prepare(options: CommandOptions, transport: Transport) -> PreparedCall:
    """Makes the request that the flags describe. Raises Refused."""
    protocol = PROTOCOLS[options.protocol]
    model = described(transport, options.model, options.version, rpc=protocol.rpc)
    tensors = inputs.read(options, model)
    if protocol.signed:
        model = signed(transport, model, tensors)
    return PreparedCall(protocol, model, protocol.write(model, tensors))


def run(options: CommandOptions) -> int:
    """Sends one request, and prints its answer. Raises Refused."""
    transport = connect(options)
    try:
        prepared = prepare(options, transport)
        began = time.monotonic()
        landed = transport.call(prepared.packet)
        seconds = time.monotonic() - began
    finally:
        transport.close()
    if landed.status != OK:
        raise Refused(reason(landed))
    found = answer(prepared.protocol, prepared.model, landed)
    if options.json:
        print(shown.document(prepared.model, found, seconds))  # noqa: T201 - the result
    else:
        shown.show(prepared.model, found, seconds)
    return 0

"""THE table of remote calls, whatever carries them."""

from typing import Final

from core.dialects.grpc.health import health
from core.dialects.grpc.reflection import SERVICES, reflection
from core.dialects.grps.rpc import GRPS_RPC
from core.dialects.v2 import refusals, rpc
from core.dialects.v2.rpc import V2_RPC
from core.rpc import RpcMethod

_MODELS: Final = (*V2_RPC, *GRPS_RPC)
ABSENT: Final = {f"/{rpc.SERVICE}/{name}": text for name, text in refusals.METHODS.items()}
"""Why known methods are not offered, by their paths."""
_OTHERS: Final = health([*(method.service for method in _MODELS), *SERVICES])
RPCS: Final[tuple[RpcMethod, ...]] = (
    *_MODELS,
    *_OTHERS,
    *reflection([*dict.fromkeys(method.service for method in (*_MODELS, *_OTHERS))]),
)

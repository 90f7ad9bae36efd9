"""THE table of remote calls, whatever carries them."""

from typing import Final

from core.dialects.grps_rpc import GRPS_RPC
from core.dialects.health_rpc import health
from core.dialects.v2_rpc import V2_RPC
from core.rpc import RpcMethod

_MODELS: Final = (*V2_RPC, *GRPS_RPC)
RPCS: Final[tuple[RpcMethod, ...]] = (*_MODELS, *health(method.service for method in _MODELS))

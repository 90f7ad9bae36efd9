"""THE table of remote calls, whatever carries them."""

from typing import Final

from core.dialects.grps_rpc import GRPS_RPC
from core.dialects.health_rpc import HEALTH
from core.dialects.v2_rpc import V2_RPC
from core.rpc import RpcMethod

RPCS: Final[tuple[RpcMethod, ...]] = (*V2_RPC, *GRPS_RPC, *HEALTH)

"""The defaults of the flags of `infer` and `bench`."""

from typing import Final

NAMES: Final = ("v2", "v2-binary", "v1", "grpc", "connect", "grps")
"""The names of `protocols.PROTOCOLS`, which takes 0.4 s to import."""
URL: Final = "http://127.0.0.1:8080"
GRPC: Final = "127.0.0.1:9000"
LEVELS: Final = "1,2,4,8,16"
MOST: Final = 1024
"""The most connections that `bench` opens at a time."""

"""The protocols, one package each, and THE table of those over HTTP."""

from typing import Final

from core.dialects.grps.http import GRPS
from core.dialects.openai.http import OPENAI
from core.dialects.v1.http import V1
from core.dialects.v2.http import V2
from core.wire import Dialect

DIALECTS: Final[tuple[Dialect, ...]] = (V2, OPENAI, V1, GRPS)
"""The first one that owns a path answers: /v1/embeddings is not V1's."""

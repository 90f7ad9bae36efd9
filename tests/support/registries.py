"""What tests ask a registry without a server around it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from handler.lifecycle.single_flight import Background

if TYPE_CHECKING:
    from core.operations import ModelRef
    from core.ports import Model
    from handler.lifecycle.registry import Registry


def get(models: Registry, ref: ModelRef) -> Model:
    """Returns the model that answers a request, as it was in use for a moment."""
    with models.use(ref, Background()) as model:
        return model

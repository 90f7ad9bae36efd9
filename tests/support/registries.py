"""Requests to a registry without a server around it."""

from core.operations import ModelRef
from core.ports import Model
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background


def get(models: Registry, ref: ModelRef) -> Model:
    """Returns the model that answers a request, as it was in use for a moment."""
    with models.use(ref, Background()) as model:
        return model

"""The messages of proto/triton_model_config.proto; their types are in the .pyi beside this."""

from core.schema.pool import messages

globals().update(messages("triton_model_config", __package__))

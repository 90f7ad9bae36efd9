"""The messages of proto/model_server_config.proto; their types are in the .pyi beside this."""

from core.schema.pool import messages

globals().update(messages("model_server_config", __package__))

"""The messages of proto/open_inference.proto; their types are in the .pyi beside this."""

from core.schema.pool import messages

globals().update(messages("open_inference"))

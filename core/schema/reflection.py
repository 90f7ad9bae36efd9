"""The messages of proto/reflection.proto; their types are in the .pyi beside this."""

from core.schema.pool import messages

globals().update(messages("reflection"))

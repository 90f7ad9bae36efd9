"""The messages of proto/grps.proto; their types are in the .pyi beside this."""

from core.schema.pool import messages

globals().update(messages("grps"))

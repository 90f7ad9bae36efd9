"""The version that answers all records of a batch. It is never a canary: the same records get the same answers."""

from functools import partial

from core.errors import ModelUnavailable, VersionNotFound
from core.operations import ModelRef
from core.ports import Models, Use
from handler.lifecycle.single_flight import Background, settled


def used(models: Models, ref: ModelRef, context: Background) -> Use:
    """Returns the version of the reference, without a version the newest one that is not a canary. Loads it.

    Raises what `Models.use` raises, and ModelUnavailable if the newest version is replaced meanwhile.
    """
    if ref.version is not None:
        return settled(partial(models.use, ref, context), context.deadline)
    newest = settled(partial(models.describe, ref, context), context.deadline).spec.version
    try:
        return settled(partial(models.use, ModelRef(ref.name, newest), context), context.deadline)
    except VersionNotFound as error:
        raise ModelUnavailable(f"{error.message}: it was replaced while the batch began") from error

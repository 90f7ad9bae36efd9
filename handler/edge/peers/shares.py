"""The part of a server's threads, memory and limits that one of its workers has."""

from handler.edge.flight import SHARE, machine_memory
from handler.settings import Settings


def share(settings: Settings) -> Settings:
    """Returns the settings of one worker. A limit that is off stays off."""
    workers = settings.workers
    in_flight = settings.bytes_in_flight
    if in_flight is None and settings.memory_limit is None:
        in_flight = machine_memory() // SHARE
    return settings._replace(
        cpus=settings.cpus / workers,
        threads=_part(settings.threads, workers),
        queue=_part(settings.queue, workers),
        memory_limit=_bytes(settings.memory_limit, workers),
        bytes_in_flight=_bytes(in_flight, workers),
        connections=None if settings.connections is None else _part(settings.connections, workers),
        payload_log_memory=settings.payload_log_memory // workers,
    )


def _part(number: int, workers: int) -> int:
    return -(-number // workers)


def _bytes(number: int | None, workers: int) -> int | None:
    return None if number is None else number // workers

"""Which observer an application has: the plain one, unless a setting wants traces or payloads.

What the plain one does not do costs it nothing: traces and the payload log are in a subclass of its own.
"""

from typing import TYPE_CHECKING

from handler.edge.observe.observer import Observer
from handler.lifecycle.registry import Registry
from handler.settings import Settings

if TYPE_CHECKING:
    from handler.edge.observe.calls import CallWatch
    from handler.edge.observe.facts import Queue


def observer_of(settings: Settings, registry: Registry, queue: "Queue", *, freezes: bool) -> Observer:
    """Returns an application's observer. `freezes`: nothing runs after a request. Raises InvalidSettings."""
    if settings.traces == "off" and not settings.payload_log:
        return Observer(settings, registry, queue, freezes=freezes)
    from handler.edge.observe.tapped import TappedObserver  # noqa: PLC0415 - for servers with traces or payloads

    return TappedObserver(settings, registry, queue, freezes=freezes)


def calls_of(observer: Observer) -> "CallWatch":
    """Returns what watches the calls of a gRPC server for an observer."""
    if type(observer) is Observer:
        from handler.edge.observe.calls import CallWatch  # noqa: PLC0415 - for servers with gRPC

        return CallWatch(observer)
    from handler.edge.observe.tapped import TappedCalls  # noqa: PLC0415 - as above

    return TappedCalls(observer)

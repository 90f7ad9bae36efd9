"""The process of our own runtime: makes the function, then takes events from Lambda's Runtime API until it is ended.

AWS_LAMBDA_MAX_CONCURRENCY (Managed Instances) is the number of pollers. Each is a thread that waits for an event, or
for the application, which runs in the event loop of the main thread.
"""

import asyncio
import json
import logging
import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from handler.edge.runtime.api import EventContext, RuntimeApi, RuntimeApiError

log = logging.getLogger(__name__)
ADDRESS: Final = "AWS_LAMBDA_RUNTIME_API"
TRACE: Final = "_X_AMZN_TRACE_ID"
FORM: Final = "[%(levelname)s] %(message)s"


class RuntimeFunction(Protocol):
    """What answers events: handler.aws.Function."""

    app: Any

    def __call__(self, event: Any, context: Any) -> Any: ...


def main(make: Callable[[Any], RuntimeFunction], loop: asyncio.AbstractEventLoop) -> int:
    """Runs the function until the loop is stopped. Returns an exit code. `make`: makes it, with a LoopCarrier."""
    address = os.environ.get(ADDRESS, "")
    if not address:
        sys.stderr.write(f"{ADDRESS} is not set: python -m dragoman.runtime runs on AWS Lambda, which sets it\n")
        return 2
    logging.basicConfig(format=FORM)  # as Lambda's own runtime: the function sets level and form
    api = RuntimeApi(address)
    try:
        return _run(make, api, loop)
    except RuntimeApiError as error:
        log.error("%s", error)  # noqa: TRY400 - the message has all the facts
        return 1
    finally:
        api.close()


def _run(make: Callable[[Any], RuntimeFunction], api: RuntimeApi, loop: asyncio.AbstractEventLoop) -> int:
    try:
        from handler.edge.runtime.carrier import LoopCarrier  # noqa: PLC0415 - a failing import is reported to Lambda

        function = make(LoopCarrier(loop))
    except Exception as error:
        log.exception("the function cannot be made")
        api.init_error(type(error).__name__, str(error))
        return 1
    if os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") == "snap-start":
        from handler.edge.runtime import snapshot  # noqa: PLC0415 - few functions have snapshots

        if code := snapshot.pass_through(api, function.app):
            return code
    api.close()
    return _poll(function, api.address, loop)


def _poll(function: RuntimeFunction, address: str, loop: asyncio.AbstractEventLoop) -> int:
    """Runs the pollers, until one of them fails or the loop is stopped."""
    text = os.environ.get("AWS_LAMBDA_MAX_CONCURRENCY", "")
    count = max(1, int(text)) if text.isdecimal() else 1
    failed: list[str] = []
    for number in range(count):
        poller = Poller(RuntimeApi(address), function, alone=count == 1)
        ending = partial(_ended, poller, loop, failed)
        threading.Thread(target=ending, name=f"dragoman-poller-{number}", daemon=True).start()
    loop.run_forever()
    if function.app is not None:
        function.app.close()
    for line in failed:
        log.error("%s", line)
    return 1 if failed else 0


def _ended(poller: "Poller", loop: asyncio.AbstractEventLoop, failed: list[str]) -> None:
    """Runs a poller to its end, with which the process ends: Lambda starts another one."""
    try:
        poller.run()
    except RuntimeApiError as error:
        failed.append(str(error))
    except BaseException as error:  # noqa: BLE001 - the process would wait without a poller for ever
        failed.append(f"a poller ended: {type(error).__name__}: {error}")
    finally:
        poller.close()
    loop.call_soon_threadsafe(loop.stop)


class Poller:
    """Takes one event after the other. `alone`: the only poller of the process."""

    def __init__(self, api: RuntimeApi, function: RuntimeFunction, *, alone: bool) -> None:
        self._api = api
        self._function = function
        self._alone = alone

    def run(self) -> None:
        """Runs for ever. Raises RuntimeApiError if no event can be taken, or inferences occupy all threads."""
        while True:
            body, context = self._api.next()
            try:
                self.take(body, context)
            except RuntimeApiError as error:
                log.warning("request %s: %s", context.aws_request_id, error)
            app = self._function.app
            if app is not None and (reason := app.dispatcher.trouble(None)):
                raise RuntimeApiError(reason)
            del body, context  # the next event can come hours later

    def close(self) -> None:
        self._api.close()

    def take(self, body: bytes, context: EventContext) -> None:
        """Answers one event. Raises RuntimeApiError if the answer is not taken."""
        from core.errors import ServingError  # noqa: PLC0415 - the function has imported it, as the next ones
        from handler.edge.function.events import UnsupportedEvent  # noqa: PLC0415 - the same
        from handler.edge.runtime.http_event import STREAMED  # noqa: PLC0415 - the same
        from handler.edge.runtime.stream import ResponseStream  # noqa: PLC0415 - the same

        context.alone = self._alone
        if self._alone:
            _note_trace(context.trace)
        context.stream = ResponseStream(self._api, context)
        try:
            event = json.loads(body)
        except (ValueError, RecursionError) as error:
            self._api.fail(context, "Runtime.UnmarshalError", f"Unable to unmarshal input: {error}")
            return
        try:
            document = self._function(event, context)
        except (ServingError, UnsupportedEvent) as error:
            log.warning("request %s failed: %s", context.aws_request_id, error)  # the message has all the facts
            self._api.fail(context, type(error).__name__, str(error))
            return
        except Exception as error:
            log.exception("request %s failed", context.aws_request_id)
            self._api.fail(context, type(error).__name__, str(error))
            return
        if document is not STREAMED:
            self._api.answer(context, document)


def _note_trace(trace: str | None) -> None:
    """Puts the event's X-Ray header where SDKs look for it; with several events at once, requests carry it."""
    if trace is None:
        os.environ.pop(TRACE, None)
    else:
        os.environ[TRACE] = trace

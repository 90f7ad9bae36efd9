"""Lambda's events of records: messages of SQS, objects, asynchronous invocations. Off without a place for results.

A queue's messages, and events that a caller puts into the function itself, need the permission of IAM, and no key of
this server. A setting turns them on, because they let everybody infer who may send to the queue.
"""

import json
import logging
import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any, Final

from core.errors import InvalidInput, ModelUnavailable, ServingError, escaped, shown
from core.ports import Models
from core.wire import Options
from handler.edge.batch.messages import MessageRunner
from handler.edge.batch.objects import ObjectRunner
from handler.edge.batch.places import place_of
from handler.lifecycle.single_flight import Background
from handler.settings import Settings

log = logging.getLogger(__name__)
KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""Names of results: SQS's message ids, and those of asynchronous invocations."""


class RecordEvents:
    """Answers events with records. Raises InvalidSettings for a place that is not one."""

    def __init__(self, settings: Settings, models: Models) -> None:
        options = Options(settings.max_body_bytes, settings.non_finite, settings.v1_dialect)
        place = place_of(settings)
        self._runner = MessageRunner(models, place, options)
        self._objects = ObjectRunner(settings, models, place) if settings.batch_input else None

    def takes(self, bucket: str, key: str) -> bool:
        """Decides whether an object that was created has records."""
        return self._objects is not None and self._objects.takes(bucket, key)

    def objects(self, keys: Iterable[str], context: Background) -> dict[str, Any]:
        """Runs the objects. Raises ServingError if one of them is not complete, after all have had their turn."""
        told: list[dict[str, Any]] = []
        failure: ServingError | None = None
        for key in keys:
            try:
                told += [self._objects.run(key, context)] if self._objects is not None else []
            except ServingError as error:
                log.warning("%s: %s", escaped(key), error.message)
                failure = error
        if failure is not None:
            raise failure
        return {"batches": told}

    def messages(self, event: Mapping[str, Any], context: Background) -> dict[str, Any]:
        """Runs the messages of a queue. Returns those that the queue has to send again (`batchItemFailures`).

        Behind the first such message of a FIFO queue nothing is written, and all others are sent again, too, so that
        their order stays.
        """
        records = event["Records"]
        in_order = any(str(each.get("eventSourceARN", "")).endswith(".fifo") for each in records)
        kept = takewhile(_is_named, records) if in_order else filter(_is_named, records)
        known = {each["messageId"]: each["body"].encode(errors="replace") for each in kept}
        left = self._runner.run([*known.items()], context, in_order=in_order)
        for name, error in left.items():
            log.warning("message %s is sent again: %s", name, "no time was left" if error is None else error.message)
        names = [each["messageId"] for each in records]
        failed = [name for name in names if name in left or name not in known]
        return {"batchItemFailures": [{"itemIdentifier": name} for name in failed]}

    def invocation(self, event: Mapping[str, Any], context: Background) -> dict[str, Any]:
        """Runs the message of an asynchronous invocation. Raises ServingError for one that Lambda has to try again."""
        message = event["batch"]
        name = message.get("id") if isinstance(message, dict) else None
        if not isinstance(name, str) or not KEY.fullmatch(name):
            raise InvalidInput(
                f"the batch has the id {shown(name)}; expected letters, digits and ._-, which name a result"
            )
        own = {key: value for key, value in message.items() if key != "id"}
        left: dict[str, ServingError | None] = self._runner.run([(name, json.dumps(own).encode())], context)
        if name in left:
            reason = left[name] or ModelUnavailable("no time was left")
            log.warning("batch %s: %s", escaped(name), reason.message)
            raise reason
        return {"result": f"{name}.jsonl"}


def _is_named(record: Mapping[str, Any]) -> bool:
    """Decides whether a message's id can name a result."""
    return KEY.fullmatch(record["messageId"]) is not None

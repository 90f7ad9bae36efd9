"""A function's events that are not HTTP: messages, batches, objects of records or of models, and warm-up pings."""

import logging
from collections.abc import Iterable
from functools import partial
from typing import Any

from core.errors import ServingError, escaped
from handler.edge.app import App
from handler.edge.function.deadlines import deadline_of, end_of
from handler.edge.function.events import Kind, UnsupportedEvent, models_of, s3_objects
from handler.lifecycle.single_flight import Background, settled

log = logging.getLogger(__name__)


class FunctionEvents:
    """The events of one application. `apart`: its loads run in threads of their own."""

    def __init__(self, app: App, *, apart: bool) -> None:
        self._app = app
        self._apart = apart
        self._records: Any = None

    def answer(self, kind: Kind, event: Any, context: Any) -> dict[str, Any]:
        """Returns the document of an event. `context`: Lambda's, for the function's remaining time.

        Raises UnsupportedEvent, and ServingError for an event that Lambda has to send again.
        """
        if kind in (Kind.QUEUE, Kind.BATCH):
            records = self._records_of()
            waiting = Background(end_of(context))
            answer: dict[str, Any] = (records.messages if kind is Kind.QUEUE else records.invocation)(event, waiting)
            return answer
        waiting = Background(deadline_of(event, context, self._app.settings.patience))
        return self._warm(waiting) if kind is Kind.WARM_UP else self._created(s3_objects(event), context, waiting)

    def _records_of(self) -> Any:
        """Returns what runs records. Raises UnsupportedEvent unless the settings name a place for results."""
        if not self._app.settings.batch_output:
            raise UnsupportedEvent(
                "events with records need DRAGOMAN_BATCH_OUTPUT, the place of results: docs/batch.md"
            )
        from handler.edge.batch.events import RecordEvents  # noqa: PLC0415 - few functions get such events

        if self._records is None:
            self._records = RecordEvents(self._app.settings, self._app.registry)
        return self._records

    def _created(self, objects: Iterable[tuple[str, str]], context: Any, waiting: Background) -> dict[str, Any]:
        """Runs the records of objects that were created below DRAGOMAN_BATCH_INPUT. Others may be models'."""
        objects = list(objects)
        if self._app.settings.batch_input:
            records = self._records_of()
            keys = [key for bucket, key in objects if records.takes(bucket, key)]
            if keys:
                answer: dict[str, Any] = records.objects(keys, Background(end_of(context)))
                return answer
        return self._checked(objects, waiting)

    def _checked(self, objects: Iterable[tuple[str, str]], waiting: Background) -> dict[str, Any]:
        """Loads the models whose objects were created, as they are now, and returns the outcome of each."""
        checked = []
        for model in dict.fromkeys(models_of(self._app.settings.repository, objects)):
            try:
                settled(partial(self._app.registry.load, model, waiting), waiting.deadline)
                checked.append({"model": model, "ready": True})
            except ServingError as error:
                log.warning("%s after an ObjectCreated event: %s", escaped(model), error.message)
                checked.append({"model": model, "ready": False, "error": error.message})
        return {"checked": checked}

    def _warm(self, waiting: Background) -> dict[str, Any]:
        if self._apart:  # else `ready` loads them, in this thread
            self._app.prepare(waiting.deadline)
        ready = self._app.registry.ready(waiting)
        states = {version.name: version.state for version in self._app.registry.known()}
        return {"warm": True, "ready": ready.ready, "reason": ready.reason, "models": states}

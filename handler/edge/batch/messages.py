"""Messages of records: from a queue, or as the event of an asynchronous invocation.

A message is {"model": NAME, "version": NUMBER, "signature_name": NAME, "instances": [rows or V2 requests]}, or a V2
request with "model" in it, which is a message of one record. Its result has a line for each record, as the output of
`dragoman batch` has it, under the message's id.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from core.encoding import jsonio
from core.encoding.exact_json import dumps_exact
from core.errors import Fault, InvalidInput, ServingError, shown
from core.operations import ModelRef
from core.ports import Models
from core.records import NamedTuple
from core.wire import Options
from handler.edge.batch.json_lines import JsonBlock, is_request
from handler.edge.batch.places import ResultPlace
from handler.edge.batch.runner import ERROR, BatchRunner, batch_rows
from handler.edge.batch.terms import BatchTerms, BlockLimits
from handler.edge.batch.versions import used
from handler.lifecycle.single_flight import Background

OF_THE_MESSAGE: Final = frozenset((Fault.INVALID_ARGUMENT, Fault.NOT_FOUND, Fault.UNIMPLEMENTED))
"""The kinds of failure that sending the message again would not change."""
OWN: Final = frozenset(("model", "version", "signature_name", "instances"))


class RecordMessage(NamedTuple):
    """`id`: names its result. `ref`: the model; `signature`: "" for the default one. `lines`: its records as JSON."""

    id: str
    ref: ModelRef
    signature: str
    lines: Sequence[bytes]


class MessageRunner:
    """Runs messages. `place`: where their results go. `options`: the operator's choices for JSON."""

    def __init__(self, models: Models, place: ResultPlace, options: Options) -> None:
        self._models = models
        self._place = place
        self._options = options

    def run(self, messages: Sequence[tuple[str, bytes]], context: Background) -> dict[str, ServingError | None]:
        """Returns the messages without a result, each with the reason, None if there was no time for it.

        `messages`: ids and bodies. Those of one model run together, in their order.
        """
        left: dict[str, ServingError | None] = {name: None for name, _ in messages}
        groups: dict[tuple[ModelRef, str], list[RecordMessage]] = {}
        for name, body in messages:
            try:
                message = read(name, body)
            except InvalidInput as error:
                self._finish(name, [_failure(error)], left)
            else:
                groups.setdefault((message.ref, message.signature), []).append(message)
        for (ref, signature), several in groups.items():
            try:
                self._run(ref, signature, several, context, left)
            except ServingError as error:
                self._fail(error, several, left)
        return left

    def _fail(self, error: ServingError, several: list[RecordMessage], left: dict[str, ServingError | None]) -> None:
        for message in several:
            if message.id not in left:
                continue
            left[message.id] = error
            if error.fault in OF_THE_MESSAGE:
                self._finish(message.id, [_failure(error)] * len(message.lines), left)

    def _finish(self, name: str, answers: Sequence[bytes], left: dict[str, ServingError | None]) -> None:
        """Writes the result of a message."""
        lines = (b'{"index":%d,%b}\n' % numbered for numbered in enumerate(answers))
        try:
            self._place.put(f"{name}.jsonl", b"".join(lines))
        except ServingError as error:
            left[name] = error
        else:
            left.pop(name, None)

    def _run(
        self, ref: ModelRef, signature: str, several: list[RecordMessage], context: Background, left: dict[str, Any]
    ) -> None:
        """Runs messages of one model, and writes each result as soon as it is complete. Raises ServingError."""
        with (use := used(self._models, ref, context)) as model:
            rows = batch_rows(model.spec)
            limits = BlockLimits(rows, self._options.max_body_bytes, context.deadline)
            runner = BatchRunner(use, BatchTerms(model.spec, signature, self._options), rows, limits)
            answers: list[bytes] = []
            waiting = [*reversed(several)]
            lines = [line for message in several for line in message.lines]
            for answered in runner.answers(_blocks(lines, limits, lambda: context.deadline.left <= 0)):
                answers += answered.texts
                while waiting and len(answers) >= len(waiting[-1].lines):
                    message = waiting.pop()
                    self._finish(message.id, answers[: len(message.lines)], left)
                    del answers[: len(message.lines)]


def _blocks(lines: list[bytes], limits: BlockLimits, is_late: Callable[[], bool]) -> Iterator[JsonBlock]:
    start = 0
    while start < len(lines) and not is_late():
        block = JsonBlock(lines[start : start + limits.records])
        start += len(block)
        yield block


def _failure(error: ServingError) -> bytes:
    return ERROR + jsonio.dumps(error.message)


def read(name: str, body: bytes) -> RecordMessage:
    """Reads a message. `name`: its id. Raises InvalidInput."""
    document = jsonio.loads_lists(body)
    if not isinstance(document, dict):
        raise InvalidInput(f"the message is {shown(document)}; expected an object with 'model' and 'instances'")
    model, version, signature = (document.get(key) for key in ("model", "version", "signature_name"))
    if not isinstance(model, str) or not model:
        raise InvalidInput(f"'model' is {shown(model)}; expected the name of a model")
    version = str(version) if type(version) is int else version
    if version is not None and not isinstance(version, str):
        raise InvalidInput(f"'version' is {shown(version)}; expected a number")
    if not isinstance(signature or "", str):
        raise InvalidInput(f"'signature_name' is {shown(signature)}; expected the name of a signature")
    return RecordMessage(name, ModelRef(model, version), signature or "", _lines(document))


def _lines(document: dict[str, Any]) -> list[bytes]:
    """Returns a message's records as JSON. Raises InvalidInput."""
    if is_request(document):
        return [dumps_exact({key: value for key, value in document.items() if key not in OWN})]
    instances = document.get("instances")
    if not isinstance(instances, list) or not instances:
        raise InvalidInput(f"'instances' is {shown(instances)}; expected an array of rows, or tensors in 'inputs'")
    return [*map(dumps_exact, instances)]

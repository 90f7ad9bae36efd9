"""Messages of records: from a queue, or as the event of an asynchronous invocation.

A message is {"model": NAME, "version": NUMBER, "signature_name": NAME, "instances": [rows or V2 requests]}, or a V2
request with "model" in it, which is a message of one record. Its result has a line for each record, as the output of
`dragoman batch` has it, under the message's id.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, Final

from core.encoding import jsonio
from core.encoding.exact_json import dumps_exact
from core.errors import Fault, InvalidInput, ModelUnavailable, ServingError, shown
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
    """`id`: names its result. `ref`: the model; `signature`: "" for the default one. `lines`: its records as JSON.

    `refusal`: of a malformed message, whose result is one line.
    """

    id: str
    ref: ModelRef
    signature: str
    lines: Sequence[bytes]
    refusal: InvalidInput | None = None

    @property
    def kind(self) -> Hashable:
        """What messages that run together have in common."""
        return self.ref, self.signature, self.refusal


class MessageResults:
    """Writes results. `left`: the messages without one, in their order, each with the reason."""

    def __init__(self, place: ResultPlace, names: Iterable[str], *, in_order: bool) -> None:
        self.left: dict[str, ServingError | None] = dict.fromkeys(names)
        self._place = place
        self._in_order = in_order

    def is_held(self, name: str) -> bool:
        """Decides whether a message has to wait for one before it, and makes this the reason of those behind it."""
        first = next(iter(self.left), name)
        if not self._in_order or first == name:
            return False
        if self.left[first] is not None:
            held = ModelUnavailable(f"its order has to be kept: message {first} is sent again")
            self.left |= {name: reason or held for name, reason in self.left.items()}
        return True

    def write(self, name: str, answers: Sequence[bytes]) -> None:
        """Writes the result of a message, unless it is held."""
        if self.is_held(name):
            return
        lines = (b'{"index":%d,%b}\n' % numbered for numbered in enumerate(answers))
        try:
            self._place.put(f"{name}.jsonl", b"".join(lines))
        except ServingError as error:
            self.left[name] = error
        else:
            self.left.pop(name, None)

    def fail(self, error: ServingError, several: Sequence[RecordMessage]) -> None:
        """Notes the failure of messages, or writes it as their result if another attempt would not change it."""
        for message in several:
            if message.id not in self.left or self.is_held(message.id):
                continue
            self.left[message.id] = error
            if error.fault in OF_THE_MESSAGE:
                self.write(message.id, [ERROR + jsonio.dumps(error.message)] * len(message.lines))


class MessageRunner:
    """Runs messages. `place`: where their results go. `options`: the operator's choices for JSON."""

    def __init__(self, models: Models, place: ResultPlace, options: Options) -> None:
        self._models = models
        self._place = place
        self._options = options

    def run(
        self, messages: Sequence[tuple[str, bytes]], context: Background, *, in_order: bool = False
    ) -> dict[str, ServingError | None]:
        """Returns the messages without a result, each with the reason, None if there was no time for it.

        `messages`: ids and bodies. Those of one model run together, in their order. `in_order`: only neighbours do, and
        nothing is written behind a message without a result.
        """
        results = MessageResults(self._place, [name for name, _ in messages], in_order=in_order)
        for group in (_neighbours if in_order else _grouped)([_read(*each) for each in messages]):
            if results.is_held(group[0].id):
                break
            first = group[0]
            if first.refusal is not None:
                results.fail(first.refusal, group)
                continue
            try:
                self._run(first.ref, first.signature, group, context, results)
            except ServingError as error:
                results.fail(error, group)
        return results.left

    def _run(
        self,
        ref: ModelRef,
        signature: str,
        several: Sequence[RecordMessage],
        context: Background,
        results: MessageResults,
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
                    results.write(message.id, answers[: len(message.lines)])
                    del answers[: len(message.lines)]


def _blocks(lines: list[bytes], limits: BlockLimits, is_late: Callable[[], bool]) -> Iterator[JsonBlock]:
    start = 0
    while start < len(lines) and not is_late():
        block = JsonBlock(lines[start : start + limits.records])
        start += len(block)
        yield block


def _read(name: str, body: bytes) -> RecordMessage:
    """Reads a message, which may be malformed."""
    try:
        return read(name, body)
    except InvalidInput as error:
        return RecordMessage(name, ModelRef(""), "", [b""], error)


def _grouped(messages: Iterable[RecordMessage]) -> Iterable[list[RecordMessage]]:
    """Returns the messages by their kinds."""
    groups: dict[Hashable, list[RecordMessage]] = {}
    for message in messages:
        groups.setdefault(message.kind, []).append(message)
    return groups.values()


def _neighbours(messages: Iterable[RecordMessage]) -> Iterator[list[RecordMessage]]:
    """Yields the messages of one kind that follow each other."""
    for _, several in groupby(messages, attrgetter("kind")):
        yield [*several]


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

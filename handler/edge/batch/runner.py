"""Runs blocks of records: each as a whole if that is possible, else the records of one shape together."""

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final

from core import checks, engine
from core.batches import Prepared, join, split
from core.encoding import jsonio
from core.errors import Fault, InvalidInput, ServingError, TimedOut
from core.operations import InferResult, ModelSpec
from core.records import NamedTuple
from core.tensor import Tensor, joined
from handler.backends.runs import limited
from handler.edge.batch.terms import BatchTerms, BlockLimits, RecordBlock, RecordCall, id_text

ROWS: Final = 256
"""The most records of one inference, for a model with a batch axis that does not say how many it takes."""
MOST_RECORDS: Final = 4096
MOST_BYTES: Final = 16 * 1024 * 1024
QUICK_SECONDS: Final = 0.1
SLOW_SECONDS: Final = 0.5
"""Blocks grow up to MOST_RECORDS, and MOST_BYTES of tensors, while the model is quick with them: changing threads for
each inference of a small model takes longer than the inference. They shrink while it is slow, so that its answers are
soon on the disk."""
OF_THE_RECORD: Final = frozenset(
    (Fault.INVALID_ARGUMENT, Fault.INTERNAL, Fault.RESOURCE_EXHAUSTED, Fault.UNIMPLEMENTED)
)
"""The kinds of failure that concern one record. Others end the batch, which can be resumed."""
ERROR: Final = b'"error":'
FIRST_ROW: Final = "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
"""The beginning of V1's messages about the only row."""


class Answered(NamedTuple):
    """The answers of a block: each record's members as JSON text, without braces. `errors`: how many are failures."""

    texts: list[bytes]
    errors: int = 0


class Halted(NamedTuple):
    """A call of some records that is ready for its model."""

    records: int
    call: RecordCall
    prepared: Prepared


class UnderWay(NamedTuple):
    """A block whose inferences run. `halted`: None if it cannot run as a whole.

    `shares`: the outputs of consecutive inferences, for each thread that runs some of them.
    """

    block: RecordBlock
    halted: Halted | None
    shares: Sequence[Future[list[Sequence[Tensor]]]] = ()


Submit = Callable[..., Future[Any]]
Group = list[tuple[int, RecordBlock, Halted]]
"""Records of one kind, each with its place in its block."""


def _late() -> TimedOut:
    return TimedOut("an inference did not end before the batch's deadline")


def batch_rows(spec: ModelSpec) -> int:
    """Returns how many records one inference of the model takes: as it says, else ROWS; 1 without a batch axis."""
    if not checks.has_batches(spec):
        return 1
    return spec.batching.rows if spec.batching is not None else spec.max_batch_size or ROWS


class BatchRunner:
    """Runs the records of one model. `use`: of its version, as core.ports.Use. `rows`: the most of one inference.

    The model runs in threads of its own, in each one inference at a time. Meanwhile the next block is read, and the
    answers of the last one are written. `limits`: of the blocks that are read. `threads`: how many run the model. Two
    that have half of the processors each are faster than one that has all of them: an inference does not keep all of
    its processors busy all the time, the less if the reader takes a part of one.
    """

    def __init__(self, use: Any, terms: BatchTerms, rows: int, limits: BlockLimits, threads: int = 1) -> None:
        self._use = use
        self._terms = terms
        self._rows = rows
        self._limits = limits
        self._threads = min(threads, terms.spec.max_concurrency or threads)
        self._is_unfit = False  # its outputs do not have a row for each row of its inputs

    def answers(self, blocks: Iterable[RecordBlock]) -> Iterator[Answered]:
        """Yields the answers of each block. A record's own failure is its answer. Raises ServingError for others."""
        with ThreadPoolExecutor(self._threads, "dragoman-batch") as model:
            under_way: deque[UnderWay] = deque()
            try:
                for block in blocks:
                    under_way.append(self._begun(block, model.submit))
                    while sum(max(1, len(each.shares)) for each in under_way) > self._threads:
                        yield self._written(under_way.popleft(), model.submit)
                while under_way:
                    yield self._written(under_way.popleft(), model.submit)
            finally:
                model.shutdown(wait=True, cancel_futures=True)

    def _begun(self, block: RecordBlock, submit: Submit) -> UnderWay:
        """Begins the inferences of a block as a whole, if that is possible. The threads share them."""
        halted = self._halted(block)
        if halted is None:
            return UnderWay(block, None)
        most = -(-halted.records // max(self._rows, 1))
        share = -(-most // self._threads) * max(self._rows, 1)
        places = range(0, halted.records, share)
        return UnderWay(block, halted, [submit(self._timed, halted, place, place + share) for place in places])

    def _halted(self, block: RecordBlock) -> Halted | None:
        """Reads a block as a whole; None if that is not possible."""
        if self._is_unfit and len(block) > 1:
            return None
        try:
            halted = self._prepared(block)
        except ServingError as error:
            _own(error)
            return None
        # Several inferences share a block by their rows.
        return halted if len(block) <= max(self._rows, 1) or halted.prepared.rows == len(block) else None

    def _prepared(self, block: RecordBlock) -> Halted:
        """Raises ServingError."""
        call = block.call(self._terms)
        inputs, names = checks.checked(call.infer, self._terms.spec)
        return Halted(len(block), call, Prepared(self._use, inputs, names, call.infer.parameters))

    def _timed(self, halted: Halted, start: int, end: int) -> list[Sequence[Tensor]]:
        """Runs some records of a block, and lets the next blocks be longer or shorter."""
        begun = time.monotonic()
        outputs = self._outputs(halted, start, end)
        seconds, limits = time.monotonic() - begun, self._limits
        if seconds < QUICK_SECONDS and halted.records == limits.records <= MOST_RECORDS // 2:
            if halted.prepared.size <= MOST_BYTES // 2:
                limits.records = 2 * halted.records
        elif seconds > SLOW_SECONDS and limits.records >= halted.records >= 2 * self._rows:
            limits.records = halted.records // 2
        return outputs

    def _outputs(self, halted: Halted, start: int, end: int) -> list[Sequence[Tensor]]:
        """Returns the outputs of each inference of some records. Raises ServingError."""
        prepared, size = halted.prepared, max(self._rows, 1)
        if halted.records <= size:
            return [self._predict(prepared, prepared.inputs)]
        parts = []
        for place in range(start, min(end, halted.records), size):
            behind = min(place + size, halted.records)
            outputs = self._predict(prepared, {n: each.rows(place, behind) for n, each in prepared.inputs.items()})
            if any(tensor.shape[:1] != (behind - place,) for tensor in outputs):
                self._is_unfit = True
                raise InvalidInput("an output does not have a row for each record")
            parts.append(outputs)
        return parts

    def _run(self, halted: Halted) -> InferResult:
        """Runs records as one inference. Raises ServingError."""
        return self._result(halted, self._predict(halted.prepared, halted.prepared.inputs))

    def _predict(self, prepared: Prepared, inputs: Any) -> Sequence[Tensor]:
        predict = partial(self._use.model.predict, inputs, prepared.names, prepared.parameters)
        deadline = self._limits.deadline
        outputs: Sequence[Tensor] = limited(predict, None if deadline.is_never else deadline.left, _late)
        return outputs

    def _result(self, halted: Halted, outputs: Sequence[Tensor]) -> InferResult:
        return engine.result_of(halted.call.infer, self._terms.spec, outputs)

    def _written(self, begun: UnderWay, submit: Submit) -> Answered:
        """Returns the answers of a block, together if possible."""
        block, halted, shares = begun
        if halted is None:
            return self._in_parts(block, submit)
        try:
            parts = [outputs for share in shares for outputs in share.result()]
            outputs = parts[0] if len(parts) == 1 else [joined(each) for each in zip(*parts, strict=True)]
            result = self._result(halted, outputs)
            self._is_unfit = self._is_unfit or _lacks_rows(result, halted.prepared.rows)
            return Answered(halted.call.write(result))
        except ServingError as error:
            _own(error)
            return Answered([_told(error, block)], 1) if len(block) == 1 else self._in_parts(block, submit)

    def _in_parts(self, block: RecordBlock, submit: Submit) -> Answered:
        """Returns the answers of a block that does not run as a whole, of parts that may."""
        size = max(self._rows, 1)
        if len(block) <= size:
            return self._apart(block, submit)
        texts: list[bytes] = []
        errors = 0
        for start in range(0, len(block), size):
            part = block.part(start, min(start + size, len(block)))
            found = self._written(self._begun(part, submit), submit)
            texts += found.texts
            errors += found.errors
        return Answered(texts, errors)

    def _apart(self, block: RecordBlock, submit: Submit) -> Answered:
        """Returns the answers of records that are read one by one. Those of one kind run together."""
        answers: list[bytes | None] = [None] * len(block)
        failed: dict[int, bytes] = {}
        groups: dict[Hashable, Group] = {}
        for index in range(len(block)):
            record = block.part(index, index + 1)
            try:
                halted = self._prepared(record)
            except ServingError as error:
                _own(error)
                failed[index] = _told(error, record)
                continue
            rows = halted.prepared.rows
            kind = index if self._is_unfit or not 0 < rows < self._rows else halted.prepared.kind
            groups.setdefault(kind, []).append((index, record, halted))
        for group in groups.values():
            for run in self._cut(group):
                for (index, record, halted), outcome in zip(run, submit(self._together, run).result(), strict=True):
                    try:
                        answers[index] = halted.call.write(_raised(outcome))[0]
                    except ServingError as error:
                        failed[index] = _told(error, record)
        texts = [failed.get(index, b"") if answer is None else answer for index, answer in enumerate(answers)]
        return Answered(texts, len(failed))

    def _cut(self, group: Group) -> Iterator[Group]:
        """Yields the parts of a group that have as many rows as one inference takes."""
        run: Group = []
        rows = 0
        for each in group:
            rows += each[2].prepared.rows
            if run and rows > self._rows:
                yield run
                run, rows = [], each[2].prepared.rows
            run.append(each)
        yield run

    def _together(self, run: Group) -> list[InferResult | ServingError]:
        """Returns the result or the failure of each record. What fails together runs again, each alone."""
        several = [halted for _, _, halted in run]
        if len(several) > 1:
            try:
                shares = self._shared(several)
            except ServingError as error:
                _own(error)
                shares = None
            if shares is not None:
                return [self._result(halted, share) for halted, share in zip(several, shares, strict=True)]
        return [self._alone(halted) for halted in several]

    def _shared(self, several: Sequence[Halted]) -> list[list[Tensor]] | None:
        """Returns the outputs of each, None if the model does not have a row for each row."""
        asked = [halted.prepared for halted in several]
        shares = split(self._predict(asked[0], join(asked)), [each.rows for each in asked])
        self._is_unfit = self._is_unfit or shares is None
        return shares

    def _alone(self, halted: Halted) -> InferResult | ServingError:
        try:
            return self._run(halted)
        except ServingError as error:
            _own(error)
            return error


def _lacks_rows(result: InferResult, rows: int) -> bool:
    return rows > 1 and any(tensor.shape[:1] != (rows,) for tensor in result.outputs)


def _raised(outcome: InferResult | ServingError) -> InferResult:
    """Returns a result. Raises a failure."""
    if isinstance(outcome, ServingError):
        raise outcome
    return outcome


def _own(error: ServingError) -> None:
    """Raises the error again unless it concerns one record."""
    if error.fault not in OF_THE_RECORD:
        raise error


def _told(error: ServingError, record: RecordBlock) -> bytes:
    """Returns the members of a record's answer that is its failure."""
    own = None if record.ids is None else record.ids[0]
    text = ERROR + jsonio.dumps(error.message.removeprefix(FIRST_ROW))
    return text if own is None else text + b',"id":' + id_text(own)

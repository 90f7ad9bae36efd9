"""Runs blocks of records: each as a whole if that is possible, else the records of one shape together."""

import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from core import checks, engine
from core.batches import Prepared, join, split
from core.encoding import jsonio
from core.errors import Fault, InvalidInput, ServingError
from core.operations import InferResult, ModelSpec
from core.records import NamedTuple
from core.tensor import Tensor
from handler.edge.batch import slices
from handler.edge.batch.terms import BatchTerms, BlockLimits, RecordBlock, RecordCall

ROWS: Final = 256
"""The most records of one inference, for a model with a batch axis that does not say how many it takes."""
MOST_RECORDS: Final = 2048
QUICK_SECONDS: Final = 0.05
SLOW_SECONDS: Final = 0.5
"""Blocks grow up to MOST_RECORDS while the model is quick with them: changing threads for each inference of a small
model takes longer than the inference. They shrink while it is slow, so that its answers are soon on the disk."""
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


Submit = Callable[..., Future[Any]]
Group = list[tuple[int, RecordBlock, Halted]]
"""Records of one kind, each with its place in its block."""


def batch_rows(spec: ModelSpec) -> int:
    """Returns how many records one inference of the model takes: as it says, else ROWS; 1 without a batch axis."""
    if not checks.has_batches(spec):
        return 1
    return spec.batching.rows if spec.batching is not None else spec.max_batch_size or ROWS


class BatchRunner:
    """Runs the records of one model. `use`: of its version, as core.ports.Use. `rows`: the most of one inference.

    The model runs in a thread of its own, one inference at a time. Meanwhile the next block is read, and the answers of
    the last one are written. `limits`: of the blocks that are read.
    """

    def __init__(self, use: Any, terms: BatchTerms, rows: int, limits: BlockLimits) -> None:
        self._use = use
        self._terms = terms
        self._rows = rows
        self._limits = limits
        self._is_unfit = False  # its outputs do not have a row for each row of its inputs

    def answers(self, blocks: Iterable[RecordBlock]) -> Iterator[Answered]:
        """Yields the answers of each block. A record's own failure is its answer. Raises ServingError for others."""
        with ThreadPoolExecutor(1, "dragoman-batch") as model:
            under_way: tuple[RecordBlock, Halted | None, Future[Any] | None] | None = None
            try:
                for block in blocks:
                    halted = self._halted(block)
                    future = None if halted is None else model.submit(self._timed, halted)
                    if under_way is not None:
                        yield self._written(*under_way, model.submit)
                    under_way = block, halted, future
                if under_way is not None:
                    yield self._written(*under_way, model.submit)
            finally:
                model.shutdown(wait=True, cancel_futures=True)

    def _halted(self, block: RecordBlock) -> Halted | None:
        """Reads a block as a whole; None if that is not possible."""
        if self._is_unfit and len(block) > 1:
            return None
        try:
            return self._prepared(block)
        except ServingError as error:
            _own(error)
            return None

    def _prepared(self, block: RecordBlock) -> Halted:
        """Raises ServingError."""
        call = block.call(self._terms)
        inputs, names = checks.checked(call.infer, self._terms.spec)
        return Halted(len(block), call, Prepared(self._use, inputs, names, call.infer.parameters))

    def _timed(self, halted: Halted) -> InferResult:
        """Runs a block, and lets the next ones be longer or shorter."""
        begun = time.monotonic()
        result = self._run(halted)
        seconds, limits = time.monotonic() - begun, self._limits
        if seconds < QUICK_SECONDS and halted.records == limits.records <= MOST_RECORDS // 2:
            limits.records *= 2
        elif seconds > SLOW_SECONDS and limits.records >= 2 * self._rows:
            limits.records //= 2
        return result

    def _run(self, halted: Halted) -> InferResult:
        """Runs the model as often as the rows of several records take. Raises ServingError."""
        prepared = halted.prepared
        if halted.records == 1 or halted.records <= self._rows:
            return self._result(halted, self._predict(prepared, prepared.inputs))
        if prepared.rows != halted.records:
            raise InvalidInput("an input does not have a row for each record")
        parts = []
        for start in range(0, prepared.rows, self._rows):
            end = min(start + self._rows, prepared.rows)
            outputs = self._predict(prepared, slices.of_inputs(prepared.inputs, start, end))
            if any(tensor.shape[:1] != (end - start,) for tensor in outputs):
                self._is_unfit = True
                raise InvalidInput("an output does not have a row for each record")
            parts.append(outputs)
        return self._result(halted, [slices.joined(each) for each in zip(*parts, strict=True)])

    def _predict(self, prepared: Prepared, inputs: Any) -> Sequence[Tensor]:
        outputs: Sequence[Tensor] = self._use.model.predict(inputs, prepared.names, prepared.parameters)
        return outputs

    def _result(self, halted: Halted, outputs: Sequence[Tensor]) -> InferResult:
        return engine.result_of(halted.call.infer, self._terms.spec, outputs)

    def _written(
        self, block: RecordBlock, halted: Halted | None, future: Future[Any] | None, submit: Submit
    ) -> Answered:
        """Returns the answers of a block, together if possible."""
        if halted is None or future is None:
            return self._in_parts(block, submit)
        try:
            result = future.result()
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
            halted = self._halted(part)
            future = None if halted is None else submit(self._run, halted)
            found = self._written(part, halted, future, submit)
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
    return text if own is None else text + b',"id":' + jsonio.dumps(own)

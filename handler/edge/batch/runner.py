"""Runs blocks of records: as one inference each if that is possible, else the records of one shape together."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, NamedTuple

from core import checks, engine
from core.batches import Prepared, join, split
from core.encoding import jsonio
from core.errors import Fault, ServingError
from core.operations import InferResult, ModelSpec
from core.tensor import Tensor
from handler.edge.batch.json_lines import member
from handler.edge.batch.terms import BatchTerms, RecordBlock, RecordCall

ROWS: Final = 256
"""The most records of one inference, for a model with a batch axis that does not say how many it takes."""
OF_THE_RECORD: Final = frozenset(
    (Fault.INVALID_ARGUMENT, Fault.INTERNAL, Fault.RESOURCE_EXHAUSTED, Fault.UNIMPLEMENTED)
)
"""The kinds of failure that a record may have by itself. Others end the batch, which can be resumed."""
ERROR: Final = b'"error":'
FIRST_ROW: Final = "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: "
"""What V1's messages say before what is wrong with the only row."""


class Halted(NamedTuple):
    """A call that is ready for its model."""

    call: RecordCall
    prepared: Prepared


def batch_rows(spec: ModelSpec) -> int:
    """Returns how many records one inference of the model takes: as it says, else ROWS; 1 without a batch axis."""
    if not checks.has_batches(spec):
        return 1
    return spec.batching.rows if spec.batching is not None else spec.max_batch_size or ROWS


class BatchRunner:
    """Runs the records of one model. `use`: of its version, as core.ports.Use. `rows`: the most of one inference.

    The model runs in a thread of its own, one inference at a time. Meanwhile the next block is read, and the answers of
    the last one are written.
    """

    def __init__(self, use: Any, terms: BatchTerms, rows: int) -> None:
        self._use = use
        self._terms = terms
        self._rows = rows
        self._is_unfit = False  # its outputs do not have a row for each row of its inputs

    def answers(self, blocks: Iterable[RecordBlock]) -> Iterator[list[bytes]]:
        """Yields the answers of each block: a record's members as JSON text, without the braces around them.

        A record's own failure is its answer. Raises ServingError for every other one.
        """
        with ThreadPoolExecutor(1, "dragoman-batch") as model:
            under_way: tuple[RecordBlock, Halted, Future[InferResult]] | None = None
            try:
                for block in blocks:
                    halted = self._halted(block)
                    future = None if halted is None else model.submit(self._run, halted)
                    if under_way is not None:
                        yield self._written(*under_way, model.submit)
                    under_way = None
                    if halted is None or future is None:
                        yield self._apart(block, model.submit)
                    else:
                        under_way = block, halted, future
                if under_way is not None:
                    yield self._written(*under_way, model.submit)
            finally:
                model.shutdown(wait=True, cancel_futures=True)

    def _halted(self, block: RecordBlock) -> Halted | None:
        """Reads a block as one inference; None if that is not possible."""
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
        return Halted(call, Prepared(self._use, inputs, names, call.infer.parameters))

    def _run(self, halted: Halted) -> InferResult:
        prepared = halted.prepared
        return self._result(halted, self._use.model.predict(prepared.inputs, prepared.names, prepared.parameters))

    def _result(self, halted: Halted, outputs: Sequence[Tensor]) -> InferResult:
        return engine.result_of(halted.call.infer, self._terms.spec, outputs)

    def _written(self, block: RecordBlock, halted: Halted, future: Future[InferResult], submit: Any) -> list[bytes]:
        try:
            result = future.result()
            self._is_unfit = self._is_unfit or _lacks_rows(result, halted.prepared.rows)
            return halted.call.write(result)
        except ServingError as error:
            _own(error)
            return [_told(error, block)] if len(block) == 1 else self._apart(block, submit)

    def _apart(self, block: RecordBlock, submit: Callable[..., Future[Any]]) -> list[bytes]:
        """Returns the answers of records that do not run as one: those of one kind run together."""
        answers: list[bytes] = [b""] * len(block)
        groups: dict[Hashable, list[tuple[int, RecordBlock, Halted]]] = {}
        for index in range(len(block)):
            record = block.alone(index)
            try:
                halted = self._prepared(record)
            except ServingError as error:
                _own(error)
                answers[index] = _told(error, record)
                continue
            rows = halted.prepared.rows
            kind = index if self._is_unfit or not 0 < rows < self._rows else halted.prepared.kind
            groups.setdefault(kind, []).append((index, record, halted))
        for group in groups.values():
            for run in self._cut(group):
                told = submit(self._together, run).result()
                for (index, record, halted), outcome in zip(run, told, strict=True):
                    answers[index] = _answer(record, halted, outcome)
        return answers

    def _cut(self, group: list[Any]) -> Iterator[list[Any]]:
        """Yields the parts of a group that have as many rows as one inference takes."""
        run: list[Any] = []
        rows = 0
        for each in group:
            rows += each[2].prepared.rows
            if run and rows > self._rows:
                yield run
                run, rows = [], each[2].prepared.rows
            run.append(each)
        yield run

    def _together(self, run: list[tuple[int, RecordBlock, Halted]]) -> list[InferResult | ServingError]:
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
        outputs = self._use.model.predict(join(asked), asked[0].names, asked[0].parameters)
        shares = split(outputs, [each.rows for each in asked])
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


def _answer(record: RecordBlock, halted: Halted, outcome: InferResult | ServingError) -> bytes:
    if isinstance(outcome, ServingError):
        return _told(outcome, record)
    try:
        return halted.call.write(outcome)[0]
    except ServingError as error:
        return _told(error, record)


def _own(error: ServingError) -> None:
    """Raises the error again unless a record may have it by itself."""
    if error.fault not in OF_THE_RECORD:
        raise error


def _told(error: ServingError, record: RecordBlock) -> bytes:
    """Returns the members of a record's answer that is its failure."""
    own = None if record.ids is None else record.ids[0]
    text = ERROR + jsonio.dumps(error.message.removeprefix(FIRST_ROW))
    return text if own is None else text + b"," + member("id", own)

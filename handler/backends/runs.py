"""The run that a thread works on. Another thread may end it: at its time limit, or because its client has left."""

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Final, TypeVar

T = TypeVar("T")
_LOCK: Final = threading.Lock()
"""For threads that end the same run: the first one's reason counts."""
LARGE: Final = 2**18
"""Elements of an inference's outputs. Writing them as JSON takes 40 ms, perhaps a hundred times the inference."""


class Run:
    """One piece of work on a model. `end` may be called before it, during it and after it, in any thread.

    The order of the attributes stands for a lock, which each run would take twice. `end` writes the error, then reads
    the options; `begin` and `finish` write the options, then read the error. So either the runtime is told, or `begin`
    raises; and options that are told to end are never used again.

    `on_large`: returns what ends a run whose outputs are too large to be written where it runs.
    """

    __slots__ = ("_error", "_options", "ended", "on_large")

    def __init__(self, on_large: Callable[[], BaseException] | None = None) -> None:
        self.on_large = on_large
        self._error: Callable[[], BaseException] | None = None
        self._options: Any = None
        self.ended = False

    def end(self, error: Callable[[], BaseException]) -> None:
        """Ends the runtime's work, and lets `check` raise what `error` returns. The first call counts."""
        with _LOCK:
            if self._error is None:
                self._error = error
                self.ended = True
            options = self._options
            if options is not None:
                options.terminate = True

    def begin(self, options: Any) -> None:
        """Begins work of a runtime that stops when `options.terminate` is set. Raises as `check` does."""
        self._options = options
        if self._error is not None:
            raise self._error()

    def finish(self) -> bool:
        """Returns whether the options can be used again."""
        self._options = None
        return self._error is None

    def check(self) -> None:
        """Raises why the run was ended, if it was."""
        if self._error is not None:
            raise self._error()

    def weigh(self, outputs: Iterable[Any]) -> None:
        """Ends the run if its outputs are too large, and raises why."""
        size = 0
        for output in outputs:
            size += getattr(output, "size", 0)
        if size > LARGE and self.on_large is not None:
            self.end(self.on_large)
            self.check()


class _Current(threading.local):
    """`options`: a runtime's, which the thread's runs use one after the other. Making them costs 2 us."""

    run: Run | None = None
    options: Any = None


CURRENT: Final = _Current()
"""This thread's run; None where nothing would end it."""


def check() -> None:
    """Raises why this thread's run was ended, if it was."""
    run = CURRENT.run
    if run is not None:
        run.check()


def stoppable(call: Callable[[Any], Any], make: Callable[[], Any]) -> Any:
    """Returns the outputs of `call`, which gets options by which another thread may end it. Raises why it did.

    `make`: makes the options of the runtime. `call` gets None where nothing would end it.
    """
    current = CURRENT
    run = current.run
    if run is None:
        return call(None)
    options = current.options or make()
    current.options = None
    try:
        run.begin(options)
        outputs = call(options)
        if run.on_large is not None:
            run.weigh(outputs)
    except Exception:
        run.check()
        raise
    else:
        return outputs
    finally:
        if run.finish():
            current.options = options


class _Wait:
    """Options of work that cannot be ended: setting `terminate` ends the wait for it."""

    def __init__(self, future: Future[Any]) -> None:
        self._future = future

    @property
    def terminate(self) -> bool:
        return self._future.done()

    @terminate.setter
    def terminate(self, _: bool) -> None:
        _settle(self._future, None, InterruptedError())


def beside(call: Callable[[], Any]) -> Any:
    """Returns the result of `call`, from a thread of its own. Raises why this thread's run was ended, if it was.

    The thread of an ended run goes on.
    """
    future: Future[Any] = Future()
    threading.Thread(target=_do, args=(call, future), name="dragoman-beside", daemon=True).start()
    run = CURRENT.run
    if run is None:
        return future.result()
    try:
        run.begin(_Wait(future))
        return future.result()
    except InterruptedError:
        run.check()
        raise
    finally:
        run.finish()


def _do(call: Callable[[], Any], future: Future[Any]) -> None:
    try:
        outcome, error = call(), None
    except BaseException as raised:  # noqa: BLE001 - raised where the call is waited for
        outcome, error = None, raised
    _settle(future, outcome, error)
    del future, outcome, error  # the error's traceback holds this frame


def _settle(future: Future[Any], outcome: Any, error: BaseException | None) -> None:
    with suppress(InvalidStateError):
        future.set_result(outcome) if error is None else future.set_exception(error)


def limited(
    work: Callable[[], T],
    seconds: float | None,
    late: Callable[[], Exception],
    left: Callable[[threading.Thread], object] = lambda _: None,
) -> T:
    """Returns the result of work in a thread of its own, or raises what `late` returns after so many seconds.

    None: no limit, and no thread. The runtime's part of the work is ended then. Python code cannot be ended: its thread
    goes on, and `left` gets it.
    """
    if seconds is None:
        return work()
    run, future = Run(), Future[T]()

    def do() -> None:
        CURRENT.run = run
        _do(work, future)

    thread = threading.Thread(target=do, name="dragoman-limited", daemon=True)
    thread.start()
    try:
        return future.result(seconds)
    except TimeoutError:
        if future.done():  # the work itself raised it, or ended just now
            return future.result()
        run.end(late)
        left(thread)
        raise late() from None

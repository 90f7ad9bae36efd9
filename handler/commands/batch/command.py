"""The command: opens the model, the input and the output, and brings one record after the other from here to there."""

import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from threading import Event
from typing import BinaryIO, Final

from core.dialects.v1.bulk import signature_of
from core.errors import InvalidInput, counted
from core.operations import ModelRef
from core.wire import Options
from handler.commands.batch.journal import OutputFile, OutputOrigin, digest
from handler.commands.meter import Meter
from handler.commands.models import reported, settings_here
from handler.commands.options import CommandOptions
from handler.commands.publish import targets
from handler.commands.refused import Refused
from handler.edge.batch import files
from handler.edge.batch.runner import BatchRunner, batch_rows
from handler.edge.batch.terms import BatchTerms, BlockLimits
from handler.edge.batch.versions import used
from handler.lifecycle.registry import Registry
from handler.lifecycle.single_flight import Background
from handler.settings import Settings
from handler.stores import paths
from handler.stores.paths import expanded

FAILED: Final = 3
"""The exit code of an output that is whole, in which some records have errors."""
THREADS: Final = 2
"""The most inferences at a time. More would need more memory, and hardly be faster.

Models with code of their own, which may keep state from one inference to the next, run one at a time.
"""
TURN_SECONDS: Final = 0.0005
"""The longest that a thread works while others wait for the interpreter; Python's own is 5 ms."""


def run(options: CommandOptions) -> int:
    """Raises Refused, ServingError, InvalidSettings."""
    settings = settings_here()
    source, output = Path(options.input), Path(options.output)
    for text, path in ((options.input, source), (options.output, output)):
        if text in ("", "-") or "://" in text:
            raise Refused(f"{text!r} is not a file on this machine, which input and output have to be")
        if paths.exists(path) and not paths.is_file(path):  # a pipe is read once, and a device is not replaced
            raise Refused(f"{path} is not a regular file")
    form = _form(options)
    if paths.exists(output) and paths.exists(source) and output.samefile(source):
        raise Refused(f"{output} is the input: name another file for the answers")
    try:
        with source.open("rb") as file, OutputFile(output) as answers, reported(), _taking_turns():
            began = time.monotonic()
            with redirect_stdout(sys.stderr):  # what a model prints is not the command's result
                skipped = _run(options, settings, form, file, answers)
            seconds = time.monotonic() - began
    except OSError as error:
        raise Refused(f"{error.filename or source}: {error.strerror}") from None
    return _tell(options, answers, skipped, seconds)  # its OSError is of stdout, and not of the input


def _form(options: CommandOptions) -> str:
    form = options.format or files.SUFFIXES.get(Path(options.input).suffix.lower())
    if form is None:
        known = ", ".join(files.SUFFIXES)
        raise Refused(f"{options.input} ends in none of {known}: name its form with --format")
    return str(form)


def _run(options: CommandOptions, settings: Settings, form: str, file: BinaryIO, answers: OutputFile) -> int:
    """Returns how many records were there before."""
    path = Path(options.input)
    before = path.stat()
    target = targets.model(options.model, settings.repository)
    if "://" not in target.repository and not paths.is_dir(expanded(target.repository)):
        raise Refused(
            f"the folder {target.repository} does not exist: name the model as FOLDER/NAME, or set DRAGOMAN_REPOSITORY"
        )
    threads = 1 if settings.allow_code else min(THREADS, settings.threads)
    registry = Registry(settings._replace(repository=target.repository, preload=(), cpus=settings.cpus / threads))
    version = options.version or ("" if options.force else answers.version) or None
    use = used(registry, ModelRef(target.name, version), Background())
    with _digest(path) as input_sha256, use as model:
        spec = model.spec
        terms = BatchTerms(spec, options.signature, _wire(settings))
        signature_of(spec, options.signature)  # raises InvalidInput for an unknown one
        answers.open(
            lambda: OutputOrigin(input_sha256.result(), form, spec.name, spec.version, options.signature),
            force=options.force,
        )
        done = answers.standing
        if done.is_whole:
            return done.records
        rows = options.batch_size or batch_rows(spec)
        limits = BlockLimits(rows, settings.max_body_bytes)
        blocks = _blocks(form, file, limits, done.records, terms)
        _pump(options, file, BatchRunner(use, terms, rows, limits, threads), blocks, answers)
        after = path.stat()
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise Refused(f"{path} has changed while it was read; --force begins again")
        answers.finish()
    return done.records


@contextmanager
def _taking_turns() -> Iterator[None]:
    """Lets threads of the model go on soon after each inference, while others read and write."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(TURN_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def _digest(path: Path) -> Iterator[Future[str]]:
    """Yields the digest of a file. Another thread computes it while the model loads and begins."""
    done = Event()
    with ThreadPoolExecutor(1, "dragoman-digest") as pool:
        try:
            yield pool.submit(digest, path, done.is_set)
        finally:
            done.set()


def _wire(settings: Settings) -> Options:
    return Options(settings.max_body_bytes, settings.non_finite, settings.v1_dialect)


def _blocks(form: str, file: BinaryIO, limits: BlockLimits, skip: int, terms: BatchTerms) -> files.Blocks:
    try:
        return files.FORMATS[form](file, limits, skip, terms)
    except InvalidInput as error:
        raise Refused(f"{file.name}: {error.message}") from None


def _pump(
    options: CommandOptions, file: BinaryIO, runner: BatchRunner, blocks: files.Blocks, answers: OutputFile
) -> None:
    meter = Meter(quiet=options.quiet)
    path = Path(options.input)
    meter.begin(f"{path.name} to {options.model}", path.stat().st_size)
    place = 0
    try:
        for answered in runner.answers(blocks):
            answers.append(answered)
            now = file.tell()
            meter.add(now - place)
            place = now
    finally:
        meter.end()


def _tell(options: CommandOptions, answers: OutputFile, skipped: int, seconds: float) -> int:
    """Prints the summary. Returns the exit code."""
    records, errors, _ = answers.standing
    done = records - skipped
    if options.json:
        summary = {"output": options.output, "records": records, "errors": errors, "resumed_at": skipped}
        print(json.dumps(summary | {"seconds": round(seconds, 3)}, ensure_ascii=False))  # noqa: T201 - the result
    elif not options.quiet:
        told = f"{errors} of them errors" if errors else "no errors"
        here = "" if not skipped else f", {skipped} of them from before"
        rate = f"; {seconds:.1f} s, {done / max(seconds, 1e-3):.0f} a second" if done else ""
        print(f"{options.output}: {counted(records, 'record')}{here}, {told}{rate}")  # noqa: T201 - the result
    return FAILED if errors else 0

"""Objects of records in a bucket: each becomes parts of answers, and a document that names them once all are there.

The result of INPUT/MODEL/path/name.jsonl is in OUTPUT/MODEL/path/name.jsonl/ETAG/. A part has the answers of some
consecutive records, its name says of which, and it appears whole. So an invocation that is ended, or that has no time
left, loses at most what was not in a part, and the next one begins behind the parts that are there. `complete.json`
names the parts of the result: each record is in exactly one of them, even if two invocations have worked at a time.
"""

import io
import logging
import os
import re
from typing import Any, BinaryIO, Final

import orjson

from core.errors import Fault, InvalidInput, ModelUnavailable, ServingError, VersionNotFound, counted, escaped
from core.operations import ModelRef
from core.ports import Models, Use
from core.records import NamedTuple
from core.wire import Options
from handler.edge.batch import files, places
from handler.edge.batch.messages import OF_THE_MESSAGE
from handler.edge.batch.places import ResultPlace, answered
from handler.edge.batch.runner import BatchRunner, batch_rows
from handler.edge.batch.terms import BatchTerms, BlockLimits
from handler.edge.batch.versions import used
from handler.lifecycle.single_flight import Background
from handler.settings import InvalidSettings, Settings

log = logging.getLogger(__name__)
NAME: Final = "DRAGOMAN_BATCH_INPUT"
COMPLETE: Final = "complete.json"
PART: Final = re.compile(r"v(\d+)-(\d{12})-(\d{12})-(\d{12})\.jsonl")
"""The version of the model, the first record, the one behind the last, and how many have failed."""
PART_RECORDS: Final = 10_000
WHOLE: Final = ("npy", "parquet")
"""Forms whose readers go back and forth in a file."""


class AnswerPart(NamedTuple):
    """A part that is there."""

    name: str
    start: int
    end: int
    errors: int


class RecordObject(NamedTuple):
    """An object of records, and the names of the results that it has."""

    model: str
    form: str
    file: BinaryIO
    folder: str
    names: list[str]


class ObjectRunner:
    """Runs the objects below DRAGOMAN_BATCH_INPUT. Raises InvalidSettings for one that has no place of its own."""

    def __init__(self, settings: Settings, models: Models, place: ResultPlace) -> None:
        from handler.stores.s3 import location  # noqa: PLC0415 - for records in buckets

        self._settings = settings
        self._models = models
        self._results = place
        self._place = location.locate(settings.batch_input, os.environ, NAME)
        for setting, uri in (("DRAGOMAN_REPOSITORY", settings.repository), (places.NAME, settings.batch_output)):
            other = location.locate(uri, os.environ, setting) if uri.startswith("s3://") else None
            if other is not None and other.bucket == self._place.bucket and _overlap(other.prefix, self._place.prefix):
                raise InvalidSettings(f"{NAME} and {setting} overlap: a new object would have two meanings")
        self._made: Any = None

    def takes(self, bucket: str, key: str) -> bool:
        """Decides whether an object is one of records."""
        return bucket == self._place.bucket and key.startswith(self._place.prefix)

    def run(self, key: str, context: Background) -> dict[str, Any]:
        """Runs one object, or the rest of it. Returns its state then.

        Raises ServingError for what another attempt may do: Lambda tries again.
        """
        path = key.removeprefix(self._place.prefix)
        model, slash, name = path.partition("/")
        form = files.SUFFIXES.get(os.path.splitext(name)[1].lower())  # noqa: PTH122 - a key is not a path of this machine
        if not slash or form is None or not {"", ".", ".."}.isdisjoint(path.split("/")):  # results may go to a folder
            log.warning("%s is not an object of records", escaped(key))
            return {"object": key, "error": f"expected MODEL/NAME, with one of {', '.join(files.SUFFIXES)} at its end"}
        opened = self._opened(key)
        if opened is None:
            log.warning("%s does not exist; it may have been deleted since its event", escaped(key))
            return {"object": key, "error": "the object does not exist"}
        file, etag = opened
        folder = f"{path}/{etag}/"
        names = self._results.names(folder)
        if COMPLETE in names:
            return {"object": key, "result": folder, "complete": True}
        try:
            with answered(NAME, "s3:GetObject"):  # the records arrive while they run
                told = self._run(RecordObject(model, form, file, folder, names), context)
        except ServingError as error:
            if error.fault not in OF_THE_MESSAGE and error.fault is not Fault.RESOURCE_EXHAUSTED:
                raise
            told = {"error": error.message}
        self._results.put(folder + COMPLETE, orjson.dumps({"object": key} | told))
        return {"object": key, "result": folder} | {name: told[name] for name in told if name != "parts"}

    def _opened(self, key: str) -> tuple[BinaryIO, str] | None:
        """Returns an object as a file, and its ETag; None if it does not exist. Raises ModelUnavailable."""
        if self._made is None:
            from handler.stores.s3.botocore_client import connect  # noqa: PLC0415 - a third of a second

            self._made = connect(self._settings, self._place)
        with answered(NAME, "s3:GetObject"):
            try:
                found = self._made.get_object(Bucket=self._place.bucket, Key=key)
            except self._made.exceptions.NoSuchKey:
                return None
        return found["Body"], found["ETag"].strip('"')

    def _use(self, given: RecordObject, context: Background) -> Use:
        """Returns the version that began the object. If it has been removed, the newest one begins the object again."""
        begun = version_of(given.names)
        if begun is not None:
            try:
                return used(self._models, ModelRef(given.model, begun), context)
            except VersionNotFound as error:
                log.warning("%s begins again with another version: %s", escaped(given.folder), error.message)
        return used(self._models, ModelRef(given.model), context)

    def _run(self, given: RecordObject, context: Background) -> dict[str, Any]:
        settings = self._settings
        with (use := self._use(given, context)) as loaded:
            spec = loaded.spec
            parts = chain_of(given.names, spec.version)
            limits = BlockLimits(batch_rows(spec), settings.max_body_bytes)
            options = Options(settings.max_body_bytes, settings.non_finite, settings.v1_dialect)
            terms = BatchTerms(spec, "", options)
            source = self._whole(given.file) if given.form in WHOLE else given.file
            blocks = _Timely(files.FORMATS[given.form](source, limits, parts[-1].end if parts else 0, terms), context)
            writer = _PartWriter(self._results, given.folder, spec.version, parts)
            runner = BatchRunner(use, terms, limits.records, limits)
            for found in runner.answers(blocks):
                writer.add(found.texts, found.errors)
            writer.flush()
        if blocks.is_late:
            raise ModelUnavailable(
                f"{given.folder} has {counted(writer.end, 'record')} so far; no time was left for the others"
            )
        errors = sum(part.errors for part in parts)
        told = {"model": spec.name, "version": spec.version, "records": writer.end, "errors": errors}
        return told | {"parts": [part.name for part in parts]}

    def _whole(self, file: BinaryIO) -> BinaryIO:
        """Returns a file in memory. Raises InvalidInput for one that is too large."""
        most, content = self._settings.max_body_bytes, io.BytesIO()
        # The read behind the last byte is the one in which botocore compares what has arrived with the length.
        while content.tell() <= most and (piece := file.read(most + 1 - content.tell())):
            content.write(piece)
        if content.tell() > most:
            limit = f"{most} bytes (DRAGOMAN_MAX_BODY_BYTES)"
            raise InvalidInput(f"an object of {' or '.join(WHOLE)} has at most {limit}")
        content.seek(0)
        return content


class _Timely:
    """Blocks, as long as there is time for them; one at least. `is_late`: there was none for the others."""

    def __init__(self, blocks: files.Blocks, context: Background) -> None:
        self._blocks = blocks
        self._context = context
        self.is_late = False

    def __iter__(self) -> files.Blocks:
        for number, block in enumerate(self._blocks):
            self.is_late = number > 0 and self._context.deadline.left <= 0
            if self.is_late:
                return
            yield block


class _PartWriter:
    """Writes parts behind those that are there. `end`: the number of the next record."""

    def __init__(self, place: ResultPlace, folder: str, version: str, parts: list[AnswerPart]) -> None:
        self._place = place
        self._prefix = f"{folder}v{version}-"
        self._parts = parts
        self._texts: list[bytes] = []
        self._errors = 0

    @property
    def end(self) -> int:
        return self._parts[-1].end if self._parts else 0

    def add(self, texts: list[bytes], errors: int) -> None:
        self._texts += texts
        self._errors += errors
        if len(self._texts) >= PART_RECORDS:
            self.flush()

    def flush(self) -> None:
        """Writes the added lines as a part."""
        if not self._texts:
            return
        start, end = self.end, self.end + len(self._texts)
        key = f"{self._prefix}{start:012}-{end:012}-{self._errors:012}.jsonl"
        self._place.put(key, b"".join(b'{"index":%d,%b}\n' % each for each in enumerate(self._texts, start)))
        self._parts.append(AnswerPart(key.rpartition("/")[2], start, end, self._errors))
        self._texts, self._errors = [], 0


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)


def version_of(names: list[str]) -> str | None:
    """Returns the version whose parts have the most records from the first one on. Without parts, returns None."""
    versions = {found[1] for found in map(PART.fullmatch, names) if found is not None}
    chains = [(parts[-1].end, version) for version in versions if (parts := chain_of(names, version))]
    return max(chains)[1] if chains else None


def chain_of(names: list[str], version: str) -> list[AnswerPart]:
    """Returns the parts of a version that follow each other, from the first record on: the longest of each start."""
    longest: dict[int, AnswerPart] = {}
    for name in names:
        found = PART.fullmatch(name)
        if found is not None and found[1] == version:
            part = AnswerPart(name, int(found[2]), int(found[3]), int(found[4]))
            longest[part.start] = max(part, longest.get(part.start, part), key=lambda each: each.end)
    parts: list[AnswerPart] = []
    following = longest.get(0)
    while following is not None and following.end > following.start:
        parts.append(following)
        following = longest.get(following.end)
    return parts

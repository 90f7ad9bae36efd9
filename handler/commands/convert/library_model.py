"""From the command line to the child that converts a model of another library, and from its report to the terminal."""

from pathlib import Path

from core.errors import escaped
from handler.commands import results
from handler.commands.convert import process
from handler.commands.convert.sources import FORMATS, Format
from handler.commands.convert.work import LibraryJob
from handler.commands.meter import Meter, human
from handler.commands.options import CommandOptions
from handler.commands.refused import Refused
from handler.stores import parity, paths


def convert(source: Path, row: Format, folder: Path, options: CommandOptions, meter: Meter) -> None:
    """Writes a version's files into a folder, and prints its parity. Raises Refused."""
    if not paths.exists(source):
        raise Refused(f"there is no file or folder {source}")
    try:
        folder.mkdir(parents=True)
    except OSError as error:
        raise Refused(f"{folder} cannot be written: {error.strerror}; TMPDIR names another place") from None
    job = LibraryJob(
        str(source),
        next(name for name, each in FORMATS.items() if each is row),
        str(folder),
        options.data,
        options.tolerance,
        options.flips,
        options.seed,
        options.allow_pickle,
        options.trust,
    )
    report = process.converted(job, process.ChildLimits(options.timeout, options.memory), meter.say)
    line = escaped(f"{source}: {parity.sentence(report)}; {human(report['bytes'])} of ONNX")
    results.tell(options, line, source=str(source), parity=report)
    for note in report["notes"]:
        meter.say(note)

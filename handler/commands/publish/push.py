"""`dragoman push`: compares the files with the repository, checks them, and sends them."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from core.errors import counted
from core.records import NamedTuple
from handler.commands import results, signature
from handler.commands.meter import Meter, human
from handler.commands.options import CommandOptions
from handler.commands.publish import checks, folder, places, shelf, signing, targets, upload, versions
from handler.commands.publish.buckets import opened
from handler.commands.publish.optimize import step
from handler.commands.publish.versions import Found, PushJob
from handler.commands.refused import Refused
from handler.settings import Settings
from handler.settings.model import FILE, parse
from handler.settings.triton import FILE as TRITON
from handler.stores.paths import expanded, local

NOT_TRIED = "push did not check the model, because ONNX Runtime is not installed: pip install 'dragoman[onnx]'"


def run(options: CommandOptions, settings: Settings) -> None:
    """Checks every version, then sends them. Raises Refused, ServingError."""
    step.check_possible(wanted=options.optimize, checked=not options.no_check)
    target = targets.model(options.target, settings.repository)
    if not targets.is_writable(target.repository):
        raise Refused(f"{target} cannot be written: a repository on a web server is read only")
    wanted = versions.number(options.version)
    source = local(options.model)
    found = versions.find(source, wanted)
    there = shelf.model(settings, target)
    places.check(options.target, target, there, settings)
    is_new = wanted is None and found.versions[0].number is None
    jobs = _jobs(found, target, there.next(target) if is_new else wanted, force=options.force)
    for job in () if options.force else jobs:
        there.check_free(job.number, target, "" if len(jobs) == 1 else "; --version pushes another one alone")
    text = there.settings if found.settings is None else found.settings.read_bytes()
    meter, signs = Meter(quiet=options.quiet), signature.signer(options.sign_key, options.sign_cert)
    for job in jobs:  # all of them before the first is sent
        if signs is None:
            signing.check(job.version)
        _check(job, text, settings, None if options.no_check else meter)
    said = parse(target.name, text)
    _tell_unused(source, said.note if found.settings is not None else "", meter)
    known = there.complete.union(job.number for job in jobs)
    served = said.version_policy.choose(sorted(known))
    _tell_labels(said.version_labels, known.difference(served, said.canary), meter)
    for job in jobs:
        with TemporaryDirectory(prefix="push-") as made:
            version, how = job.version, ""
            if options.optimize:
                version, how = step.optimized(version, _folder(made, "optimised"), resigned=signs is not None)
            version = signing.prepared(version, text, signs, _folder(made, "signed"))
            _send(job._replace(version=version), target, settings, meter)
        replaced = job.settings is not None and there.settings not in (None, text)
        pushed = PushedVersion(target, job.number, version, job.number in served, signs and signs.name, how, replaced)
        results.tell(options, pushed.line(), **pushed.members())


class PushedVersion(NamedTuple):
    """What a push has done. `signer`: None without one. `how`: what --optimize did. `replaced`: the settings were."""

    target: targets.Target
    number: int
    version: versions.LocalVersion
    served: bool
    signer: str | None
    how: str
    replaced: bool

    def line(self) -> str:
        """Returns it in one line."""
        parts = (
            f"{counted(len(self.version.files), 'file')}, {human(self.version.size)}",
            "served" if self.served else "not served by the version policy",
            f"signed by {self.signer}" if self.signer else "",
            self.how,
            f"replaced {FILE} of {self.target.name}" if self.replaced else "",
        )
        return f"{self.target}/{self.number}: {'; '.join(filter(None, parts))}"

    def members(self) -> dict[str, Any]:
        """Returns it for --json."""
        return {
            "model": self.target.name,
            "version": self.number,
            "place": f"{self.target}/{self.number}",
            "files": len(self.version.files),
            "size": self.version.size,
            "served": self.served,
            "signer": self.signer,
            "optimized": self.how or None,
            "settings": "replaced" if self.replaced else None,
        }


def _tell_unused(source: Path, note: str, meter: Meter) -> None:
    """Says what of the source has no effect. `note`: on the keys of its settings."""
    if note:
        meter.say(note)
    if (source / TRITON).is_file():
        meter.say(f"{TRITON} is not pushed: put what it says into {FILE} (docs/triton.md)")


def _tell_labels(labels: Mapping[str, int], unserved: AbstractSet[int], meter: Meter) -> None:
    """Prints a line for each label whose version is in the repository, but is not served after this push."""
    for label, number in labels.items():
        if number in unserved:
            meter.say(
                f"version_labels.{label} names version {number}, which the version policy does not serve: name it in "
                f"version_policy, or let {label} name another one"
            )


def _folder(parent: str, name: str) -> Path:
    path = Path(parent) / name
    path.mkdir()
    return path


def _jobs(found: Found, target: targets.Target, number: int | None, *, force: bool) -> list[PushJob]:
    """Makes the jobs. `number`: for a version whose folder has none. The last job includes the model's settings."""
    numbers = ((version, number if version.number is None else version.number) for version in found.versions)
    jobs = [PushJob(target.name, own, version, None, force) for version, own in numbers if own is not None]
    return [*jobs[:-1], jobs[-1]._replace(settings=found.settings)]


def _check(job: PushJob, text: bytes | None, settings: Settings, meter: Meter | None) -> None:
    """Checks a version, and loads it unless there is no `meter`, which says if it could not be loaded."""
    loaded = checks.check(job, text, settings, load=meter is not None)
    if meter is not None and job.version.last == checks.ONNX and not loaded:
        meter.say(NOT_TRIED)


def _send(job: PushJob, target: targets.Target, settings: Settings, meter: Meter) -> None:
    try:
        if targets.is_remote(target.repository):
            upload.publish(opened(settings, target.repository), job, meter)
        else:
            folder.publish(expanded(target.repository), job, meter)
    finally:
        meter.end()

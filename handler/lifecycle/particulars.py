"""What this process knows of a model's versions beyond the protocols: sizes, memory, labels, shares, signers, times.

For the console's pages. It asks neither the repository nor a runtime, and loads nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from core.operations import ModelSpec
from core.records import NamedTuple
from handler.lifecycle.models import ListedModel
from handler.lifecycle.traffic.recent import AnswerCount, Lapse
from handler.lifecycle.versions import ServedVersion


class Particulars(NamedTuple):
    """One version. `spec`, `parameters`, `explains`: of a version in memory, else None, empty and False.

    `size`: bytes of its files, None where the store does not say. `memory`: bytes that its load was measured to take,
    0 before that. `canary`: the share of requests without a version that it gets by settings. `protocols`: its
    requests since the process listed it, `spans` those of the last minutes; see traffic.recent. `folder`: its files
    on this machine, None of a version that is not in memory.
    """

    version: str
    spec: ModelSpec | None
    parameters: Mapping[str, str]
    explains: bool
    size: int | None
    memory: int
    load_seconds: float | None
    labels: tuple[str, ...]
    canary: float
    protocols: Mapping[str, AnswerCount]
    spans: Sequence[tuple[int, Lapse]]
    folder: Path | None


class ProcessState(NamedTuple):
    """What clients have made of a process. `loaded`: names and versions. `unloaded`: of preloaded models."""

    online: bool
    unloaded: tuple[str, ...]
    loaded: tuple[tuple[str, str], ...]


def particulars(model: ListedModel, cost: Callable[[ServedVersion], int]) -> list[Particulars]:
    """Returns the particulars of a model's versions, ascending. `cost`: of a version's memory."""
    labelled = [(label, version.version.number) for label, version in model.labelled()]
    found = []
    for number, version in model.versions.items():
        labels = tuple(label for label, target in labelled if target == number)
        found.append(_of(version, cost(version), labels, model.said.canary.get(number, 0.0)))
    return found


def _of(version: ServedVersion, memory: int, labels: tuple[str, ...], canary: float) -> Particulars:
    loaded = version.loaded
    sizes = [file.size for file in version.version.files]
    known = [size for size in sizes if size is not None]
    protocols, spans = version.traffic.lately()
    return Particulars(
        str(version.version.number),
        None if loaded is None else loaded.model.spec,
        {} if loaded is None else loaded.parameters,
        loaded is not None and (loaded.model.spec.explainer is not None or loaded.model.explain is not None),
        sum(known) if len(known) == len(sizes) else None,
        memory,
        version.load_seconds or None,
        labels,
        canary,
        protocols,
        spans,
        None if loaded is None else loaded.folder.path,
    )

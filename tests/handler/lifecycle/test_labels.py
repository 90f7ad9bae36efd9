"""handler.lifecycle.catalog: labels of versions, and the version zero."""

import shutil
from pathlib import Path

import pytest

from core.errors import Fault, UnknownLabel, VersionNotFound
from core.operations import ModelRef, State
from handler.lifecycle.usage import QUICK_RUNS
from tests.handler.lifecycle.samples import EVERY, PATIENT, STABLE, add, get, record, registry, say, served


def test_a_label_stands_for_a_version(root: Path, loads: list[str]) -> None:
    """The version is loaded once under its number and its label."""
    add(root, "m", "2")
    say(root, **EVERY, version_labels={"stable": 1, "next": 2})
    models = registry(root)
    assert not models.readiness(STABLE, PATIENT).ready
    model = get(models, STABLE)
    assert model.spec.version == "1"
    assert get(models, ModelRef("m", "1")) is model
    assert get(models, STABLE) is model
    assert models.readiness(STABLE, PATIENT).ready
    assert models.describe(STABLE, PATIENT).versions == ("1", "2")
    assert get(models, ModelRef("m", None, "next")) is get(models)
    assert loads == ["m", "m"]


def test_a_loaded_version_answers_under_its_labels_without_asking_the_repository(root: Path) -> None:
    """The version is quick under its labels as well."""
    say(root, version_labels={"stable": 1})
    models = registry(root)
    model = get(models)
    for _ in range(QUICK_RUNS):
        record(models, ModelRef("m", "1"), (0, 0, 1, 0), 1, success=True)
    assert models.is_quick(STABLE, 1)
    shutil.rmtree(root / "m")
    assert get(models, STABLE) is model


def test_a_label_may_point_at_a_version_that_is_published_later(root: Path) -> None:
    """The model is served all the same, and its other labels keep their versions."""
    say(root, **EVERY, version_labels={"stable": 1, "next": 2})
    models, ahead = registry(root), ModelRef("m", None, "next")
    for call in (models.use, models.readiness):
        with pytest.raises(VersionNotFound, match="has no version 2; it serves 1") as refusal:
            call(ahead, PATIENT)
        assert refusal.value.version == "2"
    assert served(models, STABLE) == "1"
    add(root, "m", "2")
    assert served(models, ahead) == "2"


def test_a_label_of_a_version_that_the_policy_leaves_out_is_not_found(root: Path) -> None:
    """A label does not serve a version that the policy leaves out."""
    add(root, "m", "2")
    say(root, version_labels={"stable": 1})
    with pytest.raises(VersionNotFound, match="has no version 1; it serves 2"):
        get(registry(root), STABLE)


@pytest.mark.parametrize("label", ["other", "1", "", "Stable", "x" * 1000])
def test_a_label_that_the_settings_do_not_have_is_unknown(root: Path, label: str) -> None:
    """A label is never taken for a version's number, and the refusal quotes 256 characters of it."""
    say(root, version_labels={"stable": 1})
    models, ref = registry(root), ModelRef("m", None, label)
    text = f"Unrecognized servable version label: {label[:256]}"
    for call in (models.use, models.status, models.describe):
        with pytest.raises(UnknownLabel) as refusal:
            call(ref, PATIENT)
        assert refusal.value.message == text
    assert models.readiness(ref, PATIENT) == (False, State.UNAVAILABLE, text, Fault.INVALID_ARGUMENT)


def test_a_label_moves_when_the_settings_are_looked_at_again(root: Path) -> None:
    """A load looks at them, and the version that the label stood for stays loaded."""
    add(root, "m", "2")
    say(root, **EVERY, version_labels={"stable": 1})
    models = registry(root)
    first = get(models, STABLE)
    say(root, **EVERY, version_labels={"stable": 2})
    assert get(models, STABLE) is first
    models.load("m", PATIENT)
    assert served(models, STABLE) == "2"
    say(root, **EVERY)
    models.load("m", PATIENT)
    with pytest.raises(UnknownLabel):
        get(models, STABLE)


def test_version_zero_is_the_newest_for_who_means_that(root: Path) -> None:
    """A real version 0 takes precedence; in other protocols 0 is a number like any other."""
    meant = ModelRef("m", "0", zero_is_newest=True)
    add(root, "m", "2")
    say(root, **EVERY)
    models = registry(root)
    assert served(models, meant) == "2"
    assert get(models, meant) is get(models)
    with pytest.raises(VersionNotFound, match="has no version 0; it serves 1, 2"):
        get(models, ModelRef("m", "0"))
    add(root, "m", "0")
    models = registry(root)
    for ref in (meant, ModelRef("m", "0")):
        assert served(models, ref) == "0"

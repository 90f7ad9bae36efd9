"""handler.lifecycle.catalog: the version and the model that a client's reference means."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.deadline import NEVER
from core.errors import InvalidInput, ModelNotFound, ServingError, VersionNotFound
from core.operations import ModelRef
from handler.lifecycle.catalog import Catalog
from handler.lifecycle.registry import Registry
from handler.lifecycle.repository import Repository
from handler.lifecycle.single_flight import Pending
from handler.settings import Settings
from handler.stores.directory import DirectoryStore
from tests.handler.lifecycle.samples import PATIENT, add, served

ONNX = Path(__file__).parents[2] / "models" / "half_plus_three" / "123" / "model.onnx"
VERSIONS = (("a", "1"), ("a", "2"), ("a-2", "7"), ("a-b", "3"), ("a-b-9", "1"))


def settings(folder: Path, **more: str) -> Settings:
    """Returns the settings of a repository in this folder."""
    named = {f"DRAGOMAN_{name}": value for name, value in more.items()}
    return Settings.from_env({"DRAGOMAN_REPOSITORY": str(folder), **named})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Models whose names could be mistaken for others' versions."""
    for model, version in VERSIONS:
        add(tmp_path, model, version)
    (tmp_path / "a" / "model-settings.json").write_text('{"version_policy": {"all": {}}}')
    return tmp_path


def selected(folder: Path, selector: str, default: str = "") -> tuple[str, int]:
    """Returns name and version that a GRPS client means."""
    catalog = Catalog(Repository(DirectoryStore(settings(folder))), default)
    version = catalog.version(ModelRef(selector, dashed=True), NEVER)
    return version.name, version.version.number


@pytest.mark.parametrize(
    ("selector", "name", "version"),
    [
        ("a-1", "a", 1),
        ("a-2", "a", 2),  # the version, although a model has that name
        ("a", "a", 2),
        ("a-2-7", "a-2", 7),
        ("a-b-3", "a-b", 3),
        ("a-b", "a-b", 3),
        ("a-b-9", "a-b-9", 1),  # a-b does not have a version 9
    ],
)
def test_a_selector_is_name_and_version_else_a_name(folder: Path, selector: str, name: str, version: int) -> None:
    """Names may hold dashes; without a version it is the newest."""
    assert selected(folder, selector) == (name, version)


@pytest.mark.parametrize(("selector", "error", "words"), [
    ("a-3", VersionNotFound, "model 'a' has no version 3; it serves 1, 2"),
    ("q-1", ModelNotFound, "model 'q-1' is not in the repository"),
    ("-1", ModelNotFound, "model '-1' is not in the repository"),
    ("a-", ModelNotFound, "model 'a-' is not in the repository"),
    ("../a-1", ModelNotFound, "not a model's name"),
])  # fmt: skip
def test_what_a_selector_does_not_find_is_said_in_its_own_words(
    folder: Path, selector: str, error: type[ServingError], words: str
) -> None:
    """The refusal names the missing version, or the missing model."""
    with pytest.raises(error, match=words):
        selected(folder, selector)


@pytest.mark.parametrize("version", ["01", "v1", "1.0", "9" * 19])
def test_the_refusal_of_a_version_says_how_versions_are_written(folder: Path, version: str) -> None:
    """01 and a number of 19 digits are numbers, too, so that is not all that a client needs to know."""
    catalog = Catalog(Repository(DirectoryStore(settings(folder))), "")
    with pytest.raises(VersionNotFound, match=r"; versions are numbers below 9 \* 10\*\*18, without leading zeros$"):
        catalog.version(ModelRef("a", version), NEVER)


def test_a_version_can_be_a_time_in_nanoseconds(folder: Path) -> None:
    """Other servers read numbers of 64 bits, too."""
    for number in ("5", "1700000000000000000"):
        add(folder, "a", number)
    assert selected(folder, "a") == selected(folder, "a-1700000000000000000") == ("a", 1700000000000000000)


def test_of_many_versions_the_refusal_of_another_one_names_the_first(folder: Path) -> None:
    """A message is as short for a model with hundreds of versions."""
    for number in range(3, 503):
        add(folder, "a", str(number))
    with pytest.raises(VersionNotFound, match="has no version 600; it serves 1, 2, .*, 16 and 486 more$"):
        selected(folder, "a-600")


def test_no_selector_is_the_default_model_or_the_only_one(
    folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """If there are several, the server does not guess."""
    assert selected(folder, "", "a-1") == ("a", 1)
    with pytest.raises(InvalidInput, match=r"the models are: a, a-2, a-b, a-b-9 \(DRAGOMAN_DEFAULT_MODEL\)"):
        selected(folder, "")
    for number in range(20):
        add(folder, f"z{number:02}", "1")
    with pytest.raises(InvalidInput, match=r"a-b-9, z00, .*, z11 and 8 more \(DRAGOMAN_DEFAULT_MODEL\)"):
        selected(folder, "")
    lonely = tmp_path_factory.mktemp("lonely")
    with pytest.raises(InvalidInput, match="the models are: none"):
        selected(lonely, "")
    add(lonely, "only", "4")
    assert selected(lonely, "") == ("only", 4)


@pytest.mark.parametrize("default", ["a", "a-2"])
def test_a_version_beside_a_selector_takes_precedence(folder: Path, default: str) -> None:
    """It is a version of the model that the selector means; an unknown one is not found."""
    models = Registry(settings(folder, DEFAULT_MODEL=default))
    for _ in range(2):
        assert served(models, ModelRef("", "1", dashed=True)) == "1"
        assert served(models, ModelRef("a-2", "1", dashed=True)) == "1"
        assert served(models, ModelRef("", dashed=True)) == "2"
        for unknown in ("9", "x"):
            with pytest.raises(VersionNotFound, match="model 'a' has no version"):
                served(models, ModelRef("", unknown, dashed=True))


def test_a_selector_follows_a_new_version_and_a_model_that_was_unloaded(folder: Path) -> None:
    """An alias is resolved again when the model changes."""
    models = Registry(settings(folder, DEFAULT_MODEL="a"))
    refs = ModelRef("a", dashed=True), ModelRef("", dashed=True)
    assert [served(models, ref) for ref in refs] == ["2", "2"]
    assert models.describe(refs[0], PATIENT).versions == ("1", "2")
    add(folder, "a", "3")
    models.load("a", PATIENT)
    assert [served(models, ref) for ref in refs] == ["3", "3"]
    models.unload("a", PATIENT)
    assert not models.readiness(refs[1], PATIENT).ready
    assert served(models, refs[1]) == "3"


def test_one_models_names_do_not_make_each_other_forgotten(folder: Path) -> None:
    """A request under any alias is answered at once, by the version that the alias means then."""
    words = [ModelRef(name, dashed=True) for name in ("a", "a-2", "", "a-1")]
    words += [ModelRef("a"), ModelRef("a", "1"), ModelRef("a", "0", zero_is_newest=True)]
    with ThreadPoolExecutor(1) as executor:
        models = Registry(settings(folder, DEFAULT_MODEL="a"), executor)

        def asked(ref: ModelRef) -> str:
            while True:
                try:
                    return served(models, ref)
                except Pending as pending:
                    pending.future.result(10)

        assert [asked(ref) for ref in words] == ["2", "2", "2", "1", "2", "1", "2"]
        assert [served(models, ref) for ref in words] == ["2", "2", "2", "1", "2", "1", "2"]
        for version in ("0", "3"):
            add(folder, "a", version)
        with pytest.raises(Pending) as pending:
            models.load("a", PATIENT)
        pending.value.future.result(10)
        assert [asked(ref) for ref in words] == ["3", "2", "3", "1", "3", "1", "0"]
        assert [served(models, ref) for ref in words] == ["3", "2", "3", "1", "3", "1", "0"]


@pytest.mark.parametrize("selector", ["a-02", "a-002"])
def test_a_selectors_version_is_written_as_it_is_elsewhere(folder: Path, selector: str) -> None:
    """V2 refuses leading zeros, too. A model of that very name is another matter."""
    models = Registry(settings(folder))
    with pytest.raises(VersionNotFound, match=f"model 'a' has no version {selector[2:]}; .* without leading zeros"):
        served(models, ModelRef(selector, dashed=True))
    add(folder, selector, "7")
    assert served(models, ModelRef(selector, dashed=True)) == "7"


def test_a_model_that_was_never_looked_at_is_not_published(folder: Path) -> None:
    """It does not serve, and no reference to it can be answered."""
    catalog = Catalog(Repository(DirectoryStore(settings(folder))), "")
    before = catalog.ready
    assert not catalog.publish("q")
    assert catalog.ready == before == {}

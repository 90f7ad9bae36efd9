"""handler.commands.convert.models_config: TensorFlow Serving's models.config as models to convert."""

from pathlib import Path

import pytest

from handler.commands.convert.models_config import ModelConfig, parse, read
from handler.commands.refused import Refused
from handler.settings import model as model_settings

# The texts come from TensorFlow Serving's guide "Serving Configuration".
CONFIG = """
model_config_list {
  config {
    name: 'my_first_model'
    base_path: '/tmp/my_first_model/'
    model_platform: 'tensorflow'
    model_version_policy { specific { versions: 42 versions: 43 } }
    version_labels { key: 'stable' value: 43 }
    version_labels { key: 'canary' value: 42 }
    logging_config { sampling_config { sampling_rate: 0.1 } }
  }
  config: {
    name: "my_second_model", base_path: "file:///tmp/my%20second_model/"
    model_version_policy: { latest: { num_versions: 2 } }
  }
  config { name: "third" base_path: "models/third" model_version_policy { all {} } }
  config { name: "fourth" base_path: "models/fourth" }
}
"""


def config(fields: str, base_path: str = "/m") -> str:
    return f"model_config_list {{ config {{ name: 'm' base_path: '{base_path}' {fields} }} }}"


def test_the_guides_examples_are_read() -> None:
    """The base path, the policy and the labels are read; the platform and the logging have no effect."""
    assert parse(CONFIG) == [
        ModelConfig(
            "my_first_model",
            Path("/tmp/my_first_model"),  # noqa: S108 - the guide's
            {"specific": {"versions": [42, 43]}},
            {"stable": 43, "canary": 42},
        ),
        ModelConfig("my_second_model", Path("/tmp/my second_model"), {"latest": {"num_versions": 2}}, {}),  # noqa: S108
        ModelConfig("third", Path("models/third"), {"all": {}}, {}),
        ModelConfig("fourth", Path("models/fourth"), None, {}),
    ]


@pytest.mark.parametrize(("policy", "versions"), [
    ("latest {}", [10]),
    ("latest { num_versions: 0 }", [10]),
    ("latest { num_versions: 2 }", [2, 10]),
    ("all: {}", [1, 2, 10]),
    ("specific { versions: [1, 10] }", [1, 10]),
])  # fmt: skip
def test_policies_mean_what_the_settings_mean(policy: str, versions: list[int]) -> None:
    """Zero latest versions are protobuf's default, which TensorFlow Serving reads as one."""
    (model,) = parse(config(f"model_version_policy {{ {policy} }}"))
    assert model.version_policy is not None
    written = f'{{"version_policy": {str(model.version_policy).replace(chr(39), chr(34))}}}'
    assert model_settings.parse("m", written.encode()).version_policy.choose([1, 2, 10]) == versions


@pytest.mark.parametrize(("text", "reason"), [
    ("", "no model is named: expected model_config_list { config {"),
    ("model_config_list { }", "no model is named"),
    ("model_config_list { config { base_path: '/m' } }", "config: name is missing"),
    ("model_config_list { config { name: '' base_path: '/m' } }", "config: name is missing"),
    ("model_config_list { config { name: 'm' } }", "model 'm': base_path is missing"),
    ("model_config_list { config { name: '../m' base_path: '/m' } }", "'../m', which cannot name a model's folder"),
    (config("", "s3://bucket/m"), "base_path is 's3://bucket/m'; copy it to this machine first, s3:// is"),
    (config("", "gs://bucket/m"), "gs:// is not read"),
    (config("model_version_policy { }"), "model 'm': model_version_policy is empty; expected one of latest, all"),
    (config("model_version_policy { specific { } }"), "model_version_policy.specific names no versions"),
    (config("model_version_policy { specific { versions: -1 } }"), "specific.versions is -1; expected a whole"),
    (config("version_labels { key: 'a' value: -1 }"), "model 'm': version_labels.value is -1; expected a whole"),
    (config(f"version_labels {{ key: 'a' value: {9 * 10**18} }}"), "expected a whole number from 0 up, below 9"),
    (config("").replace("} }", "} config { name: 'm' base_path: '/n' } }"), "model 'm' is named twice"),
])  # fmt: skip
def test_mistakes_are_named(text: str, reason: str) -> None:
    """The refusal names the model and the field."""
    with pytest.raises(Refused) as refusal:
        parse(text)
    assert reason in str(refusal.value)


@pytest.mark.parametrize(("text", "reason"), [
    ("model_config_list {\n", '1, column 19: Expected "}".'),
    ("\nmodel_config_list { } }", "2, column 23: Expected identifier or number, got }."),
    ("\n\nmodel_config_list 1", '3, column 19: Expected "{".'),
    ("model_config_list: 1", '1, column 20: Expected "{".'),
    ("model_config_list { config: 1 }", '1, column 29: Expected "{".'),
    ("model_config_list { config {\nname: ", "2, column 7: Expected string but found: ''"),
    ("model_config_list { config {\nname: 5 } }", "2, column 7: Expected string but found: '5'"),
    ("model_config_list { config {\nname: 'open", '2, column 7: String missing ending quote: "\'open"'),
    ("model_config_list { config {\nname: 'open\n' } }", '2, column 7: String missing ending quote: "\'open"'),
    (config("\nmodel_platform: '\\xff'"), "2, column 24: Couldn't parse string: 'utf-8' codec can't decode byte"),
    (config("\nmodel_platform: '\\ud800'"), "2, column 17: 'utf-8' codec can't encode character"),
    (config("\nname: 'n'"), 'Message type "ModelConfig" should not have multiple "name" fields'),
    (config("\nmodel_version_policy { latest { num_versions: {} } }"), "column 47: Couldn't parse integer: {"),
    (config("\nmodel_version_policy { latest { num_versions: -1 } }"), "column 47: Value out of range: -1"),
    (config("\nmodel_version_policy { specific { versions: [1 2] } }"), 'column 48: Expected ",".'),
    (config("\nmodel_version_policy { all {} latest {} }"), 'Field "latest" is specified along with field "all"'),
    (config("\nversion_labels { key: stable value: 1 }"), "column 23: Expected string but found: 'stable'"),
    (config("\nversion_labels { key: 'stable' value: '1x' }"), "column 39: Couldn't parse integer: '1x'"),
    (config("\nmodel_type: TORCH"), 'Enum type "ModelType" has no value named TORCH'),
    ("[type.googleapis.com/x] { }", 'Message type "ModelServerConfig" does not have extensions'),
])  # fmt: skip
def test_what_protobuf_cannot_read_is_named_with_its_place(text: str, reason: str) -> None:
    """The refusal has one line, with protobuf's own words, and does not repeat the file's."""
    with pytest.raises(Refused) as refusal:
        parse(text)
    assert str(refusal.value).startswith("line ")
    assert reason in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert "model_config_list {" not in str(refusal.value)


@pytest.mark.parametrize(("text", "message", "field", "expected"), [
    ("custom_model_config { }", "ModelServerConfig", "custom_model_config", "model_config_list"),
    ("model_config_list { configs { } }", "ModelConfigList", "configs", "config"),
    (config("base: 1"), "ModelConfig", "base", "name, base_path, model_type, model_platform, logging_config, "),
    (config("model_version_policy { newest {} }"), "ServableVersionPolicy", "newest", "latest, all, specific"),
    (config("logging_config { level: 1 }"), "LoggingConfig", "level", "log_collector_config, sampling_config"),
    ("model_config_list {" * 1000, "ModelConfigList", "model_config_list", "config"),
])  # fmt: skip
def test_a_misspelled_field_is_named_beside_those_that_exist(
    text: str, message: str, field: str, expected: str
) -> None:
    """A policy hidden by a spelling mistake would convert other versions."""
    with pytest.raises(Refused) as refusal:
        parse(text)
    assert str(refusal.value).startswith("line 1, column ")
    assert f'{message}" has no field named "{field}"; expected {expected}' in str(refusal.value)


@pytest.mark.parametrize("escape", ["\\q", "\\777", "C:\\models"])
def test_an_escape_that_protobuf_does_not_have_is_refused(escape: str) -> None:
    """Python's reader would keep it, with a warning that nobody sees."""
    with pytest.raises(Refused, match="a text cannot be read: invalid (octal )?escape sequence"):
        parse(config(f"model_platform: '{escape}'"))


def test_every_spelling_of_the_text_format_is_read() -> None:
    """Comments, both quotes, joined strings, escapes, < >, separators and lists are the text format's own."""
    text = """
        # a comment with "quotes" and { braces
        model_config_list: < config: [{
          name: 'ha' "lf" ; base_path: "/caf\\303\\251/\\x41\\u00e9 # no comment { }",
          model_version_policy: { specific: < versions: [1, 0x2] versions: 3 > }
          version_labels: [{ key: "a" value: 1 }, { key: 'b' }]
          model_type: TENSORFLOW
          logging_config {
            log_collector_config { type: "file" filename_prefix: "/tmp/log" }
            sampling_config { sampling_rate: 1e-3 attributes: 1 }
          }
        }] >
    """
    assert parse(text) == [
        ModelConfig("half", Path("/café/Aé # no comment { }"), {"specific": {"versions": [1, 2, 3]}}, {"a": 1, "b": 0})
    ]


def test_a_file_is_named_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    """It is missing, is not text, or contains a mistake."""
    path = tmp_path / "models.config"
    with pytest.raises(Refused, match="models.config cannot be read: No such file"):
        read(path)
    path.write_bytes(b"\xff")
    with pytest.raises(Refused, match="models.config cannot be read: it is not UTF-8"):
        read(path)
    path.write_text("a:", encoding="utf-8")
    with pytest.raises(Refused, match='models.config: line 1, column 1: Message type "ModelServerConfig" has no field'):
        read(path)
    path.write_text(CONFIG, encoding="utf-8-sig")
    assert len(read(path)) == 4

"""Tests of handler.commands.convert.models_config."""

from __future__ import annotations

from pathlib import Path

import pytest

from handler.commands.convert.models_config import ModelConfig, parse, read
from handler.commands.refused import Refused
from handler.settings import model as model_settings

# Of TensorFlow Serving's guide "Serving Configuration", put together.
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


def config(fields: str) -> str:
    return f"model_config_list {{ config {{ name: 'm' base_path: '/m' {fields} }} }}"


def test_the_guides_examples_are_read() -> None:
    """Base path, policy and labels; platform and logging say nothing."""
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


@pytest.mark.parametrize(
    ("policy", "versions"),
    [
        ("latest {}", [10]),
        ("latest { num_versions: 0 }", [10]),
        ("latest { num_versions: 2 }", [2, 10]),
        ("all: {}", [1, 2, 10]),
        ("specific { versions: [1, 10] }", [1, 10]),
    ],
)
def test_policies_mean_what_the_settings_mean(policy: str, versions: list[int]) -> None:
    """Zero latest versions is protobuf's "not said": one."""
    (model,) = parse(config(f"model_version_policy {{ {policy} }}"))
    assert model.version_policy is not None
    written = f'{{"version_policy": {str(model.version_policy).replace(chr(39), chr(34))}}}'
    assert model_settings.parse("m", written.encode()).version_policy.choose([1, 2, 10]) == versions


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no model is named"),
        ("model_config_list { }", "no model is named"),
        ("model_config_list: 1", "model_config_list is '1'; expected a message"),
        ("custom_model_config { }", "custom_model_config is not supported"),
        ("model_config_list { config: 1 }", "config is '1'; expected a message"),
        ("model_config_list { config { base_path: '/m' } }", "config: name is missing"),
        ("model_config_list { config { name: 'm' } }", "model 'm': base_path is missing"),
        ("model_config_list { config { name: 5 base_path: '/m' } }", "config: name is 5; expected text in quotes"),
        ("model_config_list { config { name: '../m' base_path: '/m' } }", "'../m', which is no name"),
        (config("base_path: 's3://bucket/m'"), "base_path is 's3://bucket/m'; copy it to this machine first, s3:// is"),
        (config("base_path: 'gs://bucket/m'"), "gs:// is not read"),
        (config("base: 1"), "model 'm': base is no field of ModelConfig"),
        (config("model_version_policy { newest {} }"), "model_version_policy has newest; expected one of"),
        (config("model_version_policy { all {} latest {} }"), "model_version_policy has all, latest"),
        (config("model_version_policy { }"), "model_version_policy has nothing"),
        (config("model_version_policy { specific { } }"), "specific names no versions"),
        (config("model_version_policy { specific { versions: -1 } }"), "specific.versions is -1; expected a whole"),
        (config("model_version_policy { latest { num_versions: {} } }"), "num_versions is a message; expected a whole"),
        (config("version_labels { key: stable value: 1 }"), "version_labels.key is stable; expected text in quotes"),
        (config("version_labels { key: 'stable' value: '1x' }"), "version_labels.value is 1x; expected a whole"),
        (config("").replace("} }", "} config { name: 'm' base_path: '/n' } }"), "model 'm' is named twice"),
    ],
)
def test_mistakes_are_named(text: str, reason: str) -> None:
    """With the model and the field."""
    with pytest.raises(Refused) as refusal:
        parse(text)
    assert reason in str(refusal.value)


def test_a_file_is_named_in_what_is_wrong_with_it(tmp_path: Path) -> None:
    """Missing, no text, or a mistake in it."""
    path = tmp_path / "models.config"
    with pytest.raises(Refused, match="models.config cannot be read: No such file"):
        read(path)
    path.write_bytes(b"\xff")
    with pytest.raises(Refused, match="models.config cannot be read: it is not UTF-8"):
        read(path)
    path.write_text("a:", encoding="utf-8")
    with pytest.raises(Refused, match="models.config: line 1: expected a value"):
        read(path)
    path.write_text(CONFIG, encoding="utf-8")
    assert len(read(path)) == 4

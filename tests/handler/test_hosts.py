"""handler.settings.hosts: which platform has started the process, and what it sets where nothing else does."""

from pathlib import Path

import pytest

from handler.settings import Given, InvalidSettings, Settings, hosts
from handler.settings.hosts import CHOICES, HOSTS, Contract, recognised
from handler.settings.sources import SERVES, Layered

ALL = "0.0.0.0"  # noqa: S104 - what a container listens on
VERTEX = {"AIP_HTTP_PORT": "9000", "AIP_HEALTH_ROUTE": "/h", "AIP_PREDICT_ROUTE": "/v1/e/1:predict/",
    "AIP_STORAGE_URI": "gs://b/m"}  # fmt: skip
ONE = {"repository": "/opt/ml/model", "host": ALL, "preload": "*"}
DIRECTORY = "/var/azureml-app/azureml-models/iris/3"


@pytest.mark.parametrize(("environ", "platform", "sets"), [
    ({"SAGEMAKER_BIND_TO_PORT": "9000"}, "sagemaker", ONE | {"port": "9000"}),
    ({"SAGEMAKER_MULTI_MODEL": "true", "SAGEMAKER_BASE_DIR": "/x"}, "sagemaker",
        {"repository": "/x/models", "host": ALL, "control": "open"}),
    ({"SAGEMAKER_MULTI_MODEL": "false"}, "sagemaker", ONE),
    (VERTEX, "vertex", {"host": ALL, "port": "9000", "repository": "gs://b/m", "preload": "*"}),
    (VERTEX | {"AIP_STORAGE_URI": "", "AIP_PREDICT_ROUTE": "/v1/models/m:predict"}, "vertex",
        {"host": ALL, "port": "9000", "model_name": "m", "default_model": "m"}),
    (VERTEX | {"AIP_STORAGE_URI": "", "AIP_PREDICT_ROUTE": "/v2/models/m/versions/3/infer"}, "vertex",
        {"host": ALL, "port": "9000", "model_name": "m", "default_model": "m-3"}),
    (VERTEX | {"AIP_STORAGE_URI": ""}, "vertex", {"host": ALL, "port": "9000"}),
    ({"AZUREML_MODEL_DIR": DIRECTORY}, "azure",
        ONE | {"repository": DIRECTORY, "model_name": "iris"}),
    ({"AZUREML_MODEL_DIR": "/models"}, "azure", ONE | {"repository": "/models"}),
    ({"K_SERVICE": "s", "PORT": "81"}, "knative", {"host": ALL, "port": "81"}),
    ({"FLY_APP_NAME": "a"}, "fly", {"host": ALL}),
    ({"FLY_APP_NAME": "a", "PORT": "81"}, "fly", {"host": ALL, "port": "81"}),
    ({"DRAGOMAN_PLATFORM": "port", "PORT": "81"}, "port", {"host": ALL, "port": "81"}),
    ({"DRAGOMAN_PLATFORM": "kserve", "K_SERVICE": "s", "PORT": "81"}, "kserve",
        ONE | {"repository": "/mnt/models", "port": "81"}),
    ({"DRAGOMAN_PLATFORM": "mlflow", "SAGEMAKER_BIND_TO_PORT": "1"}, "mlflow", {}),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "PORT": "81"}, "lambda", {"port": "81"}),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "PORT": "81", "AWS_LWA_PORT": "82"}, "lambda", {"port": "82"}),
    ({"AWS_LAMBDA_FUNCTION_NAME": "f", "DRAGOMAN_PLATFORM": "vertex"}, "lambda", {}),
    ({"DRAGOMAN_PLATFORM": "none", "SAGEMAKER_BIND_TO_PORT": "1"}, "server", {}),
    ({"AIP_HTTP_PORT": "9000"}, "server", {}),
    ({"PORT": "81", "SAGEMAKER_APP_TYPE": "JupyterLab", "SAGEMAKER_REGION": "x", "AZUREML_RUN_ID": "1"}, "server", {}),
    ({"KUBERNETES_SERVICE_HOST": "10.0.0.1", "K_SERVICE": "s"}, "server", {}),
])  # fmt: skip
def test_a_platform_is_recognised_by_what_it_sets(environ: dict[str, str], platform: str, sets: dict[str, str]) -> None:
    """A notebook of SageMaker, a training job of Azure ML, and a machine with PORT are not served as by a platform.

    Sources: https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-inference-code.html,
    https://docs.aws.amazon.com/sagemaker/latest/dg/build-multi-model-build-container.html,
    https://cloud.google.com/vertex-ai/docs/predictions/custom-container-requirements,
    https://learn.microsoft.com/en-us/azure/machine-learning/how-to-deploy-custom-container,
    https://cloud.google.com/run/docs/container-contract, https://fly.io/docs/machines/runtime-environment,
    https://awslabs.github.io/aws-lambda-web-adapter/configuration/environment-variables.html.
    """
    settings = Settings.from_env(environ)
    assert settings.platform == platform
    assert {field: text for field, (text, _) in settings.contract.sets.items()} == sets
    assert settings.model_name == sets.get("model_name", "")
    assert settings.preload == tuple(sets.get("preload", ""))
    own = Layered({}, environ=environ, own=SERVES).own()
    assert own["host"] == sets.get("host", "127.0.0.1")
    assert own["port"] == int(sets.get("port", "8080"))
    line = hosts.line(settings.contract)
    assert line.startswith("started as on ") is (platform != "server")


def test_snapshots_have_hooks_where_they_are_taken() -> None:
    """The adapter's variables count under SnapStart only.

    Source: https://github.com/aws/aws-lambda-web-adapter/releases/tag/v1.1.0.
    """
    paths = {"AWS_LWA_SNAPSTART_BEFORE_CHECKPOINT_PATH": "/before", "AWS_LWA_SNAPSTART_AFTER_RESTORE_PATH": "/after"}
    environ = {"AWS_LAMBDA_FUNCTION_NAME": "f", **paths}
    assert recognised(environ).hooks == ("", "")
    assert recognised(environ | {"AWS_LAMBDA_INITIALIZATION_TYPE": "snap-start"}).hooks == ("/before", "/after")


def test_folders_are_signs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SageMaker's is its own; KServe's counts in a pod only: anybody may mount something there."""
    (tmp_path / "model").mkdir()
    base = {"SAGEMAKER_BASE_DIR": str(tmp_path)}
    assert recognised(base).platform == "sagemaker"
    assert recognised(base).why == f"{tmp_path}/model is there"
    monkeypatch.setattr(hosts, "KSERVE_MODELS", str(tmp_path))
    pod = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "K_SERVICE": "s", "PORT": "81"}
    assert (recognised({}).platform, recognised(pod).platform) == ("", "kserve")


def test_what_is_said_comes_before_what_the_platform_sets(tmp_path: Path) -> None:
    """Flags, variables and the file do."""
    environ = {"SAGEMAKER_BIND_TO_PORT": "9000", "DRAGOMAN_REPOSITORY": "/mine"}
    assert (Settings.from_env(environ).repository, Settings.from_env(environ).preload) == ("/mine", ())
    file = tmp_path / "dragoman.toml"
    file.write_text('host = "::1"\nmodel_name = "m"\n')
    layered = Layered({"port": Given("81", "--port")}, str(file), SERVES, environ)
    assert (layered.own()["host"], layered.own()["port"], layered.settings().model_name) == ("::1", 81, "m")
    chosen = Layered({"platform": Given("none", "--platform")}, None, SERVES, environ)
    assert (chosen.own()["port"], chosen.settings().contract) == (8080, Contract())


@pytest.mark.parametrize(("environ", "message"), [
    ({"SAGEMAKER_BIND_TO_PORT": "x"}, "SAGEMAKER_BIND_TO_PORT is 'x'; expected 1 to 65535"),
    (VERTEX | {"AIP_HTTP_PORT": "0"}, "AIP_HTTP_PORT is '0'; expected 1 to 65535"),
    (VERTEX | {"AIP_PREDICT_ROUTE": "/{model}"}, "AIP_PREDICT_ROUTE is '/{model}'; expected a path such as /predict"),
    (VERTEX | {"AIP_HEALTH_ROUTE": "//"}, "AIP_HEALTH_ROUTE is '//'; expected a path such as /predict"),
    ({"DRAGOMAN_PLATFORM": "heroku"}, f"DRAGOMAN_PLATFORM is 'heroku'; expected one of {', '.join(CHOICES)}"),
])  # fmt: skip
def test_a_wrong_value_of_a_platform_is_named(environ: dict[str, str], message: str) -> None:
    """The variable is the platform's own."""
    with pytest.raises(InvalidSettings) as refused:
        Layered({}, environ=environ, own=SERVES).own()
    assert str(refused.value) == message


def test_the_model_of_vertex_ais_path_is_the_default_unless_the_only_one_has_another_name() -> None:
    """In a repository of several models the path's model answers. DRAGOMAN_MODEL_NAME renames the only model."""
    environ = VERTEX | {"AIP_PREDICT_ROUTE": "/v1/models/m:predict"}
    found = [Settings.from_env(environ | more) for more in ({}, {"DRAGOMAN_MODEL_NAME": "other"})]
    assert [(each.model_name, each.default_model) for each in found] == [("m", "m"), ("other", "")]
    assert Settings.from_env(environ | {"DRAGOMAN_DEFAULT_MODEL": "n"}).default_model == "n"


def test_each_platform_can_be_chosen() -> None:
    """Its contract comes as it is told, also without its variables."""
    assert {*CHOICES} == {"auto", "none", *HOSTS} - {"lambda"}
    for name in CHOICES[2:]:
        found = Settings.from_env({"DRAGOMAN_PLATFORM": name}).contract
        assert (found.platform, found.why) == (name, f"DRAGOMAN_PLATFORM is {name}")

"""template.yaml: the meaning of its parameters; tests/e2e has SAM itself validate, build and run it."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from handler.aws import EARLY
from handler.edge.function.deadlines import GATEWAY_SECONDS

TEMPLATE = Path(__file__).parents[1] / "template.yaml"


class Loader(yaml.SafeLoader):
    """Reads CloudFormation's short forms as lists that begin with their name."""


def short_form(loader: Loader, name: str, node: yaml.Node) -> list[Any]:
    """Reads any !Name."""
    if isinstance(node, yaml.MappingNode):
        return [name, loader.construct_mapping(node, deep=True)]
    if isinstance(node, yaml.SequenceNode):
        return [name, loader.construct_sequence(node, deep=True)]
    return [name, node.value]


yaml.add_multi_constructor("!", short_form, Loader)


@pytest.fixture(scope="module")
def template() -> Any:
    return yaml.load(TEMPLATE.read_text(encoding="utf-8"), Loader)  # noqa: S506 - a SafeLoader


@pytest.fixture(scope="module")
def function(template: Any) -> Any:
    """Returns the template's definition of the function."""
    return template["Resources"]["InferenceFunction"]["Properties"]


def test_one_type_of_initialization_is_chosen_so_that_no_two_exclude_each_other(template: Any, function: Any) -> None:
    """The types are those that the handler knows; each property belongs to one of them."""
    allowed = template["Parameters"]["Initialization"]["AllowedValues"]
    assert set(allowed) - {"on-demand"} <= set(EARLY)
    conditions = template["Conditions"]
    assert conditions["IsProvisioned"] == ["Equals", [["Ref", "Initialization"], "provisioned-concurrency"]]
    assert conditions["IsSnapStart"] == ["Equals", [["Ref", "Initialization"], "snap-start"]]
    assert function["ProvisionedConcurrencyConfig"][1][0] == "IsProvisioned"
    assert function["SnapStart"] == {"ApplyOn": ["If", ["IsSnapStart", "PublishedVersions", "None"]]}


def test_gateways_call_the_published_version(template: Any, function: Any) -> None:
    """Snapshots and provisioned instances exist only of published versions."""
    alias = function["AutoPublishAlias"]
    paths = template["Resources"]["Gateway"]["Properties"]["DefinitionBody"]["paths"]
    uris = [
        each["x-amazon-apigateway-any-method"]["x-amazon-apigateway-integration"]["uri"][1] for each in paths.values()
    ]
    assert len(uris) == 2
    assert all(uri.endswith(f"/functions/${{InferenceFunction.Arn}}:{alias}/invocations") for uri in uris)


def test_the_functions_timeout_is_the_gateways_unless_it_is_told_otherwise(template: Any, function: Any) -> None:
    """Longer ones are for events and Function URLs."""
    assert function["Timeout"] == ["Ref", "Timeout"]
    assert template["Parameters"]["Timeout"]["Default"] == GATEWAY_SECONDS


def test_snapshots_and_provisioned_instances_without_models_are_refused(template: Any) -> None:
    """They would cost money without any gain."""
    asserted = {name: [each["Assert"] for each in rule["Assertions"]] for name, rule in template["Rules"].items()}
    needs_names = ["Not", [["Equals", [["Ref", "Preload"], ""]]]]
    assert needs_names in asserted["SnapStart"]
    assert needs_names in asserted["ProvisionedConcurrency"]
    assert ["Equals", [["Ref", "Storage"], "512"]] in asserted["SnapStart"]


def test_the_parameters_stand_in_the_documentation_with_their_defaults(template: Any) -> None:
    """Each once, with the template's own words."""
    text = (TEMPLATE.parent / "docs" / "deploy.md").read_text(encoding="utf-8")
    shown = {name: cells for name, *cells in re.findall(r"^\| `(\w+)` \| (.*?) ?\| (.*) \|$", text, re.MULTILINE)}
    defaults = {name: each.get("Default") for name, each in template["Parameters"].items()}
    written = {
        name: "required" if value is None else f"`{value}`" if value != "" else "" for name, value in defaults.items()
    }
    meanings = {name: each["Description"] for name, each in template["Parameters"].items()}
    assert {name: cells for name, cells in shown.items() if name in defaults} == {
        name: [written[name], meanings[name]] for name in defaults
    }


def test_sams_local_gateway_finds_the_rest_api(template: Any) -> None:
    """It reads the resources of SAM's own types where there are any, so the others are of CloudFormation's."""
    kinds = [each["Type"] for each in template["Resources"].values()]
    assert {kind for kind in kinds if kind.startswith("AWS::Serverless")} == {
        "AWS::Serverless::Api",
        "AWS::Serverless::Function",
    }


def test_the_streaming_template_streams_and_means_the_same_by_its_parameters(template: Any) -> None:
    """A REST API and a URL stream only if function and caller both do; what both templates ask for is one thing."""
    path = TEMPLATE.with_name("template-streaming.yaml")
    streaming = yaml.load(path.read_text(encoding="utf-8"), Loader)  # noqa: S506 - a SafeLoader
    resources, parameters = streaming["Resources"], streaming["Parameters"]
    own = {name for name, each in parameters.items() if each != template["Parameters"].get(name)}
    assert own == {"Image", "Architecture", "Timeout", "Initialization", "Api", "Alarms"}
    protecting = {"Storage", "Concurrency", "ThrottleRate", "ThrottleBurst", "Control", "Metrics", "AlarmTopic"}
    assert protecting <= set(parameters)
    paths = resources["Gateway"]["Properties"]["DefinitionBody"]["paths"]
    for each in paths.values():
        integration = each["x-amazon-apigateway-any-method"]["x-amazon-apigateway-integration"]
        assert integration["responseTransferMode"] == "STREAM"
        assert integration["uri"][1].endswith(":live/response-streaming-invocations")
        assert integration["timeoutInMillis"] == parameters["Timeout"]["MaxValue"] * 1000
    assert resources["Url"]["Properties"]["InvokeMode"] == "RESPONSE_STREAM"
    function = resources["InferenceFunction"]["Properties"]
    assert function["ImageConfig"] == {"EntryPoint": ["python3", "-m", "dragoman.runtime"]}
    assert function["Environment"]["Variables"]["DRAGOMAN_RESPONSE_STREAMING"] == "true"
    usual = template["Resources"]["InferenceFunction"]["Properties"]
    assert function["Policies"] == usual["Policies"][:1]  # answers that go out in pieces are not for events of records
    rest, (_, (_, _, url)) = template["Outputs"]["Url"]["Value"][1][1:]
    assert streaming["Outputs"]["Url"]["Value"] == ["If", ["IsRest", rest, url]]  # each without a slash at its end
    text = (TEMPLATE.parent / "docs" / "lambda-runtime.md").read_text(encoding="utf-8")
    shown = {name: cells for name, *cells in re.findall(r"^\| `(\w+)` \| (.*?) ?\| (.*) \|$", text, re.MULTILINE)}
    assert {name: shown[name][1] for name in own} == {name: parameters[name]["Description"] for name in own}

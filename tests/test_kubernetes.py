"""The manifests of docs/kubernetes fit the API's own models, and what they start answers where they look.

The models are those that the kubernetes and kserve packages generate from the definitions of each kind: a field that no
model has, or a required one that is missing, is a mistake. The few fields of PodMonitor are written here. They are
checked by its operator's schema in tests/e2e/test_kubernetes.py.
Source of those: https://prometheus-operator.dev/docs/api-reference/api/#monitoring.coreos.com/v1.PodMonitor.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from shutil import copytree
from typing import Any

import kserve
import pytest
import yaml
from kubernetes import client

from tests.protocols.platforms.test_contracts import asked, started
from tests.protocols.test_waiting import until

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "kubernetes"
KINDS = {
    "apps/v1 Deployment": client.V1Deployment,
    "v1 Service": client.V1Service,
    "autoscaling/v2 HorizontalPodAutoscaler": client.V2HorizontalPodAutoscaler,
    "policy/v1 PodDisruptionBudget": client.V1PodDisruptionBudget,
    "serving.kserve.io/v1alpha1 ServingRuntime": kserve.V1alpha1ServingRuntime,
    "serving.kserve.io/v1beta1 InferenceService": kserve.V1beta1InferenceService,
}
MONITOR = {"selector": {"matchLabels"}, "podMetricsEndpoints": {"port", "path", "interval"}}
SCALARS = {"str": str, "int": int, "bool": bool, "float": (int, float)}


def documents() -> Iterator[Any]:
    for path in sorted(FOLDER.glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            yield pytest.param(document, id=f"{path.stem}-{document['kind']}")


def made(kind: str, value: Any, path: str) -> Any:
    """Returns a value as a kind of the API's. Raises ValueError for a required field that is missing."""
    if found := re.fullmatch(r"list\[(.*)\]", kind):
        assert isinstance(value, list), path
        return [made(found[1], each, f"{path}[{index}]") for index, each in enumerate(value)]
    if found := re.fullmatch(r"dict\(str, (.*)\)", kind):
        assert isinstance(value, dict), path
        return {name: made(found[1], each, f"{path}.{name}") for name, each in value.items()}
    if kind in SCALARS:
        assert isinstance(value, SCALARS[kind]), path
        return value
    model = getattr(client, kind, None) or getattr(kserve, kind, None)
    return value if model is None else instance(model, value, path)


def instance(model: Any, value: Any, path: str) -> Any:
    """Returns an instance of a generated model. Raises ValueError as `made` does."""
    assert isinstance(value, dict), path
    names = {name: field for field, name in model.attribute_map.items()}
    assert value.keys() <= names.keys(), f"{path}: {sorted(value.keys() - names.keys())}"
    fields = {
        names[name]: made(model.openapi_types[names[name]], each, f"{path}.{name}") for name, each in value.items()
    }
    return model(**fields)


@pytest.mark.parametrize("document", list(documents()))
def test_a_manifest_fits_its_kind(document: Any) -> None:
    """No field is unknown, none that is required is missing, and each has its type."""
    if document["kind"] == "PodMonitor":
        assert document["spec"].keys() == MONITOR.keys()
        assert document["spec"]["selector"].keys() == MONITOR["selector"]
        assert [each.keys() for each in document["spec"]["podMetricsEndpoints"]] == [MONITOR["podMetricsEndpoints"]]
        return
    instance(KINDS[f"{document['apiVersion']} {document['kind']}"], document, document["kind"])


@pytest.mark.parametrize(("spec", "message"), [
    ({"minReplicas": 1}, "maxReplicas"),
    ({"maxReplica": 1}, "maxReplica"),
    ({"maxReplicas": "1"}, "maxReplicas"),
])  # fmt: skip
def test_a_wrong_manifest_is_found(spec: Any, message: str) -> None:
    """The check fails where a cluster would refuse."""
    with pytest.raises((ValueError, AssertionError), match=message):
        instance(client.V2HorizontalPodAutoscaler, {"spec": spec}, "HPA")


def test_names_and_labels_fit_together() -> None:
    """What selects pods, scales them, or asks them, means the Deployment's."""
    found = {each.values[0]["kind"]: each.values[0]["spec"] for each in documents()}
    pods = found["Deployment"]["template"]
    labels = pods["metadata"]["labels"]
    port = pods["spec"]["containers"][0]["ports"][0]["name"]
    for selector in (
        found["Deployment"]["selector"],
        found["PodDisruptionBudget"]["selector"],
        found["PodMonitor"]["selector"],
    ):
        assert selector["matchLabels"] == labels
    assert found["Service"]["selector"] == labels
    assert {found["Service"]["ports"][0]["targetPort"], found["PodMonitor"]["podMetricsEndpoints"][0]["port"]} == {port}
    runtime, predictor = found["ServingRuntime"], found["InferenceService"]["predictor"]["model"]
    assert predictor["modelFormat"]["name"] in [each["name"] for each in runtime["supportedModelFormats"]]
    assert predictor["protocolVersion"] in runtime["protocolVersions"]


@pytest.mark.parametrize("name", ["kserve", "deployment"])
def test_the_container_answers_its_probes_and_its_scraper(name: str, tmp_path: Path) -> None:
    """The arguments and variables of the manifest start a server; only addresses of the cluster are others here.

    The root file system is read-only in a pod, and a volume of it may be written by anybody there.
    """
    first = next(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text(encoding="utf-8")))
    spec = first["spec"]["template"]["spec"] if name == "deployment" else first["spec"]
    container = spec["containers"][0]
    copytree(ROOT / "models" / "iris" / "1", tmp_path / "m" / ("iris/1" if name == "deployment" else ""))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    local = {"{{.Name}}": "iris", "/mnt/models": f"{tmp_path}/m", "8080": "PORT", "s3://example-models/production":
        f"{tmp_path}/m", "=/cache": f"={tmp_path}/cache"}  # fmt: skip
    command, *arguments = container["args"]
    assert command == "serve"
    for ours, theirs in local.items():
        arguments = [argument.replace(ours, theirs) for argument in arguments]
    environ = {each["name"]: each["value"] for each in container["env"]} | {"TMPDIR": "/proc"}
    with started(tmp_path / "log", environ, arguments) as server:
        probes = [field for field in container if field.endswith("Probe")]
        # Knative, below KServe, has startup probes since 1.15 (https://github.com/knative/serving/pull/15309).
        assert sorted(probes) == ["livenessProbe", "readinessProbe", *["startupProbe"] * (name == "deployment")]
        for probe in probes:
            until(lambda at=container[probe]["httpGet"]["path"]: asked(server, "GET", at).status == 200)  # type: ignore[misc]
        assert asked(server, "GET", "/v2/models/iris/ready").status == 200
        assert b"dragoman_" in asked(server, "GET", "/metrics").body

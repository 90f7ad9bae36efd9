"""The PodMonitor of docs/kubernetes fits its operator's CRD, whose schemas npm has; see tests/test_kubernetes.py."""

import json
import subprocess

import yaml

from tests.e2e.tools import ROOT, node_modules

FOLDER = ROOT / "tests" / "e2e" / "kubernetes"


def test_the_pod_monitor_fits_the_operators_schema() -> None:
    """Another interval or another type of a field does not."""
    modules = node_modules(FOLDER / "package.json")

    def fits(monitor: object) -> bool:
        command = ("node", FOLDER / "monitor.js", modules)
        return subprocess.run(command, input=json.dumps(monitor).encode(), check=False).returncode == 0

    documents = yaml.safe_load_all((ROOT / "docs/kubernetes/deployment.yaml").read_text(encoding="utf-8"))
    (monitor,) = (each for each in documents if each["kind"] == "PodMonitor")
    assert fits(monitor)
    for wrong in ({"interval": "often"}, {"path": ["/metrics"]}):
        endpoint = monitor["spec"]["podMetricsEndpoints"][0] | wrong
        assert not fits(monitor | {"spec": monitor["spec"] | {"podMetricsEndpoints": [endpoint]}})

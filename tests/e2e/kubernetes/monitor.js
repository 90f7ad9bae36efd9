// Validates a PodMonitor (JSON on stdin) by the schema of its operator's CRD. Fails for one that does not fit.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const schemas = pathToFileURL(`${process.argv[2]}/@kubernetes-models/prometheus-operator/`);
const { PodMonitor } = await import(new URL("monitoring.coreos.com/v1/PodMonitor.js", schemas));
new PodMonitor(JSON.parse(readFileSync(0, "utf8"))).validate();

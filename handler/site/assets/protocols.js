// THE table of protocols that a model can be tried with: how each writes a request, and reads an answer.
//
// A request is { path, headers, body }, where body is text or bytes. An answer is read into { outputs } or
// { explanations }; an output is { name, datatype, shape, data }.

import { encoded, flattened, fromBytes, isText, isWhole, json, nested, toBytes, whole } from "./tensors.js";

const JSON_TYPE = { "content-type": "application/json" };
const decode = (bytes) => new TextDecoder().decode(bytes);
const binary = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
const place = (model) => encodeURIComponent(model.name);
const hasBytes = (tensors) => tensors.some((tensor) => tensor.data.some((each) => each instanceof Uint8Array));

// Returns a plain value as JSON. NaN and infinities are bare, as V1 has them.
const scalar = (value) => (typeof value === "number" ? String(value) : JSON.stringify(value));

function inline(value) {
  if (Array.isArray(value)) return `[${value.map(inline).join(", ")}]`;
  if (value && typeof value === "object") return `{${Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${inline(each)}`).join(", ")}}`;
  return scalar(value);
}

// Returns JSON with short values and lists of plain values in one line each, as people write tensors.
export function pretty(value, indent = "") {
  const inner = `${indent}  `;
  if (Array.isArray(value)) {
    const line = inline(value);
    if (line.length <= 88 || value.every((each) => typeof each !== "object" || each === null)) return line;
    return `[\n${value.map((each) => inner + pretty(each, inner)).join(",\n")}\n${indent}]`;
  }
  if (value && typeof value === "object") {
    const line = inline(value);
    if (indent && line.length <= 88) return line;
    const members = Object.entries(value).map(([name, each]) => `${inner}${JSON.stringify(name)}: ${pretty(each, inner)}`);
    return members.length ? `{\n${members.join(",\n")}\n${indent}}` : "{}";
  }
  return scalar(value);
}

const plain = ({ name, datatype, shape, data }) => ({ name, shape, datatype, data });

// -- V2 --------------------------------------------------------------------------------------------------------------

const v2 = {
  id: "v2",
  label: "V2",
  about: "Open Inference Protocol, as KServe, Triton and MLServer have it. Tensors in JSON.",
  bars(_, tensors) {
    if (hasBytes(tensors)) return "JSON carries text: a file's bytes need V2 binary or V1.";
    return tensors.some((tensor) => tensor.datatype === "BF16") ? "JSON has no BF16: use V2 binary." : "";
  },
  request: (model, tensors) => ({ path: `v2/models/${place(model)}/infer`, headers: JSON_TYPE, body: pretty({ inputs: tensors.map(plain) }) }),
  read: (_, bytes) => ({ outputs: json(decode(bytes)).outputs }),
};

const v2Binary = {
  id: "v2-binary",
  label: "V2 binary",
  about: "The same with the tensors' bytes behind the JSON, both ways: the fastest for large ones.",
  bars: () => "",
  request(model, tensors) {
    const parts = tensors.map(toBytes);
    const inputs = tensors.map(({ name, datatype, shape }, index) => ({ name, shape, datatype, parameters: { binary_data_size: parts[index].length } }));
    const head = encoded(JSON.stringify({ inputs, parameters: { binary_data_output: true } }));
    const body = new Uint8Array(head.length + parts.reduce((sum, part) => sum + part.length, 0));
    let at = 0;
    for (const part of [head, ...parts]) {
      body.set(part, at);
      at += part.length;
    }
    const headers = { "content-type": "application/octet-stream", "inference-header-content-length": String(head.length) };
    return { path: `v2/models/${place(model)}/infer`, headers, body };
  },
  read(headers, bytes) {
    const length = Number(headers.get("inference-header-content-length") ?? bytes.length);
    const { outputs } = json(decode(bytes.slice(0, length)));
    let at = length;
    for (const output of outputs) {
      const size = output.parameters?.binary_data_size;
      if (size === undefined) continue;
      output.data = fromBytes(bytes.slice(at, at + size), output.datatype);
      at += size;
    }
    return { outputs };
  },
};

// -- V1 --------------------------------------------------------------------------------------------------------------

const DEFAULT = "serving_default";

function jsonElement(element, datatype) {
  if (element instanceof Uint8Array) return { b64: binary(element) };
  return isText(datatype) || typeof element !== "string" ? element : Number(element); // NaN, an infinity
}

// Rows where every input has the same number of them and every output has rows, else columns. A table's column, [any, 1],
// has plain values. A model without described inputs has no only one, so its columns have names.
function v1Body(model, given) {
  const signature = model.signatures.find(({ name }) => name === DEFAULT) ?? model.signatures[0];
  const aliases = new Map(Object.entries(signature?.inputs ?? {}).map(([alias, tensor]) => [tensor, alias]));
  const tensors = aliases.size ? given.filter(({ name }) => aliases.has(name)) : given;
  const found = tensors.map(({ name, datatype, shape, data }) => [aliases.get(name) ?? name, nested(data.map((each) => jsonElement(each, datatype)), shape)]);
  const named = signature && signature.name !== DEFAULT ? { signature_name: signature.name } : {};
  const answered = Object.values(signature?.outputs ?? {});
  const hasScalar = model.outputs?.some(({ name, shape }) => shape?.length === 0 && (!signature || answered.includes(name)));
  const rows = new Set(tensors.map(({ shape }) => shape[0]));
  const isAlone = found.length === 1 && (aliases.size || model.inputs?.length) === 1;
  if (model.inputs && !hasScalar && rows.size === 1 && [...rows][0]) {
    const [count] = rows;
    const isColumn = ({ shape, name }) => shape.length === 2 && shape[1] === 1 && model.inputs?.find((each) => each.name === name)?.shape?.[1] === 1;
    const values = found.map(([name, value], index) => [name, isColumn(tensors[index]) ? value.flat() : value]);
    const row = (index) => (isAlone ? values[0][1][index] : Object.fromEntries(values.map(([name, value]) => [name, value[index]])));
    return { ...named, instances: Array.from({ length: count }, (_, index) => row(index)) };
  }
  return { ...named, inputs: isAlone ? found[0][1] : Object.fromEntries(found) };
}

const kind = (data) => (data.every((each) => ["number", "bigint"].includes(typeof each)) ? "number" : data.every((each) => typeof each === "boolean") ? "BOOL" : "BYTES");

function column(name, value) {
  try {
    const { shape, data } = flattened(value);
    if (data.some((each) => each !== null && typeof each === "object")) return null;
    return { name, datatype: kind(data), shape, data };
  } catch {
    return null;
  }
}

function v1Outputs(model, body) {
  const outputs = body.outputs ?? body.predictions;
  if (outputs === undefined) return [];
  const known = model.outputs ?? [];
  if (Array.isArray(outputs) && outputs[0] && typeof outputs[0] === "object" && !Array.isArray(outputs[0]) && !("b64" in outputs[0])) {
    return Object.keys(outputs[0]).map((name) => column(name, outputs.map((row) => row[name])));
  }
  if (outputs && typeof outputs === "object" && !Array.isArray(outputs)) return Object.entries(outputs).map(([name, value]) => column(name, value));
  return [column(known.length === 1 ? known[0].name : "predictions", outputs)];
}

const v1 = {
  id: "v1",
  label: "V1",
  about: "KServe's V1 and TensorFlow Serving's REST API: rows of JSON.",
  bars: () => "",
  request: (model, tensors) => ({ path: `v1/models/${place(model)}:predict`, headers: JSON_TYPE, body: pretty(v1Body(model, tensors)) }),
  read: (_, bytes, model) => ({ outputs: v1Outputs(model, json(decode(bytes))).filter(Boolean) }),
};

const explain = {
  id: "explain",
  label: "Explain",
  about: "V1's explain: what each element of the inputs adds to the prediction.",
  bars: (model) => (model.explains ? "" : "The model has no explainer: see the documentation of its settings."),
  request: (model, tensors) => ({ path: `v1/models/${place(model)}:explain`, headers: JSON_TYPE, body: pretty(v1Body(model, tensors)) }),
  read(_, bytes, model) {
    const body = json(decode(bytes));
    return { outputs: v1Outputs(model, body).filter(Boolean), explanations: body.explanations ?? [] };
  },
};

// -- GRPS ------------------------------------------------------------------------------------------------------------

const GRPS = { UINT8: "uint8", INT8: "int8", INT16: "int16", INT32: "int32", INT64: "int64", FP16: "float16", FP32: "float32", FP64: "float64", BYTES: "string" };
const BY_GRPS = Object.fromEntries(Object.entries(GRPS).map(([name, word]) => [`DT_${word.toUpperCase()}`, name]));

const grps = {
  id: "grps",
  label: "GRPS",
  about: "GRPS over HTTP: messages with named tensors.",
  bars(_, tensors) {
    const strange = tensors.find((tensor) => !GRPS[tensor.datatype]);
    if (strange) return `GRPS has no ${strange.datatype}.`;
    return hasBytes(tensors) ? "JSON carries text: a file's bytes need V2 binary or V1." : "";
  },
  request(model, tensors) {
    const written = tensors.map(({ name, datatype, shape, data }) => ({ name, dtype: `DT_${GRPS[datatype].toUpperCase()}`, shape, [`flat_${GRPS[datatype]}`]: data }));
    return { path: "grps/v1/infer/predict", headers: JSON_TYPE, body: pretty({ model: model.name, gtensors: { tensors: written } }) };
  },
  read(_, bytes) {
    const body = json(decode(bytes));
    const outputs = (body.gtensors?.tensors ?? []).map((each) => {
      const datatype = BY_GRPS[each.dtype] ?? "BYTES";
      const data = each[`flat_${GRPS[datatype]}`] ?? [];
      return { name: each.name ?? "", datatype, shape: (each.shape ?? [data.length]).map(Number), data: isWhole(datatype) ? data.map(whole) : data };
    });
    return { outputs };
  },
};

// -- remote calls ----------------------------------------------------------------------------------------------------

const FIELDS = { BOOL: "bool", INT8: "int", INT16: "int", INT32: "int", INT64: "int64", UINT8: "uint", UINT16: "uint", UINT32: "uint", UINT64: "uint64", FP32: "fp32", FP64: "fp64", BYTES: "bytes" };

function call(model, tensors) {
  const inputs = tensors.map(({ name, datatype, shape, data }) => {
    const elements = isText(datatype) ? data.map((each) => binary(encoded(each))) : /64$/.test(datatype) && isWhole(datatype) ? data.map(String) : data;
    return { name, datatype, shape: shape.map(String), contents: { [`${FIELDS[datatype]}Contents`]: elements } };
  });
  return { modelName: model.name, inputs };
}

function unread(text) {
  return Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
}

function called(output, raw) {
  const { name, datatype } = output;
  const shape = (output.shape ?? []).map(Number);
  if (raw !== undefined) return { name, datatype, shape, data: fromBytes(unread(raw), datatype) };
  const elements = Object.values(output.contents ?? {})[0] ?? [];
  const data = isText(datatype) ? elements.map((each) => decode(unread(each))) : datatype === "BOOL" ? elements : elements.map(isWhole(datatype) ? whole : Number);
  return { name, datatype, shape, data };
}

const noHalves = (_, tensors) => {
  const strange = tensors.find((tensor) => !FIELDS[tensor.datatype]);
  return strange ? `${strange.datatype} goes as raw bytes only: use V2 binary.` : "";
};

const connect = {
  id: "connect",
  label: "Connect",
  about: "The gRPC service by Connect: one message of JSON over HTTP/1.1.",
  bars: noHalves,
  request: (model, tensors) => ({
    path: "inference.GRPCInferenceService/ModelInfer",
    headers: { ...JSON_TYPE, "connect-protocol-version": "1" },
    body: pretty(call(model, tensors)),
  }),
  read(_, bytes) {
    const body = JSON.parse(decode(bytes));
    return { outputs: (body.outputs ?? []).map((output, index) => called(output, body.rawOutputContents?.[index])) };
  },
};

const grpc = {
  id: "grpc",
  label: "gRPC",
  about: "Browsers do not speak gRPC. The snippet sends this message to the server's port for gRPC, which --grpc-port or --http2 opens.",
  bars: noHalves,
  offline: true,
  request: (model, tensors) => ({ path: "inference.GRPCInferenceService/ModelInfer", headers: { "content-type": "application/grpc" }, body: pretty(call(model, tensors)) }),
};

export const PROTOCOLS = [v2, v2Binary, v1, grps, connect, grpc, explain];
export { binary };

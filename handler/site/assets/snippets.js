// A request as programs would send it: curl, Python with requests or tritonclient, JavaScript.
//
// A key is never written into a snippet: it is read from the environment variable DRAGOMAN_KEY.

import { binary } from "./protocols.js";
import { address, base, key } from "./network.js";

const shell = (text) => `'${text.replaceAll("'", "'\\''")}'`;
const NUMPY = { // numpy 1.24 has neither np.bool nor np.object
  BOOL: "bool", UINT8: "np.uint8", UINT16: "np.uint16", UINT32: "np.uint32", UINT64: "np.uint64", INT8: "np.int8",
  INT16: "np.int16", INT32: "np.int32", INT64: "np.int64", FP16: "np.float16", FP32: "np.float32", FP64: "np.float64", BYTES: "object",
  BF16: 'triton_to_np_dtype("BF16")', // older tritonclients expect np.float32, newer ones ml_dtypes.bfloat16
};

function curl({ path, headers, body }) {
  const options = Object.entries(headers).map(([name, value]) => `  -H ${shell(`${name}: ${value}`)}`);
  if (key()) options.push('  -H "Authorization: Bearer $DRAGOMAN_KEY"');
  const url = shell(address(path).href);
  if (typeof body === "string") return [`curl ${url}`, ...options, `  -d ${shell(body)}`].join(" \\\n");
  return `base64 -d <<< ${binary(body)} | \\\n${[`curl ${url}`, ...options, "  --data-binary @- --output -"].join(" \\\n")}`;
}

const literal = (text) => `"""${text.replaceAll("\\", "\\\\").replaceAll('"""', '\\"\\"\\"')}"""`;

function requests({ path, headers, body }) {
  const lines = Object.entries(headers).map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  if (key()) lines.push('    "authorization": f"Bearer {os.environ[\'DRAGOMAN_KEY\']}",');
  const imports = [key() && "import os", typeof body !== "string" && "import base64"].filter(Boolean).sort();
  const data = typeof body === "string" ? `${literal(body)}.encode()` : `base64.b64decode("${binary(body)}")`;
  const shown = typeof body === "string" ? "answer.json()" : "answer.content";
  return [
    ...imports, imports.length ? "" : null, "import requests", "", "headers = {", ...lines, "}", `body = ${data}`,
    `answer = requests.post("${address(path).href}", data=body, headers=headers)`, "answer.raise_for_status()", `print(${shown})`,
  ].filter((line) => line !== null).join("\n");
}

function python(value) {
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (value instanceof Uint8Array) return `base64.b64decode("${binary(value)}")`;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (value === "NaN" || value === "Infinity" || value === "-Infinity") return `float("${value}")`;
  return JSON.stringify(value);
}

const USUAL = "9000"; // of --grpc-port, for a server that has been started without gRPC
const SAME = "0"; // gRPC is on the port of HTTP

// Returns where gRPC is, and whether it is encrypted. `port`: the server's, as text; empty without gRPC.
function rpcPlace(port) {
  if (port !== SAME) return [`${base.hostname}:${port || USUAL}`, false];
  const isSecure = base.protocol === "https:";
  return [`${base.hostname}:${base.port || (isSecure ? 443 : 80)}`, isSecure];
}

// `kind`: "http" or "grpc".
function triton(model, tensors, kind, port) {
  const [place, isSecure] = kind === "grpc" ? rpcPlace(port) : [`${base.host}${base.pathname.replace(/\/$/, "")}`, base.protocol === "https:"];
  const secure = isSecure ? ", ssl=True" : "";
  const inputs = tensors.flatMap(({ name, datatype, shape, data }, index) => {
    const elements = datatype === "BYTES" ? `[${data.map((each) => (each instanceof Uint8Array ? python(each) : `${JSON.stringify(each)}.encode()`)).join(", ")}]` : python(data);
    return [
      `array = np.array(${elements}, ${NUMPY[datatype]}).reshape(${JSON.stringify(shape)})`,
      `inputs.append(client.InferInput(${JSON.stringify(name)}, ${JSON.stringify(shape)}, "${datatype}"))`,
      `inputs[${index}].set_data_from_numpy(array)`,
    ];
  });
  const header = key() ? ', headers={"authorization": f"Bearer {os.environ[\'DRAGOMAN_KEY\']}"}' : "";
  const imports = [tensors.some(({ data }) => data.some((each) => each instanceof Uint8Array)) && "import base64", key() && "import os"].filter(Boolean);
  const outputs = (model.outputs ?? []).map(({ name }) => `print(${JSON.stringify(name)}, answer.as_numpy(${JSON.stringify(name)}))`);
  return [
    ...imports, ...(imports.length ? [""] : []), "import numpy as np", `import tritonclient.${kind} as client`,
    ...(tensors.some(({ datatype }) => datatype === "BF16") ? ["from tritonclient.utils import triton_to_np_dtype"] : []), "",
    `server = client.InferenceServerClient("${place}"${secure})`, "inputs = []", ...inputs,
    `answer = server.infer(${JSON.stringify(model.name)}, inputs${header})`, ...(outputs.length ? outputs : ["print(answer.get_response())"]),
  ].join("\n");
}

function isJson(body) {
  try {
    return typeof body === "string" && JSON.parse(body) !== undefined;
  } catch {
    return false;
  }
}

function javascript({ path, headers, body }) {
  const lines = Object.entries(headers).map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  if (key()) lines.push("    authorization: `Bearer ${process.env.DRAGOMAN_KEY}`,");
  const [data, shown] = isJson(body)
    ? [`JSON.stringify(${body.replaceAll("\n", "\n  ")})`, "await answer.json()"]
    : typeof body === "string"
      ? [JSON.stringify(body), "await answer.text()"] // with NaN, which JSON.stringify makes null and answer.json refuses
      : [`Uint8Array.from(atob("${binary(body)}"), (c) => c.charCodeAt(0))`, "new Uint8Array(await answer.arrayBuffer())"];
  return [
    `const answer = await fetch("${address(path).href}", {`, '  method: "POST",', "  headers: {", ...lines, "  },", `  body: ${data},`, "});",
    `console.log(${shown});`,
  ].join("\n");
}

// Returns the request in each language that can send it: [[label, text], ...]. `port`: as in rpcPlace.
export function snippets(protocol, model, tensors, request, port) {
  const found = [];
  if (!protocol.offline) found.push(["curl", curl(request)], ["Python: requests", requests(request)], ["JavaScript", javascript(request)]);
  if (["v2", "v2-binary"].includes(protocol.id)) found.push(["Python: tritonclient", triton(model, tensors, "http")]);
  if (protocol.id === "grpc") found.push(["Python: tritonclient", triton(model, tensors, "grpc", port)]);
  return found;
}

const HEX = 512;

// Returns the request as it goes over the wire. Bytes that are not text are shown in hexadecimal.
export function onTheWire({ path, headers, body }) {
  const size = typeof body === "string" ? new TextEncoder().encode(body).length : body.length;
  const head = Object.entries({ host: base.host, ...headers, ...(key() ? { authorization: "Bearer …" } : {}), "content-length": size });
  const start = `POST ${address(path).pathname} HTTP/1.1\n${head.map(([name, value]) => `${name}: ${value}`).join("\n")}\n\n`;
  if (typeof body === "string") return start + body;
  const json = Number(headers["inference-header-content-length"] ?? 0);
  const rest = Array.from(body.slice(json, json + HEX), (byte) => byte.toString(16).padStart(2, "0")).join(" ");
  const more = body.length - json - HEX;
  return `${start}${new TextDecoder().decode(body.slice(0, json))}\n\n${rest.replace(/((?:\S+ ){16})/g, "$1\n")}${more > 0 ? `\n… ${more} bytes more` : ""}`;
}

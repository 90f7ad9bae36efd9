// connectrpc's client for Node, as its documentation shows it, without generated code: the messages are those of the
// descriptor sets. Arguments: base URL, protocol (connect, connect-json, grpc-web), descriptor sets.
// A key or token in the variable KEY goes with each call. Printed: what each call came to, in one JSON document.

import { readFileSync } from "node:fs";
import { createFileRegistry, fromBinary, toJson } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { Code, ConnectError, createClient } from "@connectrpc/connect";
import { compressionGzip, createConnectTransport, createGrpcWebTransport } from "@connectrpc/connect-node";

const [baseUrl, protocol, ...sets] = process.argv.slice(2);

// SAM's local gateway hands base64 to a client that names no type, and this one names none.
const anything = (next) => (request) => {
  request.header.set("accept", "*/*");
  if (process.env.KEY) request.header.set("authorization", `Bearer ${process.env.KEY}`);
  return next(request);
};
const options = {
  baseUrl,
  httpVersion: "1.1",
  useBinaryFormat: !protocol.endsWith("-json"),
  interceptors: [anything],
  acceptCompression: [compressionGzip],
};
const made = (more) =>
  protocol.startsWith("connect")
    ? createConnectTransport({ ...options, ...more })
    : createGrpcWebTransport({ ...options, ...more });
const transport = made({});
const compressing = made({ sendCompression: compressionGzip, compressMinBytes: 1 });
const getting = made({ useHttpGet: true });

const registries = sets.map((path) => createFileRegistry(fromBinary(FileDescriptorSetSchema, readFileSync(path))));
const found = (name) => registries.map((registry) => registry.get(name)).find((descriptor) => descriptor);
const inference = found("inference.GRPCInferenceService");
const grps = found("grps.protos.v1.GrpsService");
const oip = createClient(inference, transport);

const floats = (bytes) => Array.from(new Float32Array(bytes.slice().buffer));
const numbers = [1, 2, 5];
const x = { name: "x", datatype: "FP32", shape: [3n] };
const raw = {
  modelName: "half_plus_three",
  id: "7",
  inputs: [x],
  rawInputContents: [new Uint8Array(new Float32Array(numbers).buffer)],
};
const typed = { modelName: "half_plus_three", inputs: [{ ...x, contents: { fp32Contents: numbers } }] };
const predict = {
  model: "half_plus_three",
  dataOneof: { case: "gtensors", value: { tensors: [{ name: "x", dtype: 7, shape: [3], flatFloat32: numbers }] } },
};

async function all(stream) {
  const answers = [];
  for await (const answer of stream) answers.push(answer);
  return answers;
}

async function refusal(call) {
  try {
    await call();
    return "no error";
  } catch (error) {
    const told = ConnectError.from(error);
    return { code: Code[told.code], message: told.rawMessage };
  }
}

const cases = {
  live: async () => (await oip.serverLive({})).live,
  raw: async () => floats((await oip.modelInfer(raw)).rawOutputContents[0]),
  typed: async () => (await oip.modelInfer(typed)).outputs[0].contents.fp32Contents,
  compressed: async () => floats((await createClient(inference, compressing).modelInfer(raw)).rawOutputContents[0]),
  got: async () => (await createClient(inference, getting).modelMetadata({ name: "half_plus_three" })).versions,
  unknown_model: () => refusal(() => oip.modelInfer({ ...raw, modelName: "nobody" })),
  in_time: async () => floats((await oip.modelInfer(raw, { timeoutMs: 60000 })).rawOutputContents[0]),
  predict: async () => toJson(grps.method.predict.output, await createClient(grps, transport).predict(predict)),
  predict_streaming: async () =>
    (await all(createClient(grps, transport).predictStreaming(predict))).map((answer) =>
      toJson(grps.method.predictStreaming.output, answer),
    ),
};

const outcomes = {};
for (const [name, call] of Object.entries(cases)) {
  try {
    outcomes[name] = await call();
  } catch (error) {
    outcomes[name] = `${error}`;
  }
}
console.log(JSON.stringify(outcomes));

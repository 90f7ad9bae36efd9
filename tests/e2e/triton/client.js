// A client with explicit contents, made as Triton's JavaScript example is: grpc-js, a .proto file that is read at run time,
// and answers whose raw_output_contents alone are read. Arguments: address, folder of open_inference.proto, model.
// The model adds and subtracts 16 whole numbers. Printed: both outputs, one a line.

const grpc = require("@grpc/grpc-js");
const loader = require("@grpc/proto-loader");

const [address, folder, model] = process.argv.slice(2);
const read = { keepCase: true, longs: String, enums: String, defaults: true, oneofs: true, includeDirs: [folder] };
const { inference } = grpc.loadPackageDefinition(loader.loadSync("open_inference.proto", read));
const client = new inference.GRPCInferenceService(address, grpc.credentials.createInsecure());

const ask = (method, request) =>
  new Promise((done, failed) => client[method](request, (error, answer) => (error ? failed(error) : done(answer))));
const numbers = (raw) => Array.from({ length: raw.length / 4 }, (_, place) => raw.readInt32LE(place * 4));

async function main() {
  const { live } = await ask("serverLive", {});
  const { inputs, outputs } = await ask("modelMetadata", { name: model, version: "" });
  const contents = { int_contents: Array.from({ length: 16 }, (_, number) => number) };
  const tensors = inputs.map(({ name, datatype }) => ({ name, datatype, shape: [1, 16], contents }));
  const wanted = outputs.map(({ name }) => ({ name }));
  const answer = await ask("modelInfer", { model_name: model, model_version: "", inputs: tensors, outputs: wanted });
  if (live) answer.raw_output_contents.forEach((raw) => console.log(numbers(raw).join(" ")));
}

main().finally(() => client.close());

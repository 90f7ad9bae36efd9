"""tritonclient's stubs, as its examples of explicit contents use them: typed `contents` go out, raw bytes come back.

Arguments: the address of gRPC. Each model `explicit_DATATYPE` returns its input. Printed, as JSON: the values that came
back, by datatype. tritonclient.grpc cannot be in a process with Dragoman's own messages.
"""

import json
import sys

import grpc
import numpy as np
from tritonclient.grpc import service_pb2, service_pb2_grpc
from tritonclient.utils import deserialize_bytes_tensor, triton_to_np_dtype

SENT = json.loads(sys.argv[2])
found = {}
with grpc.insecure_channel(sys.argv[1]) as channel:
    stub = service_pb2_grpc.GRPCInferenceServiceStub(channel)
    for datatype, (field, values) in SENT.items():
        request = service_pb2.ModelInferRequest(model_name=f"explicit_{datatype}")
        tensor = service_pb2.ModelInferRequest().InferInputTensor(name="INPUT0", datatype=datatype, shape=[len(values)])
        texts = [value.encode() for value in values] if datatype == "BYTES" else values
        getattr(tensor.contents, field).extend(texts)
        request.inputs.extend([tensor])
        request.outputs.extend([service_pb2.ModelInferRequest().InferRequestedOutputTensor(name="OUTPUT0")])
        (raw,) = stub.ModelInfer(request).raw_output_contents
        if datatype == "BYTES":
            found[datatype] = [text.decode() for text in deserialize_bytes_tensor(raw)]
        else:
            found[datatype] = np.frombuffer(raw, triton_to_np_dtype(datatype)).tolist()
json.dump(found, sys.stdout)
